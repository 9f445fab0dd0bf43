//! The services that are tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Client, Service, Testbed, try_service};

/// The size of the large file of a web server.
const LARGE: usize = 5_000_000;
/// The user of a server that refuses to run as root; every Linux has it.
const UNPRIVILEGED: &str = "65534";

fn command(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    // Debian keeps programs for administrators there.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// Files for a web server.
fn web_files(place: &Testbed) {
    let folder = place.path().join("www");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("small"), "fresh water\n").unwrap();
    fs::write(folder.join("large"), pattern(LARGE)).unwrap();
}

/// Many requests on one connection: small files, a large one, and one that does not exist.
fn curl(place: &Testbed) -> Command {
    let mut curl = command("curl", &["-sS", "--max-time", "50", "--write-out", "%{http_code} "]);
    for (number, file) in ["small", "large", "small", "none", "large", "small"].iter().enumerate() {
        let to = place.path().join(format!("got{number}"));
        curl.arg("-o").arg(to).arg(place.url(file));
    }
    curl
}

fn check_curl(place: &Testbed, output: &str) {
    assert_eq!(output.trim(), "200 200 200 404 200 200");
    let got = |number: usize| fs::read(place.path().join(format!("got{number}"))).unwrap();
    for small in [0, 2, 5] {
        assert_eq!(got(small), b"fresh water\n");
    }
    for large in [1, 4] {
        assert!(got(large) == pattern(LARGE));
    }
}

/// The first response of each connection is sent by TCP: few of them for the large file.
fn wrk(place: &Testbed, file: &str) -> Command {
    let connections = if file == "large" { "-c4" } else { "-c20" };
    let seconds = place.times(1);
    command("wrk", &["-t2", connections, "-d", &seconds, "--timeout", "20s", &place.url(file)])
}

fn check_wrk(_: &Testbed, output: &str) {
    assert!(output.contains("requests in"));
    assert!(!output.contains("Socket errors") && !output.contains("Non-2xx"));
}

fn nginx_configuration(place: &Testbed) {
    web_files(place);
    let folder = place.path().display();
    let host = &place.host;
    let port = place.port;
    let configuration = format!(
        "worker_processes 2;\ndaemon off;\npid {folder}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 200; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  client_body_temp_path {folder}/body;\n  \
         proxy_temp_path {folder}/proxy;\n  fastcgi_temp_path {folder}/fastcgi;\n  \
         uwsgi_temp_path {folder}/uwsgi;\n  scgi_temp_path {folder}/scgi;\n  \
         server {{ listen {host}:{port}; root {folder}/www; }}\n}}\n"
    );
    fs::write(place.path().join("nginx.conf"), configuration).unwrap();
}

/// Two workers that share a listening socket.
const NGINX: Service = Service {
    name: "nginx",
    prepare: nginx_configuration,
    server: |place| {
        let mut nginx = command("nginx", &["-e", "stderr", "-p"]);
        nginx.arg(place.path()).arg("-c").arg(place.path().join("nginx.conf"));
        nginx
    },
    ready: None,
    stop: Signal::TERM,
    clients: &[
        Client { command: curl, check: check_curl, is_long: false },
        Client { command: |place| wrk(place, "small"), check: check_wrk, is_long: true },
        Client { command: |place| wrk(place, "large"), check: check_wrk, is_long: true },
        Client { command: curl, check: check_curl, is_long: false },
    ],
};

const HTTP_SERVER: Service = Service {
    name: "python3 -m http.server",
    prepare: web_files,
    server: |place| {
        let mut python = command("python3", &["-m", "http.server", &place.port()]);
        python.args(["--protocol", "HTTP/1.1", "--bind", &place.host, "--directory"]);
        python.arg(place.path().join("www"));
        python
    },
    ready: None,
    stop: Signal::INT,
    clients: &[
        Client { command: curl, check: check_curl, is_long: false },
        Client { command: |place| wrk(place, "small"), check: check_wrk, is_long: true },
    ],
};

/// A web server on libuv.
const NODE: Service = Service {
    name: "node",
    prepare: web_files,
    server: |place| {
        let script = "const [folder, host, port] = process.argv.slice(1);\n\
            require('http').createServer((request, response) => {\n\
              require('fs').readFile(folder + request.url, (error, content) => {\n\
                response.writeHead(error ? 404 : 200);\n\
                response.end(content);\n\
              });\n\
            }).listen(port, host);\n\
            process.on('SIGTERM', () => process.exit(0));";
        let mut node = command("node", &["-e", script]);
        node.arg(place.path().join("www")).args([&place.host, &place.port()]);
        node
    },
    ready: None,
    stop: Signal::TERM,
    clients: &[
        Client { command: curl, check: check_curl, is_long: false },
        Client { command: |place| wrk(place, "small"), check: check_wrk, is_long: true },
        Client { command: |place| wrk(place, "large"), check: check_wrk, is_long: true },
    ],
};

/// Compiles the static program.
fn compile_echo(place: &Testbed) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/echo.c");
    let mut compiler = command("cc", &["-static", "-O1", "-Wall", "-Werror", "-o"]);
    let made = compiler.arg(place.path().join("echo")).arg(source).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn compiled_echo(place: &Testbed, role: &str) -> Command {
    command(place.path().join("echo"), &[role, &place.host, &place.port()])
}

fn python_echo(place: &Testbed, role: &str) -> Command {
    const PROGRAM: &str = include_str!("echo.py");
    command("python3", &["-c", PROGRAM, role, &place.host, &place.port(), &place.times(1)])
}

fn check_echo(_: &Testbed, output: &str) {
    assert_eq!(output, "done\n");
}

/// The dynamic linker is no part of these programs, so that no library can be loaded into them.
const STATIC_SERVER: Service = Service {
    name: "a server that is linked statically",
    prepare: compile_echo,
    server: |place| compiled_echo(place, "server"),
    ready: None,
    stop: Signal::TERM,
    clients: &[
        Client { command: |place| python_echo(place, "client"), check: check_echo, is_long: false },
        Client {
            command: |place| compiled_echo(place, "client"),
            check: check_echo,
            is_long: false,
        },
    ],
};

const STATIC_CLIENT: Service = Service {
    name: "a server in Python",
    prepare: compile_echo,
    server: |place| python_echo(place, "server"),
    ready: None,
    stop: Signal::TERM,
    clients: &[
        Client {
            command: |place| compiled_echo(place, "client"),
            check: check_echo,
            is_long: false,
        },
        Client { command: |place| python_echo(place, "client"), check: check_echo, is_long: true },
    ],
};

/// Compiles the program in Go. With cgo it is linked dynamically, so that the library is loaded
/// into it; without, statically.
fn compile_go(place: &Testbed, cgo: bool) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/echo.go");
    let mut compiler = command("go", &["build", "-o"]);
    compiler.env("CGO_ENABLED", if cgo { "1" } else { "0" });
    let made = compiler.arg(place.path().join("echo")).arg(source).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

const GO_CLIENTS: &[Client] = &[
    Client { command: |place| python_echo(place, "client"), check: check_echo, is_long: false },
    Client { command: |place| compiled_echo(place, "client"), check: check_echo, is_long: false },
];

const GO: Service = Service {
    name: "a server in Go that is linked dynamically",
    prepare: |place| compile_go(place, true),
    server: |place| compiled_echo(place, "server"),
    ready: None,
    stop: Signal::TERM,
    clients: GO_CLIENTS,
};

const STATIC_GO: Service = Service {
    name: "a server in Go that is linked statically",
    prepare: |place| compile_go(place, false),
    ..GO
};

const GO_CLIENT: Service = Service {
    name: "a server in Python for clients in Go",
    prepare: |place| compile_go(place, true),
    ..STATIC_CLIENT
};

fn redis_cli(place: &Testbed, arguments: &[&str]) -> Command {
    let mut cli = command("redis-cli", &["-h", &place.host, "-p", &place.port()]);
    cli.args(arguments);
    cli
}

fn redis_benchmark(place: &Testbed, requests: usize, arguments: &[&str]) -> Command {
    let connection = ["-h", &place.host, "-p", &place.port(), "--csv"];
    let mut benchmark = command("redis-benchmark", &connection);
    benchmark.args(["-n", &place.times(requests)]).args(arguments);
    benchmark
}

/// A heading, and a line for each test.
fn check_benchmark(_: &Testbed, output: &str) {
    assert!(output.contains("\"rps\"") && output.contains("\"GET\""));
    assert!(!output.to_lowercase().contains("error"));
}

const REDIS: Service = Service {
    name: "redis",
    prepare: |_| {},
    server: |place| {
        let port = place.port();
        let mut redis = command("redis-server", &["--port", &port, "--bind", &place.host]);
        redis.args(["--save", "", "--appendonly", "no", "--dir"]).arg(place.path());
        redis
    },
    ready: None,
    stop: Signal::TERM,
    clients: &[
        Client {
            command: |place| {
                let script = "redis.call('set', 'long', string.rep('water', 1000000)) return 6 * 7";
                redis_cli(place, &["EVAL", script, "0"])
            },
            check: |_, output| assert_eq!(output, "42\n"),
            is_long: false,
        },
        Client {
            command: |place| redis_cli(place, &["GET", "long"]),
            check: |_, output| assert!(output.trim() == "water".repeat(1_000_000)),
            is_long: false,
        },
        Client {
            command: |place| redis_cli(place, &["-r", "300", "INCR", "count"]),
            check: |_, output| assert!(output.lines().count() == 300),
            is_long: false,
        },
        Client {
            command: |place| redis_benchmark(place, 5000, &["-c", "1", "-t", "set,get"]),
            check: check_benchmark,
            is_long: true,
        },
        Client {
            command: |place| {
                let tests = "set,get,lpush,lrange_100";
                redis_benchmark(place, 20_000, &["-c", "20", "-d", "300", "-t", tests])
            },
            check: check_benchmark,
            is_long: true,
        },
        Client {
            command: |place| {
                let pipelined = ["-c", "10", "-P", "16", "--threads", "2"];
                let mut benchmark = redis_benchmark(place, 50_000, &pipelined);
                benchmark.args(["-t", "set,get"]);
                benchmark
            },
            check: check_benchmark,
            is_long: true,
        },
    ],
};

/// Sets and gets values of every size, one by one and pipelined, on several connections.
const MEMCACHED_CLIENT: &str = include_str!("memcached_client.py");

const MEMCACHED: Service = Service {
    name: "memcached",
    prepare: |_| {},
    server: |place| {
        let port = place.port();
        let listen = ["-l", &place.host, "-p", &port, "-U", "0", "-t", "2", "-u", "daemon"];
        command("memcached", &listen)
    },
    ready: None,
    stop: Signal::TERM,
    clients: &[Client {
        command: |place| {
            let mut python = command("python3", &["-c", MEMCACHED_CLIENT, &place.host]);
            python.args([place.port(), place.times(1)]);
            python
        },
        check: |_, output| assert_eq!(output, "done\n"),
        is_long: true,
    }],
};

fn iperf3(place: &Testbed, arguments: &[&str]) -> Command {
    let mut iperf3 = command("iperf3", &["-c", &place.host, "-p", &place.port(), "--json"]);
    iperf3.args(["-n", &format!("{}M", place.times(200))]).args(arguments);
    iperf3
}

fn check_iperf3(_: &Testbed, output: &str) {
    let report: serde_json::Value = serde_json::from_str(output).unwrap();
    assert!(report["error"].is_null());
    let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(received >= 100_000_000, "{received} bytes arrived");
}

const IPERF3: Service = Service {
    name: "iperf3",
    prepare: |_| {},
    server: |place| command("iperf3", &["-s", "-B", &place.host, "-p", &place.port()]),
    // A connection without a test would disturb it.
    ready: Some(|place| {
        command("sh", &["-c", &format!("ss -ltn | grep -q '{}:{}'", place.host, place.port)])
    }),
    stop: Signal::TERM,
    clients: &[
        Client { command: |place| iperf3(place, &[]), check: check_iperf3, is_long: true },
        Client { command: |place| iperf3(place, &["-R"]), check: check_iperf3, is_long: true },
        Client {
            command: |place| iperf3(place, &["-P", "4", "-l", "1K"]),
            check: check_iperf3,
            is_long: true,
        },
    ],
};

/// The programs of the newest PostgreSQL.
fn postgres_bin() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let found = versions.map(|version| version.unwrap().path().join("bin"));
    let newest = found.filter(|bin| bin.join("initdb").exists()).max();
    newest.expect("there is no PostgreSQL in /usr/lib/postgresql: `apt-get install postgresql`")
}

/// A command that does not run as root.
fn unprivileged(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return command(program, &[]);
    }
    let user = ["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups", "--"];
    let mut setpriv = command("setpriv", &user);
    setpriv.arg(program).current_dir("/");
    setpriv
}

fn initdb(place: &Testbed) {
    let mut initdb = unprivileged(&postgres_bin().join("initdb"));
    initdb.args(["--auth=trust", "--username=water", "--no-sync", "--no-locale", "-D"]);
    let made = initdb.arg(place.path().join("data")).stdout(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn psql(place: &Testbed, sql: &str) -> Command {
    let mut psql = command(postgres_bin().join("psql"), &["--no-psqlrc", "-q", "-A", "-t"]);
    psql.args(["-U", "water", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    psql.args(["-h", &place.host, "-p", &place.port()]);
    psql
}

fn pgbench(place: &Testbed, arguments: &[&str]) -> Command {
    let mut pgbench = command(postgres_bin().join("pgbench"), arguments);
    pgbench.args(["-U", "water", "-h", &place.host, "-p", &place.port(), "postgres"]);
    pgbench
}

fn check_pgbench(_: &Testbed, output: &str) {
    assert!(output.contains("number of failed transactions: 0 ") && output.contains("tps = "));
}

/// The server refuses to run as root. If the clients do, the two are of different users, and their
/// connections stay on TCP.
const POSTGRES: Service = Service {
    name: "PostgreSQL",
    prepare: initdb,
    server: |place| {
        let mut postgres = unprivileged(&postgres_bin().join("postgres"));
        let listen = format!("listen_addresses={}", place.host);
        postgres.args(["-c", "fsync=off", "-c", &listen, "-p", &place.port(), "-k"]);
        postgres.arg(place.path()).arg("-D").arg(place.path().join("data"));
        postgres
    },
    ready: Some(|place| psql(place, "SELECT 1")),
    stop: Signal::INT,
    clients: &[
        Client {
            command: |place| {
                let table = "DROP TABLE IF EXISTS water; CREATE TABLE water AS SELECT n, \
                             repeat(md5(n::text), 4) AS text FROM generate_series(1, 100000) n";
                psql(place, table)
            },
            check: |_, _| {},
            is_long: false,
        },
        Client {
            command: |place| psql(place, "COPY (SELECT * FROM water ORDER BY n) TO STDOUT"),
            check: |_, output| assert!(output.lines().count() == 100_000),
            is_long: false,
        },
        Client {
            command: |place| psql(place, "SELECT md5(string_agg(text, '' ORDER BY n)) FROM water"),
            check: |_, output| assert_eq!(output.trim().len(), 32),
            is_long: false,
        },
        Client {
            command: |place| pgbench(place, &["-i", "-q", "-s", "1"]),
            check: |_, _| {},
            is_long: false,
        },
        Client {
            command: |place| pgbench(place, &["-n", "-c", "4", "-j", "2", "-t", "200"]),
            check: check_pgbench,
            is_long: false,
        },
        Client {
            command: |place| {
                pgbench(place, &["-n", "-S", "-M", "prepared", "-c", "4", "-j", "2", "-t", "1000"])
            },
            check: check_pgbench,
            is_long: false,
        },
    ],
};

#[test]
fn nginx_with_two_workers() {
    try_service(&NGINX);
}

#[test]
fn http_server_of_python() {
    try_service(&HTTP_SERVER);
}

#[test]
fn node_and_libuv() {
    try_service(&NODE);
}

#[test]
fn programs_that_are_linked_statically() {
    try_service(&STATIC_SERVER);
    try_service(&STATIC_CLIENT);
}

#[test]
fn programs_in_go() {
    try_service(&GO);
    try_service(&STATIC_GO);
    try_service(&GO_CLIENT);
}

#[test]
fn redis() {
    try_service(&REDIS);
}

#[test]
fn memcached() {
    try_service(&MEMCACHED);
}

#[test]
fn iperf3_in_both_directions() {
    try_service(&IPERF3);
}

#[test]
fn postgres_with_pgbench() {
    try_service(&POSTGRES);
}
