//! Plays the transcripts of pages: runs each command in a shell of its terminal, and compares the
//! output. Nodes and commands that end with `&` run in the background.

mod background;
mod machines;
mod page;

use std::collections::HashMap;
use std::fs::File;
use std::process::Stdio;

use tempfile::TempDir;

use super::{Watchdog, comes};
use background::Background;
pub use machines::{Machines, OneMachine};
pub use page::fits;
use page::{Step, steps};

/// The pages with transcripts.
pub const README: &str = include_str!("../../../../README.md");
pub const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

/// Commands that show a state which changes by itself: they are repeated until it is as shown.
const REPEATED: &[&str] = &["levada ls", "levada status", "levada swarm ls"];

/// Runs all steps of a page of this kind: `console`, or `console screens` for those that need X
/// servers. `exports` are the first commands of each terminal. The result has what runs in the
/// background.
pub fn play<'a>(
    machines: &'a dyn Machines,
    page: &str,
    kind: &str,
    exports: HashMap<String, Vec<String>>,
) -> Player<'a> {
    let steps = steps(page, kind);
    assert!(steps.len() > 7, "the transcript was found");
    let mut player = Player::new(machines, exports);
    for step in steps {
        player.run(step);
    }
    player
}

/// What runs the steps of a page. Dropping it ends the programs in the background.
pub struct Player<'a> {
    machines: &'a dyn Machines,
    /// The commands that precede each command of a terminal.
    exports: HashMap<String, Vec<String>>,
    /// The logs are not in the folder of the transcript.
    logs: TempDir,
    /// The node of each terminal.
    nodes: HashMap<String, Background>,
    background: Vec<Background>,
    /// The words that were printed so far.
    printed: Vec<String>,
}

impl<'a> Player<'a> {
    fn new(machines: &'a dyn Machines, exports: HashMap<String, Vec<String>>) -> Self {
        Self {
            machines,
            exports,
            logs: tempfile::tempdir().unwrap(),
            nodes: HashMap::new(),
            background: Vec::new(),
            printed: Vec::new(),
        }
    }

    fn run(&mut self, mut step: Step) {
        if step.command.starts_with("export ") {
            self.exports.entry(step.terminal).or_default().push(step.command);
            return;
        }
        step.command = page::completed(&step.command, &self.printed);
        if step.is_node() {
            let node = self.start(&step);
            assert!(self.nodes.insert(step.terminal, node).is_none(), "one node at a time");
        } else if step.command.ends_with('&') {
            let program = self.start(&step);
            self.background.push(program);
        } else {
            self.run_in_foreground(&step);
        }
    }

    /// Starts a program in the background.
    fn start(&self, step: &Step) -> Background {
        let number = self.nodes.len() + self.background.len();
        let log = self.logs.path().join(format!("{}-{number}.log", step.terminal));
        let output = File::create(&log).unwrap();
        let errors = match step.is_node() {
            // In the foreground of its terminal, which shows both.
            true => output.try_clone().unwrap(),
            false => File::create(log.with_extension("err")).unwrap(),
        };
        let script = self.script(step, &format!("exec {}", step.command.trim_end_matches('&')));
        let child = self.machines.start(&step.terminal, &script, output.into(), errors.into());
        let started = Background(child);
        let printed = comes(|| step.is_printed(&std::fs::read_to_string(&log).unwrap()));
        assert!(printed, "{}{}", step.difference(""), self.background_output());
        if step.expected.is_empty() {
            // A server that prints nothing is ready when it listens.
            for port in step.ports() {
                let listens = || self.machines.listens(&step.terminal, port);
                assert!(comes(listens), "port {port}\n{}", self.background_output());
            }
        }
        started
    }

    fn run_in_foreground(&mut self, step: &Step) {
        let mut output = self.output(step);
        // On a machine under load, a node may answer too late to be listed.
        if !step.is_printed(&output) && REPEATED.iter().any(|one| step.command.starts_with(one)) {
            comes(|| {
                output = self.output(step);
                step.is_printed(&output)
            });
        }
        assert!(
            step.is_printed(&output),
            "{}{}",
            step.difference(&output),
            self.background_output()
        );
        self.printed.extend(output.split_whitespace().map(str::to_owned));
        if step.command == "levada stop" {
            let node = self.nodes.remove(&step.terminal).unwrap();
            assert_eq!(node.end(), 0, "{}", self.background_output());
        }
    }

    /// The output of a command; standard output and error in one stream, as a terminal shows them.
    fn output(&self, step: &Step) -> String {
        let script = self.script(step, &format!("exec 2>&1\n{}", step.command));
        let shell = self.machines.start(&step.terminal, &script, Stdio::piped(), Stdio::null());
        let watchdog = Watchdog::over(shell.id());
        let output = shell.wait_with_output().unwrap();
        drop(watchdog);
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command of a terminal, after its exports.
    fn script(&self, step: &Step, command: &str) -> String {
        let exports = self.exports.get(&step.terminal).map(|lines| lines.join("\n"));
        format!("{}\n{command}", exports.unwrap_or_default())
    }

    /// The output of the programs in the background.
    fn background_output(&self) -> String {
        let mut all = String::new();
        for entry in std::fs::read_dir(self.logs.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            all += &format!("{}:\n{text}\n", path.file_name().unwrap().display());
        }
        all
    }
}
