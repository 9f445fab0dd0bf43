//! Every recorded exchange with reTHINK's catalogue, over HTTP.

use std::path::Path;

use data_encoding::HEXLOWER;
use levada_catalogue::model::digest_text;
use levada_catalogue::rethink::Folder;
use levada_core::sha256;
use serde_json::Value;

use super::server::{Answer, Server, draft_with, schema_draft};

/// The number of exchanges that are answered differently; `docs/catalogue-rethink.md` has the
/// reasons.
const DEVIATIONS: usize = 10;

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rethink").join(name)
}

fn ask(server: &Server, path: &str, host: &str, fields: &str) -> Answer {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    Answer::parse(&server.raw(request.as_bytes()))
}

/// Sends a recorded request.
fn replay(server: &Server, exchange: &Value) -> Answer {
    let text = |name: &str| exchange[name].as_str().unwrap_or_default();
    let method = text("method");
    let path = text("path");
    let host = text("request_host");
    let body = text("request_body");
    let fields = match method {
        "GET" => String::new(),
        // The Content-Type is ignored.
        _ => format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", body.len()),
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n{body}"
    );
    Answer::parse(&server.raw(request.as_bytes()))
}

/// Asserts that an answer is the recorded one, which has status 200.
#[track_caller]
fn assert_recorded(exchange: &Value, answer: &Answer) {
    let text = |name: &str| exchange[name].as_str().unwrap_or_default();
    assert_eq!(exchange["status"], 200, "{}", text("name"));
    assert_eq!(answer.field("content-type"), Some(text("content_type")), "{}", text("name"));
    assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
    assert_eq!(HEXLOWER.encode(&sha256(&[&answer.body])), text("body_sha256"), "{}", text("name"));
}

/// Asserts that an answer is a text that does not parse as JSON, with the recorded text if there is
/// one.
#[track_caller]
fn assert_recorded_error(exchange: &Value, answer: &Answer) {
    let unreadable = "Unable to handle request";
    let recorded = exchange["body"].as_str().unwrap_or_default();
    // The Java exception that follows in the recording is not sent here.
    let (status, words) = match recorded.strip_prefix(unreadable) {
        Some(_) => (400, unreadable),
        None => (404, recorded),
    };
    assert_eq!(answer.status, status, "{exchange}");
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
    assert!(serde_json::from_slice::<Value>(&answer.body).is_err(), "{}", answer.text());
    assert!(words.is_empty() || answer.text() == words, "{exchange}: {}", answer.text());
}

fn recorded(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_recorded_exchange_has_the_same_answer() {
    let server = Server::start();
    server.import(&folder("objects"));
    let mut same = 0;
    let mut others = 0;
    for mut exchange in recorded("exchanges.jsonl") {
        let answer = replay(&server, &exchange);
        if answer.status == 200 {
            assert_recorded(&exchange, &answer);
            same += 1;
            continue;
        }
        // The recorded default object is not in this folder.
        if exchange["name"] == "edge_hyperty_default" {
            exchange["body"] = "No instance defined as default for type 'hyperty'".into();
        } else {
            assert_ne!(exchange["status"], 200, "{exchange}");
        }
        assert_recorded_error(&exchange, &answer);
        others += 1;
    }
    assert_eq!((same, others), (84, DEVIATIONS));
}

#[test]
fn every_recorded_post_has_the_same_answer() {
    let server = Server::start();
    server.import(&folder("objects"));
    let exchanges = recorded("exchanges-post.jsonl");
    let mut same = 0;
    let mut posts = 0;
    for exchange in &exchanges {
        let answer = replay(&server, exchange);
        posts += usize::from(exchange["method"] == "POST");
        if exchange["status"] == 200 {
            assert_recorded(exchange, &answer);
            same += 1;
        } else {
            assert_recorded_error(exchange, &answer);
        }
    }
    assert_eq!((exchanges.len(), same, posts), (646, 318, 578));
}

#[test]
fn conditions_can_name_the_code_and_md5_of_a_package() {
    let server = Server::start();
    server.import(&folder("objects"));
    let path = "/.well-known/sourcepackage/Connector";
    let whole = server.get(path).json();
    let post = |path: &str, conditions: Value| server.post(path, &conditions.to_string());
    for met in [
        serde_json::json!({"sourceCode": whole["sourceCode"], "encoding": "UTF-8"}),
        serde_json::json!({"md5": [whole["md5"]]}),
    ] {
        let answer = post(path, met.clone());
        assert_eq!((answer.status, answer.json()), (200, whole.clone()), "{met}");
        assert_eq!((answer.field("etag"), answer.field("cache-control")), (None, Some("no-store")));
        assert_eq!(post(&format!("{path}/encoding"), met).text(), "UTF-8");
    }
    let answer = post(path, serde_json::json!({"md5": "0"}));
    let words = "Unable to find instance named Connector that matches constraints {\"md5\":\"0\"}";
    assert_eq!((answer.status, answer.text()), (404, words));
}

#[test]
fn stubs_are_filtered_by_the_constraints_that_a_client_offers() {
    let server = Server::start();
    for (name, constraints) in [("a", "{}"), ("b", r#"{"browser":true}"#), ("c", r#"{"x":true}"#)] {
        let key = format!("protocolstub/{name}");
        let mut draft = draft_with(&server, &key, "1.0.0", "text/javascript", name.as_bytes());
        draft.descriptor = format!(
            r#"{{"version":"1","objectName":"{name}","description":"d","language":"l","constraints":{constraints}}}"#
        )
        .into();
        draft.package.as_mut().unwrap().description =
            format!(r#"{{"sourceCodeClassname":"{name}"}}"#).into();
        server.publish(&draft);
    }
    let list = |body: &str| server.post("/.well-known/protocolstub", body).json();
    let runtime = r#"{"constraints":{"browser":true,"windowSandbox":true}}"#;
    assert_eq!(list(runtime), serde_json::json!(["a", "b"]));
    assert_eq!(list("{}"), serde_json::json!(["a", "b", "c"]));
    for (name, status) in [("a", 200), ("b", 200), ("c", 404)] {
        let path = format!("/.well-known/protocolstub/{name}");
        assert_eq!(server.post(&path, runtime).status, status, "{name}");
    }
}

#[test]
fn only_code_may_be_loaded_as_a_script() {
    let server = Server::start();
    server.import(&folder("objects"));
    let path = "/.well-known/sourcepackage/Connector";
    for _ in 0..2 {
        let code = server.get(&format!("{path}/sourceCode"));
        assert_eq!((code.status, code.field("content-type")), (200, Some("application/json")));
        assert_eq!(code.field("x-content-type-options"), None);
    }
    for other in [path, "/.well-known/sourcepackage/Connector/md5", "/.well-known/hyperty/nope"] {
        assert_eq!(server.get(other).field("x-content-type-options"), Some("nosniff"), "{other}");
    }
}

#[test]
fn the_host_in_a_body_is_that_of_each_request() {
    let server = Server::start();
    server.import(&folder("objects"));
    let path = "/.well-known/runtime/Runtime150k";
    for host in ["a.example", "b.example:81", "[::1]:5383", "a.example"] {
        let answer = ask(&server, path, host, "X-Forwarded-Host: evil\r\n");
        let url = format!("hyperty-catalogue://{host}/.well-known/sourcepackage/");
        assert!(answer.text().contains(&url), "{}", answer.text());
        assert_eq!(answer.field("content-length"), Some(answer.body.len().to_string().as_str()));
    }
    for host in ["a b", "", "a/b", "a\"b", "u@a", &"x".repeat(256)] {
        ask(&server, path, host, "").assert_text(400);
    }
    for fields in ["Host: h\r\n", "Host: other\r\n"] {
        ask(&server, path, "h", fields).assert_text(400);
    }
    let target = format!("http://target.example{path}");
    let answer = ask(&server, &target, "other.example", "");
    assert!(answer.text().contains("hyperty-catalogue://target.example/"));
}

#[test]
fn a_matching_tag_gets_304() {
    let server = Server::start();
    server.import(&folder("objects"));
    for path in [
        "/.well-known/runtime/Runtime150k",
        "/.well-known/runtime",
        "/.well-known/hyperty/Connector/version",
    ] {
        let tag = server.get(path).field("etag").unwrap().to_owned();
        let again = server.ask("GET", path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(
            (again.status, again.body.len(), again.field("etag")),
            (304, 0, Some(tag.as_str()))
        );
        assert_eq!(server.ask("GET", path, "If-None-Match: \"x\"\r\n").status, 200);
    }
}

#[test]
fn a_package_is_the_same_from_the_store_and_from_the_cache() {
    let server = Server::start();
    server.import(&folder("objects"));
    let names: Value = server.get("/.well-known/sourcepackage").json();
    let mut longest = 0;
    for name in names.as_array().unwrap() {
        let path = format!("/.well-known/sourcepackage/{}", name.as_str().unwrap());
        let first = server.get(&path);
        let second = server.get(&path);
        assert_eq!((first.status, &first.body), (200, &second.body), "{path}");
        assert_eq!(first.field("etag"), second.field("etag"));
        let known = format!("If-None-Match: {}\r\n", first.field("etag").unwrap());
        assert_eq!(server.ask("GET", &path, &known).status, 304);
        let head = server.ask("HEAD", &path, "");
        assert_eq!(
            (head.field("content-length"), head.body.len()),
            (first.field("content-length"), 0)
        );
        longest = longest.max(first.body.len());
    }
    assert!(longest > 150_000);
}

#[test]
fn sixty_concurrent_packages_are_complete() {
    let server = Server::start();
    server.import(&folder("objects"));
    // The digests of all packages, from the files.
    let codes = Folder::open(&folder("objects")).unwrap().flatten();
    let digests: Vec<_> = codes.map(|found| sha256(&[&found.code])).collect();
    assert!(digests.len() > 30);
    std::thread::scope(|scope| {
        for digest in digests.iter().cycle().take(60) {
            let path = format!("/v1/blobs/{}", digest_text(digest));
            let server = &server;
            scope.spawn(move || assert_eq!(sha256(&[&server.get(&path).body]), *digest, "{path}"));
        }
    });
    // One body under /.well-known/ that is not cached yet.
    let names: Value = server.get("/.well-known/runtime").json();
    let object = server.get(&format!("/.well-known/runtime/{}", names[0].as_str().unwrap())).json();
    let url = object["sourcePackageURL"].as_str().unwrap();
    let path = url.strip_prefix("hyperty-catalogue://h:1").unwrap();
    let digests: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..60).map(|_| scope.spawn(|| sha256(&[&server.get(path).body]))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let expected = sha256(&[&server.get(path).body]);
    assert!(digests.iter().all(|digest| *digest == expected));
}

#[test]
fn a_new_version_is_served_immediately() {
    let server = Server::start();
    for version in ["1.0.0", "1.10.0"] {
        server.publish(&schema_draft(&server, version, b"code"));
        assert_eq!(server.get("/.well-known/dataschema/S/version").text(), version);
    }
    server.yank("dataschema/S", "1.10.0");
    assert_eq!(server.get("/.well-known/dataschema/S/version").text(), "1.0.0");
}
