//! Scripts that are written by hand, in `tests/scripts`: one file for each behaviour. Each runs
//! before a connection goes over to shared memory, while it does, and afterwards.
//!
//! `tests/scripts/differences` has those that must answer differently: the documented differences.
//! `LEVADA_SCRIPT_NAME` selects the scripts whose names contain a text.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use super::script::Script;
use super::{AT_ONCE, compare, compare_once, direct, variable};

/// Exchanges before the steps of a script: a connection is offered in the second one, and goes over
/// some exchanges later.
const EXCHANGES: &[usize] = &[0, 2, 3, 4, 5, 8];

/// So many that the connection has gone over, also on a busy machine.
const CERTAINLY: &[usize] = &[300];

/// Connections that the kernel does not know are what they are from the first exchange on.
const DIRECT: &[usize] = &[0, 3];

/// How often a documented difference is looked for.
const TRIES: usize = 5;

/// The scripts of a folder, by name.
fn scripts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.map(|entry| entry.unwrap().path());
    let scripts = files.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let wanted = variable("LEVADA_SCRIPT_NAME").unwrap_or_default();
    scripts.map(read).filter(|(name, _)| name.contains(&wanted)).collect()
}

/// Compares all scripts of a folder with each number of exchanges: the names, and how they differ.
fn differences(
    folder: &str,
    exchanges: &[usize],
    only: Option<&[String]>,
) -> Vec<(String, Option<String>)> {
    let mut all = scripts(folder);
    all.retain(|(name, _)| only.is_none_or(|only| only.contains(name)));
    compare_scripts(&all, exchanges, only.is_some(), |script| script)
}

/// Compares scripts, each changed by `prepare`.
fn compare_scripts(
    all: &[(String, String)],
    exchanges: &[usize],
    is_once: bool,
    prepare: impl Fn(Script) -> Script,
) -> Vec<(String, Option<String>)> {
    let parse = |(name, text): &(String, String)| {
        let of = |exchanges: &usize| {
            let origin = format!("{name} after {exchanges} exchanges");
            (name.clone(), prepare(Script::parse(&origin, text, *exchanges)))
        };
        exchanges.iter().map(of).collect::<Vec<_>>()
    };
    let left = Mutex::new(all.iter().flat_map(parse).collect::<Vec<_>>());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((name, script)) = left.lock().unwrap().pop() else { return };
                    let compare = if is_once { compare_once } else { compare };
                    let difference = compare(&script).difference;
                    results.lock().unwrap().push((name, difference));
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn stored_scripts_answer_the_same() {
    let found: Vec<_> = differences("scripts", EXCHANGES, None)
        .into_iter()
        .filter_map(|(_, found)| found)
        .collect();
    assert!(found.is_empty(), "{} runs differ\n\n{}", found.len(), found.join("\n"));
}

#[test]
fn stored_scripts_answer_the_same_without_the_kernel() {
    let mut all = scripts("scripts");
    all.retain(|(name, _)| !direct::DIFFERENT.iter().any(|(other, _)| other == name));
    let found = compare_scripts(&all, DIRECT, false, |script| direct::prepare(&script));
    let found: Vec<_> = found.into_iter().filter_map(|(_, found)| found).collect();
    assert!(found.is_empty(), "{} runs differ\n\n{}", found.len(), found.join("\n"));
}

/// A difference that is gone must leave the documents, too.
#[test]
fn documented_differences_exist() {
    if !super::library() {
        return;
    }
    let mut same: Vec<String> =
        scripts("scripts/differences").into_iter().map(|(name, _)| name).collect();
    // A connection that has not gone over in time answers as ever.
    for _ in 0..TRIES {
        if same.is_empty() {
            return;
        }
        let all = differences("scripts/differences", CERTAINLY, Some(&same));
        same.retain(|name| !all.iter().any(|(other, found)| other == name && found.is_some()));
    }
    assert!(same.is_empty(), "these answer the same, and are no differences: {same:?}");
}
