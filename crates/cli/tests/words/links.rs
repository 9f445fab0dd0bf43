//! The links of Markdown pages: files exist, and headings too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{root, texts};
use crate::support::shared;

/// The links of a page outside of code: targets as they are written.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in without_fences(page) {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("X");
        for rest in prose.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            found.push(target.split(' ').next().unwrap_or_default().to_owned());
        }
    }
    found
}

fn without_fences(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return false;
        }
        !is_code
    })
}

/// The anchors of a page: its headings in lower case, with dashes for spaces and without
/// punctuation.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in without_fences(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let slug: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let slug = slug.replace(' ', "-");
        let count = counts.entry(slug.clone()).or_default();
        all.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    all
}

/// The path of `target` as seen from `page`, without `..`.
fn resolved(page: &str, target: &str) -> PathBuf {
    let mut path = PathBuf::from(page).parent().unwrap().to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The reason why a link of a page is dead.
fn fault(page: &str, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = resolved(page, target);
    let file = if target.is_empty() { PathBuf::from(page) } else { path };
    let full = root().join(&file);
    if !full.exists() {
        return Some(format!("{page}: {link}: no such file"));
    }
    if anchor.is_empty() || file.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let other = if target.is_empty() { text.to_owned() } else { fs::read_to_string(full).unwrap() };
    let is_there = anchors(&other).contains(anchor);
    (!is_there).then(|| format!("{page}: {link}: no such heading"))
}

#[test]
fn no_link_of_a_page_is_dead() {
    let _permit = shared();
    let mut faults = Vec::new();
    for page in texts().iter().filter(|path| path.ends_with(".md")) {
        let Ok(text) = fs::read_to_string(root().join(page)) else { continue };
        faults.extend(links(&text).iter().filter_map(|link| fault(page, &text, link)));
    }
    assert!(faults.is_empty(), "these links are dead:\n{}", faults.join("\n"));
}

#[test]
fn links_and_anchors_are_found() {
    let page = "# A page\n## Key `x` & more\n[a](b.md#c) `[no](x)`\n```\n[no](y)\n```\n## A page\n";
    assert_eq!(links(page), ["b.md#c"]);
    let expected = ["a-page", "a-page-1", "key-x--more"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    assert_eq!(resolved("docs/a.md", "../b/c.rs"), Path::new("b/c.rs"));
}
