//! Any input gets a well-formed response.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use levada_core::UnixTime;

use super::cache::{CacheKey, Cached};
use super::content::Content;
use super::reply::Reply;
use super::response::Persistence;
use super::route::route;
use super::*;
use crate::index::{Index, Options};
use crate::model::{Draft, Package};
use crate::rethink::Answer;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;

const NOW: UnixTime = UnixTime(1_700_000_000);

/// A site with an object that both APIs and the page show.
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

/// The response, and its head.
fn answer(site: &Arc<Site>, request: &Request<'_>) -> (Response, String) {
    let response = match route(site, request) {
        Reply::Ready(response) => response,
        Reply::Job(job) => job.run(),
    };
    let mut head = Vec::new();
    response.write_head(&mut head, Persistence::KeepAlive);
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
            response.write_head(&mut head, Persistence::Close);
            (response, String::from_utf8(head).unwrap())
        }
    };
    assert_eq!(head.find("\r\n\r\n"), Some(head.len() - 4), "{head}");
    assert!(!head.replace("\r\n", "").contains(['\r', '\n', '\0']), "{head}");
    assert!((200..600).contains(&response.status) && response.status != 500, "{head}");
    Some(response.status)
}

#[test]
fn any_bytes_get_a_response() {
    let (_folder, site) = site();
    // After a panic the test has failed, so an inconsistent site does not matter.
    let site = AssertUnwindSafe(site);
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        check(&site, bytes);
    });
}

#[test]
fn any_path_and_field_get_a_response() {
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
    route(site, &request)
}

#[test]
fn a_concurrent_request_uses_the_body_that_was_built_meanwhile() {
    let (_folder, site) = site();
    let Answer::Package(package) = site.index.rethink(PACKAGE.as_bytes(), None) else {
        panic!("the object has a package")
    };
    let Reply::Job(job) = ask(&site, PACKAGE, "") else { panic!("the body is not built yet") };
    let build = site.bodies.lock_build(&package.digest);
    let waiting = std::thread::spawn(move || job.run());
    let built = Cached::Content(Content::Bytes("built meanwhile".into()), [7; 16]);
    site.bodies.cache.put(CacheKey::Package(package), site.store.replaced(), built);
    drop(build);
    let response = waiting.join().unwrap();
    assert!(matches!(response.body, Body::Whole(body) if body == "built meanwhile"));
}

#[test]
fn a_body_that_the_client_has_is_not_sent_even_the_first_time() {
    let (_folder, site) = site();
    let Reply::Job(job) = ask(&site, PACKAGE, "If-None-Match: *\r\n") else { panic!() };
    let response = job.run();
    assert_eq!((response.status, response.body.length()), (304, Some(0)));
    assert!(matches!(ask(&site, PACKAGE, ""), Reply::Ready(_)));
}

#[test]
fn answers_503_when_the_body_budget_is_exhausted() {
    let (_folder, site) = site();
    publish(&*site.store, "2.0.0", &[b'x'; 50_000]);
    site.index.catch_up(&*site.store).unwrap();
    let all = u32::try_from(site.bodies.budget.available_permits()).unwrap();
    let taken = site.bodies.budget.try_acquire_many(all).unwrap();
    let answer = || match ask(&site, PACKAGE, "") {
        Reply::Ready(response) => response.status,
        Reply::Job(job) => job.run().status,
    };
    assert_eq!(answer(), 503);
    drop(taken);
    assert_eq!(answer(), 200);
}

#[test]
fn answers_every_path_of_the_openapi_document() {
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
fn extra_paths_are_answered() {
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
