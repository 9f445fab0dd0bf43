//! What a process of a run holds: descriptors and streams of stdio by name, threads.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::{FromStr, SplitAsciiWhitespace};
use std::sync::{Mutex, MutexGuard};

use crate::control::Control;
use crate::threads::Thread;

pub struct State {
    /// The folder of the run: the control socket, and sockets over which descriptors pass.
    pub folder: PathBuf,
    slots: Mutex<BTreeMap<String, RawFd>>,
    /// Streams of stdio, as addresses.
    pub streams: Mutex<BTreeMap<String, usize>>,
    pub threads: Mutex<BTreeMap<String, Thread>>,
}

impl State {
    /// `NAME FOLDER [CONTROL [SLOT=DESCRIPTOR]…]`; the state lives until the process ends.
    pub fn start(arguments: &[String]) -> (&'static Self, Control) {
        let [name, folder, inherited @ ..] = arguments else { panic!("arguments: NAME FOLDER") };
        let state: &Self = Box::leak(Box::new(Self {
            folder: folder.into(),
            slots: Mutex::default(),
            streams: Mutex::default(),
            threads: Mutex::default(),
        }));
        let [control, slots @ ..] = inherited else {
            return (state, Control::connect(&state.folder, name));
        };
        for slot in slots {
            let (slot, descriptor) = slot.split_once('=').unwrap();
            state.put(slot, descriptor.parse().unwrap());
        }
        let mut control = Control::inherited(control.parse().unwrap());
        // The answer to `exec`.
        control.write("=");
        (state, control)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, RawFd>> {
        self.slots.lock().unwrap()
    }

    pub fn put(&self, slot: &str, descriptor: RawFd) {
        self.slots().insert(slot.to_owned(), descriptor);
    }

    pub fn remove(&self, slot: &str) {
        self.slots().remove(slot);
    }

    pub fn all(&self) -> BTreeMap<String, RawFd> {
        self.slots().clone()
    }

    /// The descriptor of a slot. `#7` is descriptor 7, and `null` is -1.
    pub fn descriptor(&self, slot: &str) -> RawFd {
        match slot.strip_prefix('#') {
            Some(number) => number.parse().unwrap(),
            None if slot == "null" => -1,
            None => *self.slots().get(slot).unwrap_or_else(|| panic!("no slot `{slot}`")),
        }
    }
}

/// The words of a line.
pub struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    pub fn new(line: &'a str) -> Self {
        Self(line.split_ascii_whitespace())
    }

    pub fn text(&mut self) -> &'a str {
        self.0.next().expect("a word is missing")
    }

    pub fn number<T: FromStr>(&mut self) -> T {
        let text = self.text();
        text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
    }

    pub fn optional(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// Numbers that are joined by `+`.
    pub fn lengths(&mut self) -> Vec<usize> {
        self.text().split('+').map(|length| length.parse().unwrap()).collect()
    }

    pub fn descriptor(&mut self, state: &State) -> RawFd {
        state.descriptor(self.text())
    }

    /// The remaining words as a line.
    pub fn rest(&mut self) -> String {
        self.0.by_ref().collect::<Vec<_>>().join(" ")
    }
}
