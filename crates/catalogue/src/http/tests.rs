//! Whatever comes, there is an answer, and it is well-formed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use levada_core::UnixTime;

use super::cache::{CacheKey, Cached};
use super::content::Content;
use super::response::Connection;
use super::*;
use crate::index::Options;
use crate::model::{Draft, Package};
use crate::rethink::Answer;
use crate::store::embedded::EmbeddedStore;

const NOW: UnixTime = UnixTime(1_700_000_000);

/// A site with an object that all layers show.
fn site() -> (tempfile::TempDir, Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&folder.path().join("catalogue")).unwrap();
    publish(&store, "1.0.0", b"code");
    let index = Arc::new(Index::load(&store, Options::default()).unwrap());
    (folder, Site::new(index, Arc::new(store), Config::default(), None))
}

fn publish(store: &dyn Store, version: &str, code: &[u8]) {
    let mut writer = store.begin_blob().unwrap();
    writer.write(code).unwrap();
    let (digest, length) = writer.finish(None).unwrap();
    let descriptor = format!(
        r#"{{"type":"t","version":"{version}","objectName":"S","description":"d","language":"l"}}"#
    );
    let package = Package {
        digest,
        length,
        media_type: "text/javascript".to_owned(),
        description: br#"{"sourceCodeClassname":"S"}"#.to_vec(),
    };
    let draft = Draft {
        key: "dataschema/S".parse().unwrap(),
        version: version.parse().unwrap(),
        descriptor: descriptor.into(),
        package: Some(package),
        signatures: Vec::new(),
    };
    store.publish(&draft, None, NOW).unwrap();
}

/// The answer, and its head.
fn answer(site: &Arc<Site>, request: &Request<'_>) -> (Response, String) {
    let response = match site.answer(request) {
        Reply::Now(response) => response,
        Reply::Later(job) => job.run(),
    };
    let mut head = Vec::new();
    response.write_head(&mut head, Connection::Stays);
    (response, String::from_utf8(head).unwrap())
}

#[track_caller]
fn check(site: &Arc<Site>, bytes: &[u8]) -> Option<u16> {
    let (response, head) = match parse(bytes) {
        Parsed::Request(request, used) => {
            assert!(used <= bytes.len());
            answer(site, &request)
        }
        Parsed::Partial => return None,
        Parsed::Refused(refusal) => {
            let response = problem::refusal_response(refusal, false);
            let mut head = Vec::new();
            response.write_head(&mut head, Connection::Closes);
            (response, String::from_utf8(head).unwrap())
        }
    };
    assert_eq!(head.find("\r\n\r\n"), Some(head.len() - 4), "{head}");
    assert!(!head.replace("\r\n", "").contains(['\r', '\n', '\0']), "{head}");
    assert!((200..600).contains(&response.status) && response.status != 500, "{head}");
    Some(response.status)
}

#[test]
fn whatever_comes_has_an_answer() {
    let (_folder, site) = site();
    // A site that a panic left half changed fails whatever comes after it; nothing is to panic at all.
    let site = AssertUnwindSafe(site);
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        check(&site, bytes);
    });
}

#[test]
fn whatever_is_asked_for_has_an_answer() {
    let (_folder, site) = site();
    let site = AssertUnwindSafe(site);
    let roots = [
        "/",
        "/.well-known/",
        "/.well-known/dataschema/",
        "/.well-known/sourcepackage/",
        "/v1/",
        "/v1/objects/",
        "/v1/objects/dataschema/S/",
        "/v1/blobs/sha256:",
        "/v1/search?q=",
        "/v1/objects?",
        "/v1/watch?after=",
        "/objects/",
        "/?",
        "http://",
    ];
    let names = [
        "Range",
        "If-None-Match",
        "If-Range",
        "Host",
        "Last-Event-ID",
        "Accept-Encoding",
        "Connection",
        "Content-Length",
    ];
    bolero::check!().with_type::<(u8, String, u8, String)>().for_each(
        |(root, rest, name, value)| {
            let root = roots[usize::from(*root) % roots.len()];
            let name = names[usize::from(*name) % names.len()];
            let rest: String = rest.chars().filter(|c| *c > ' ' && *c != '\u{7f}').collect();
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            let request =
                format!("GET {root}{rest} HTTP/1.1\r\nHost: h\r\n{name}: {value}\r\n\r\n");
            assert!(check(&site, request.as_bytes()).is_some());
        },
    );
}

const PACKAGE: &str = "/.well-known/sourcepackage/S";

fn ask(site: &Arc<Site>, path: &str, fields: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let Parsed::Request(request, _) = parse(request.as_bytes()) else { panic!("{request}") };
    site.answer(&request)
}

#[test]
fn what_somebody_makes_is_not_made_twice() {
    let (_folder, site) = site();
    let Answer::Package(package) = site.index.rethink(PACKAGE.as_bytes(), None) else {
        panic!("there is a package")
    };
    let Reply::Later(job) = ask(&site, PACKAGE, "") else { panic!("nobody has made it yet") };
    let workshop = site.workshop(&package.digest);
    let waiting = std::thread::spawn(move || job.run());
    let made = Cached::Content(Content::Bytes("made meanwhile".into()), [7; 16]);
    site.cache.put(CacheKey::Package(package), site.store.replaced(), made);
    drop(workshop);
    let response = waiting.join().unwrap();
    assert!(matches!(response.body, Body::Whole(body) if body == "made meanwhile"));
}

#[test]
fn what_is_known_is_not_sent_the_first_time_either() {
    let (_folder, site) = site();
    let Reply::Later(job) = ask(&site, PACKAGE, "If-None-Match: *\r\n") else { panic!() };
    let response = job.run();
    assert_eq!((response.status, response.body.length()), (304, Some(0)));
    assert!(matches!(ask(&site, PACKAGE, ""), Reply::Now(_)));
}

#[test]
fn without_room_for_a_body_the_client_is_told_to_come_again() {
    let (_folder, site) = site();
    publish(&*site.store, "2.0.0", &[b'x'; 50_000]);
    site.index.catch_up(&*site.store).unwrap();
    let all = u32::try_from(site.room.available_permits()).unwrap();
    let taken = site.room.try_acquire_many(all).unwrap();
    let answer = || match ask(&site, PACKAGE, "") {
        Reply::Now(response) => response.status,
        Reply::Later(job) => job.run().status,
    };
    assert_eq!(answer(), 503);
    drop(taken);
    assert_eq!(answer(), 200);
}

#[test]
fn paths_of_the_description_are_answered() {
    let (_folder, site) = site();
    let document = openapi_document();
    let digest =
        site.index.object(&"dataschema/S".parse().unwrap()).unwrap().versions[0].package.unwrap().0;
    for path in document["paths"].as_object().unwrap().keys() {
        let target = path
            .replace("{kind}", "dataschema")
            .replace("{name}", "S")
            .replace("{version}", "^1")
            .replace("{digest}", &crate::model::digest_text(&digest));
        let target = if path == "/v1/search" { format!("{target}?q=S") } else { target };
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(check(&site, request.as_bytes()), Some(200), "{target}");
    }
}

#[test]
fn others_can_answer_paths() {
    struct Metrics;
    impl Extra for Metrics {
        fn answer(&self, path: &str) -> Option<Response> {
            (path == "/metrics").then(|| Response::text(200, "text/plain", "1"))
        }
    }
    let (_folder, site) = site();
    let site = Site::new(
        Arc::clone(&site.index),
        Arc::clone(&site.store),
        Config::default(),
        Some(Box::new(Metrics)),
    );
    assert_eq!(check(&site, b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"), Some(200));
    assert_eq!(check(&site, b"GET /metrics/ HTTP/1.1\r\nHost: h\r\n\r\n"), Some(404));
    assert_eq!(check(&site, b"POST /metrics HTTP/1.1\r\nHost: h\r\n\r\n"), Some(405));
}
