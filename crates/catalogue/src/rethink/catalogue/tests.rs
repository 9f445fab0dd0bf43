use bytes::Bytes;

use super::*;
use crate::model::ModelError;
use crate::rethink::names::published_name;
use crate::rethink::{Host, Incompatible, MAX_CODE, parse};

/// A hyperty with this name, version, class name and rank.
fn entry(name: &str, version: &str, class: &str, order: u64) -> Entry {
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let descriptor = format!(
        r#"{{"hypertyType":"a","version":"{version}","objectName":{},"description":"d","language":"js","dataObjects":[]}}"#,
        json(name)
    );
    let description = format!(r#"{{"sourceCodeClassname":{},"encoding":"UTF-8"}}"#, json(class));
    Entry {
        key: Key { kind: Kind::Hyperty, name: published_name(name).unwrap() },
        order,
        descriptor: descriptor.into(),
        package: Some(PackageEntry {
            description: description.into(),
            digest: levada_core::sha256(&[name.as_bytes(), version.as_bytes()]),
            length: 3,
        }),
    }
}

fn put(catalogue: &mut Catalogue, entry: &Entry) {
    catalogue.put(Prepared::new(entry.clone()).unwrap());
}

fn body(catalogue: &Catalogue, path: &str) -> Option<String> {
    match catalogue.answer(format!("/.well-known/{path}").as_bytes(), None) {
        Answer::Body(body) => {
            let body = body.fill(Host::new(b"h").unwrap());
            Some(String::from_utf8(body.to_vec()).unwrap())
        }
        Answer::Package(request) => Some(data_encoding::HEXLOWER.encode(&request.digest)),
        Answer::Missing(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Asserts that the answer needs no code any more.
fn assert_complete(answer: &Answer) {
    assert!(matches!(answer, Answer::Body(_) | Answer::Missing(_)), "{answer:?}");
}

fn digest(entry: &Entry) -> Option<String> {
    entry.package.as_ref().map(|package| data_encoding::HEXLOWER.encode(&package.digest))
}

#[test]
fn answers_types_names_objects_and_attributes() {
    let mut catalogue = Catalogue::new();
    for (order, name) in ["b", "a", "\u{e000}", "😀"].into_iter().enumerate() {
        put(&mut catalogue, &entry(name, "1.10", name, order as u64));
    }
    assert_eq!(catalogue.len(), 4);
    assert_eq!(body(&catalogue, "").unwrap(), TYPES);
    assert_eq!(body(&catalogue, "/?x=1").unwrap(), TYPES);
    let names = "[\n  \"a\",\n  \"b\",\n  \"😀\",\n  \"\u{e000}\"\n]";
    for path in ["hyperty", "hyperty/", "//hyperty//?q", "sourcepackage"] {
        assert_eq!(body(&catalogue, path).as_deref(), Some(names), "{path}");
    }
    assert_eq!(body(&catalogue, "runtime").as_deref(), Some("[]"));
    assert!(body(&catalogue, "hyperty/a").unwrap().contains("\"version\": 1.10"));
    assert_eq!(body(&catalogue, "hyperty//a///version?x").as_deref(), Some("1.10"));
    assert_eq!(
        body(&catalogue, "hyperty/a/sourcePackageURL/").as_deref(),
        Some("/sourcepackage/a")
    );
    assert_eq!(
        body(&catalogue, "hyperty/a/sourcePackageURL").as_deref(),
        Some("hyperty-catalogue://h/.well-known/sourcepackage/a")
    );
    assert_eq!(body(&catalogue, "sourcepackage/a/encoding").as_deref(), Some("UTF-8"));
}

#[test]
fn other_paths_are_missing() {
    let mut catalogue = Catalogue::new();
    put(&mut catalogue, &entry("a", "1", "a", 0));
    for path in [
        "restart",
        "restart/x",
        "database",
        "service",
        "Hyperty",
        "hyperty/A",
        "hyperty/default",
        "hyperty/%61",
        "hyperty/a/version/x",
        "hyperty/a/Version",
        "hyperty/a/sourcePackage",
        "sourcepackage/b",
        "sourcepackage/a/signature",
        "sourcepackage/a/x",
        "..",
        "hyperty/..",
        "hyperty/a\0",
        "runtime/a",
    ] {
        assert_eq!(body(&catalogue, path), None, "{path}");
    }
    for path in
        [&b""[..], b"/", b"/.well-known", b"//.well-known/hyperty", b"/.well-known/hyperty/\xff"]
    {
        assert!(matches!(catalogue.answer(path, None), Answer::Missing(_)));
    }
}

#[test]
fn a_new_version_replaces_the_old_one_and_its_package() {
    let mut catalogue = Catalogue::new();
    let old = entry("a", "1", "Old", 0);
    let new = entry("a", "2", "New", 0);
    put(&mut catalogue, &old);
    assert_eq!(body(&catalogue, "sourcepackage/Old"), digest(&old));
    put(&mut catalogue, &new);
    assert_eq!(body(&catalogue, "hyperty/a/version").as_deref(), Some("2"));
    assert_eq!(body(&catalogue, "sourcepackage/New"), digest(&new));
    assert_eq!(body(&catalogue, "sourcepackage").as_deref(), Some("[\n  \"New\"\n]"));
    let same = entry("a", "3", "New", 0);
    put(&mut catalogue, &same);
    assert_eq!(body(&catalogue, "sourcepackage/New"), digest(&same));

    catalogue.remove(&new.key);
    assert!(catalogue.is_empty());
    for path in ["hyperty", "sourcepackage"] {
        assert_eq!(body(&catalogue, path).as_deref(), Some("[]"));
    }
    assert_eq!(body(&catalogue, "hyperty/a"), None);
    catalogue.remove(&new.key);
}

#[test]
fn the_package_of_the_first_object_with_a_class_name_is_shown() {
    let mut catalogue = Catalogue::new();
    let first = entry("b", "1", "Shared", 1);
    let second = entry("a", "1", "Shared", 2);
    put(&mut catalogue, &second);
    assert_eq!(body(&catalogue, "sourcepackage/Shared"), digest(&second));
    put(&mut catalogue, &first);
    assert_eq!(body(&catalogue, "sourcepackage/Shared"), digest(&first));
    let newer = entry("b", "2", "Shared", 1);
    put(&mut catalogue, &newer);
    assert_eq!(body(&catalogue, "sourcepackage/Shared"), digest(&newer));
    catalogue.remove(&first.key);
    assert_eq!(body(&catalogue, "sourcepackage/Shared"), digest(&second));
    assert!(body(&catalogue, "hyperty/a").is_some());
}

#[test]
fn default_is_the_first_configured_name_that_exists() {
    let mut catalogue = Catalogue::new();
    put(&mut catalogue, &entry("a", "1", "a", 0));
    catalogue
        .set_default(PathType::Objects(Kind::Hyperty), vec!["gone".to_owned(), "a".to_owned()]);
    assert_eq!(body(&catalogue, "hyperty/default"), body(&catalogue, "hyperty/a"));
    assert_eq!(body(&catalogue, "hyperty/default/objectName").as_deref(), Some("a"));
    assert_eq!(body(&catalogue, "runtime/default"), None);
    assert_eq!(body(&catalogue, "sourcepackage/default"), None);
    catalogue.set_default(PathType::Packages, vec!["gone".to_owned(), "a".to_owned()]);
    assert_eq!(body(&catalogue, "sourcepackage/default"), body(&catalogue, "sourcepackage/a"));
    assert_eq!(body(&catalogue, "sourcepackage/default/encoding").as_deref(), Some("UTF-8"));
    catalogue.set_default(PathType::Objects(Kind::Hyperty), vec!["gone".to_owned()]);
    assert_eq!(body(&catalogue, "hyperty/default"), None);
}

#[test]
fn an_object_is_shown_only_if_its_name_equals_its_key() {
    let mut other = entry("a", "1", "a", 0);
    other.key.name = "b".parse().unwrap();
    let error = Prepared::new(other).err();
    let expected = Incompatible::OtherName { found: "a".to_owned(), key: "hyperty/b".to_owned() };
    assert_eq!(error, Some(expected));

    // A name that is not a valid path segment is listed unchanged and published encoded.
    let mut catalogue = Catalogue::new();
    let odd = entry("Inner Name/x", "1", "Inner", 0);
    assert_eq!(odd.key.name.as_str(), "Inner Name%2Fx");
    put(&mut catalogue, &odd);
    assert_eq!(body(&catalogue, "hyperty").as_deref(), Some("[\n  \"Inner Name/x\"\n]"));
    assert_eq!(body(&catalogue, "hyperty/Inner%20Name%2Fx"), None);

    let mut empty = entry("a", "1", "a", 0);
    empty.descriptor = Bytes::from(
        String::from_utf8(empty.descriptor.to_vec())
            .unwrap()
            .replace("\"objectName\":\"a\"", "\"objectName\":\"\""),
    );
    assert_eq!(Prepared::new(empty).err(), Some(Incompatible::Unpublishable(ModelError::Name)));
    let mut bare = entry("a", "1", "a", 0);
    bare.package = None;
    assert_eq!(Prepared::new(bare).err(), Some(Incompatible::NoPackage));
}

#[test]
fn a_package_over_the_limit_has_only_its_description() {
    let mut catalogue = Catalogue::new();
    let mut large = entry("a", "1", "a", 0);
    large.package.as_mut().unwrap().length = MAX_CODE + 1;
    put(&mut catalogue, &large);
    assert_eq!(body(&catalogue, "sourcepackage/a"), None);
    assert_eq!(body(&catalogue, "sourcepackage/a/sourceCode"), None);
    assert_eq!(body(&catalogue, "sourcepackage/a/encoding").as_deref(), Some("UTF-8"));
}

#[test]
fn any_path_gets_an_answer() {
    let mut catalogue = Catalogue::new();
    put(&mut catalogue, &entry("a", "1", "a", 0));
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(start, bytes)| {
        let starts = [
            "",
            "/.well-known/",
            "/.well-known/hyperty/",
            "/.well-known/hyperty/a/",
            "/.well-known/sourcepackage/a/",
        ];
        let path = [starts[usize::from(start % 5)].as_bytes(), bytes].concat();
        let conditions = Conditions::parse(bytes).ok().flatten();
        for conditions in [None, conditions.as_ref()] {
            match catalogue.answer(&path, conditions) {
                Answer::Body(body) => assert!(!body.fill(Host::new(b"h").unwrap()).is_empty()),
                Answer::Package(request) => assert_complete(&request.complete(bytes)),
                Answer::ConditionalPackage(package) => assert_complete(&package.evaluate(bytes)),
                Answer::FilteredList(kind) => {
                    assert!(catalogue.candidates(kind, None, 9).len() < 2)
                }
                Answer::Missing(text) => assert!(parse(&text).is_err(), "{text}"),
            }
        }
    });
}

#[test]
fn any_descriptor_and_package_are_shown_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>, String)>().for_each(|(rest, about, code)| {
        let mut entry = entry("a", "1", "a", 0);
        // Later members may override every attribute; another name is refused.
        let mut descriptor = entry.descriptor.strip_suffix(b"}").unwrap().to_vec();
        descriptor.push(b',');
        descriptor.extend_from_slice(rest);
        descriptor.push(b'}');
        entry.descriptor = descriptor.into();
        let package = entry.package.as_mut().unwrap();
        package.description = [&b"{sourceCodeClassname:a,"[..], about, b"}"].concat().into();
        let Ok(prepared) = Prepared::new(entry) else { return };
        let mut catalogue = Catalogue::new();
        catalogue.put(prepared);
        for path in ["hyperty/a", "hyperty/a/cguid", "hyperty/a/objectName"] {
            assert!(body(&catalogue, path).is_some_and(|body| !body.is_empty()), "{path}");
        }
        for path in ["hyperty/a/description", "hyperty/a/signature"] {
            body(&catalogue, path);
        }
        let Answer::Package(request) = catalogue.answer(b"/.well-known/sourcepackage/a", None)
        else {
            panic!("there is a package");
        };
        let Answer::Body(whole) = request.complete(code.as_bytes()) else {
            panic!("the package has a body");
        };
        let whole = whole.fill(Host::new(b"h").unwrap());
        assert!(whole.starts_with(b"{\n") && whole.ends_with(b"\n}"));
    });
}

#[test]
fn the_first_default_that_matches_the_conditions_is_answered() {
    let mut catalogue = Catalogue::new();
    for (order, (name, version)) in [("a", "1"), ("b", "2")].into_iter().enumerate() {
        put(&mut catalogue, &entry(name, version, name, order as u64));
    }
    catalogue.set_default(PathType::Objects(Kind::Hyperty), vec!["a".to_owned(), "b".to_owned()]);
    let ask = |body: &str| {
        let conditions = Conditions::parse(body.as_bytes()).unwrap();
        match catalogue.answer(b"/.well-known/hyperty/default/objectName", conditions.as_ref()) {
            Answer::Body(body) => String::from_utf8(body.parts().0.to_vec()).unwrap(),
            Answer::Missing(text) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((ask("").as_str(), ask("{}").as_str()), ("a", "a"));
    assert_eq!(ask("{version: 2.0}"), "b");
    let no_match = "Unable to find instance named default that matches constraints {\"version\":3}";
    assert_eq!(ask("{version: 3}"), no_match);
    let after = catalogue.candidates(Kind::Hyperty, Some("a"), 9);
    assert_eq!(after.iter().map(Candidate::list_name).collect::<Vec<_>>(), ["b"]);
}
