//! `kill -9` of a process that publishes, at random moments: nothing that it acknowledged is lost, nothing is
//! half there, and the next one goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Nothing but tests.

mod support;

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

use support::{NOW, check_consistent, content, draft, in_full, publish, upload};

const FOLDER: &str = "LEVADA_TEST_FOLDER";
const FIRST: &str = "LEVADA_TEST_FIRST";
/// How long anything may take before the test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is published as number `n`; every third without a package.
fn bytes(n: u64) -> Option<Vec<u8>> {
    let length = if n % 8 == 7 { 300_000 } else { n * 7919 % 20_000 };
    (n % 3 != 2).then(|| (0..length).map(|at| (at * (n + 3)) as u8).collect())
}

fn numbered(n: u64) -> Draft {
    draft(n / 4, n % 4, bytes(n).as_deref())
}

/// Every fifth takes the one before back in the same breath.
fn yanks(n: u64) -> Option<Draft> {
    (n % 5 == 4 && !n.is_multiple_of(4)).then(|| numbered(n - 1))
}

/// The process that is killed. It says what it begins and what is done.
fn publisher(folder: &Path) {
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = EmbeddedStore::open(folder).unwrap();
    let say = |what: &str, n: u64| {
        // With a line of its own: the test harness begins one and does not end it.
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n@{what} {n}").and_then(|()| out.flush()).unwrap();
    };
    for n in first.. {
        say("begin", n);
        if let Some(bytes) = bytes(n) {
            upload(&store, &bytes).unwrap();
        }
        publish(&store, &numbered(n)).unwrap();
        say("published", n);
        if let Some(draft) = yanks(n) {
            store.yank(&draft.key, &draft.version, true, None, NOW).unwrap();
        }
        if n % 7 == 0 {
            let later = SystemClock.now().after(Duration::from_secs(60));
            store.collect(Duration::ZERO, None, later).unwrap();
        }
        say("done", n);
    }
}

/// How far a process came.
#[derive(Debug, Default)]
struct Progress {
    /// The numbers before this one are done.
    done: u64,
    /// Begun and not done.
    begun: Option<u64>,
    published: bool,
}

impl Progress {
    fn hear(&mut self, line: &str) {
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
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_at_any_moment_a_store_keeps_what_it_acknowledged", "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, receive) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        // The last line may be cut.
        out.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    (child, receive)
}

/// Lets a process publish some and kills it within the next one, about `spread` after its beginning. How far it came, and how
/// long the last whole one took.
fn run_and_kill(
    folder: &Path,
    first: u64,
    whole: u64,
    delay: impl Fn(Duration) -> Duration,
    spread: &mut Duration,
) -> Progress {
    let (mut child, lines) = start(folder, first);
    let mut progress = Progress { done: first, ..Progress::default() };
    let mut since = Instant::now();
    while progress.begun != Some(first + whole) {
        let before = progress.begun;
        let line = lines.recv_timeout(PATIENCE).expect("the process publishes");
        progress.hear(&line);
        match (before, progress.begun) {
            (None, Some(_)) => since = Instant::now(),
            (Some(_), None) => *spread = (*spread * 3 + since.elapsed()) / 4,
            _ => {}
        }
    }
    thread::sleep(delay(*spread));
    child.kill().unwrap();
    child.wait().unwrap();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => progress.hear(&line),
            Err(RecvTimeoutError::Disconnected) => return progress,
            Err(RecvTimeoutError::Timeout) => panic!("the pipe of a dead process stays open"),
        }
    }
}

/// Everything before `progress.done` is there, and the one begun is there as a whole or not at all. The number of the next
/// one to publish.
fn check(store: &EmbeddedStore, from: u64, progress: &Progress) -> u64 {
    let get = |n: u64| {
        let whole = numbered(n);
        let found = store.get(&whole.key, &whole.version).unwrap()?;
        assert_eq!(found.descriptor, whole.descriptor, "{n}");
        let package = whole.package.as_ref().map(|package| package.digest);
        assert_eq!(found.package.map(|package| package.digest), package, "{n}");
        if let Some(digest) = package {
            assert_eq!(content(store, &digest), bytes(n), "{n}: not what was uploaded");
        }
        Some(found.yanked)
    };
    for n in from..progress.done {
        assert!(get(n).is_some(), "{n} was acknowledged and is gone");
        if let Some(draft) = yanks(n) {
            let version: &Version = &draft.version;
            assert!(
                store.get(&draft.key, version).unwrap().unwrap().yanked,
                "{n}: the yank is gone"
            );
        }
    }
    let Some(begun) = progress.begun else {
        return progress.done;
    };
    let there = get(begun).is_some();
    assert!(there || !progress.published, "{begun} was acknowledged and is gone");
    if there { begun + 1 } else { begun }
}

#[test]
fn killed_at_any_moment_a_store_keeps_what_it_acknowledged() {
    // The process that is killed runs this very test.
    if let Some(folder) = std::env::var_os(FOLDER) {
        return publisher(Path::new(&folder));
    }
    let (kills, within_wanted) = if in_full() { (200, 100) } else { (12, 6) };
    let folder = tempfile::tempdir().unwrap();
    let mut random: u64 = 7;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    let (mut next, mut within, mut checked) = (0, 0, 0);
    let mut spread = Duration::from_millis(5);
    for round in 0..kills {
        let part = u32::try_from(below(1000)).unwrap();
        // One whole publication at least, to know how long they take here.
        let whole = 1 + below(3);
        let progress =
            run_and_kill(folder.path(), next, whole, |spread| spread * part / 1000, &mut spread);
        within += u32::from(progress.begun.is_some() && !progress.published);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        next = check(&store, next, &progress);
        // A yank that was cut off is made up for, so that the next process need not.
        if let Some(draft) = next.checked_sub(1).and_then(yanks) {
            store.yank(&draft.key, &draft.version, true, None, NOW).unwrap();
        }
        let mut temp = std::fs::read_dir(folder.path().join("blobs/temp")).unwrap();
        assert!(temp.next().is_none(), "a file was left");
        // Everything, from time to time: what an earlier process acknowledged is not forgotten later.
        if round % 10 == 9 || round + 1 == kills {
            check_consistent(&store, &format!("round {round}"));
            check(&store, 0, &Progress { done: next, ..Progress::default() });
            checked = next;
            eprintln!("{} kills, {within} of them within a publication", round + 1);
        }
    }
    assert_eq!(checked, next);
    assert!(within >= within_wanted, "only {within} of {kills} kills within a publication");
}
