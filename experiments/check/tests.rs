//! The committed pages agree with the committed rows, and each kind of difference is found.

use std::fs;
use std::path::{Path, PathBuf};

use super::index::Index;
use super::{errors, files, pages, sentences};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn pages_and_pictures_are_what_the_rows_give() {
    let errors = errors(&root()).unwrap();
    assert!(errors.is_empty(), "`cargo xp check` finds:\n{}", errors.join("\n"));
}

/// Copies pages, pictures and rows.
fn copy(to: &Path) {
    let root = root();
    let mut paths: Vec<PathBuf> = pages::PAGES.map(|page| root.join(page)).into();
    let mut folders = vec![root.join("experiments")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            }
        }
        for extension in ["jsonl", "svg"] {
            paths.extend(files::within(&folder, extension).unwrap());
        }
    }
    for path in paths {
        let copied = to.join(path.strip_prefix(&root).unwrap());
        fs::create_dir_all(copied.parent().unwrap()).unwrap();
        fs::copy(&path, &copied).unwrap();
    }
}

/// Replaces the first occurrence of a text in a file of the copy.
fn change(root: &Path, path: &str, from: &str, to: &str) {
    let path = root.join(path);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{} has no `{from}`", path.display());
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_changed_row_table_sentence_and_picture_are_each_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    copy(root);
    // The figures of these pages are short, so that the test need not know them.
    let rows = fs::read_to_string(root.join("experiments/attacks/honest.jsonl")).unwrap();
    let median = rows.lines().find(|line| line.contains(r#""metric":"run""#)).unwrap();
    let median = median.split_once(r#""median":"#).unwrap().1.split_once(',').unwrap().0;
    let from = format!(r#""median":{median}"#);
    change(root, "experiments/attacks/honest.jsonl", &from, r#""median":77.5"#);
    let table = "experiments/sockets/README.md";
    let text = fs::read_to_string(root.join(table)).unwrap();
    let lines = text.split_once("<!-- xp sockets: ").unwrap().1.lines();
    let line = lines.filter(|line| line.starts_with('|')).nth(2).unwrap().to_owned();
    let cells = line.rsplit_once(|one: char| one.is_ascii_digit()).unwrap();
    change(root, table, &line, &format!("{}77{}", cells.0, cells.1));
    let picture = "experiments/channels/connect.svg";
    change(root, picture, "<circle cx=\"", "<circle cx=\"1");
    let page = "experiments/swarm/README.md";
    let text = fs::read_to_string(root.join(page)).unwrap();
    let before = text.split_once("<!--xp:").unwrap().0;
    let digit = before.rfind(|one: char| one.is_ascii_digit()).unwrap();
    let other = if before[digit..].starts_with('1') { "2" } else { "1" };
    let changed = [&text[..digit], other, &text[digit + 1..]].concat();
    fs::write(root.join(page), changed).unwrap();
    let found = errors(root).unwrap();
    for path in ["experiments/attacks/README.md", table, picture, page] {
        let of_path = found.iter().filter(|error| error.starts_with(path)).count();
        assert_eq!(of_path, 1, "{path}: {found:?}");
    }
}

#[test]
fn a_figure_needs_a_row_with_its_value_and_its_unit() {
    let folder = tempfile::tempdir().unwrap();
    let experiments = folder.path().join("experiments/t");
    fs::create_dir_all(&experiments).unwrap();
    let row = |subject: &str, values: &str, more: &str| {
        format!(
            r#"{{"experiment":"t/e","subject":"{subject}","params":{{"rtt_ms":4}},"metric":"time","unit":"ms","median":1500.0,"min":1.0,"max":2000.0,"p50":1500.0,"p99":1999.0,"runs":2,"values":{values}{more}}}"#
        ) + "\n"
    };
    let flags = r#","flags":{"late":1}"#;
    let rows = [row("a", "[6.0,9.0]", ""), row("b", "[3.0,3.0]", ""), row("c", "[1.0]", flags)];
    fs::write(experiments.join("e.jsonl"), rows.concat()).unwrap();
    let index = Index::read(folder.path()).unwrap();
    let lines = index.lines(&[]);
    let id = |line: usize| {
        let line = lines.lines().nth(line).unwrap();
        line.split_once('[').unwrap().1.split_once(']').unwrap().0.to_owned()
    };
    let [a, b, c] = [0, 1, 2].map(id);
    let found = |text: String| sentences::errors(&index, "page", &text).len();
    for right in [
        format!("It takes 1.50 s<!--xp:{a}--> with a round trip of 4 ms."),
        format!("It takes 1 to 2,000 ms<!--xp:{a}.min,{a}.max-->,\n2.5 times<!--xp:{a}/{b}--> b."),
        format!("Flagged: 1500 ms !<!--xp:{c}-->; `5 ms` is code."),
        "The paper has 7 ms<!--xp:paper-->.\n\n## Not from rows\n\nProfiles: 9 %.".to_owned(),
        "| a | the paper's value |\n|---|---|\n| none | 5 ms |".to_owned(),
    ] {
        assert_eq!(found(right.clone()), 0, "{right}");
    }
    for wrong in [
        format!("It takes 1.51 s<!--xp:{a}-->."),
        format!("It takes 1500 B<!--xp:{a}-->."),
        format!("It takes 1500 ms<!--xp:{c}-->."),
        "It takes 7 ms.".to_owned(),
        "It takes 1500 ms<!--xp:zzzzzz-->.".to_owned(),
        "Wanted: less ✓".to_owned(),
        "| a | b |\n|---|---|\n| none | 5.1 |".to_owned(),
        "## Not from rows\n\nA profile: 9 %.\n\n## Results\n\n7 ms".to_owned(),
    ] {
        assert_eq!(found(wrong.clone()), 1, "{wrong}");
    }
}
