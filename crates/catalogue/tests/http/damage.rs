//! Packages that are damaged on disk: none is served as immutable or with status 200 once the
//! damage is found.

use std::fs;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use levada_catalogue::model::digest_text;
use levada_catalogue::store::embedded::BLOBS;
use levada_core::{Digest, sha256};

use super::server::{Answer, Server, draft_with, eventually, noise, schema_draft};

/// Cached in memory; sent from the file; too long to be verified before the first answer.
const LENGTHS: [usize; 3] = [5_000, 200_000, 3_000_000];

fn file(server: &Server, digest: &Digest) -> PathBuf {
    let [first, rest] = [&digest[..1], &digest[1..]].map(|part| HEXLOWER.encode(part));
    server.folder().join(BLOBS).join(first).join(rest)
}

/// Publishes a package of each length; none has been requested yet.
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
    assert_eq!(length, answer.body.len(), "the body is truncated");
    answer
}

fn is_immutable(answer: &Answer) -> bool {
    answer.field("cache-control").unwrap().contains("immutable")
}

#[test]
fn a_damaged_package_is_never_immutable_and_an_upload_repairs_it() {
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
fn a_package_of_another_length_is_not_sent() {
    let server = Server::start();
    for (content, digest) in publish(&server, "image/png") {
        for length in [content.len() - 1, content.len() + 1] {
            fs::write(file(&server, &digest), noise(length)).unwrap();
            get(&server, &digest).assert_problem(500);
            server.upload(&content);
        }
        // Also if it was intact when the server opened it.
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
fn damaged_code_is_not_served_under_well_known() {
    let server = Server::start();
    let content = noise(50_000);
    server.publish(&schema_draft(&server, "1.0.0", &content));
    let digest = sha256(&[&content]);
    fs::write(file(&server, &digest), vec![b'x'; content.len()]).unwrap();
    for path in ["", "/sourceCode", "/md5"] {
        server.get(&format!("/.well-known/sourcepackage/S{path}")).assert_text(500);
    }
    server.upload(&content);
    assert_eq!(server.get("/.well-known/sourcepackage/S/md5").status, 200);
}
