//! The machine of a measurement.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::{HarnessError, Options};

/// The file with the machine, versions and command of each call that wrote rows.
pub(crate) const MACHINE: &str = "machine.jsonl";

/// The machine, the versions and the command of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// The number of available cores.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The compiler's version.
    pub rustc: String,
    /// The measured commit; with `+` if tracked sources differ from it.
    pub commit: String,
    /// The hash of the tree `crates` in the measured commit.
    #[serde(default)]
    pub crates: String,
    /// The hash of the tree `experiments`, without rows, pictures and pages.
    #[serde(default)]
    pub experiments: String,
    /// The hash of `Cargo.lock`.
    #[serde(default)]
    pub lock: String,
    /// The profile that the binary was built with.
    #[serde(default)]
    pub profile: String,
    /// The default congestion control.
    pub congestion: String,
    /// The load averages over 1, 5 and 15 minutes before the measurement.
    pub load: String,
    /// The date and time in UTC.
    pub date: String,
}

/// The processors that measured the rows of `experiment` in a folder, each once, in the order of
/// their calls.
///
/// # Errors
/// [`HarnessError`] if the folder's `machine.jsonl` exists and cannot be read.
pub fn processors(folder: &Path, experiment: &str) -> Result<Vec<String>, HarnessError> {
    #[derive(Deserialize)]
    struct Line {
        experiment: String,
        /// Lines with settings of the lab have none.
        cpu: Option<String>,
    }
    let path = folder.join(MACHINE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).map_err(HarnessError::file(&path))?;
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let of =
            serde_json::from_str::<Line>(line).ok().filter(|line| line.experiment == experiment);
        all.extend(of.and_then(|line| line.cpu).filter(|cpu| !all.contains(cpu)));
    }
    Ok(all)
}

#[derive(Serialize)]
struct Entry<'a> {
    experiment: &'a str,
    command: String,
    #[serde(flatten)]
    machine: &'a Machine,
}

/// The commit of this binary, embedded by `build.rs`; empty if it was built outside a checkout.
const BUILT: &str = env!("LEVADA_COMMIT");

impl Machine {
    /// The current machine, and the commit of this binary. Other unknown values are empty.
    ///
    /// # Errors
    /// [`HarnessError::NoCommit`] if the binary was built outside a checkout, and `options` name no
    /// commit.
    pub fn current(options: &Options) -> Result<Self, HarnessError> {
        let commit = options.commit.as_deref().unwrap_or(BUILT);
        if commit.is_empty() {
            return Err(HarnessError::NoCommit);
        }
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            memory_gib: memory_gib(),
            kernel: run("uname", &["-sr"]),
            system: field("/etc/os-release", "PRETTY_NAME").replace('"', ""),
            rustc: run("rustc", &["--version"]),
            commit: commit.to_owned(),
            crates: env!("LEVADA_CRATES").to_owned(),
            experiments: env!("LEVADA_EXPERIMENTS").to_owned(),
            lock: env!("LEVADA_LOCK").to_owned(),
            profile: env!("LEVADA_PROFILE").to_owned(),
            congestion: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            date: run("date", &["-u", "+%FT%TZ"]),
        })
    }

    /// Appends it to a file, with the command of this process.
    pub(crate) fn append(&self, path: &Path, experiment: &str) -> Result<(), HarnessError> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("cargo xp {}", arguments.join(" "));
        let entry = Entry { experiment, command, machine: self };
        append(path, &entry)
    }
}

/// Appends one line of JSON to a file.
pub(crate) fn append(path: &Path, entry: &impl Serialize) -> Result<(), HarnessError> {
    let line = serde_json::to_string(entry).unwrap_or_default() + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.map_err(HarnessError::file(path))?;
    file.write_all(line.as_bytes()).map_err(HarnessError::file(path))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The value of the first line of `path` that begins with `key`.
fn field(path: &str, key: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_once([':', '=']).map_or("", |(_, value)| value).trim().to_owned()
}

fn memory_gib() -> f64 {
    let total = field("/proc/meminfo", "MemTotal");
    let kib: f64 = total.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
    (kib / 1024.0 / 102.4).round() / 10.0
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_that_of_the_build_or_of_the_option_and_never_empty() {
        let named =
            |commit: &str| Options { commit: Some(commit.to_owned()), ..Options::default() };
        assert_eq!(Machine::current(&named("abc")).unwrap().commit, "abc");
        assert!(matches!(Machine::current(&named("")), Err(HarnessError::NoCommit)));
        match Machine::current(&Options::default()) {
            Ok(machine) => assert_eq!((machine.commit.as_str(), BUILT.is_empty()), (BUILT, false)),
            Err(error) => assert!(BUILT.is_empty(), "{error}"),
        }
    }

    #[test]
    fn the_processors_of_an_experiment_are_named_once() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(processors(folder.path(), "t/e").unwrap(), Vec::<String>::new());
        let lines = [
            r#"{"experiment":"t/e","command":"a","cpu":"one"}"#,
            r#"{"experiment":"t/e","lab":{"backend":"user"}}"#,
            r#"{"experiment":"t/e","command":"b","cpu":"one"}"#,
            r#"{"experiment":"t/f","command":"c","cpu":"two"}"#,
            r#"{"experiment":"t/e","command":"d","cpu":"three"}"#,
        ];
        fs::write(folder.path().join(MACHINE), lines.join("\n")).unwrap();
        assert_eq!(processors(folder.path(), "t/e").unwrap(), ["one", "three"]);
    }
}
