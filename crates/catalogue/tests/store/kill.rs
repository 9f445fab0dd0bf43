//! `kill -9` of a publishing process at random moments: the store keeps all that the process
//! acknowledged, has no write in part, and the next process continues.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use levada_catalogue::model::{Draft, Version};
use levada_catalogue::store::Store;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_core::{Clock, SystemClock};

use super::support::{NOW, check_consistent, content, draft, in_full, publish, upload};
use crate::child;

/// The variable with the number that the child starts at.
const FIRST: &str = "LEVADA_TEST_CHILD_FIRST";
/// The longest wait for a line of the child.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The package of publication `n`; every third has none.
fn bytes(n: u64) -> Option<Vec<u8>> {
    let length = if n % 8 == 7 { 300_000 } else { n * 7919 % 20_000 };
    (n % 3 != 2).then(|| (0..length).map(|at| (at * (n + 3)) as u8).collect())
}

fn numbered(n: u64) -> Draft {
    draft(n / 4, n % 4, bytes(n).as_deref())
}

/// The draft that is yanked directly after publication `n`: after every fifth, the one before.
fn yanks(n: u64) -> Option<Draft> {
    (n % 5 == 4 && !n.is_multiple_of(4)).then(|| numbered(n - 1))
}

/// The child. It prints what it begins and what is done, until it is killed.
fn publisher(folder: &Path) {
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = EmbeddedStore::open(folder).unwrap();
    let print = |what: &str, n: u64| {
        // The line break in front ends the unfinished line of the test harness.
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n@{what} {n}").and_then(|()| out.flush()).unwrap();
    };
    for n in first.. {
        print("begin", n);
        if let Some(bytes) = bytes(n) {
            upload(&store, &bytes).unwrap();
        }
        publish(&store, &numbered(n)).unwrap();
        print("published", n);
        if let Some(draft) = yanks(n) {
            store.yank(&draft.key, &draft.version, true, None, NOW).unwrap();
        }
        if n % 7 == 0 {
            let later = SystemClock.now().after(Duration::from_secs(60));
            store.collect(Duration::ZERO, None, later).unwrap();
        }
        print("done", n);
    }
}

/// The progress of a child.
#[derive(Debug, Default)]
struct Progress {
    /// All publications before this number are done.
    done: u64,
    /// The publication that was begun and is not done.
    begun: Option<u64>,
    /// Whether the store has acknowledged it.
    published: bool,
}

impl Progress {
    fn record(&mut self, line: &str) {
        let Some((what, n)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
            return;
        };
        let n: u64 = n.parse().unwrap();
        match what {
            "begin" => (self.begun, self.published) = (Some(n), false),
            "published" => self.published = true,
            "done" => (self.begun, self.done) = (None, n + 1),
            other => panic!("{other}"),
        }
    }
}

fn start(folder: &Path, first: u64) -> (Child, Receiver<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "a_killed_process_loses_nothing_acknowledged";
    child::configure(&mut command, module_path!(), test, folder);
    let mut child = command.env(FIRST, first.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let (send, receive) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        // The last line may be incomplete.
        out.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    (child, receive)
}

/// Lets a child make `complete` publications and kills it `delay(duration)` after it began the next
/// one. `duration` is the moving average of the time that a publication takes.
fn run_and_kill(
    folder: &Path,
    first: u64,
    complete: u64,
    delay: impl Fn(Duration) -> Duration,
    duration: &mut Duration,
) -> Progress {
    let (mut child, lines) = start(folder, first);
    let mut progress = Progress { done: first, ..Progress::default() };
    let mut since = Instant::now();
    while progress.begun != Some(first + complete) {
        let before = progress.begun;
        let line = lines.recv_timeout(TIMEOUT).expect("the child publishes");
        progress.record(&line);
        match (before, progress.begun) {
            (None, Some(_)) => since = Instant::now(),
            (Some(_), None) => *duration = (*duration * 3 + since.elapsed()) / 4,
            _ => {}
        }
    }
    thread::sleep(delay(*duration));
    child.kill().unwrap();
    child.wait().unwrap();
    loop {
        match lines.recv_timeout(TIMEOUT) {
            Ok(line) => progress.record(&line),
            Err(RecvTimeoutError::Disconnected) => return progress,
            Err(RecvTimeoutError::Timeout) => panic!("the pipe of the killed child stays open"),
        }
    }
}

/// Asserts that all publications before `progress.done` are in the store, and the one begun
/// completely or not at all. Returns the number of the next publication.
fn check(store: &EmbeddedStore, from: u64, progress: &Progress) -> u64 {
    let get = |n: u64| {
        let whole = numbered(n);
        let found = store.get(&whole.key, &whole.version).unwrap()?;
        assert_eq!(found.descriptor, whole.descriptor, "{n}");
        let package = whole.package.as_ref().map(|package| package.digest);
        assert_eq!(found.package.map(|package| package.digest), package, "{n}");
        if let Some(digest) = package {
            assert_eq!(content(store, &digest), bytes(n), "{n}: other content than was uploaded");
        }
        Some(found.yanked)
    };
    for n in from..progress.done {
        assert!(get(n).is_some(), "{n} was acknowledged and is missing");
        if let Some(draft) = yanks(n) {
            let version: &Version = &draft.version;
            assert!(
                store.get(&draft.key, version).unwrap().unwrap().yanked,
                "{n}: the yank is missing"
            );
        }
    }
    let Some(begun) = progress.begun else {
        return progress.done;
    };
    let stored = get(begun).is_some();
    assert!(stored || !progress.published, "{begun} was acknowledged and is missing");
    if stored { begun + 1 } else { begun }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    if let Some(folder) = child::folder() {
        return publisher(&folder);
    }
    // Under load more kills miss the publication that they are timed for, and are repeated.
    let (kills, min_within, max_kills) = if in_full() { (200, 100, 1000) } else { (12, 6, 60) };
    let folder = tempfile::tempdir().unwrap();
    let mut random: u64 = 7;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut next = 0;
    let mut within = 0;
    let mut checked = 0;
    let mut round = 0;
    let mut duration = Duration::from_millis(5);
    while round < kills || (within < min_within && round < max_kills) {
        round += 1;
        let part = u32::try_from(below(1000)).unwrap();
        // At least one complete publication, to measure how long it takes.
        let complete = 1 + below(3);
        let delay = |duration| duration * part / 1000;
        let progress = run_and_kill(folder.path(), next, complete, delay, &mut duration);
        within += u32::from(progress.begun.is_some() && !progress.published);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        next = check(&store, next, &progress);
        // The yank after the last publication may be missing; the next child does not repeat it.
        if let Some(draft) = next.checked_sub(1).and_then(yanks) {
            store.yank(&draft.key, &draft.version, true, None, NOW).unwrap();
        }
        let mut temp = std::fs::read_dir(folder.path().join("blobs/temp")).unwrap();
        assert!(temp.next().is_none(), "a temporary file is left");
        // From time to time everything: later kills do not lose what earlier children published.
        if round % 10 == 0 || round >= kills {
            check_consistent(&store, &format!("round {round}"));
            check(&store, 0, &Progress { done: next, ..Progress::default() });
            checked = next;
        }
    }
    assert_eq!(checked, next);
    assert!(within >= min_within, "only {within} of {round} kills within a publication");
}
