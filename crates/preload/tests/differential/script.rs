//! Scripts: lines of calls for up to three processes, as text that can be read, stored and run
//! again.
//!
//! ```text
//! # What the script shows.
//! plain B                     B runs without the library in both runs
//! connection 0 A B inet       A connects `x0` to B's `y0`
//! warm 0                      exchanges before the steps; how many is a parameter
//! A out send x0 100 1 -       A sends; the words after the process are a line of `program/`
//! B start in recv y0 50 -     B receives; the run does not wait for the answer
//! B finish                    the answer
//! ```
//!
//! The run itself performs `start`, `finish`, `asleep`, `nudge SIGNAL`, `interrupt SIGNAL` and
//! `kill` (`run.rs`). `$l0` is the port to which slot `l0` was bound.

use std::fmt::Write;

/// One step: the process, and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub process: String,
    pub line: String,
}

#[derive(Clone, Debug, Default)]
pub struct Script {
    /// How the script can be named in an answer to a failure.
    pub origin: String,
    /// Processes that never have the library.
    pub plain: Vec<String>,
    /// Connections of the second run need not be those of the kernel.
    pub is_direct: bool,
    pub steps: Vec<Step>,
}

impl Script {
    pub fn step(&mut self, process: &str, line: impl Into<String>) {
        self.steps.push(Step { process: process.to_owned(), line: line.into() });
    }

    /// Reads a script, with this many exchanges for each line `warm`.
    pub fn parse(origin: &str, text: &str, exchanges: usize) -> Self {
        let mut script = Self { origin: origin.to_owned(), ..Self::default() };
        // `#77` is a descriptor.
        let code = |line: &str| format!(" {line}").split(" # ").next().unwrap().trim().to_owned();
        let lines: Vec<String> = text.lines().map(code).collect();
        for line in lines.iter().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["plain", process] => script.plain.push(process.to_owned()),
                ["connection", number, from, to, family] => {
                    script.connect(number, from, to, family);
                }
                ["warm", number] => script.warm(number, exchanges),
                [process, ..] => script.step(process, line[process.len()..].trim()),
                [] => {}
            }
        }
        script
    }

    /// Connects `x` of one process to `y` of the other. Small messages are sent at once.
    fn connect(&mut self, number: &str, from: &str, to: &str, family: &str) {
        let address = if family == "inet" { "127.0.0.1" } else { "[::1]" };
        self.step(to, format!("socket l{number} {family}"));
        self.step(to, format!("bind l{number} {address}:0"));
        self.step(to, format!("listen l{number} 5"));
        self.step(from, format!("socket x{number} {family}"));
        self.step(from, format!("connect x{number} {address}:$l{number}"));
        self.step(to, format!("accept l{number} y{number} accept"));
        self.step(from, format!("set x{number} nodelay 1"));
        self.step(to, format!("set y{number} nodelay 1"));
    }

    fn warm(&mut self, number: &str, exchanges: usize) {
        let [x, y] = ["x", "y"].map(|end| format!("{end}{number}"));
        let owner = |slot: &str, way: &str| {
            let made = self.steps.iter().find(|step| {
                let words: Vec<&str> = step.line.split(' ').collect();
                words[0] == way && words.contains(&slot)
            });
            made.expect("`connection` comes before `warm`").process.clone()
        };
        let from = owner(&x, "connect");
        let to = owner(&y, "accept");
        for exchange in 0..exchanges {
            self.step(&from, format!("out send {x} 100 {exchange} -"));
            self.step(&to, format!("in recv {y} 100 -"));
            self.step(&to, format!("out send {y} 100 {exchange} -"));
            self.step(&from, format!("in recv {x} 100 -"));
        }
    }

    /// The text of the script, with a note as a comment after each step.
    pub fn text(&self, note: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for process in &self.plain {
            let _ = writeln!(text, "plain {process}");
        }
        for (number, step) in self.steps.iter().enumerate() {
            let line = format!("{} {}", step.process, step.line);
            let note = note(number);
            let _ = match note.is_empty() {
                true => writeln!(text, "{line}"),
                false => writeln!(text, "{line:<48} # {note}"),
            };
        }
        text
    }
}
