//! Replays every recorded exchange with reTHINK's catalogue against the same folder of objects.

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

/// Exchanges that are answered differently here: name, status here, and what was recorded with its
/// reason. `docs/catalogue-rethink.md` specifies the differences.
const DEVIATIONS: &[(&str, u16, &str)] = &[
    ("edge_attr_v_empty", 404, "no response: the value is empty"),
    ("edge_attr_v_ws", 404, "no response: the value is blank"),
    ("edge_extra_attr", 404, "500: no such attribute"),
    ("edge_hyperty_BadJson", 404, "500: the object is not loaded"),
    ("edge_hyperty_InDefaultFolder", 404, "500: the object is not loaded"),
    ("edge_hyperty_MissingMandatory", 404, "500: the object is not loaded"),
    ("edge_hyperty_NoPkg", 404, "500: the object is not loaded"),
    ("edge_hyperty_default", 404, "200: the default is an object of another folder"),
    ("edge_inner_name", 404, "500: paths are not decoded"),
    ("edge_inner_name_raw", 404, "500: the name of the folder is not the object's"),
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

/// The answer of this catalogue.
struct Response {
    status: u16,
    content_type: &'static str,
    body: Bytes,
}

/// A catalogue and the code of its packages.
struct Loaded {
    catalogue: Catalogue,
    code: HashMap<Digest, Vec<u8>>,
    skipped: Vec<Skipped>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rethink").join(name)
}

/// Loads a folder as an import does, through drafts, so that every object could also be stored.
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
        other => panic!("a package request was completed with {other:?}"),
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
            // The text is reTHINK's where it had one.
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
    assert_eq!(
        same + DEVIATIONS.len(),
        exchanges.len(),
        "a deviation is not among the recorded exchanges"
    );
}

#[test]
fn lists_are_sorted_and_include_names_with_a_slash() {
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
fn objects_that_rethink_skipped_are_reported() {
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
        "not a type of object",
    ]) {
        assert!(reason.contains(part), "{name}: {reason}");
    }
}

/// The recorded default object is not in the folder. Its descriptor follows from the recorded body
/// and hash.
#[test]
fn the_default_object_has_the_recorded_body() {
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
