//! Generates scripts from seeds. A model of each connection (`model.rs`) says what a step finds
//! there, so that no step blocks for ever and no result is a matter of timing: at most 31,000 bytes
//! wait in a direction, which every buffer takes, and a read blocks only if something will wake it.

mod confine;
mod endings;
mod events;
mod lifecycle;
mod model;
mod options;
mod processes;
mod readiness;
mod traffic;
mod waiting;

use super::script::Script;
use model::{Connection, Epoll, Holder};

/// The bytes that wait in a direction.
const MOST_UNREAD: usize = 31_000;

/// Random numbers from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

pub struct Generator {
    random: Random,
    script: Script,
    connections: Vec<Connection>,
    epolls: Vec<Epoll>,
    /// Processes that steps can name, with the children that each has.
    processes: Vec<Process>,
    /// Numbers for names and streams of bytes.
    last: usize,
}

struct Process {
    name: String,
    /// The process whose child this is.
    parent: Option<String>,
    children: usize,
}

/// A few steps that belong together. It makes none where the model does not permit them.
type Scene = fn(&mut Generator);

/// Scenes with their weights.
const SCENES: &[(usize, Scene)] = &[
    (20, Generator::exchange),
    (12, Generator::send_some),
    (14, Generator::receive_some),
    (4, Generator::receive_nothing),
    (10, Generator::block_until_data),
    (3, Generator::block_until_all),
    (3, Generator::block_until_end),
    (10, Generator::look),
    (9, Generator::use_epoll),
    (3, Generator::nest_epolls),
    (5, Generator::ask_options),
    (4, Generator::toggle_nonblocking),
    (4, Generator::count_unread),
    (3, Generator::time_out),
    (3, Generator::set_low_water),
    (4, Generator::duplicate),
    (6, Generator::close_one),
    (4, Generator::shut_down),
    (5, Generator::open_another),
    (3, Generator::interrupt),
    (2, Generator::restart),
    (2, Generator::fail_on_unconnected),
    (2, Generator::send_urgent),
    (2, Generator::use_stdio),
    (2, Generator::use_threads),
    (3, Generator::fork),
    (4, Generator::end_child),
    (2, Generator::exec),
    (2, Generator::pass),
    (2, Generator::give_to_cat),
    (2, Generator::transfer_some),
    (1, Generator::lower_limit),
    (1, Generator::open_with_deepbind),
    (1, Generator::filter_calls),
];

/// The last scene of some scripts.
const LAST: &[(usize, Scene)] = &[
    (12, Generator::transfer_much),
    (16, Generator::kill_one),
    (5, Generator::die_of_sigpipe),
    (8, Generator::reset),
    (59, |_| {}),
];

/// The script of a seed.
pub fn generate(seed: u64) -> Script {
    let script = Script { origin: format!("LEVADA_SCRIPT_SEED={seed}"), ..Script::default() };
    let process = |name: &str| Process { name: name.to_owned(), parent: None, children: 0 };
    let mut generator = Generator {
        random: Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        script,
        connections: Vec::new(),
        epolls: Vec::new(),
        processes: ["A", "B"].map(process).into(),
        last: 0,
    };
    generator.make();
    generator.script
}

impl Generator {
    fn make(&mut self) {
        for name in ["A", "B"] {
            if self.random.percent(12) {
                self.script.plain.push(name.to_owned());
            }
        }
        self.open();
        if self.random.percent(30) {
            self.open();
        }
        self.prelude();
        for _ in 0..self.random.within(4, 22) {
            self.scene(SCENES);
        }
        self.scene(LAST);
        self.finish();
    }

    fn scene(&mut self, scenes: &[(usize, Scene)]) {
        let all = scenes.iter().map(|(weight, _)| weight).sum();
        let mut left = self.random.below(all);
        for (weight, scene) in scenes {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return scene(self),
            }
        }
    }

    /// What makes a connection go over to shared memory: some exchanges, or many bytes in one
    /// direction.
    fn prelude(&mut self) {
        for connection in 0..self.connections.len() {
            if self.random.percent(15) {
                let end = self.random.below(2);
                for _ in 0..self.random.within(2, 9) {
                    let length = self.random.within(9000, 16_000);
                    self.send(connection, end, length);
                    self.receive_all(connection, 1 - end);
                }
                continue;
            }
            // Before, while, or after the connection goes over.
            let exchanges = match self.random.percent(30) {
                true => self.random.below(4),
                false => self.random.within(3, 12),
            };
            for _ in 0..exchanges {
                self.exchange_on(connection);
            }
        }
    }

    /// Everything that is left on open connections is read, and they are closed or left to the end
    /// of the process.
    fn finish(&mut self) {
        for connection in 0..self.connections.len() {
            for end in 0..2 {
                if let Some(holder) = self.some_holder(connection, end) {
                    self.call(&holder.process, format!("drain {}", holder.slot));
                    if self.random.percent(50) {
                        self.call(&holder.process, format!("close {}", holder.slot));
                    }
                }
            }
        }
    }

    fn call(&mut self, process: &str, line: impl Into<String>) {
        self.script.step(process, line);
    }

    fn on(&mut self, holder: &Holder, line: impl Into<String>) {
        self.script.step(&holder.process, line);
    }

    /// A name that no slot had.
    fn name(&mut self, kind: &str) -> String {
        self.last += 1;
        format!("{kind}{}", self.last)
    }

    /// A stream of bytes that no step had.
    fn tag(&mut self) -> usize {
        self.last += 1;
        self.last
    }
}
