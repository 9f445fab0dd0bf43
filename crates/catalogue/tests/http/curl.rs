//! The curl commands of the documentation.

use std::process::Command;

use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{Server, draft_with, noise};

fn curl(arguments: &[&str]) -> (bool, Vec<u8>) {
    let output = Command::new("curl").args(["-sS", "--max-time", "30"]).args(arguments).output();
    let output = output.expect("curl is not installed: run scripts/test");
    (output.status.success(), output.stdout)
}

#[test]
fn a_client_fetches_the_descriptor_then_the_package() {
    let server = Server::start();
    let content = noise(200_000);
    server.publish(&draft_with(&server, "runtime/Runtime", "1.0.0", "text/javascript", &content));
    let url = server.url("/v1/objects/runtime/Runtime/latest");
    let (ok, descriptor) = curl(&["-f", &url]);
    assert!(ok && descriptor == br#"{"language":"javascript"}"#);

    let (_, meta) = curl(&["-f", &format!("{url}/meta")]);
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    let digest = meta["package"]["digest"].as_str().unwrap();
    assert_eq!(digest, digest_text(&sha256(&[&content])));
    let blob = server.url(&format!("/v1/blobs/{digest}"));
    let (ok, whole) = curl(&["-f", "--compressed", &blob]);
    assert!(ok && whole == content);

    // An interrupted download is resumed.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("package");
    std::fs::write(&file, &content[..123_456]).unwrap();
    let (ok, _) = curl(&["-f", "-C", "-", "-o", file.to_str().unwrap(), &blob]);
    assert!(ok && std::fs::read(&file).unwrap() == content);
}

#[test]
fn an_unchanged_descriptor_is_not_sent_again() {
    let server = Server::start();
    server.publish(&draft_with(&server, "runtime/Runtime", "1.0.0", "text/javascript", b"code"));
    let folder = tempfile::tempdir().unwrap();
    let tag = folder.path().join("tag");
    let tag = tag.to_str().unwrap();
    let url = server.url("/v1/objects/runtime/Runtime/latest");
    let fetch = || {
        curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--etag-save",
            tag,
            "--etag-compare",
            tag,
            &url,
        ])
        .1
    };
    assert_eq!((fetch(), fetch()), (b"200".to_vec(), b"304".to_vec()));
    server.publish(&draft_with(
        &server,
        "runtime/Runtime",
        "1.0.1",
        "text/javascript",
        b"more code",
    ));
    // The new version has the same descriptor and therefore the same tag.
    assert_eq!(fetch(), b"304");
}

#[test]
fn curl_reports_errors() {
    let server = Server::start();
    assert!(!curl(&["-f", &server.url("/v1/objects/runtime/none")]).0);
    let (_, code) =
        curl(&["-o", "/dev/null", "-w", "%{http_code}", "-d", "x", &server.url("/v1/objects")]);
    assert_eq!(code, b"405");
    let (_, code) = curl(&[
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--path-as-is",
        &server.url("/v1/../etc/passwd"),
    ]);
    assert_eq!(code, b"404");
    let (_, head) = curl(&["-I", &server.url("/v1/openapi.json")]);
    assert!(String::from_utf8(head).unwrap().starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn curl_reuses_the_connection() {
    let server = Server::start();
    let url = server.url("/v1/openapi.json");
    let (ok, count) =
        curl(&["-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", &url, &url]);
    assert!(ok);
    assert_eq!(String::from_utf8(count).unwrap(), "1 0 ");
}
