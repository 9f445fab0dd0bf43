//! Runs a script once: processes, their steps one after the other, and what each step answered.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::diag::Diag;
use super::process::{Answer, Process, accept, spawn};
use super::script::{Script, Step};
use crate::library::{upgraded, with_library};

/// How long a step may take; far more than it needs on a loaded machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// What a run answered.
#[derive(Debug, PartialEq)]
pub struct Record {
    /// One for each step that was made.
    pub answers: Vec<String>,
    /// How the processes ended, and what they wrote to standard error.
    pub ends: Vec<String>,
}

/// Runs `script`. With the library, the second part tells whether a connection went over to shared
/// memory.
pub fn run(script: &Script, library: bool, timeout: Duration) -> (Record, Option<bool>) {
    loop {
        let mut run = Run::start(script, library, timeout);
        let answers = run.all(&script.steps);
        let known = run.processes.values().filter_map(|process| upgraded(process.pid));
        let upgraded = known.reduce(|one, other| one || other);
        // The kernel may give one port to two connections of a script, which answers with ports
        // cannot tell apart.
        let ambiguous = run.ambiguous;
        if run.traces {
            eprintln!("{}: used shared memory: {upgraded:?}", script.origin);
        }
        let ends = run.end();
        if !ambiguous {
            return (Record { answers, ends }, upgraded);
        }
    }
}

/// The answer to a step that took too long, after which the run ends.
pub const LATE: &str = "no answer";

struct Run {
    folder: TempDir,
    listener: UnixListener,
    processes: HashMap<String, Process>,
    /// Ends that are known already: of processes that were killed, or ended by themselves.
    ended: HashMap<String, String>,
    /// Ports in the order in which they appeared: an answer has their position.
    ports: Vec<u16>,
    /// The slot that got each port.
    owners: HashMap<u16, String>,
    /// Two slots got the same port.
    ambiguous: bool,
    /// The ports of bound slots.
    bound: HashMap<String, u16>,
    connections: Vec<(SocketAddr, SocketAddr)>,
    /// No longer, once a step fills a connection.
    settles: bool,
    /// The last step said that more follows, so its bytes may wait.
    holds: bool,
    /// Calls that were started and have not returned; what they send may be under way all the time.
    waiting: usize,
    /// Counts that are compared within the run only.
    counts: HashMap<String, String>,
    diag: Diag,
    timeout: Duration,
    /// Each step is printed as it is answered.
    traces: bool,
}

impl Run {
    fn start(script: &Script, library: bool, timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("control")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut run = Self {
            folder,
            listener,
            processes: HashMap::new(),
            ended: HashMap::new(),
            ports: Vec::new(),
            owners: HashMap::new(),
            ambiguous: false,
            bound: HashMap::new(),
            connections: Vec::new(),
            settles: true,
            holds: false,
            waiting: 0,
            counts: HashMap::new(),
            diag: Diag::new(),
            timeout,
            traces: std::env::var_os("LEVADA_SCRIPT_TRACE").is_some(),
        };
        for name in ["A", "B", "C"] {
            if script.steps.iter().any(|step| step.process == name) {
                let fast = library && !script.plain.iter().any(|plain| plain == name);
                run.spawn(name, fast, script.is_direct);
            }
        }
        run
    }

    fn spawn(&mut self, name: &str, fast: bool, is_direct: bool) {
        let child = spawn(name, self.folder.path(), |command| {
            if fast {
                with_library(command);
            }
            if fast && is_direct {
                command.env("LEVADA_FAST_DIRECT", "1");
            }
        });
        let Some((_, mut process)) = accept(&self.listener) else {
            let errors = self.errors(name);
            panic!("process {name} does not start{}: {errors}", if fast { " (fast)" } else { "" });
        };
        process.owns(child);
        self.processes.insert(name.to_owned(), process);
    }

    fn errors(&self, name: &str) -> String {
        let path = self.folder.path().join(format!("{name}.stderr"));
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).trim().to_owned()
    }

    /// Performs all steps, up to one that gets no answer.
    fn all(&mut self, steps: &[Step]) -> Vec<String> {
        let mut answers = Vec::new();
        for step in steps {
            let start = Instant::now();
            let answer = self.step(step);
            if self.traces {
                eprintln!("{} {} # {answer} ({:?})", step.process, step.line, start.elapsed());
            }
            let late = answer == LATE;
            answers.push(answer);
            if late {
                break;
            }
        }
        answers
    }

    /// Performs a step; the answer is comparable between runs.
    fn step(&mut self, step: &Step) -> String {
        let (verb, rest) = step.line.split_once(' ').unwrap_or((&step.line, ""));
        if !self.processes.contains_key(&step.process) {
            return "gone".to_owned();
        }
        match verb {
            "start" => {
                self.settle();
                let line = self.resolve(rest);
                self.process(step).send(&line);
                self.waiting += 1;
                String::new()
            }
            "finish" => {
                self.waiting = self.waiting.saturating_sub(1);
                self.answer(step, self.timeout)
            }
            "asleep" => {
                self.process(step).wait_asleep();
                String::new()
            }
            "nudge" => {
                self.process(step).wait_asleep();
                self.process(step).signal(signal(rest));
                thread::sleep(Duration::from_millis(3));
                String::new()
            }
            "interrupt" => {
                self.waiting = self.waiting.saturating_sub(1);
                self.interrupt(step, signal(rest))
            }
            "kill" => {
                self.process(step).signal(Signal::KILL);
                self.gone(&step.process)
            }
            _ => self.call(step, verb),
        }
    }

    fn process(&mut self, step: &Step) -> &mut Process {
        self.processes.get_mut(&step.process).unwrap()
    }

    /// Makes the call of a step, and waits for its answer.
    fn call(&mut self, step: &Step, verb: &str) -> String {
        self.settle();
        let line = self.resolve(&step.line);
        self.process(step).send(&line);
        self.settles &= verb != "fill";
        self.holds = line.contains("more");
        let answer = self.answer_to(step, &line);
        if verb == "fork" && answer == "=" {
            let Some((name, mut child)) = accept(&self.listener) else { return LATE.to_owned() };
            let Answer::Line(line) = child.answer(self.timeout) else { return LATE.to_owned() };
            self.processes.insert(name, child);
            return line;
        }
        answer
    }

    fn settle(&self) {
        if self.settles && !self.holds && self.waiting == 0 {
            self.diag.settle(&self.connections);
        }
    }

    /// Replaces `$SLOT` by a port, or 0 if the slot is not bound.
    fn resolve(&self, line: &str) -> String {
        let Some((before, slot)) = line.split_once('$') else { return line.to_owned() };
        let port = self.bound.get(slot).unwrap_or(&0);
        format!("{before}{port}")
    }

    fn answer(&mut self, step: &Step, timeout: Duration) -> String {
        match self.process(step).answer(timeout) {
            Answer::Line(line) => self.normalise(&line),
            Answer::Ended => self.gone(&step.process),
            Answer::Late => LATE.to_owned(),
        }
    }

    fn answer_to(&mut self, step: &Step, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let timeout = self.timeout;
        match self.process(step).answer(timeout) {
            Answer::Line(answer) => {
                self.note_ports(verb, rest, &answer);
                self.normalise(&answer)
            }
            Answer::Ended => self.gone(&step.process),
            Answer::Late => LATE.to_owned(),
        }
    }

    /// A process that has ended, or was killed.
    fn gone(&mut self, name: &str) -> String {
        let mut process = self.processes.remove(name).unwrap();
        let end = process.wait();
        self.ended.insert(name.to_owned(), end.clone());
        end
    }

    /// Sends a signal again and again until the call returns: one that arrives before the call has
    /// no effect on it.
    fn interrupt(&mut self, step: &Step, signal: Signal) -> String {
        let start = Instant::now();
        while start.elapsed() < self.timeout {
            self.process(step).wait_asleep();
            self.process(step).signal(signal);
            let answer = self.answer(step, Duration::from_millis(5));
            if answer != LATE {
                return answer;
            }
        }
        LATE.to_owned()
    }

    /// Learns the port of a bound slot, and the addresses of a connection.
    fn note_ports(&mut self, verb: &str, rest: &str, answer: &str) {
        let words: Vec<&str> = rest.split(' ').collect();
        let Some(address) = answer.split(' ').find_map(|word| word.strip_prefix('@')) else {
            return;
        };
        let Ok(address) = address.parse::<SocketAddr>() else { return };
        // Ports that the kernel chose.
        if verb == "connect" || verb == "bind" && words[1].ends_with(":0") {
            let owner = self.owners.entry(address.port()).or_insert_with(|| words[0].to_owned());
            self.ambiguous |= owner != words[0];
        }
        match verb {
            "bind" => {
                self.bound.insert(words[0].to_owned(), address.port());
            }
            "connect" if address.port() != 0 => {
                self.connections.push((address, words[1].parse().unwrap()));
            }
            _ => {}
        }
    }

    /// Replaces what differs between runs: ports by the order of their appearance, counts by
    /// whether they agree.
    fn normalise(&mut self, answer: &str) -> String {
        let words = answer.split(' ').map(|word| {
            if let Some((address, port)) =
                word.strip_prefix('@').and_then(|word| word.rsplit_once(':'))
            {
                let port: u16 = port.parse().unwrap();
                let position = self.ports.iter().position(|known| *known == port);
                let position = position.unwrap_or_else(|| {
                    self.ports.push(port);
                    self.ports.len() - 1
                });
                return format!("{address}:port{position}");
            }
            if let Some((name, count)) =
                word.strip_prefix('~').and_then(|word| word.split_once('='))
            {
                let known = self.counts.entry(name.to_owned()).or_insert_with(|| count.to_owned());
                let agrees = if known == count { "agrees" } else { "differs" };
                return format!("{name} {agrees}");
            }
            word.to_owned()
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Ends all processes: each ends by itself when its control socket closes.
    fn end(mut self) -> Vec<String> {
        for process in self.processes.values_mut() {
            process.close();
        }
        let names: Vec<String> = self.processes.keys().cloned().collect();
        for name in &names {
            self.gone(name);
        }
        let mut ends: Vec<String> =
            self.ended.iter().map(|(name, end)| format!("{name} {end}")).collect();
        for name in ["A", "B", "C"] {
            let errors = self.errors(name);
            if !errors.is_empty() {
                ends.push(format!("{name} wrote: {errors}"));
            }
        }
        ends.sort();
        ends
    }
}

fn signal(name: &str) -> Signal {
    match name {
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        _ => panic!("no signal `{name}`"),
    }
}
