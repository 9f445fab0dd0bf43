//! PostgreSQL behind `levada forward`, and with fast sockets, with `LEVADA_TEST_FULL`
//! (`scripts/test --all` installs it).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Home, eventually, in_full, own_loopback};
use levada_core::sha256;
use tempfile::TempDir;

/// PostgreSQL refuses to run as root: then it runs as this user, which every Linux has.
const UNPRIVILEGED: &str = "65534";
/// The rows of a table that exceeds every flow control window.
const ROWS: u32 = 300_000;

/// A running server and its folder; stopped when dropped.
struct Postgres {
    server: Child,
    folder: TempDir,
    bin: PathBuf,
    /// An address of loopback at which the default port is free.
    host: String,
}

const PORT: &str = "5432";

impl Postgres {
    fn start() -> Self {
        Self::start_by(unprivileged)
    }

    /// Starts the server by a command that `by` makes of its path.
    fn start_by(by: impl Fn(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The user of the server needs access to its socket and data.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let bin = newest_version();
        let data = folder.path().join("data");
        let mut initdb = unprivileged(&bin.join("initdb"));
        initdb.args([
            "--auth=trust",
            "--username=water",
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "-D",
        ]);
        let made = initdb.arg(&data).stdout(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let host = own_loopback();
        let mut postgres = by(&bin.join("postgres"));
        let listen = format!("listen_addresses={host}");
        postgres.args(["-c", "fsync=off", "-c", &listen, "-p", PORT, "-k"]);
        postgres.arg(folder.path()).arg("-D").arg(&data);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let server = postgres.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let server = Self { server, folder, bin, host };
        eventually("PostgreSQL answers", || server.direct("SELECT 1").status.success());
        server
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{PORT}"))
    }

    /// Runs `sql` with psql, connected to this host and port.
    fn psql(&self, host: &OsStr, port: &str, sql: &str) -> std::process::Output {
        // A query that hangs fails the test.
        let mut psql = Command::new("timeout");
        psql.arg("120").arg(self.bin.join("psql"));
        psql.args(["--no-psqlrc", "-q", "-A", "-t", "-U", "water", "-d", "postgres"]);
        psql.args(["-v", "ON_ERROR_STOP=1", "-c", sql, "-p", port, "-h"]).arg(host);
        psql.env("PGCONNECT_TIMEOUT", "20").stdin(Stdio::null()).output().unwrap()
    }

    fn direct(&self, sql: &str) -> std::process::Output {
        self.psql(self.folder.path().as_os_str(), PORT, sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT ends the sessions and then the server ("fast shutdown").
        let process = self.server.id().to_string();
        let _ = Command::new("kill").args(["-s", "INT", &process]).status();
        let _ = self.server.wait();
    }
}

fn newest_version() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let found = versions.map(|version| version.unwrap().path().join("bin"));
    let newest = found.filter(|bin| bin.join("initdb").exists()).max();
    newest.expect("there is no PostgreSQL in /usr/lib/postgresql: `apt-get install postgresql`")
}

/// A command that does not run as root.
fn unprivileged(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups", "--"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    // A folder that this user may enter.
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn lines(output: &[u8]) -> usize {
    output.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn psql_works_through_a_forward() {
    if !in_full() {
        eprintln!("skipped: needs LEVADA_TEST_FULL");
        return;
    }
    let home = Home::new();
    let postgres = Postgres::start();
    let over_tcp = format!("{}:{PORT}", postgres.host);
    let over_unix = format!("unix:{}", postgres.socket().display());
    let _node = home.up_forwarding(&[&over_tcp, &over_unix]);
    let sockets = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}/.s.PGSQL.1", sockets.path().display());

    let made = postgres.direct(&format!(
        "CREATE TABLE water AS SELECT n, repeat(md5(n::text), 4) AS text FROM generate_series(1, {ROWS}) n"
    ));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let all = "COPY (SELECT * FROM water ORDER BY n) TO STDOUT";
    let whole = postgres.direct(all).stdout;
    assert_eq!(lines(&whole), ROWS as usize);
    let expected = sha256(&[&whole]);

    let to_tcp = home.forward(&["well/forward", "--listen", &socket, "--", &over_tcp]);
    let to_unix = home.forward(&["well/forward", "--", &over_unix]);
    let port = to_unix.addresses[0].rsplit(':').next().unwrap();
    for (host, port) in [(sockets.path().as_os_str(), "1"), (OsStr::new("127.0.0.1"), port)] {
        let run = |sql: &str| postgres.psql(host, port, sql);
        assert_eq!(run("SELECT 6 * 7").stdout, b"42\n");
        assert!(sha256(&[&run(all).stdout]) == expected);
        let wrong = run("SELECT nothing");
        assert!(!wrong.status.success() && !wrong.stderr.is_empty());
        let changed = run("UPDATE water SET n = n + 1 WHERE n > 299990 RETURNING n");
        assert_eq!(lines(&changed.stdout), 10);
        assert!(run("UPDATE water SET n = n - 1 WHERE n > 299990").status.success());
    }
    // The client sees the end of a session that the server ends.
    let mine = "SELECT pg_terminate_backend(pg_backend_pid())";
    let ended = postgres.psql(OsStr::new("127.0.0.1"), port, mine);
    assert!(String::from_utf8_lossy(&ended.stderr).contains("terminating connection"));
    drop((to_tcp, to_unix));
}

/// `levada` and its library where any user can read them, and a monitor of the unprivileged user.
struct Fast {
    folder: TempDir,
    monitor: Child,
}

impl Fast {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for file in [Path::new(env!("CARGO_BIN_EXE_levada")), crate::fast::library()] {
            fs::copy(file, folder.path().join(file.file_name().unwrap())).unwrap();
        }
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            let user = UNPRIVILEGED.parse().unwrap();
            std::os::unix::fs::chown(&run, Some(user), Some(user)).unwrap();
        }
        let monitor = Self::levada(&folder, &["monitor"]).stderr(Stdio::null()).spawn().unwrap();
        let fast = Self { folder, monitor };
        eventually("the monitor listens", || run.join("levada/fast.sock").exists());
        fast
    }

    fn levada(folder: &TempDir, args: &[&str]) -> Command {
        let mut command = unprivileged(&folder.path().join("levada"));
        command.args(args).env("XDG_RUNTIME_DIR", folder.path().join("run"));
        command
    }

    /// A program with fast sockets.
    fn program(&self, options: &[&str], program: &Path) -> Command {
        let mut command = Self::levada(&self.folder, &[&["fast"], options, &["--"]].concat());
        command.arg(program);
        command
    }
}

impl Drop for Fast {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// The part of all bytes that rings carry at least.
const LEAST: f64 = 0.9;

#[test]
fn pgbench_works_over_fast_sockets() {
    if !in_full() {
        eprintln!("skipped: needs LEVADA_TEST_FULL");
        return;
    }
    let fast = Fast::start();
    let postgres = Postgres::start_by(|program| fast.program(&[], program));
    let stats = fast.folder.path().join("run/stats.json");
    let pgbench = |options: &[&str]| {
        let to_file = format!("--stats={}", stats.display());
        let mut command = fast.program(&[&to_file], &postgres.bin.join("pgbench"));
        command.args(options).args(["-U", "water", "-h", &postgres.host, "-p", PORT, "postgres"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    pgbench(&["-i", "-q", "-s", "1"]);
    for (mode, transactions) in [(&[][..], 300), (&["-S", "-M", "prepared"], 3000)] {
        let share_of = |transactions: u32| {
            let count = transactions.to_string();
            let printed = pgbench(&[&["-n", "-c", "4", "-j", "2", "-t", &count], mode].concat());
            assert!(printed.contains("number of failed transactions: 0 "), "{printed}");
            let stats: serde_json::Value =
                serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
            let share = stats["ring_share"].as_f64().unwrap();
            eprintln!("{mode:?}, {transactions} transactions: {share} of all bytes through rings");
            share
        };
        // What goes by TCP before the upgrade depends on what else this machine does, not on how
        // many transactions follow.
        let mut counts = [1, 3, 9, 27].map(|factor| transactions * factor).into_iter();
        assert!(counts.any(|transactions| share_of(transactions) >= LEAST));
    }
}
