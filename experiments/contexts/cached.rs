//! Answers of a middlebox with a cache, compared with those of the origin: whole programs, and `curl` as the client.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::{Case, Group, Measured, Options, Params, params};
use levada_lab::Link;
use tempfile::TempDir;

use crate::binary;
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "contexts/cache";
/// The subjects: an answer of the cache, and one of the origin.
pub const SUBJECTS: [&str; 2] = ["hit", "miss"];
/// Lengths of files, in bytes; the rate of the server's link in Mbit/s for each.
pub const FILES: [(usize, u64); 2] = [(1024, 100), (1 << 20, 8)];
/// The rate of the client's link, in Mbit/s.
const CLIENT_RATE: u64 = 100;
/// The one-way delay of each link.
const DELAY: Duration = Duration::from_millis(20);
/// Where each program listens in its network namespace.
/// How long a program may take to listen.
const READY: Duration = Duration::from_secs(20);

/// The conditions of rows.
pub fn conditions((bytes, rate): (usize, u64)) -> Params {
    params([
        ("response_bytes", bytes.into()),
        ("server_rate_mbit", rate.into()),
        ("client_rate_mbit", CLIENT_RATE.into()),
        ("delay_ms", 20.into()),
        ("measured", "levada http, levada middlebox --cache, a node and nginx".into()),
    ])
}

/// Where the programs listen, each in its network namespace.
const ORIGIN: u16 = 8401;
const NODE: u16 = 5382;
const MIDDLEBOX: u16 = 5383;
const LOCAL: u16 = 8080;

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

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut measuring = Measuring::new(NAME, options, FILES.len())?;
    let count = if options.quick { 3 } else { 10 };
    for file in FILES {
        let link = |mbit: u64| Link::new().delay(DELAY).rate(mbit * 1_000_000);
        let links = [link(CLIENT_RATE), link(file.1)];
        let testbed = || Testbed::line(levada_lab::Options::default(), &links, false);
        let names = SUBJECTS.map(str::to_owned);
        if let Some(testbed) = measuring.testbed(&conditions(file), &names, testbed)? {
            let scene = &Scene::start(&testbed)?;
            let case = |subject| {
                let mut misses = 0;
                Case::new(subject, move || {
                    Ok(scene.measure(file.0, subject, count, &mut misses)?)
                })
            };
            let (params, cases) = (conditions(file), SUBJECTS.map(case).into());
            measuring.group(Group {
                experiment: NAME,
                params,
                cases,
                monitor: testbed.monitor(),
            })?;
        }
    }
    Ok(measuring.finish())
}

/// The running programs: `levada http` at the near end, the middlebox, and the node with nginx at the far end.
struct Scene<'a> {
    testbed: &'a Testbed,
    programs: Vec<Child>,
    _folder: TempDir,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl<'a> Scene<'a> {
    fn start(testbed: &'a Testbed) -> anyhow::Result<Self> {
        let levada = binary::levada()?;
        let folder = tempfile::tempdir()?;
        let path = &folder.path().to_owned();
        let identity = |name: &str| {
            let home = path.join(name);
            fs::create_dir_all(&home)?;
            let output = Command::new(&levada).arg("id").env("LEVADA_HOME", home).output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let [client, middlebox, node] =
            [identity("client")?, identity("middlebox")?, identity("node")?];
        let all = ["request-head", "request-body", "response-head", "response-body"]
            .map(|context| format!("{context}=rw"))
            .join(",");
        write_files(path, &middlebox, &all)?;
        let mut scene = Self { testbed, programs: Vec::new(), _folder: folder };
        let far = SocketAddr::new(testbed.far_address(), NODE).to_string();
        let between = SocketAddr::new(testbed.address_between(0)?, MIDDLEBOX).to_string();
        let levada_at = |home: &str, words: &[&str]| {
            let (home, words) = (path.join(home), words.iter().map(|word| (*word).to_owned()));
            let words: Vec<String> = words.collect();
            move |command: &mut Command| quiet(command.args(words).env("LEVADA_HOME", home))
        };
        let nginx = |command: &mut Command| {
            quiet(
                command
                    .arg("-p")
                    .arg(path)
                    .arg("-c")
                    .arg(path.join("nginx.conf"))
                    .args(["-e", "stderr"]),
            );
        };
        scene.programs.push(testbed.spawn_far("nginx", nginx)?);
        let service = path.join("web.toml").to_string_lossy().into_owned();
        let up =
            ["up", "--listen", &far, "--no-announce", "--service", &service, "--allow", &client];
        scene.programs.push(testbed.spawn_far(&levada, levada_at("node", &up))?);
        let carry = ["middlebox", "--listen", &between, "--next", &far, "--cache", "64M"];
        scene.programs.push(testbed.spawn_between(0, &levada, levada_at("middlebox", &carry))?);
        scene.wait(|connect| testbed.far(connect), SocketAddr::new(testbed.far_address(), NODE))?;
        let address = SocketAddr::new(testbed.address_between(0)?, MIDDLEBOX);
        scene.wait(|connect| testbed.between(0, connect), address)?;
        let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), LOCAL);
        let (listen, via) = (local.to_string(), format!("{middlebox}@{between}:{all}"));
        let target = format!("{node}@{far}/web");
        let http = ["http", "--listen", &listen, "--via", &via, &target];
        scene.programs.push(testbed.spawn_near(&levada, levada_at("client", &http))?);
        scene.wait(|connect| testbed.near(connect), local)?;
        Ok(scene)
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

    /// Makes requests one after the other, each with a new query for a miss.
    fn measure(
        &self,
        bytes: usize,
        subject: &str,
        count: u64,
        misses: &mut u64,
    ) -> anyhow::Result<Vec<Measured>> {
        let mut firsts: Histogram<u64> = Histogram::new(3)?;
        let mut wholes: Histogram<u64> = Histogram::new(3)?;
        let mut carried = 0;
        for _ in 0..count {
            *misses += 1;
            let query = if subject == "hit" { "hit".to_owned() } else { misses.to_string() };
            let before = self.testbed.carried(1)?;
            let (first, whole) = self.curl(bytes, &query)?;
            // The last acknowledgements.
            thread::sleep(Duration::from_millis(100));
            carried += self.testbed.carried(1)? - before;
            firsts.record(u64::try_from(first.as_nanos())?)?;
            wholes.record(u64::try_from(whole.as_nanos())?)?;
        }
        Ok(vec![
            Measured::milliseconds("first byte", firsts),
            Measured::milliseconds("whole body", wholes),
            Measured::new("server's link", "bytes", carried as f64 / count as f64),
        ])
    }

    fn curl(&self, bytes: usize, query: &str) -> anyhow::Result<(Duration, Duration)> {
        const FORMAT: &str = "%{http_code} %{size_download} %{time_starttransfer} %{time_total}";
        let url = format!("http://127.0.0.1:{LOCAL}/{bytes}?{query}");
        let curl = self.testbed.spawn_near("curl", |command| {
            command.args(["-s", "-m", "60", "-o", "/dev/null", "-w", FORMAT, &url]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        })?;
        let output = curl.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let fields: Vec<&str> = text.split(' ').collect();
        let &[status, size, first, whole] = &fields[..] else {
            anyhow::bail!("curl has failed: {text}");
        };
        ensure!(status == "200" && size == bytes.to_string(), "a wrong answer: {text}");
        let seconds = |text: &str| Ok::<_, anyhow::Error>(Duration::from_secs_f64(text.parse()?));
        Ok((seconds(first).context("curl's time")?, seconds(whole).context("curl's time")?))
    }
}

fn quiet(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// The configurations, and the files of the origin.
fn write_files(folder: &Path, middlebox: &str, rights: &str) -> anyhow::Result<()> {
    fs::create_dir(folder.join("files"))?;
    for (bytes, _) in FILES {
        fs::write(folder.join("files").join(bytes.to_string()), vec![b'7'; bytes])?;
    }
    fs::write(folder.join("nginx.conf"), NGINX)?;
    let service = format!(
        "name = 'web'\ntype = 'http'\norigin = '127.0.0.1:{ORIGIN}'\nshare = 'all'\n\
         [[middlebox]]\nidentity = '{middlebox}'\nallow = '{rights}'\n"
    );
    Ok(fs::write(folder.join("web.toml"), service)?)
}
