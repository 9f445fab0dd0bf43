//! Scripts in which connections need not be those of the kernel.
//!
//! The first connections between two processes are made by the kernel: each listener has some
//! before those of the script, in both runs. What a connection without the kernel does not do ends
//! the script: docs/fast.md lists it.

use super::script::{Script, Step};

/// First words of steps that answer differently, and why.
const VERBS: &[(&str, &str)] = &[
    ("exec", "another image"),
    ("spawn", "another program"),
    ("pass", "another process, by a message"),
    ("disconnect", "connect(2) with AF_UNSPEC"),
    ("filter", "seccomp"),
    ("fdopen", "stdio of libc"),
    ("dprintf", "stdio of libc"),
    ("aio-read", "calls that bypass the library"),
    ("aio-write", "calls that bypass the library"),
    ("zerocopy", "MSG_ZEROCOPY"),
    ("deepbind", "calls that bypass the library"),
];

/// Words of steps that answer differently, and why.
const WORDS: &[(&str, &str)] = &[
    ("splice", "splice(2)"),
    ("rcvlowat", "an option that only the kernel has"),
    ("timestamp", "an option that only the kernel has"),
    ("zerocopy", "an option that only the kernel has"),
    ("inq", "an option that only the kernel has"),
    ("async", "signals of the kernel"),
    ("oob", "urgent data"),
    ("+oob", "urgent data"),
    ("exclusive", "EPOLLEXCLUSIVE"),
];

/// Scripts by hand that answer differently, and why.
pub const DIFFERENT: &[(&str, &str)] = &[
    ("epoll_after_close_of_a_duplicate", "a registration ends with its descriptor"),
    ("epoll_two_instances", "a connection is in one epoll, and not in a nested one"),
    ("given_to_cat", "another program"),
    ("stdio", "stdio of libc"),
];

/// The script, up to what answers differently, with earlier connections to each listener.
pub fn prepare(script: &Script) -> Script {
    // Descriptors in an epoll of the script: another one, of a pump, would be a second one.
    let mut watched: Vec<&str> = Vec::new();
    let kept = script.steps.iter().take_while(|step| {
        let words: Vec<&str> = step.line.split(' ').collect();
        if let ["ctl", _, "add", slot, ..] = words[..] {
            watched.push(slot);
        }
        let is_pump = words.contains(&"pump") && words.iter().any(|word| word.contains("epoll"));
        let is_second = is_pump && words.iter().any(|word| watched.contains(word));
        !is_different(step) && !is_second
    });
    let mut script = Script { steps: kept.cloned().collect(), ..script.clone() };
    remove_unfinished(&mut script);
    script.is_direct = true;
    with_earlier_connections(&script)
}

fn is_different(step: &Step) -> bool {
    let mut words = step.line.split([' ', '+']);
    let is_first = |(verb, _): &(&str, &str)| step.line.split(' ').next() == Some(verb);
    VERBS.iter().any(is_first) || words.any(|word| WORDS.iter().any(|(other, _)| *other == word))
}

/// Removes calls that were started, and whose end is not in the script any more.
fn remove_unfinished(script: &mut Script) {
    let mut started: Vec<(String, usize)> = Vec::new();
    for (at, step) in script.steps.iter().enumerate() {
        match step.line.split(' ').next() {
            Some("start") => started.push((step.process.clone(), at)),
            Some("finish" | "interrupt" | "kill") => {
                started.retain(|(process, _)| *process != step.process);
            }
            _ => {}
        }
    }
    for (process, first) in started.into_iter().rev() {
        let steps = std::mem::take(&mut script.steps);
        let is_kept = |(at, step): &(usize, Step)| *at < first || step.process != process;
        let kept = steps.into_iter().enumerate().filter(is_kept);
        script.steps = kept.map(|(_, step)| step).collect();
    }
}

/// Adds earlier connections to each listener, before the first one of each process.
fn with_earlier_connections(from: &Script) -> Script {
    let mut script = Script { steps: Vec::new(), ..from.clone() };
    // Listeners that were not closed, and pairs that have connected.
    let mut listeners: Vec<(String, String)> = Vec::new();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for step in &from.steps {
        let words: Vec<&str> = step.line.split(' ').collect();
        match words[..] {
            ["listen", slot, ..] => listeners.push((slot.to_owned(), step.process.clone())),
            ["close", slot] => listeners.retain(|(other, _)| other != slot),
            ["connect", _, address] => {
                let slot = address.rsplit_once('$').map_or("", |(_, slot)| slot);
                let of = listeners.iter().find(|(other, _)| other == slot);
                let pair = (step.process.clone(), slot.to_owned());
                if let Some((slot, server)) = of.filter(|_| !pairs.contains(&pair)) {
                    connect_earlier(&mut script, (&step.process, address), (server, slot));
                    pairs.push(pair);
                }
            }
            _ => {}
        }
        script.steps.push(step.clone());
    }
    script
}

fn connect_earlier(
    script: &mut Script,
    (from, address): (&str, &str),
    (to, listener): (&str, &str),
) {
    let family = if address.starts_with('[') { "inet6" } else { "inet" };
    for number in 0..2 {
        let [client, accepted] = ["v", "w"].map(|kind| format!("{kind}{number}{listener}"));
        script.step(from, format!("socket {client} {family}"));
        script.step(from, format!("connect {client} {address}"));
        script.step(to, format!("poll poll 5000 {listener}=in"));
        script.step(to, format!("accept {listener} {accepted} accept"));
        script.step(from, format!("close {client}"));
        script.step(to, format!("close {accepted}"));
    }
}
