//! Runs the transcript of README.md, so that it stays true. A line `who$ command` is run in a shell of
//! that terminal; what it prints must be what stands below it, where `…` stands for anything and a
//! line that is only `…` for any lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::eventually;

struct Step {
    terminal: String,
    command: String,
    expected: Vec<String>,
}

fn steps(readme: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
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
fn fits(expected: &[String], lines: &[&str]) -> bool {
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

/// Starts the node in the background and waits until it has said everything that it should.
fn start_node(folder: &Path, exports: &[String], step: &Step) -> Child {
    let log = folder.join("up.log");
    let command = format!("exec {}", step.command);
    let mut command = shell(folder, exports, &command);
    let child = command.stdout(File::create(&log).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the node says what stands in the README", || {
        let output = std::fs::read_to_string(&log).unwrap();
        fits(&step.expected, &output.lines().collect::<Vec<_>>())
    });
    let log = std::fs::read_to_string(&log).unwrap();
    let address = log
        .lines()
        .filter_map(|line| line.strip_prefix("address   "))
        .find(|address| address.starts_with("127.0.0.1:"))
        .unwrap();
    std::fs::write(folder.join("address"), address).unwrap();
    child
}

#[test]
fn the_transcript_of_the_readme_is_true() {
    let readme = include_str!("../../../README.md");
    let folder = tempfile::tempdir().unwrap();
    let mut exports: HashMap<String, Vec<String>> = HashMap::new();
    let mut node = None;
    let steps = steps(readme);
    assert!(steps.len() > 20, "the transcript was found");
    for step in steps {
        let exports = exports.entry(step.terminal.clone()).or_default();
        if step.command.starts_with("export ") {
            exports.push(step.command);
            continue;
        }
        if step.command.starts_with("levada up") {
            node = Some(start_node(folder.path(), exports, &step));
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
            "{}$ {}\nthe README says:\n{}\nit printed:\n{output}",
            step.terminal,
            step.command,
            step.expected.join("\n"),
        );
    }
    // The last step of the transcript has stopped it.
    assert!(node.unwrap().wait().unwrap().success());
}

#[test]
fn patterns_fit_what_they_should() {
    let fits_text = |expected: &[&str], text: &str| {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        fits(&expected, &text.lines().collect::<Vec<_>>())
    };
    assert!(fits_text(&["a…c", "…", "end"], "abc\nx\ny\nend"));
    assert!(!fits_text(&["a…c"], "abcd"));
    assert!(!fits_text(&["a"], ""));
    assert!(!fits_text(&[], "more"));
}
