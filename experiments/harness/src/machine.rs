//! The machine of a measurement.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::HarnessError;

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
    /// The measured commit; with `+` if tracked files differ from it.
    pub commit: String,
    /// The default congestion control.
    pub congestion: String,
    /// The load averages over 1, 5 and 15 minutes before the measurement.
    pub load: String,
    /// The date and time in UTC.
    pub date: String,
}

#[derive(Serialize)]
struct Entry<'a> {
    experiment: &'a str,
    command: String,
    #[serde(flatten)]
    machine: &'a Machine,
}

impl Machine {
    /// The current machine. Unknown values are empty.
    pub fn current() -> Self {
        let status = run("git", &["status", "--porcelain", "--untracked-files=no"]);
        let changed = if status.is_empty() { "" } else { "+" };
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            memory_gib: memory_gib(),
            kernel: run("uname", &["-sr"]),
            system: field("/etc/os-release", "PRETTY_NAME").replace('"', ""),
            rustc: run("rustc", &["--version"]),
            commit: run("git", &["rev-parse", "--short=12", "HEAD"]) + changed,
            congestion: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            date: run("date", &["-u", "+%FT%TZ"]),
        }
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
