//! Packages that a disk has damaged: none is handed out for good.

use std::fs;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use levada_catalogue::model::digest_text;
use levada_catalogue::store::embedded::BLOBS;
use levada_core::{Digest, sha256};

use crate::support::{Answer, Server, draft_with, eventually, noise};

/// In memory, in a file, and too long to be compared before the first answer.
const LENGTHS: [usize; 3] = [5_000, 200_000, 3_000_000];

fn file(server: &Server, digest: &Digest) -> PathBuf {
    let [first, rest] = [&digest[..1], &digest[1..]].map(|part| HEXLOWER.encode(part));
    server.folder().join(BLOBS).join(first).join(rest)
}

/// Publishes packages of each length, before anybody has asked for one.
fn publish(server: &Server, media_type: &str) -> Vec<(Vec<u8>, Digest)> {
    let publish = |length: &usize| {
        let content = noise(*length);
        let key = format!("runtime/r{length}");
        server.publish(&draft_with(server, &key, "1.0.0", media_type, &content));
        let digest = sha256(&[&content]);
        (content, digest)
    };
    LENGTHS.iter().map(publish).collect()
}

fn get(server: &Server, digest: &Digest) -> Answer {
    let answer = server.ask(
        "GET",
        &format!("/v1/blobs/{}", digest_text(digest)),
        "Accept-Encoding: gzip\r\n",
    );
    let length: usize = answer.field("content-length").unwrap().parse().unwrap();
    assert_eq!(length, answer.body.len(), "it was cut off");
    answer
}

fn is_immutable(answer: &Answer) -> bool {
    answer.field("cache-control").unwrap().contains("immutable")
}

#[test]
fn what_is_damaged_is_never_for_good_and_is_healed() {
    for media_type in ["image/png", "text/javascript"] {
        let server = Server::start();
        for (content, digest) in publish(&server, media_type) {
            let mut damaged = content.clone();
            damaged[content.len() / 2] ^= 1;
            fs::write(file(&server, &digest), damaged).unwrap();
            eventually(|| {
                let answer = get(&server, &digest);
                assert!(!is_immutable(&answer));
                answer.status == 500
            });
            get(&server, &digest).assert_problem(500);
            server.upload(&content);
            eventually(|| {
                let answer = get(&server, &digest);
                assert!(answer.status == 200 && answer.body == content);
                is_immutable(&answer)
            });
        }
    }
}

#[test]
fn what_has_another_length_is_not_sent_at_all() {
    let server = Server::start();
    for (content, digest) in publish(&server, "image/png") {
        for length in [content.len() - 1, content.len() + 1] {
            fs::write(file(&server, &digest), noise(length)).unwrap();
            get(&server, &digest).assert_problem(500);
            server.upload(&content);
        }
        // Also if it was sound when it was opened.
        eventually(|| is_immutable(&get(&server, &digest)));
        fs::OpenOptions::new()
            .write(true)
            .open(file(&server, &digest))
            .unwrap()
            .set_len(2)
            .unwrap();
        if content.len() > 16 * 1024 {
            get(&server, &digest).assert_problem(500);
        }
    }
}

#[test]
fn damaged_code_is_not_shown_under_the_originals_paths() {
    let server = Server::start();
    let content = noise(50_000);
    let mut draft = draft_with(&server, "dataschema/S", "1.0.0", "text/javascript", &content);
    draft.descriptor =
        r#"{"type":"t","version":"1","objectName":"S","description":"d","language":"l"}"#.into();
    draft.package.as_mut().unwrap().description = br#"{"sourceCodeClassname":"S"}"#.to_vec();
    server.publish(&draft);
    let digest = sha256(&[&content]);
    fs::write(file(&server, &digest), vec![b'x'; content.len()]).unwrap();
    for path in ["", "/sourceCode", "/md5"] {
        server.get(&format!("/.well-known/sourcepackage/S{path}")).assert_text(500);
    }
    server.upload(&content);
    assert_eq!(server.get("/.well-known/sourcepackage/S/md5").status, 200);
}
