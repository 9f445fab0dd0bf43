//! The words of this repository: no tracked text has a term that was replaced by the field's own
//! (ARCHITECTURE.md, "Terms"), except where [`EXCEPTIONS`] says so. An exception that is no longer
//! needed fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod links;
mod messages;
mod prose;

use crate::support::shared;

/// Terms in any case, as whole words: neither part of a longer word nor of a longer identifier.
const WORDS: &[&str] = &[
    "whoever",
    "nobody",
    "somebody",
    "stranger",
    "strangers",
    "farewell",
    "keeper",
    "keepers",
    "patience",
    "judge",
    "judges",
    "judged",
    "graver",
    "dispensable",
    "greediest",
    "undecided",
    "rude",
    "the original",
    "no operation that I know",
    "cannot go on by itself",
];

/// Terms in exactly this case, as whole words: names of items and files.
const NAMES: &[&str] = &[
    "Asker",
    "Desk",
    "Doors",
    "Inbox",
    "TURN",
    "Turns",
    "clear_is_over",
    "connection_of_its_own",
    "credit::Pace",
    "day_two",
    "enum Place",
    "fn adopt",
    "fn greet",
    "fn meet",
    "fn offer",
    "fn who",
    "hear_out",
    "house.rs",
    "levada-link",
    "levada_link",
    "may_speak",
    "poll_farewell",
    "request_apart",
    "say_close",
    "shut_out",
    "struct Pace",
    "struct Place",
    "struct Ticket",
];

/// Names that no file has any more.
const FILES: &[&str] = &["aside.rs", "look.rs", "talk.rs", "tend.rs", "together.rs"];

/// File, term, and why the term stays there.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/cli/tests/operations.rs",
        "nobody",
        "the name of a Unix user in a message of `doctor`",
    ),
    ("CHANGELOG.md", "Inbox", RENAMED),
    ("CHANGELOG.md", "keeper", RENAMED),
    ("CHANGELOG.md", "levada-link", RENAMED),
    ("CHANGELOG.md", "patience", RENAMED),
    (
        "crates/capability/src/ticket.rs",
        "struct Ticket",
        "the ticket of a share; the replaced one was a guard of a session",
    ),
];

const RENAMED: &str = "the table of renamed public names";

/// Files whose text is written by people. Measurement rows, pictures and recorded inputs are not.
const EXTENSIONS: &[&str] = &[
    "conf",
    "css",
    "gitignore",
    "html",
    "js",
    "md",
    "mjs",
    "proto",
    "py",
    "rs",
    "service",
    "sh",
    "sql",
    "toml",
    "txt",
];

/// Folders of recorded inputs, and this module, whose tables have the terms.
fn is_left_out(path: &str) -> bool {
    let own = path == "crates/cli/tests/words.rs";
    own || path.split('/').any(|part| ["fixtures", "target", "node_modules"].contains(&part))
}

fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, extension)) => EXTENSIONS.contains(&extension),
        // Scripts, such as `scripts/test`.
        None => path.contains('/') && !name.starts_with("LICENSE"),
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All texts of the repository: its tracked files, or all files where there is no git repository.
fn texts() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let mut paths = match listed {
        Ok(listed) if listed.status.success() && !listed.stdout.is_empty() => {
            String::from_utf8(listed.stdout)
                .unwrap()
                .split_terminator('\0')
                .map(str::to_owned)
                .collect()
        }
        _ => {
            let mut paths = Vec::new();
            walk(&root(), "", &mut paths);
            paths
        }
    };
    paths.retain(|path| !is_left_out(path) && is_text(path));
    paths
}

/// The files below a folder, without hidden ones.
fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if name.starts_with('.') || is_left_out(&path) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{path}/"), paths);
        } else {
            paths.push(path);
        }
    }
}

/// Whether `text` has `term` as a whole word. A line break counts as a space.
fn has(text: &str, term: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(term).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + term.len()..].chars().next();
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    })
}

/// A text on one line, without the marks that begin the lines of a comment.
fn joined(text: &str) -> String {
    let lines =
        text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!', '#']).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// The terms of one file.
fn terms_of(path: &str, text: &str) -> BTreeSet<&'static str> {
    let text = joined(text);
    let name = path.rsplit('/').next().unwrap_or(path);
    let lower = text.to_lowercase();
    let words = WORDS.iter().filter(|word| has(&lower, &word.to_lowercase()));
    let names = NAMES.iter().filter(|name| has(&text, name));
    let files = FILES.iter().filter(|file| **file == name);
    words.chain(names).chain(files).copied().collect()
}

#[test]
fn no_text_has_a_replaced_term() {
    let _permit = shared();
    let mut found = BTreeMap::new();
    for path in texts() {
        // A tracked file may have been removed from the working tree.
        let Ok(bytes) = fs::read(root().join(&path)) else { continue };
        let terms = terms_of(&path, &String::from_utf8_lossy(&bytes));
        if !terms.is_empty() {
            found.insert(path, terms);
        }
    }
    let kept = EXCEPTIONS.iter().map(|(path, term, _)| (*path, *term));
    let mut stale = Vec::new();
    for (path, term) in kept {
        if !found.get_mut(path).is_some_and(|terms| terms.remove(term)) {
            stale.push(format!("{path}: {term}"));
        }
    }
    let flat = found
        .iter()
        .flat_map(|(path, terms)| terms.iter().map(move |term| format!("{path}: {term}")));
    let new: Vec<String> = flat.collect();
    assert!(
        new.is_empty(),
        "these terms were replaced; use the words of ARCHITECTURE.md:\n{}",
        new.join("\n")
    );
    assert!(
        stale.is_empty(),
        "remove these exceptions, which are no longer needed:\n{}",
        stale.join("\n")
    );
}

#[test]
fn terms_are_whole_words_across_lines() {
    assert!(
        has("a judge, here", "judge") && !has("judgement", "judge") && !has("to_judge", "judge")
    );
    let text = "// The bodies of the\n    // original.\nfn f(keeper: Desk) {}\n";
    assert_eq!(
        Vec::from_iter(terms_of("src/look.rs", text)),
        ["Desk", "keeper", "look.rs", "the original"]
    );
    assert!(
        is_text("scripts/test")
            && is_text("a/b.rs")
            && !is_text("a/rows.jsonl")
            && !is_text("Cargo.lock")
    );
}
