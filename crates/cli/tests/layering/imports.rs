//! Which file of a crate imports which, read from its sources.
//!
//! An import is a path below `crate`, `self`, `super` or a child module, in a `use` or anywhere
//! else. A path through a re-export counts for the file that declares the item, and a `pub use`
//! counts for the re-exporting file only if that file also uses the item itself. Modules with
//! `#[cfg(test)]` and methods are not considered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The path of a module below its crate, such as `["http", "route"]`; empty for `lib.rs`.
pub type Module = Vec<String>;

/// The imports of each file of a crate: the modules that it uses.
pub type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The imports below the source folder of a crate.
pub fn of_crate(folder: &Path) -> Imports {
    let mut sources = BTreeMap::new();
    read_folder(folder, &Module::new(), &mut sources);
    of_sources(&sources)
}

/// The groups of modules that import each other, directly or through others.
pub fn cycles(imports: &Imports) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reachable(imports, module))).collect();
    let mut groups = BTreeSet::new();
    for (module, others) in &reach {
        if others.contains(module) {
            let is_mutual = |other: &&&Module| reach[**other].contains(module);
            groups.insert(others.iter().filter(is_mutual).map(|it| (*it).clone()).collect());
        }
    }
    groups.into_iter().collect()
}

fn reachable<'a>(imports: &'a Imports, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = pending.pop() {
        if found.insert(module) {
            pending.extend(&imports[module]);
        }
    }
    found
}

fn read_folder(folder: &Path, module: &Module, sources: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let child = [module.as_slice(), std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            read_folder(&path, &child, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_parent = matches!(name.as_str(), "lib" | "main" | "mod");
            let module = if is_parent { module.clone() } else { child };
            sources.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
}

fn of_sources(sources: &BTreeMap<Module, String>) -> Imports {
    let mut files: BTreeMap<Module, File> = BTreeMap::new();
    for (module, source) in sources {
        files.insert(module.clone(), File::parse(module, &tokens(source)));
    }
    let tests: BTreeSet<Module> = files.values().flat_map(|file| file.tests.clone()).collect();
    files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let of_file = |(module, file): (&Module, &File)| {
        let paths = file.paths.iter().filter_map(|path| absolute(module, path, &files));
        let used = paths.map(|path| declaring_file(&path, &files, 0));
        (module.clone(), used.filter(|other| other != module).collect())
    };
    files.iter().map(of_file).collect()
}

/// What a file says about other files.
#[derive(Default)]
struct File {
    /// The paths that it uses.
    paths: Vec<Vec<String>>,
    /// The paths that it re-exports, by the new name.
    exports: BTreeMap<String, Vec<String>>,
    /// Its test modules.
    tests: Vec<Module>,
}

impl File {
    fn parse(module: &Module, tokens: &[String]) -> Self {
        let mut file = Self::default();
        let mut words = BTreeSet::new();
        let mut reexports: Vec<(String, Vec<String>)> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            let is_test = starts_with(rest, &["#", "[", "cfg", "(", "test", ")", "]", "mod"]);
            if is_test {
                file.tests.push([module.as_slice(), std::slice::from_ref(&rest[8])].concat());
                at += if rest[9] == ";" { 10 } else { 9 + block_length(&rest[9..]) };
            } else if rest[0] == "mod" {
                at += 2;
            } else if rest[0] == "use" && rest[1] != "<" {
                let length = rest.iter().position(|token| token == ";").unwrap();
                let is_public = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                for (path, name) in use_tree(&rest[1..length]) {
                    match is_public {
                        true => reexports.push((name, path)),
                        false => file.paths.push(path),
                    }
                }
                at += length + 1;
            } else if is_word(&rest[0]) {
                let path = path_at(rest);
                at += 2 * path.len() - 1;
                words.insert(path[0].clone());
                if path.len() > 1 {
                    file.paths.push(path);
                }
            } else {
                at += 1;
            }
        }
        for (name, path) in reexports {
            if words.contains(&name) {
                file.paths.push(path.clone());
            }
            file.exports.insert(name, path);
        }
        file
    }
}

/// A path from the root of the crate; `None` if it leads to another crate or to a local name.
fn absolute(
    module: &Module,
    path: &[String],
    files: &BTreeMap<Module, File>,
) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    let child = || [module.as_slice(), &path[..1]].concat();
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module.as_slice(), &path[1..]].concat()),
        "super" => Some([&module[..module.len().checked_sub(supers)?], &path[supers..]].concat()),
        _ if files.contains_key(&child()) => Some([module.as_slice(), path].concat()),
        _ => None,
    }
}

/// The file that declares the item at `path`, which re-exports are followed to.
fn declaring_file(path: &[String], files: &BTreeMap<Module, File>, depth: usize) -> Module {
    let length = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length]));
    let (module, rest) = path.split_at(length.unwrap());
    let export = rest.first().and_then(|name| files[module].exports.get(name));
    let target = export.and_then(|export| absolute(&module.to_vec(), export, files));
    match target {
        Some(target) if depth < 8 => {
            declaring_file(&[&target, &rest[1..]].concat(), files, depth + 1)
        }
        _ => module.to_vec(),
    }
}

/// The paths of a use tree, each with the name that it gets.
fn use_tree(tokens: &[String]) -> Vec<(Vec<String>, String)> {
    let Some(open) = tokens.iter().position(|token| token == "{") else {
        let path: Vec<String> = tokens
            .iter()
            .take_while(|token| *token != "as")
            .filter(|token| *token != "::" && *token != "*")
            .cloned()
            .collect();
        let name = tokens.last().unwrap().clone();
        return if path.is_empty() { Vec::new() } else { vec![(path, name)] };
    };
    let prefix: Vec<String> =
        tokens[..open].iter().filter(|token| *token != "::").cloned().collect();
    let mut all = Vec::new();
    let mut depth = 0;
    let mut start = open + 1;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += usize::from(token == "{");
        depth -= usize::from(token == "}");
        let is_end = depth == 0 || (depth == 1 && token == ",");
        if is_end && at > start {
            for (path, name) in use_tree(&tokens[start..at]) {
                match path.as_slice() {
                    [only] if only == "self" => {
                        all.push((prefix.clone(), prefix.last().unwrap().clone()));
                    }
                    _ => all.push(([&prefix[..], &path].concat(), name)),
                }
            }
        }
        if is_end {
            start = at + 1;
        }
    }
    all
}

fn path_at(tokens: &[String]) -> Vec<String> {
    let mut path = vec![tokens[0].clone()];
    for pair in tokens[1..].chunks(2) {
        match pair {
            [colons, word] if colons == "::" && is_word(word) => path.push(word.clone()),
            _ => break,
        }
    }
    path
}

fn block_length(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += usize::from(token == "{");
        depth -= usize::from(token == "}");
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn starts_with(tokens: &[String], wanted: &[&str]) -> bool {
    tokens.len() > wanted.len() && tokens.iter().zip(wanted).all(|(token, wanted)| token == wanted)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters; comments and literals are left out.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").unwrap() + 2,
            '"' => string_length(rest),
            'r' if rest[1..].trim_start_matches('#').starts_with('"') => raw_string_length(rest),
            '\'' => char_length(rest),
            ':' if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            c if is_word(&c.to_string()) => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                tokens.push(rest[..length].to_owned());
                length
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            c => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 2 + hashes;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

/// The length of a character literal; of a lifetime, that of its quote.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next().unwrap();
    if first == '\\' {
        return text[3..].find('\'').map_or(1, |at| at + 4);
    }
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(sources: &[(&str, &str)]) -> Imports {
        let mut map = BTreeMap::new();
        for (path, text) in sources {
            let parts = path.split('/').filter(|part| !part.is_empty());
            map.insert(parts.map(str::to_owned).collect(), (*text).to_owned());
        }
        of_sources(&map)
    }

    fn cycles_of(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let names = |group: Vec<Module>| group.iter().map(|module| module.join("/")).collect();
        cycles(&imports(sources)).into_iter().map(names).collect()
    }

    #[test]
    fn finds_a_cycle_through_several_files() {
        let found = cycles_of(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::{self, B};"),
            ("b", "fn f() { super::c::f::<'a'>(\"crate::d\") } // crate::d"),
            ("c", "use super::{a::{A, X as Y}, d};"),
            ("d", "use std::fmt;"),
        ]);
        assert_eq!(found, [["a", "b", "c"]]);
    }

    #[test]
    fn a_parent_that_uses_its_child_and_the_reverse_are_a_cycle() {
        let child = ("a/b", "use super::A;");
        assert_eq!(cycles_of(&[("a", "mod b; fn f() { b::f() }"), child]), [["a", "a/b"]]);
        assert_eq!(cycles_of(&[("a", "mod b; use b::B;"), child]), [["a", "a/b"]]);
        assert!(cycles_of(&[("a", "mod b;"), child]).is_empty());
    }

    #[test]
    fn a_reexport_counts_for_the_declaring_file() {
        let facade = "mod b; mod c; pub use b::B; pub use c::C as D;";
        let files = [("a", facade), ("a/b", "use super::D;"), ("a/c", "")];
        assert!(cycles_of(&files).is_empty());
        let used = format!("{facade} fn f(b: B) {{}}");
        let files = [("a", used.as_str()), ("a/b", "use crate::a::D;"), ("a/c", "use super::f;")];
        assert_eq!(cycles_of(&files), [["a", "a/b", "a/c"]]);
    }

    #[test]
    fn tests_are_not_considered() {
        let with_tests = "use super::b; #[cfg(test)] mod tests { use crate::c; } use super::d;";
        let files = [
            ("a", with_tests),
            ("b", "#[cfg(test)] mod tests;"),
            ("b/tests", "use crate::a;"),
            ("c", "use crate::a;"),
            ("d", ""),
        ];
        assert!(cycles_of(&files).is_empty());
        assert_eq!(imports(&files)[&vec!["a".to_owned()]].len(), 2);
    }
}
