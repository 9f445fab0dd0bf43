//! The transcripts of README.md, so that they stay true. A line `who$ command` is run in a shell of
//! that terminal; what it prints must be what stands below it, where `…` stands for anything and a
//! line that is only `…` for any lines. A command that ends with `&`, and a node, run on meanwhile.

use std::collections::HashMap;
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{comes, eventually};

struct Step {
    terminal: String,
    command: String,
    expected: Vec<String>,
}

/// The steps of all blocks of this kind.
fn steps(readme: &str, kind: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line.strip_prefix("```") == Some(kind);
            continue;
        }
        if !inside {
            continue;
        }
        match line.split_once("$ ") {
            Some((terminal, command)) if terminal.chars().all(|c| c.is_ascii_lowercase()) => {
                let (terminal, command) = (terminal.to_owned(), command.to_owned());
                steps.push(Step { terminal, command, expected: Vec::new() });
            }
            _ => steps.last_mut().unwrap().expected.push(line.to_owned()),
        }
    }
    steps
}

/// Whether `line` is `pattern`, in which `…` stands for any characters.
fn line_fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open_end = false;
    for part in parts {
        open_end = part.is_empty();
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || open_end
}

/// Whether `lines` are `expected`, in which a line `…` stands for any lines.
pub fn fits(expected: &[String], lines: &[&str]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, others)), _) if first == "…" => {
            (0..=lines.len()).any(|skip| fits(others, &lines[skip..]))
        }
        (Some((first, others)), Some((line, rest))) => line_fits(first, line) && fits(others, rest),
        _ => false,
    }
}

/// The shell of one terminal: what it exported before holds for every later command.
fn shell(folder: &Path, exports: &[String], command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    let script = format!("{}\n{command}", exports.join("\n"));
    shell.args(["-c", &script]).current_dir(folder).env("PATH", path).env("NO_COLOR", "1");
    shell.env_remove("LEVADA_HOME").stdin(Stdio::null());
    shell
}

/// A program in the background; it ends with the test.
struct Background(Child);

impl Background {
    /// Starts it, and waits until it has said everything that it should.
    fn start(folder: &Path, log: &Path, exports: &[String], step: &Step) -> Self {
        let command = format!("exec {}", step.command.trim_end_matches('&'));
        let (logs, complaints) = (log.parent().unwrap(), log.with_extension("err"));
        let mut command = shell(folder, exports, &command);
        command.stdout(File::create(log).unwrap()).stderr(File::create(complaints).unwrap());
        let started = Self(command.spawn().unwrap());
        let as_said = comes(|| {
            let output = std::fs::read_to_string(log).unwrap();
            fits(&step.expected, &output.lines().collect::<Vec<_>>())
        });
        assert!(as_said, "{} says what stands in the README\n{}", step.command, said(logs));
        if step.expected.is_empty() {
            // A server that says nothing is there once its port is.
            for port in step.command.split(' ').filter_map(|word| word.parse::<u16>().ok()) {
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                eventually(&format!("port {port}"), listens);
            }
        }
        started
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the programs in the background have said, and what they complained of.
fn said(folder: &Path) -> String {
    let mut said = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log" || extension == "err") {
            let text = std::fs::read_to_string(&path).unwrap();
            said += &format!("{}:\n{text}\n", path.file_name().unwrap().display());
        }
    }
    said
}

/// Runs all steps of this kind: `console`, or `console screens` for what needs X servers. Each terminal
/// begins with these exports.
pub fn play(kind: &str, mut exports: HashMap<String, Vec<String>>) {
    // What the test itself writes down is not in the folder that the README speaks of.
    let (folder, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = None;
    let mut background = Vec::new();
    let steps = steps(include_str!("../../../../README.md"), kind);
    assert!(steps.len() > 8, "the transcript was found");
    for step in steps {
        let exports = exports.entry(step.terminal.clone()).or_default();
        if step.command.starts_with("export ") {
            exports.push(step.command);
            continue;
        }
        if step.command.starts_with("levada up") {
            let log = logs.path().join("up.log");
            node = Some(Background::start(folder.path(), &log, exports, &step));
            continue;
        }
        if step.command.ends_with('&') {
            let log = logs.path().join(format!("background-{}.log", background.len()));
            background.push(Background::start(folder.path(), &log, exports, &step));
            continue;
        }
        // One stream, in the order in which a terminal shows it.
        let script = format!("exec 2>&1\n{}", step.command);
        let exports: &[String] = exports;
        let run = || {
            let output = shell(folder.path(), exports, &script).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let is_as_said = |output: &str| fits(&step.expected, &output.lines().collect::<Vec<_>>());
        let mut output = run();
        // On a machine under load, who did not answer in time may do so when asked again.
        let mut again = if step.command.starts_with("levada ls") { 10 } else { 0 };
        while again > 0 && !is_as_said(&output) {
            (output, again) = (run(), again - 1);
        }
        assert!(
            is_as_said(&output),
            "{}$ {}\nthe README says:\n{}\nit printed:\n{output}\n{}",
            step.terminal,
            step.command,
            step.expected.join("\n"),
            said(logs.path()),
        );
    }
    // The last step of the transcript has stopped it.
    assert!(node.unwrap().0.wait().unwrap().success());
}
