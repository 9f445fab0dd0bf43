//! Runs the transcripts of pages. A line `NAME$ COMMAND` is run in a shell of the terminal
//! NAME, and must print the lines below it. There, `…` matches any characters, and a line `…` any
//! lines. Nodes and commands that end with `&` run in the background.

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

/// The steps of all code blocks of this kind.
fn steps(page: &str, kind: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line.strip_prefix("```") == Some(kind);
            continue;
        }
        if !inside {
            continue;
        }
        match line.split_once("$ ") {
            Some((terminal, command)) if terminal.chars().all(|c| c.is_ascii_lowercase()) => {
                let terminal = terminal.to_owned();
                let command = command.to_owned();
                steps.push(Step { terminal, command, expected: Vec::new() });
            }
            _ => steps.last_mut().unwrap().expected.push(line.to_owned()),
        }
    }
    steps
}

/// Whether `line` matches `pattern`, in which `…` matches any characters.
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

/// Whether `lines` match `expected`, in which a line `…` matches any lines.
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

/// The shell of one terminal, after its `export` commands so far.
fn shell(folder: &Path, exports: &[String], command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    let script = format!("{}\n{command}", exports.join("\n"));
    shell.args(["-c", &script]).current_dir(folder).env("PATH", path).env("NO_COLOR", "1");
    shell.env_remove("LEVADA_HOME").stdin(Stdio::null());
    shell
}

/// A program in the background; killed when dropped.
struct Background(Child);

impl Background {
    /// Starts it and waits until it has printed the expected lines.
    fn start(folder: &Path, log: &Path, exports: &[String], step: &Step) -> Self {
        let command = format!("exec {}", step.command.trim_end_matches('&'));
        let logs = log.parent().unwrap();
        let output = File::create(log).unwrap();
        let errors = match step.command.ends_with('&') {
            true => File::create(log.with_extension("err")).unwrap(),
            // In the foreground of its terminal, which shows both.
            false => output.try_clone().unwrap(),
        };
        let mut command = shell(folder, exports, &command);
        command.stdout(output).stderr(errors);
        let started = Self(command.spawn().unwrap());
        let printed = comes(|| {
            let output = std::fs::read_to_string(log).unwrap();
            fits(&step.expected, &output.lines().collect::<Vec<_>>())
        });
        assert!(
            printed,
            "{} does not print what the page shows\n{}",
            step.command,
            background_output(logs)
        );
        if step.expected.is_empty() {
            // A server that prints nothing is ready when it listens.
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

/// The output of the programs in the background.
fn background_output(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log" || extension == "err") {
            let text = std::fs::read_to_string(&path).unwrap();
            all += &format!("{}:\n{text}\n", path.file_name().unwrap().display());
        }
    }
    all
}

/// The pages with transcripts.
pub const README: &str = include_str!("../../../../README.md");
pub const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

/// Runs all steps of a page of this kind: `console`, or `console screens` for those that need X
/// servers. `exports` are the first commands of each terminal.
pub fn play(page: &str, kind: &str, mut exports: HashMap<String, Vec<String>>) {
    // The logs of the test are not in the folder of the transcript.
    let folder = tempfile::tempdir().unwrap();
    let logs = tempfile::tempdir().unwrap();
    let mut node = None;
    let mut background = Vec::new();
    let steps = steps(page, kind);
    assert!(steps.len() > 7, "the transcript was found");
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
        // Standard output and error in one stream, as a terminal shows them.
        let script = format!("exec 2>&1\n{}", step.command);
        let exports: &[String] = exports;
        let run = || {
            let output = shell(folder.path(), exports, &script).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let is_expected = |output: &str| fits(&step.expected, &output.lines().collect::<Vec<_>>());
        let mut output = run();
        // On a machine under load, a node may answer too late to be listed: the command is
        // repeated.
        let mut again = if step.command.starts_with("levada ls") { 10 } else { 0 };
        while again > 0 && !is_expected(&output) {
            (output, again) = (run(), again - 1);
        }
        assert!(
            is_expected(&output),
            "{}$ {}\nthe page shows:\n{}\nit printed:\n{output}\n{}",
            step.terminal,
            step.command,
            step.expected.join("\n"),
            background_output(logs.path()),
        );
    }
    // The last step of the transcript stops the node.
    assert!(node.unwrap().0.wait().unwrap().success());
}
