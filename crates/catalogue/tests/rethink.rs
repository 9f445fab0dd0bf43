//! What the original answered, recorded: every exchange is replayed against the same folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests, as in tests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use levada_catalogue::model::{Kind, Published};
use levada_catalogue::rethink::{
    Answer, Catalogue, Entry, Folder, Found, Host, MEDIA_TYPE, PackageEntry, PathType, Prepared,
    Skipped,
};
use levada_core::{Digest, UnixTime, sha256};
use serde::Deserialize;

/// Where the original answers something else, by the name of the exchange: what is answered here, and why.
/// `docs/catalogue-rethink.md` says the same in prose.
const DEVIATIONS: &[(&str, u16, &str)] = &[
    ("edge_attr_v_empty", 404, "never answered: the value is empty"),
    ("edge_attr_v_ws", 404, "never answered: the value is blank"),
    ("edge_extra_attr", 404, "500: there is no such attribute"),
    ("edge_hyperty_BadJson", 404, "500: the object was not loaded"),
    ("edge_hyperty_InDefaultFolder", 404, "500: the object was not loaded"),
    ("edge_hyperty_MissingMandatory", 404, "500: the object was not loaded"),
    ("edge_hyperty_NoPkg", 404, "500: the object was not loaded"),
    ("edge_hyperty_default", 404, "the default was an object of another folder"),
    ("edge_inner_name", 404, "500: paths are not decoded"),
    ("edge_inner_name_raw", 404, "500: the folder is not the name"),
];

#[derive(Deserialize)]
struct Exchange {
    name: String,
    method: String,
    path: String,
    request_host: String,
    status: Option<u16>,
    content_type: Option<String>,
    body_sha256: String,
    body_len: usize,
    body: Option<String>,
}

/// What is answered here.
struct Response {
    status: u16,
    content_type: &'static str,
    body: Bytes,
}

/// A catalogue, and the code of its packages.
struct Loaded {
    catalogue: Catalogue,
    code: HashMap<Digest, Vec<u8>>,
    skipped: Vec<Skipped>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rethink").join(name)
}

/// Loads a folder as an import does: through drafts, so that nothing is shown that could not be stored.
fn load(folder: &Path) -> Loaded {
    let mut loaded =
        Loaded { catalogue: Catalogue::new(), code: HashMap::new(), skipped: Vec::new() };
    for (order, object) in Folder::open(folder).unwrap().enumerate() {
        match object {
            Ok(found) => put(&mut loaded, &found, order as u64),
            Err(skipped) => loaded.skipped.push(skipped),
        }
    }
    loaded
}

fn put(loaded: &mut Loaded, found: &Found, order: u64) {
    assert_eq!(found.draft.check(), Ok(()));
    let published = Published::new(&found.draft, None, UnixTime(0), order);
    let package = published.package.unwrap();
    assert_eq!(sha256(&[&found.code]), package.digest);
    loaded.code.insert(package.digest, found.code.clone());
    let entry = Entry {
        key: published.key,
        order,
        descriptor: published.descriptor.into(),
        package: Some(PackageEntry {
            description: package.description.into(),
            digest: package.digest,
            length: package.length,
        }),
    };
    loaded.catalogue.put(Prepared::new(entry).unwrap());
}

fn respond(loaded: &Loaded, path: &str, host: &str) -> Response {
    let answer = match loaded.catalogue.answer(path.as_bytes(), None) {
        Answer::Package(request) => request.complete(&loaded.code[&request.digest]),
        other => other,
    };
    match answer {
        Answer::Body(body) => {
            let body = body.fill(Host::new(host.as_bytes()).unwrap());
            Response { status: 200, content_type: MEDIA_TYPE, body }
        }
        Answer::Missing(text) => {
            Response { status: 404, content_type: "text/plain", body: text.into() }
        }
        other => panic!("a package was asked for twice: {other:?}"),
    }
}

fn exchanges() -> Vec<Exchange> {
    let text = std::fs::read_to_string(data("exchanges.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check_same(exchange: &Exchange, response: &Response) {
    let name = &exchange.name;
    let body = String::from_utf8_lossy(&response.body);
    if let Some(expected) = &exchange.body {
        assert_eq!(body, expected.as_str(), "{name}");
    }
    assert_eq!(Some(response.status), exchange.status, "{name}");
    assert_eq!(Some(response.content_type), exchange.content_type.as_deref(), "{name}");
    assert_eq!(response.body.len(), exchange.body_len, "{name}");
    assert_eq!(HEXLOWER.encode(&sha256(&[&response.body])), exchange.body_sha256, "{name}");
}

#[test]
fn every_recorded_exchange_has_the_same_answer_or_is_a_listed_deviation() {
    let loaded = load(&data("objects"));
    let exchanges = exchanges();
    assert_eq!(exchanges.len(), 94);
    let mut same = 0;
    for exchange in &exchanges {
        assert_eq!(exchange.method, "GET", "{}", exchange.name);
        let response = respond(&loaded, &exchange.path, &exchange.request_host);
        let deviation = DEVIATIONS.iter().find(|(name, ..)| *name == exchange.name);
        if let Some((name, status, _)) = deviation {
            assert_eq!(response.status, *status, "{name}");
            assert_eq!(response.content_type, "text/plain", "{name}");
            // The words are the original's, where it had any.
            if exchange.status == Some(500) {
                assert_eq!(
                    Some(response.body.as_ref()),
                    exchange.body.as_deref().map(str::as_bytes)
                );
            }
            assert_ne!(Some(response.status), exchange.status, "{name} does not deviate");
        } else {
            check_same(exchange, &response);
            same += 1;
        }
    }
    assert_eq!(same + DEVIATIONS.len(), exchanges.len(), "a deviation was not recorded at all");
}

#[test]
fn lists_are_sorted_and_hold_what_cannot_be_asked_for() {
    let loaded = load(&data("objects"));
    let list = |path: &str| -> Vec<String> {
        serde_json::from_slice(&respond(&loaded, path, "h").body).unwrap()
    };
    assert_eq!(list("/.well-known/runtime"), ["Runtime150k"]);
    let hyperties = ["Connector", "DupClassA", "DupClassB", "Embedded", "Inner Name/x"];
    assert_eq!(list("/.well-known/hyperty"), hyperties);
    let packages = list("/.well-known/sourcepackage");
    assert!(packages.is_sorted() && packages.len() == 44, "{packages:?}");
    assert!(packages.contains(&"Inner".to_owned()) && packages.contains(&"Shared".to_owned()));
    assert!(list("/.well-known/protocolstub").is_empty());
}

#[test]
fn what_the_original_skipped_is_reported() {
    let loaded = load(&data("objects"));
    let mut skipped: Vec<_> = loaded
        .skipped
        .iter()
        .map(|one| (one.path.file_name().unwrap().to_str().unwrap(), one.reason.to_string()))
        .collect();
    skipped.sort();
    let names: Vec<_> = skipped.iter().map(|(name, _)| *name).collect();
    let expected = ["BadJson", "MissingMandatory", "NamedDefault", "NoPkg", "default", "weirdtype"];
    assert_eq!(names, expected);
    for ((name, reason), part) in skipped.iter().zip([
        "the descriptor is not JSON",
        "`version` is missing",
        "`default` is not allowed",
        "there is no package",
        "folders named `default`",
        "no type of object",
    ]) {
        assert!(reason.contains(part), "{name}: {reason}");
    }
}

/// The object that `default` stood for came from another folder. Its body and hash leave only this descriptor.
#[test]
fn the_default_is_answered_as_recorded_once_its_object_is_there() {
    let descriptor = concat!(
        r#"{"hypertyType":"COMMUNICATOR","version":"1.0","objectName":"HelloWorldReporter","description":"This is an "#,
        r#"example hyperty that is written in an external file and contains a source package","language":"Javascript "#,
        r#"ECMA6","dataObjects":[]}"#
    );
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("hyperty/HelloWorldReporter");
    std::fs::create_dir_all(&object).unwrap();
    std::fs::write(object.join("description.json"), descriptor).unwrap();
    let package = r#"{"sourceCodeClassname": "HelloWorldReporter"}"#;
    std::fs::write(object.join("sourcePackage.json"), package).unwrap();
    std::fs::write(object.join("sourceCode.js"), "code").unwrap();
    let mut loaded = load(folder.path());
    loaded
        .catalogue
        .set_default(PathType::Objects(Kind::Hyperty), vec!["HelloWorldReporter".to_owned()]);

    let exchanges = exchanges();
    let recorded = exchanges.iter().find(|one| one.name == "edge_hyperty_default").unwrap();
    check_same(recorded, &respond(&loaded, &recorded.path, &recorded.request_host));
}
