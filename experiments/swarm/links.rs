//! One file to ten clients, each on a link of its own: Levada beside libtorrent, and nginx with curl. Whole programs.

mod counters;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use levada_lab::{Lab, LabError, Node};
use tempfile::TempDir;

use counters::Segments;

use super::noise;
use crate::binary;
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/links";
/// The subjects.
pub const SUBJECTS: [&str; 4] = ["levada", "libtorrent", "nginx", MEDIATED];
/// `levada share --mode mediated`.
pub const MEDIATED: &str = "levada, mediated";
/// The number of clients.
pub const CLIENTS: usize = 10;
/// The rate of each link in each direction, in Mbit/s.
pub const RATE_MBIT: u64 = 100;
/// What TCP carries of the rate of a link, of packets of 1,500 bytes.
pub const PRACTICAL: f64 = 0.956;
/// Longer than any subject takes.
const LIMIT: Duration = Duration::from_secs(300);
/// The time between two looks for a complete file.
const LOOK: Duration = Duration::from_millis(5);
const TORRENT: &str = include_str!("links/torrent.py");
/// Debian's packages install modules of this interpreter.
const PYTHON: &str = "/usr/bin/python3";

/// The length of the file in bytes.
fn length(quick: bool) -> u64 {
    if quick { 20_000_000 } else { 100_000_000 }
}

/// The conditions of rows.
pub fn conditions(length: u64) -> Params {
    params([
        ("clients", CLIENTS.into()),
        ("bytes", length.into()),
        ("rate_mbit", RATE_MBIT.into()),
        ("disk", "memory (tmpfs)".into()),
    ])
}

/// The least time in seconds in which all clients can have the file: the source's link carries it once, each client's too, and all
/// uplinks together all copies.
pub fn bound(length: u64) -> f64 {
    let rate = RATE_MBIT as f64 * 1e6 / 8.0;
    let (bytes, clients) = (length as f64, CLIENTS as f64);
    (bytes / rate).max(clients * bytes / (rate * (1.0 + clients))) / PRACTICAL
}

/// The time in seconds in which the source's link carries all copies.
pub fn uplink_bound(length: u64) -> f64 {
    CLIENTS as f64 * length as f64 * 8.0 / (RATE_MBIT as f64 * 1e6) / PRACTICAL
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut measuring = Measuring::new(NAME, options, 1)?;
    let length = length(options.quick);
    let at = conditions(length);
    let mut subjects = SUBJECTS.map(str::to_owned).to_vec();
    subjects.retain(|subject| subject != "libtorrent" || has_libtorrent());
    if !measuring.needs(&at, &subjects) {
        return Ok(measuring.finish());
    }
    let scene = match Scene::new(length) {
        Ok(scene) => Mutex::new(scene),
        Err(error) => match error.downcast::<LabError>() {
            Ok(LabError::NotRoot) => {
                let outcome = measuring.finish();
                return Ok(Outcome { no_lab: Some(LabError::NotRoot), ..outcome });
            }
            Ok(error) => return Err(error.into()),
            Err(error) => return Err(error),
        },
    };
    let scene = &scene;
    let case = |subject: &String| {
        let name = subject.clone();
        Case::new(subject.clone(), move || {
            let mut scene = scene.lock().map_err(|_| "an earlier run has failed")?;
            Ok(scene.measure(&name)?)
        })
    };
    let cases = subjects.iter().map(case).collect();
    measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
    Ok(measuring.finish())
}

fn has_libtorrent() -> bool {
    let tried =
        Command::new(PYTHON).args(["-c", "import libtorrent"]).stderr(Stdio::null()).status();
    let there = tried.is_ok_and(|status| status.success());
    if !there {
        eprintln!("libtorrent is left out: install python3-libtorrent");
    }
    there
}

/// The source and the clients, each at a link of its own.
struct Scene {
    source: Node,
    clients: Vec<Node>,
    addresses: Vec<IpAddr>,
    film: PathBuf,
    length: u64,
    levada: PathBuf,
    folder: TempDir,
    _lab: Lab,
}

/// Programs that end when this is dropped.
#[derive(Default)]
struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        for program in &mut self.0 {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Scene {
    fn new(length: u64) -> anyhow::Result<Self> {
        let levada = binary::levada()?;
        let mut lab = Lab::new(levada_lab::Options::default())?;
        let source = lab.node("source")?;
        let clients = (0..CLIENTS).map(|number| lab.node(&format!("client {number}")));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let nodes: Vec<&Node> = [&source].into_iter().chain(&clients).collect();
        let star = lab.star(&nodes, RATE_MBIT * 1_000_000)?;
        let addresses = nodes.iter().filter_map(|node| star.address(node)).collect();
        // The disk is not what is compared.
        let folder = TempDir::new_in("/dev/shm").context("make a folder in /dev/shm")?;
        let film = folder.path().join("film");
        fs::write(&film, noise(length))?;
        Ok(Self { source, clients, addresses, film, length, levada, folder, _lab: lab })
    }

    /// One run of a subject, whose clients each make a file when they are done: the time until the last client has the file, and what the source has sent.
    fn measure(&mut self, subject: &str) -> anyhow::Result<Vec<Measured>> {
        let work = TempDir::new_in(self.folder.path())?;
        let folders: Vec<PathBuf> = (0..CLIENTS).map(|n| work.path().join(n.to_string())).collect();
        for folder in &folders {
            fs::create_dir(folder)?;
        }
        let mut programs = Programs::default();
        let commands = match subject {
            "levada" => self.levada("direct", work.path(), &folders, &mut programs)?,
            MEDIATED => self.levada("mediated", work.path(), &folders, &mut programs)?,
            "libtorrent" => self.libtorrent(work.path(), &folders, &mut programs)?,
            _ => self.nginx(work.path(), &folders, &mut programs)?,
        };
        let (sent, segments) = (counters::sent(&self.source)?, self.segments()?);
        let start = Instant::now();
        for (client, words) in self.clients.iter().zip(&commands) {
            programs.0.push(spawn(client, words, work.path())?);
        }
        let name = if subject.starts_with("levada") { "film" } else { "done" };
        let done: Vec<PathBuf> = folders.iter().map(|folder| folder.join(name)).collect();
        let times = wait_for(&done, start, &mut programs)?;
        let sent = counters::sent(&self.source)? - sent;
        let segments = self.segments()?.since(segments);
        drop(programs);
        for folder in &folders {
            let same = fs::read(folder.join("film"))? == fs::read(&self.film)?;
            ensure!(same, "{subject}: a client has another file");
        }
        let (first, last) = (times[0].as_secs_f64(), times[CLIENTS - 1].as_secs_f64());
        let mut rows = vec![
            Measured::new("time", "s", last),
            Measured::new("time ÷ bound", "1", last / bound(self.length)),
            Measured::new("first ÷ last", "1", first / last),
            Measured::new("source ÷ file", "1", sent as f64 / self.length as f64),
            Measured::new("retransmitted ÷ segments", "1", segments.retransmitted_share()),
        ];
        if subject == MEDIATED {
            let ratio = last / uplink_bound(self.length);
            rows.push(Measured::new("time ÷ uplink bound", "1", ratio));
        }
        Ok(rows)
    }

    /// The segments of all programs.
    fn segments(&self) -> anyhow::Result<Segments> {
        Segments::of([&self.source].into_iter().chain(&self.clients))
    }

    /// Starts a node with a share, and returns the commands of the clients. The file gets its name when all of it is there.
    fn levada(
        &self,
        mode: &str,
        work: &Path,
        folders: &[PathBuf],
        programs: &mut Programs,
    ) -> anyhow::Result<Vec<Vec<String>>> {
        let home = work.join("home");
        fs::create_dir(&home)?;
        let levada = text(&self.levada)?;
        let config = "http = false\nannounce = false\n";
        fs::write(home.join("config.toml"), config)?;
        let ticket = work.join("ticket");
        let share = format!(
            "export LEVADA_HOME={}; exec {levada} share {} --mode {mode} --foreground > {}",
            text(&home)?,
            text(&self.film)?,
            text(&ticket)?
        );
        programs.0.push(spawn(&self.source, &shell(share), work)?);
        let ticket = until(|| fs::read_to_string(&ticket).ok().filter(|text| text.ends_with('\n')))
            .context("the node prints no ticket")?;
        let get = |folder: &PathBuf| {
            let folder = text(folder)?;
            // Those who are first go on providing, until all are ended.
            Ok(shell(format!(
                "export LEVADA_HOME={folder}/home; exec {levada} get {} -o {folder}/film --seed 10m",
                ticket.trim()
            )))
        };
        folders.iter().map(get).collect()
    }

    fn libtorrent(
        &self,
        work: &Path,
        folders: &[PathBuf],
        programs: &mut Programs,
    ) -> anyhow::Result<Vec<Vec<String>>> {
        let (script, torrent) = (work.join("torrent.py"), work.join("film.torrent"));
        fs::write(&script, TORRENT)?;
        let (script, address) =
            (text(&script)?, |number: usize| self.addresses[number].to_string());
        let seed = [PYTHON, &script, "seed", &text(&self.film)?, &text(&torrent)?, &address(0)];
        programs.0.push(spawn(&self.source, &seed.map(str::to_owned), work)?);
        until(|| torrent.exists().then_some(())).context("libtorrent makes no torrent")?;
        let get = |(number, folder): (usize, &PathBuf)| {
            let own = address(number + 1);
            let words = [PYTHON, &script, "get", &text(&torrent)?, &text(folder)?, &own];
            let others = self.addresses.iter().map(ToString::to_string).filter(|one| *one != own);
            Ok(words.map(str::to_owned).into_iter().chain(others).collect())
        };
        folders.iter().enumerate().map(get).collect()
    }

    fn nginx(
        &self,
        work: &Path,
        folders: &[PathBuf],
        programs: &mut Programs,
    ) -> anyhow::Result<Vec<Vec<String>>> {
        let at = text(work)?;
        let root = text(self.folder.path())?;
        let config = format!(
            "daemon off; user root; worker_processes 1; pid {at}/pid; error_log stderr error;
            events {{}}
            http {{
                access_log off; sendfile on;
                client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
                uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
                server {{ listen {}:8401; root {root}; }}
            }}",
            self.addresses[0]
        );
        let file = work.join("nginx.conf");
        fs::write(&file, config)?;
        let words = ["nginx", "-c", &text(&file)?].map(str::to_owned);
        programs.0.push(spawn(&self.source, &words, work)?);
        until(|| work.join("pid").exists().then_some(())).context("nginx does not listen")?;
        let get = |folder: &PathBuf| {
            let folder = text(folder)?;
            let source = self.addresses[0];
            Ok(shell(format!(
                "curl --silent --fail --max-time 300 --output {folder}/film http://{source}:8401/film && : > {folder}/done"
            )))
        };
        folders.iter().map(get).collect()
    }
}

fn shell(script: String) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

fn spawn(node: &Node, words: &[String], work: &Path) -> anyhow::Result<Child> {
    let log = fs::File::options().create(true).append(true).open(work.join("log"))?;
    let (program, arguments) = words.split_first().context("no program")?;
    let child = node.spawn(program, |command| {
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    })?;
    Ok(child)
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("a path is not UTF-8")
}

fn until<T>(mut there: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if let Some(found) = there() {
            return Some(found);
        }
        thread::sleep(LOOK);
    }
    None
}

/// When each file was there, the first one first.
fn wait_for(
    files: &[PathBuf],
    start: Instant,
    programs: &mut Programs,
) -> anyhow::Result<Vec<Duration>> {
    let mut missing: Vec<&PathBuf> = files.iter().collect();
    let mut times = Vec::new();
    while !missing.is_empty() {
        ensure!(start.elapsed() < LIMIT, "{} clients do not finish", missing.len());
        let before = missing.len();
        missing.retain(|file| !file.exists());
        times.extend((missing.len()..before).map(|_| start.elapsed()));
        if let Some(failed) = failed(programs) {
            anyhow::bail!("a program has ended with {failed}");
        }
        thread::sleep(LOOK);
    }
    Ok(times)
}

fn failed(programs: &mut Programs) -> Option<std::process::ExitStatus> {
    let ended = programs.0.iter_mut().filter_map(|program| program.try_wait().ok().flatten());
    ended.into_iter().find(|status| !status.success())
}
