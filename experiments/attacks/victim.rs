//! The attacked node: a process with a catalogue, at most 1024 open files, and default limits.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use levada_core::Identity;
use levada_harness::Measured;
use levada_home::Home;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::honest;

/// What an honest run goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It reaches the node itself.
    Direct,
    /// A middlebox, which blocks some requests.
    Middlebox,
}

/// An attack, which runs until dropped.
pub type Attack = fn(Arc<Target>) -> Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// The time of an attack before the measurement.
const SETTLE: Duration = Duration::from_secs(4);
/// The time from the end of an attack to the memory measurement: a node allows a peer 10 s for an
/// operation.
const AFTER: Duration = Duration::from_secs(15);
/// The time limit for the node's start.
const START: Duration = Duration::from_secs(30);
/// The file with the node's output, in its home.
const LOG: &str = "log.txt";

/// The attacked node as seen by attackers.
pub struct Target {
    /// The node's identity.
    pub identity: Identity,
    /// Its listening address.
    pub address: SocketAddr,
    /// The address of its HTTP port.
    pub http: SocketAddr,
    /// The middlebox in front of it.
    pub middlebox: Option<Middlebox>,
    /// The home of a guest with a right to every service.
    pub guest: Home,
    /// The attack's counter.
    done: AtomicU64,
}

/// A middlebox as seen by attackers.
pub struct Middlebox {
    /// Its identity.
    pub identity: Identity,
    /// Its listening address.
    pub address: SocketAddr,
}

impl Target {
    /// Increments the attack's counter, whose meaning the attack documents.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running node with two guests, and a middlebox.
struct Victim {
    child: Child,
    middlebox: Option<(Child, Middlebox)>,
    binary: PathBuf,
    home: TempDir,
    attacker: TempDir,
    honest: TempDir,
    box_home: Option<TempDir>,
}

/// Starts a node, runs `runs` honest clients one after the other, under attack if one is given, and
/// ends both.
pub fn measure(
    binary: &Path,
    way: Way,
    attack: Option<Attack>,
    runs: usize,
) -> anyhow::Result<Vec<Measured>> {
    let victim = Victim::start(binary, way)?;
    let target = Arc::new(victim.target()?);
    let (stop, stopped) = oneshot::channel::<()>();
    thread::scope(|scope| {
        let attacking = attack.map(|attack| {
            let target = target.clone();
            scope.spawn(move || run_attack(attack, target, stopped))
        });
        if attacking.is_some() {
            thread::sleep(SETTLE);
        }
        let before = target.done.load(Ordering::Relaxed);
        let measured = honest::runs(&victim.client(), &target, runs);
        let done = target.done.load(Ordering::Relaxed);
        drop(stop);
        if let Some(attacking) = attacking {
            // Without this check, a broken attack would look like a good defence.
            attacking.join().map_err(|_| anyhow::anyhow!("the attack panicked"))??;
            ensure!(before > 0, "the attack had no effect");
            thread::sleep(AFTER);
        }
        let mut measured = measured?;
        measured.push(Measured::new("attack", "1", done as f64));
        measured.extend(victim.resources()?);
        Ok(measured)
    })
}

/// Runs an attack on one thread, so that it does not use all processors, until stopped.
fn run_attack(
    attack: Attack,
    target: Arc<Target>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            ended = attack(target) => ended.and_then(|()| bail!("the attack has ended by itself")),
            _ = stopped => Ok(()),
        }
    })
}

impl Victim {
    fn start(binary: &Path, way: Way) -> anyhow::Result<Self> {
        let [home, attacker, honest] =
            [tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?];
        let http = free_port()?;
        let middlebox = match way {
            Way::Direct => None,
            Way::Middlebox => Some(tempfile::tempdir()?),
        };
        let mut config = "announce = false\ncatalogue = true\n".to_owned();
        if let Some(folder) = &middlebox {
            let identity = levada(binary, folder.path(), &["id"])?;
            config += &format!(
                "[[service]]\nname = 'web'\ntype = 'http'\norigin = '127.0.0.1:{http}'\n\
                 [[service.middlebox]]\nidentity = '{}'\nallow = 'request-head=r'\nrequired = true\n",
                identity.trim()
            );
        }
        fs::write(home.path().join("config.toml"), config)?;
        let log = File::create(home.path().join(LOG))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sh", "-c"]);
        command.arg("ulimit -n 1024; exec \"$0\" up --listen 127.0.0.1:0 --http \"$1\"");
        command
            .arg(binary)
            .arg(format!("127.0.0.1:{http}"))
            .env("LEVADA_HOME", home.path())
            .stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let binary = binary.to_owned();
        let mut victim =
            Self { child, middlebox: None, binary, home, attacker, honest, box_home: middlebox };
        victim.wait()?;
        victim.start_middlebox()?;
        for guest in [victim.attacker.path(), victim.honest.path()] {
            let invitation = victim.levada(victim.home.path(), &["invite"])?;
            let words: Vec<&str> = invitation.split_whitespace().skip(1).collect();
            victim.levada(guest, &words)?;
        }
        Ok(victim)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.levada(self.home.path(), &["status"]).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the node ended with {status}: {}", self.log());
            }
            ensure!(begun.elapsed() < START, "the node does not start: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts the middlebox in front of the node, if there is to be one.
    fn start_middlebox(&mut self) -> anyhow::Result<()> {
        let Some(home) = &self.box_home else { return Ok(()) };
        let next = self.target()?.address.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sh", "-c"]);
        command
            .arg("ulimit -n 1024; exec \"$0\" middlebox --block '(?im)^x-secret: ' --next \"$1\"");
        command.arg(&self.binary).arg(next).env("LEVADA_HOME", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(File::create(home.path().join(LOG))?).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let (identity, address) = line.trim().split_once('@').context("no address")?;
        let middlebox = Middlebox { identity: identity.parse()?, address: address.parse()? };
        self.middlebox = Some((child, middlebox));
        Ok(())
    }

    fn levada(&self, home: &Path, words: &[&str]) -> anyhow::Result<String> {
        levada(&self.binary, home, words)
    }

    fn target(&self) -> anyhow::Result<Target> {
        let status = self.levada(self.home.path(), &["status", "--json"])?;
        let status: Value = serde_json::from_str(&status)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a status without it");
        Ok(Target {
            identity: self.levada(self.home.path(), &["id"])?.trim().parse()?,
            address: text(&status["listening"][0])?.parse()?,
            http: text(&status["http"])?.parse()?,
            middlebox: self.middlebox.as_ref().map(|(_, one)| Middlebox { ..*one }),
            guest: Home::at(self.attacker.path())?,
            done: AtomicU64::new(0),
        })
    }

    fn client(&self) -> honest::Client<'_> {
        honest::Client { binary: &self.binary, home: self.honest.path() }
    }

    /// The peak memory, current memory and length of the log of what is attacked.
    fn resources(&self) -> anyhow::Result<Vec<Measured>> {
        let child = self.middlebox.as_ref().map_or(&self.child, |(child, _)| child);
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let memory = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()).context("no memory")?;
            Ok(kib.parse::<f64>()? / 1024.0)
        };
        let home = self.box_home.as_ref().unwrap_or(&self.home);
        let log = fs::metadata(home.path().join(LOG))?.len();
        Ok(vec![
            Measured::new("most memory", "MiB", memory("VmHWM:")?),
            Measured::new("memory afterwards", "MiB", memory("VmRSS:")?),
            Measured::new("log", "kB", log as f64 / 1000.0),
        ])
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let middlebox = self.middlebox.as_mut().map(|(child, _)| child);
        for child in [Some(&mut self.child), middlebox].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The standard output of a `levada` command with `home`.
fn levada(binary: &Path, home: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binary);
    command.args(words).env("LEVADA_HOME", home).stdin(Stdio::null());
    let done = command.output().with_context(|| format!("run {command:?}"))?;
    let error = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?} ended with {}: {error}", done.status);
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A port of loopback that is free now. The origin of a service must be known before the node
/// starts.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
