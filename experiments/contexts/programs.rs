//! Whole programs in the lab: `levada http` and `curl` at the near end, middleboxes, and a node
//! with nginx at the far end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::binary;
use crate::testbed::Testbed;

/// Where nginx listens, on loopback of the far end.
pub const ORIGIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8401);
/// Where the other programs listen, each in its network namespace.
const NODE: u16 = 5382;
const MIDDLEBOX: u16 = 5383;
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// How long a program may take to listen.
const READY: Duration = Duration::from_secs(20);
/// What each middlebox may do.
const RIGHTS: &str = "request-head=rw,request-body=rw,response-head=rw,response-body=rw";

/// nginx as the origin. Every answer may be stored for an hour.
const NGINX: &str = "daemon off;
user root;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events {}
http {
    access_log off;
    client_body_temp_path temp-body;
    proxy_temp_path temp-proxy;
    fastcgi_temp_path temp-fastcgi;
    uwsgi_temp_path temp-uwsgi;
    scgi_temp_path temp-scgi;
    server {
        listen 127.0.0.1:8401;
        root files;
        add_header Cache-Control 'public, max-age=3600';
    }
}
";

/// The running programs.
pub struct Programs<'a> {
    testbed: &'a Testbed,
    levada: PathBuf,
    /// nginx, the node and the middleboxes.
    others: Vec<Child>,
    /// `levada http`, and its arguments.
    http: Option<Child>,
    words: Vec<String>,
    folder: TempDir,
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        self.others.iter_mut().chain(&mut self.http).for_each(end);
    }
}

fn end(program: &mut Child) {
    let _ = program.kill();
    let _ = program.wait();
}

/// The times that `curl` reports for a transfer.
pub struct Transfer {
    /// To the first byte.
    pub first: Duration,
    /// To the last byte.
    pub whole: Duration,
}

impl<'a> Programs<'a> {
    /// Starts nginx with files of these lengths, the node, and middleboxes with these further
    /// arguments.
    pub fn start(
        testbed: &'a Testbed,
        (middleboxes, further): (usize, &[&str]),
        files: &[usize],
    ) -> anyhow::Result<Self> {
        let levada = binary::levada()?;
        let folder = tempfile::tempdir()?;
        let (others, words) = Default::default();
        let mut programs = Self { testbed, levada, others, http: None, words, folder };
        let [client, node] = [programs.identity("client")?, programs.identity("node")?];
        let mut hops = Vec::new();
        for number in 0..middleboxes {
            let at = SocketAddr::new(testbed.address_between(number)?, MIDDLEBOX);
            hops.push((programs.identity(&format!("middlebox{number}"))?, at));
        }
        write_files(programs.folder.path(), &hops, files)?;
        let far = SocketAddr::new(testbed.far_address(), NODE);
        programs.start_origin(&client, far)?;
        for (number, (_, at)) in hops.iter().enumerate() {
            let next = hops.get(number + 1).map_or(far, |(_, at)| *at).to_string();
            let at = at.to_string();
            let words = [&["middlebox", "--listen", &at, "--next", &next][..], further].concat();
            let configure = programs.configured(&format!("middlebox{number}"), &words);
            programs.others.push(testbed.spawn_between(number, &programs.levada, configure)?);
        }
        programs.wait(|connect| testbed.far(connect), far)?;
        for (number, (_, at)) in hops.iter().enumerate() {
            programs.wait(|connect| testbed.between(number, connect), *at)?;
        }
        programs.words = ["http", "--listen", &LOCAL.to_string()].map(str::to_owned).into();
        for (identity, at) in hops {
            programs.words.extend(["--via".to_owned(), format!("{identity}@{at}:{RIGHTS}")]);
        }
        programs.words.push(format!("{node}@{far}/web"));
        Ok(programs)
    }

    /// A new identity.
    fn identity(&self, name: &str) -> anyhow::Result<String> {
        let home = self.folder.path().join(name);
        fs::create_dir_all(&home)?;
        let output = Command::new(&self.levada).arg("id").env("LEVADA_HOME", home).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn start_origin(&mut self, client: &str, far: SocketAddr) -> anyhow::Result<()> {
        let path = self.folder.path().to_owned();
        let nginx = |command: &mut Command| {
            let configuration = path.join("nginx.conf");
            command.arg("-p").arg(&path).arg("-c").arg(configuration).args(["-e", "stderr"]);
            quiet(command);
        };
        self.others.push(self.testbed.spawn_far("nginx", nginx)?);
        let far = far.to_string();
        let service = path.join("web.toml").to_string_lossy().into_owned();
        let words =
            ["up", "--listen", &far, "--no-announce", "--service", &service, "--allow", client];
        let configure = self.configured("node", &words);
        self.others.push(self.testbed.spawn_far(&self.levada, configure)?);
        Ok(())
    }

    /// Sets the arguments and the home of a `levada`.
    fn configured(&self, home: &str, words: &[&str]) -> impl FnOnce(&mut Command) + use<> {
        let home = self.folder.path().join(home);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        move |command| quiet(command.args(words).env("LEVADA_HOME", home))
    }

    /// Starts `levada http` anew; the time until it listens, when its first session is open.
    pub fn open(&mut self) -> anyhow::Result<Duration> {
        self.http.iter_mut().for_each(end);
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let configure = self.configured("client", &words);
        let start = Instant::now();
        let mut http = self.testbed.spawn_near(&self.levada, |command| {
            configure(command);
            command.stdout(Stdio::piped());
        })?;
        let output = http.stdout.take();
        self.http = Some(http);
        let mut line = String::new();
        BufReader::new(output.context("no standard output")?).read_line(&mut line)?;
        ensure!(line.starts_with("http://"), "`levada http` has opened no session");
        Ok(start.elapsed())
    }

    /// Waits until a program listens.
    fn wait(
        &self,
        at: impl Fn(&(dyn Fn() -> bool + Sync)) -> anyhow::Result<bool>,
        address: SocketAddr,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while !at(&|| TcpStream::connect(address).is_ok())? {
            ensure!(start.elapsed() < READY, "nothing listens at {address}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Fetches the file of `bytes` bytes from `levada http`.
    pub fn curl(&self, bytes: usize, queries: &[&str]) -> anyhow::Result<Vec<Transfer>> {
        curl(self.testbed, LOCAL, bytes, queries)
    }
}

/// Fetches the file of `bytes` bytes from `origin` at the near end, once with each query, over one
/// connection.
pub fn curl(
    testbed: &Testbed,
    origin: SocketAddr,
    bytes: usize,
    queries: &[&str],
) -> anyhow::Result<Vec<Transfer>> {
    const FORMAT: &str = "%{http_code} %{size_download} %{time_starttransfer} %{time_total}\\n";
    let curl = testbed.spawn_near("curl", |command| {
        command.args(["-s", "-m", "60", "-w", FORMAT]);
        for query in queries {
            command.args(["-o", "/dev/null", &format!("http://{origin}/{bytes}?{query}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    })?;
    let output = curl.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = text.lines().map(|line| transfer(line, bytes)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(all.len() == queries.len(), "curl has failed: {text}");
    Ok(all)
}

fn transfer(line: &str, bytes: usize) -> anyhow::Result<Transfer> {
    let fields: Vec<&str> = line.split(' ').collect();
    let &[status, size, first, whole] = &fields[..] else {
        anyhow::bail!("curl has failed: {line}");
    };
    ensure!(status == "200" && size == bytes.to_string(), "a wrong answer: {line}");
    let seconds = |text: &str| {
        Ok::<_, anyhow::Error>(Duration::from_secs_f64(text.parse().context("curl's time")?))
    };
    Ok(Transfer { first: seconds(first)?, whole: seconds(whole)? })
}

fn quiet(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// The configurations, and the files of the origin.
fn write_files(
    folder: &Path,
    hops: &[(String, SocketAddr)],
    files: &[usize],
) -> anyhow::Result<()> {
    fs::create_dir(folder.join("files"))?;
    for bytes in files {
        fs::write(folder.join("files").join(bytes.to_string()), vec![b'7'; *bytes])?;
    }
    fs::write(folder.join("nginx.conf"), NGINX)?;
    let mut service = format!("name = 'web'\ntype = 'http'\norigin = '{ORIGIN}'\nshare = 'all'\n");
    for (identity, _) in hops {
        service += &format!("[[middlebox]]\nidentity = '{identity}'\nallow = '{RIGHTS}'\n");
    }
    Ok(fs::write(folder.join("web.toml"), service)?)
}
