//! The programs that are compared: what a source runs, and the commands of the clients.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_lab::Node;

use super::point::{LIBTORRENT, MEDIATED, NGINX, TUNED};

/// The time between two looks for a file.
pub const LOOK: Duration = Duration::from_millis(5);
/// Longer than any source takes to begin.
const START: Duration = Duration::from_secs(30);
const TORRENT: &str = include_str!("torrent.py");
/// Debian's packages install modules of this interpreter.
const PYTHON: &str = "/usr/bin/python3";

/// Programs that end when this is dropped.
#[derive(Default)]
pub struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        for program in &mut self.0 {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Programs {
    /// Starts one at a node; what it says goes to the file `log` of `work`.
    pub fn start(&mut self, node: &Node, words: &[String], work: &Path) -> anyhow::Result<()> {
        let log = fs::File::options().create(true).append(true).open(work.join("log"))?;
        let (program, arguments) = words.split_first().context("no program")?;
        let child = node.spawn(program, |command| {
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        })?;
        self.0.push(child);
        Ok(())
    }

    /// How one has failed.
    pub fn failed(&mut self) -> Option<ExitStatus> {
        let ended = self.0.iter_mut().filter_map(|program| program.try_wait().ok().flatten());
        ended.into_iter().find(|status| !status.success())
    }
}

/// Whether Python has libtorrent.
pub fn has_libtorrent() -> bool {
    let tried =
        Command::new(PYTHON).args(["-c", "import libtorrent"]).stderr(Stdio::null()).status();
    let there = tried.is_ok_and(|status| status.success());
    if !there {
        eprintln!("libtorrent is left out: install python3-libtorrent");
    }
    there
}

/// The source of one run.
pub struct Source<'a> {
    pub node: &'a Node,
    /// The addresses of the source and of all clients.
    pub addresses: &'a [IpAddr],
    pub film: &'a Path,
    pub chunk_kib: u32,
    pub levada: &'a Path,
    /// The files of this run.
    pub work: &'a Path,
}

/// The command of a client: its number, and the folder for the file `film`.
pub type Getter = Box<dyn Fn(usize, &Path) -> anyhow::Result<Vec<String>>>;

impl Source<'_> {
    /// Starts the source of a subject.
    pub fn start(&self, subject: &str, programs: &mut Programs) -> anyhow::Result<Getter> {
        match subject {
            LIBTORRENT => self.libtorrent("default", programs),
            TUNED => self.libtorrent("tuned", programs),
            NGINX => self.nginx(programs),
            MEDIATED => self.levada("mediated", programs),
            _ => self.levada("direct", programs),
        }
    }

    /// A node with a share. The file gets its name when all of it is there.
    fn levada(&self, mode: &str, programs: &mut Programs) -> anyhow::Result<Getter> {
        let home = self.work.join("home");
        fs::create_dir(&home)?;
        fs::write(home.join("config.toml"), "http = false\nannounce = false\n")?;
        let levada = text(self.levada)?;
        let ticket = self.work.join("ticket");
        let share = format!(
            "export LEVADA_HOME={}; exec {levada} share {} --chunk {}Ki --mode {mode} --foreground > {}",
            text(&home)?,
            text(self.film)?,
            self.chunk_kib,
            text(&ticket)?
        );
        programs.start(self.node, &shell(share), self.work)?;
        let ticket = until(|| fs::read_to_string(&ticket).ok().filter(|text| text.ends_with('\n')))
            .context("the node prints no ticket")?;
        Ok(Box::new(move |_, folder| {
            let folder = text(folder)?;
            let ticket = ticket.trim();
            // Those who are first go on providing, until all are ended.
            Ok(shell(format!(
                "export LEVADA_HOME={folder}/home; exec {levada} get {ticket} -o {folder}/film --seed 10m"
            )))
        }))
    }

    fn libtorrent(&self, settings: &str, programs: &mut Programs) -> anyhow::Result<Getter> {
        let script = self.work.join("torrent.py");
        let torrent = self.work.join("film.torrent");
        fs::write(&script, TORRENT)?;
        let command = |rest: &[&str]| -> anyhow::Result<Vec<String>> {
            let words = [PYTHON, &text(&script)?, settings].map(str::to_owned);
            Ok(words.into_iter().chain(rest.iter().map(|word| (*word).to_owned())).collect())
        };
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let seed = command(&["seed", &text(self.film)?, &text(&torrent)?, &addresses[0]])?;
        programs.start(self.node, &seed, self.work)?;
        until(|| torrent.exists().then_some(())).context("libtorrent makes no torrent")?;
        let get = command(&["get", &text(&torrent)?])?;
        Ok(Box::new(move |client, folder| {
            let own = &addresses[client + 1];
            let others = addresses.iter().filter(|one| *one != own);
            let rest = [text(folder)?, own.clone()].into_iter().chain(others.cloned());
            Ok(get.iter().cloned().chain(rest).collect())
        }))
    }

    fn nginx(&self, programs: &mut Programs) -> anyhow::Result<Getter> {
        let at = text(self.work)?;
        let source = self.addresses[0];
        let root = text(self.film.parent().context("a file without a folder")?)?;
        let config = format!(
            "daemon off; user root; worker_processes 1; pid {at}/pid; error_log stderr error;
            events {{}}
            http {{
                access_log off; sendfile on;
                client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
                uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
                server {{ listen {source}:8401; root {root}; }}
            }}"
        );
        let file = self.work.join("nginx.conf");
        fs::write(&file, config)?;
        let words = ["nginx", "-c", &text(&file)?].map(str::to_owned);
        programs.start(self.node, &words, self.work)?;
        until(|| self.work.join("pid").exists().then_some(())).context("nginx does not listen")?;
        Ok(Box::new(move |_, folder| {
            let folder = text(folder)?;
            Ok(shell(format!(
                "curl --silent --fail --max-time 300 --output {folder}/film http://{source}:8401/film && : > {folder}/done"
            )))
        }))
    }
}

/// The file that is there once a client of the subject has all.
pub fn mark(subject: &str, folder: &Path) -> PathBuf {
    folder.join(if subject.starts_with("levada") { "film" } else { "done" })
}

fn shell(script: String) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("a path is not UTF-8")
}

fn until<T>(mut there: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < START {
        if let Some(found) = there() {
            return Some(found);
        }
        thread::sleep(LOOK);
    }
    None
}
