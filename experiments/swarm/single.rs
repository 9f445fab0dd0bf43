//! One large file to one peer over loopback: `levada share` and `levada get` beside `scp` and
//! `rsync` from an `sshd` of this experiment. Both files are on the same disk, and are synced.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use tempfile::TempDir;

use super::noise;
use crate::binary;
use crate::measuring::{Measuring, Outcome};
use crate::program::Program;
use crate::sshd::Sshd;
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "swarm/single";
/// The subjects.
pub const LEVADA: &str = "levada";
pub const SCP: &str = "scp";
pub const RSYNC: &str = "rsync";
/// Longer than any run, or the hashing of the file, takes.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let length = if options.quick { 1 << 28 } else { 1 << 30 };
    let mut measuring = Measuring::new(NAME, options, 1)?;
    let at = conditions(length);
    let mut subjects = vec![LEVADA, SCP];
    match binary::find("rsync", []) {
        Some(_) => subjects.push(RSYNC),
        None => eprintln!("rsync is left out: install rsync"),
    }
    let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    if measuring.needs(&at, &names) {
        let scene = Scene::new(length)?;
        let case = |subject: &'static str| Case::new(subject, || Ok(scene.measure(subject)?));
        let cases = subjects.into_iter().map(case).collect();
        measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
    }
    Ok(measuring.finish())
}

fn conditions(length: u64) -> Params {
    params([("bytes", length.into()), ("disk", "the same, synced".into())])
}

/// The file, what serves it in both ways, and a folder for copies.
struct Scene {
    sshd: Sshd,
    _share: Program,
    folder: TempDir,
    length: u64,
    levada: PathBuf,
    ticket: String,
}

impl Scene {
    fn new(length: u64) -> anyhow::Result<Self> {
        let levada = binary::levada()?;
        let folder = TempDir::new()?;
        let film = folder.path().join("film");
        fs::write(&film, noise(length))?;
        File::open(&film)?.sync_all()?;
        let (share, ticket) = share(&levada, folder.path(), &film)?;
        let sshd = Sshd::start(&Testbed::Loopback, folder.path())?;
        Ok(Self { sshd, _share: share, folder, length, levada, ticket })
    }

    /// The rate of one copy, from the start of the program until the copy is synced.
    fn measure(&self, subject: &str) -> anyhow::Result<Vec<Measured>> {
        let path = |name: &str| self.folder.path().join(name);
        let copy = path("copy");
        let home = path("peer");
        let film = format!("{}:{}", self.sshd.ip(), text(&path("film"))?);
        let mut command = match subject {
            SCP => {
                let mut command = self.sshd.client("scp");
                command.arg(film).arg(&copy);
                command
            }
            RSYNC => {
                let mut command = Command::new("rsync");
                command.args(["--whole-file", "--rsh", &self.sshd.remote_shell()?]);
                command.arg(film).arg(&copy);
                command
            }
            _ => {
                fs::create_dir(&home)?;
                let mut command = Command::new(&self.levada);
                command.args(["get", &self.ticket, "--listen", "127.0.0.1:0", "-o"]).arg(&copy);
                command.env("LEVADA_HOME", &home);
                command
            }
        };
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output().context("copy the file")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        File::open(&copy)?.sync_all()?;
        let took = start.elapsed().as_secs_f64();
        ensure!(
            fs::metadata(&copy)?.len() == self.length,
            "{subject}: the copy has another length"
        );
        fs::remove_file(&copy)?;
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        Ok(vec![
            Measured::new("MB/s", "MB/s", self.length as f64 / 1e6 / took),
            Measured::new("time", "s", took),
        ])
    }
}

/// A node that shares the file, and its ticket.
fn share(levada: &Path, folder: &Path, film: &Path) -> anyhow::Result<(Program, String)> {
    let home = folder.join("node");
    fs::create_dir(&home)?;
    let config = "listen = '127.0.0.1:0'\nhttp = false\nannounce = false\n";
    fs::write(home.join("config.toml"), config)?;
    let child = Testbed::Loopback.spawn_far(levada, |command| {
        command.arg("share").arg(film).arg("--foreground").env("LEVADA_HOME", &home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    })?;
    let mut share = Program::from(child);
    let ticket = share.first_line(LIMIT).context("the node prints no ticket")?;
    Ok((share, ticket))
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("a path is not UTF-8")
}
