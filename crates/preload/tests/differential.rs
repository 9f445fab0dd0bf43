//! The differential suite: each script runs without and with the library, and every step must
//! answer the same.
//!
//! | variable | effect |
//! |---|---|
//! | `LEVADA_SCRIPT_SEED=7` | runs the script of one seed |
//! | `LEVADA_SCRIPT_FILE=PATH` | runs a stored script |
//! | `LEVADA_SCRIPT_COUNT=500` | runs this many seeds |
//! | `LEVADA_SCRIPT_FIRST=1000` | begins with this seed |
//! | `LEVADA_SCRIPT_PLAIN=1` | compares two runs without the library: what differs is a fault of the suite |
//! | `LEVADA_SCRIPT_DIRECT=1` | runs with connections that the kernel does not know |
//! | `LEVADA_SCRIPT_TRACE=1` | prints each step as it is answered, with its time |
//! | `LEVADA_SCRIPT_STRICT=1` | a difference counts although it does not repeat |
//! | `LEVADA_SCRIPT_SHORTEN=1` | looks for fewer steps that differ, and prints them |

mod diag;
mod direct;
mod generator;
mod process;
mod run;
mod script;
mod stored;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use generator::generate;
use run::{LATE, Record, STEP_TIMEOUT, run};
use script::{Script, Step};

use crate::library::in_full;

/// Scripts that run at the same time: most of a run is waiting.
const AT_ONCE: usize = 6;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the second run has the library.
fn library() -> bool {
    variable("LEVADA_SCRIPT_PLAIN").is_none()
}

/// Two runs of a script; the text says how they differ.
struct Comparison {
    difference: Option<String>,
    upgraded: Option<bool>,
}

/// How often a difference must repeat. A kernel under load delays what the other end finds, also
/// without the library.
const REPEATS: usize = 3;

/// A difference counts if it repeats.
fn compare(script: &Script) -> Comparison {
    let first = compare_once(script);
    if variable("LEVADA_SCRIPT_STRICT").is_some() || first.difference.is_none() {
        return first;
    }
    for _ in 0..REPEATS {
        let again = compare_once(script);
        if again.difference.is_none() {
            eprintln!("not repeated: {}", first.difference.unwrap_or_default());
            return again;
        }
    }
    first
}

fn compare_once(script: &Script) -> Comparison {
    let (without, _) = run(script, false, STEP_TIMEOUT);
    if without.answers.last().is_some_and(|answer| answer == LATE) {
        let text = script.text(|step| without.answers.get(step).cloned().unwrap_or_default());
        let difference =
            format!("{}: a step has no answer without the library\n{text}", script.origin);
        return Comparison { difference: Some(difference), upgraded: None };
    }
    let (with, upgraded) = run(script, library(), STEP_TIMEOUT);
    let difference = (without != with).then(|| explain(script, &without, &with));
    Comparison { difference, upgraded }
}

/// The script with its answers, up to the first that differs.
fn explain(script: &Script, without: &Record, with: &Record) -> String {
    let pairs = without.answers.iter().zip(&with.answers);
    let first = pairs.take_while(|(one, other)| one == other).count();
    let note = |step: usize| match without.answers.get(step) {
        Some(answer) if step == first => {
            let other = with.answers.get(step).map_or("", String::as_str);
            format!("← differs\n  # without: {answer}\n  # with:    {other}")
        }
        Some(answer) if step < first => answer.clone(),
        _ => "…".to_owned(),
    };
    let ends = if without.ends == with.ends {
        String::new()
    } else {
        format!("ends without: {:?}\nends with:    {:?}\n", without.ends, with.ends)
    };
    format!("{}\n{}{ends}", script.origin, script.text(note))
}

/// Returns true if scripts run with connections that the kernel does not know.
fn is_direct() -> bool {
    variable("LEVADA_SCRIPT_DIRECT").is_some()
}

/// The script of a seed.
fn script_of(seed: u64, is_direct: bool) -> Script {
    let script = generate(seed);
    if is_direct { direct::prepare(&script) } else { script }
}

/// Compares the scripts of many seeds, some at a time.
fn compare_all(seeds: impl Iterator<Item = u64> + Send, is_direct: bool) {
    let seeds = Mutex::new(seeds);
    let differences = Mutex::new(Vec::new());
    let upgraded = AtomicUsize::new(0);
    let known = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap().next() else { return };
                    let comparison = compare(&script_of(seed, is_direct));
                    if let Some(moved) = comparison.upgraded {
                        known.fetch_add(1, Ordering::Relaxed);
                        upgraded.fetch_add(usize::from(moved), Ordering::Relaxed);
                    }
                    if let Some(difference) = comparison.difference {
                        differences.lock().unwrap().push((seed, difference));
                    }
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    report(&differences, is_direct);
    let upgraded = upgraded.into_inner();
    let known = known.into_inner();
    eprintln!("{upgraded} of {known} scripts used shared memory");
    // About half of them do; fewer on a machine where the monitor answers late.
    assert!(upgraded * 10 >= known, "only {upgraded} of {known} scripts used shared memory");
}

fn report(differences: &[(u64, String)], is_direct: bool) {
    let Some((seed, first)) = differences.first() else { return };
    let seeds: Vec<_> = differences.iter().map(|(seed, _)| seed.to_string()).collect();
    let shortest = variable("LEVADA_SCRIPT_SHORTEN").map(|_| shorten(&script_of(*seed, is_direct)));
    let shortest = shortest.map_or(String::new(), |script| {
        format!("\nfewer steps that differ:\n{}", compare(&script).difference.unwrap_or_default())
    });
    panic!("{} scripts differ: {}\n\n{first}{shortest}", seeds.len(), seeds.join(" "));
}

/// Removes steps, many at once at first, as long as the same step differs. It stops after some
/// minutes.
fn shorten(script: &Script) -> Script {
    let start = Instant::now();
    let mut shortest = script.clone();
    let Some(step) = first_difference(script, STEP_TIMEOUT) else { return shortest };
    for size in [16, 4, 1] {
        let mut end = shortest.steps.len();
        while end > 0 && start.elapsed() < Duration::from_secs(180) {
            let begin = end.saturating_sub(size);
            let mut shorter = shortest.clone();
            shorter.steps.drain(begin..end);
            if first_difference(&shorter, Duration::from_secs(2)).as_ref() == Some(&step) {
                shortest = shorter;
            }
            end = begin;
        }
    }
    shortest
}

/// The first step that answers differently. A script whose steps are not valid, as where a slot is
/// missing, has none.
fn first_difference(script: &Script, timeout: Duration) -> Option<Step> {
    let (without, _) = run(script, false, timeout);
    let invalid = |answer: &String| answer == LATE || answer == "ended with 101";
    if without.answers.iter().any(invalid) {
        return None;
    }
    let (with, _) = run(script, library(), timeout);
    let mut pairs = without.answers.iter().zip(&with.answers);
    pairs.position(|(one, other)| one != other).map(|step| script.steps[step].clone())
}

#[test]
fn generated_scripts_answer_the_same() {
    let number = |name| variable(name).map(|value| value.parse::<u64>().unwrap());
    if let Some(path) = variable("LEVADA_SCRIPT_FILE") {
        let text = std::fs::read_to_string(&path).unwrap();
        let script = Script::parse(&path, &text, 8);
        let script = if is_direct() { direct::prepare(&script) } else { script };
        let difference = compare(&script).difference;
        assert!(difference.is_none(), "{}", difference.unwrap());
        return;
    }
    if let Some(seed) = number("LEVADA_SCRIPT_SEED") {
        return compare_all(seed..=seed, is_direct());
    }
    let count = number("LEVADA_SCRIPT_COUNT").unwrap_or(if in_full() { 300 } else { 60 });
    let first = number("LEVADA_SCRIPT_FIRST").unwrap_or(1);
    compare_all(first..first + count, is_direct());
}

#[test]
fn generated_scripts_answer_the_same_without_the_kernel() {
    let count = if in_full() { 200 } else { 40 };
    compare_all(1..=count, true);
}

/// A script of a seed is the same wherever it is made.
#[test]
fn scripts_can_be_made_again() {
    static SEED: AtomicU64 = AtomicU64::new(0);
    for _ in 0..50 {
        let seed = SEED.fetch_add(1, Ordering::Relaxed);
        let text = generate(seed).text(|_| String::new());
        assert_eq!(text, generate(seed).text(|_| String::new()));
        let parsed = Script::parse("text", &text, 0);
        assert_eq!(parsed.text(|_| String::new()), text);
    }
}
