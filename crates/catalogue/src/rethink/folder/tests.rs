use std::fs;

use tempfile::TempDir;

use super::*;
use crate::model::{MAX_DESCRIPTOR, Version};
use crate::rethink::Incompatible;

const DESCRIPTION: &str = r#"{"cguid": "", "hypertyType": "a", "version": "1.10", "objectName": "A", "description": "d", "language": "js", "dataObjects": []}"#;
const PACKAGE: &str = r#"{"sourceCodeClassname": "A", "sourceCode": "code", "encoding": "UTF-8"}"#;

/// A folder with these files: path and content of each.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn load(files: &[(&str, &str)]) -> Vec<Result<Found, Skipped>> {
    Folder::open(folder(files).path()).unwrap().collect()
}

/// The one object of a folder `hyperty/x` with these files.
fn one(files: &[(&str, &str)]) -> Result<Found, Reason> {
    let paths: Vec<_> =
        files.iter().map(|(name, text)| (format!("hyperty/x/{name}"), *text)).collect();
    let files: Vec<_> = paths.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let mut loaded = load(&files);
    assert_eq!(loaded.len(), 1);
    loaded.remove(0).map_err(|skipped| skipped.reason)
}

fn about(found: &Found) -> String {
    String::from_utf8(found.draft.package.as_ref().unwrap().description.clone()).unwrap()
}

#[test]
fn reads_an_object_as_a_draft_with_its_code() {
    let found = one(&[("description.json", DESCRIPTION), ("sourcePackage.json", PACKAGE)]).unwrap();
    assert_eq!(found.draft.key.to_string(), "hyperty/A");
    assert_eq!(found.draft.version, Version::new(1, 10, 0));
    assert_eq!(found.draft.descriptor, DESCRIPTION.as_bytes());
    assert_eq!(found.code, b"code");
    assert_eq!(about(&found), r#"{"sourceCodeClassname":"A","encoding":"UTF-8"}"#);
    let package = found.draft.package.as_ref().unwrap();
    assert_eq!((package.digest, package.length), (levada_core::sha256(&[b"code"]), 4));
    assert!(found.folder.ends_with("hyperty/x"));
}

#[test]
fn a_lenient_description_is_rewritten_as_strict_json() {
    let lenient = DESCRIPTION.replace("\"js\"", "js /* c */").replace("\"1.10\"", "1.10");
    let found = one(&[("description.json", &lenient), ("sourcePackage.json", PACKAGE)]).unwrap();
    let expected = r#"{"cguid":"","hypertyType":"a","version":1.10,"objectName":"A","description":"d","language":"js","dataObjects":[]}"#;
    assert_eq!(str::from_utf8(&found.draft.descriptor), Ok(expected));
    let marked = format!("\u{feff}{DESCRIPTION}");
    assert!(one(&[("description.json", &marked), ("sourcePackage.json", PACKAGE)]).is_ok());
}

#[test]
fn an_embedded_package_is_removed_and_used_unless_there_is_a_file() {
    let embedded = DESCRIPTION
        .replace("[]}", "[], \"sourcePackage\": {sourceCodeClassname: E, sourceCode: emb}}");
    let found = one(&[("description.json", &embedded)]).unwrap();
    assert_eq!(found.code, b"emb");
    assert!(!str::from_utf8(&found.draft.descriptor).unwrap().contains("emb"));
    let found = one(&[("description.json", &embedded), ("sourcePackage.json", PACKAGE)]).unwrap();
    assert_eq!(found.code, b"code");
    let other = DESCRIPTION.replace("[]}", "[], \"sourcePackage\": 1}");
    let reason = one(&[("description.json", &other)]).unwrap_err();
    assert!(matches!(reason, Reason::Incompatible(Incompatible::PackageForm)));
}

#[test]
fn the_code_is_the_attribute_or_else_the_first_file() {
    let without = PACKAGE.replace("\"sourceCode\": \"code\", ", "\"md5\": \"stated\", ");
    let files = [
        ("description.json", DESCRIPTION),
        ("sourcePackage.json", without.as_str()),
        ("sourceCode.js", "file"),
        ("sourceCode.zip", "other"),
    ];
    let found = one(&files).unwrap();
    assert_eq!(found.code, b"file");
    assert_eq!(found.draft.package.as_ref().unwrap().media_type, "text/javascript");
    assert_eq!(about(&found), r#"{"sourceCodeClassname":"A","encoding":"UTF-8"}"#);

    // reTHINK's catalogue hashed the file and answered the attribute.
    let mut both = files;
    both[1].1 = PACKAGE;
    let found = one(&both).unwrap();
    assert_eq!(found.code, b"code");
    let md5 = "8c7dd922ad47494fc02c388e12c00eac";
    assert!(about(&found).contains(md5), "{}", about(&found));
    both[2].1 = "code";
    assert!(!about(&one(&both).unwrap()).contains("md5"));
}

#[test]
fn code_that_is_not_a_string_is_serialized() {
    let with = |code: &str| {
        let package = PACKAGE.replace("\"code\"", code);
        one(&[("description.json", DESCRIPTION), ("sourcePackage.json", &package)])
    };
    assert_eq!(with("1.50").unwrap().code, b"1.50");
    let listed = with("['x']").unwrap();
    assert_eq!(listed.code, b"[\"x\"]");
    assert!(about(&listed).contains("\"md5\":\"9dd4e461268c8034f5c8564e155c67a6\""));
    for code in ["null", "{}", "[]", "[1,2]"] {
        assert!(matches!(with(code), Err(Reason::Incompatible(Incompatible::NoCode))), "{code}");
    }
}

#[test]
fn skipped_objects_have_a_reason() {
    let reason = |files: &[(&str, &str)]| one(files).unwrap_err().to_string();
    assert_eq!(reason(&[("x", "")]), "there is no description.json");
    assert!(reason(&[("description.json", "{bad")]).starts_with("the descriptor is not JSON:"));
    assert!(reason(&[("description.json", DESCRIPTION)]).starts_with("there is no package:"));
    let bad = [("description.json", DESCRIPTION), ("sourcePackage.json", "{bad")];
    assert!(reason(&bad).starts_with("the description of the package is not JSON:"));
    let nameless = [("description.json", DESCRIPTION), ("sourcePackage.json", "{sourceCode:x}")];
    assert!(reason(&nameless).contains("no `sourceCodeClassname`"));
    let codeless =
        [("description.json", DESCRIPTION), ("sourcePackage.json", "{sourceCodeClassname:x}")];
    assert!(reason(&codeless).contains("no code"));
    let large = DESCRIPTION.replace("\"d\"", &format!("\"{}\"", "x".repeat(MAX_DESCRIPTOR)));
    let large = [("description.json", large.as_str()), ("sourcePackage.json", PACKAGE)];
    assert!(reason(&large).starts_with("the descriptor has"));
}

#[test]
fn objects_are_sorted_and_unique() {
    let other = DESCRIPTION.replace("\"A\"", "\"B\"");
    let folder = folder(&[
        ("weird/x/description.json", DESCRIPTION),
        ("service/x/description.json", DESCRIPTION),
        ("sourcepackage/x/description.json", DESCRIPTION),
        ("a file", ""),
        ("hyperty/a file", ""),
        ("hyperty/Default/description.json", DESCRIPTION),
        ("hyperty/b/description.json", DESCRIPTION),
        ("hyperty/b/sourcePackage.json", PACKAGE),
        ("hyperty/a/description.json", &other),
        ("hyperty/a/sourcePackage.json", PACKAGE),
        ("hyperty/c/description.json", DESCRIPTION),
        ("hyperty/c/sourcePackage.json", PACKAGE),
    ]);
    let root = folder.path();
    let summaries: Vec<_> = Folder::open(root)
        .unwrap()
        .map(|one| match one {
            Ok(found) => found.draft.key.to_string(),
            Err(skipped) => {
                let path = skipped.path.file_name().unwrap().to_string_lossy().into_owned();
                let reason = skipped.reason.to_string();
                format!("{path}: {}", reason.replace(root.to_str().unwrap(), "FOLDER"))
            }
        })
        .collect();
    let expected = [
        "Default: folders named `default` are skipped",
        "hyperty/B",
        "hyperty/A",
        "c: FOLDER/hyperty/b has the same type and name",
        "service: its name is not a type of object",
        "sourcepackage: packages are taken from the objects",
        "weird: its name is not a type of object",
    ];
    assert_eq!(summaries.len(), expected.len(), "{summaries:?}");
    for (summary, expected) in summaries.iter().zip(expected) {
        assert!(summary.starts_with(expected), "{summary}, expected {expected}");
    }
}

#[test]
fn a_missing_folder_is_an_error() {
    let folder = folder(&[]);
    let error = Folder::open(&folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none cannot be read"), "{error}");
    assert_eq!(Folder::open(folder.path()).unwrap().count(), 0);
}
