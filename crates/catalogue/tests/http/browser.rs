//! The web page in a browser: headless Chromium, controlled by `browser.mjs`.
//!
//! Needs Debian's `chromium` and `node`, and `LEVADA_PLAYWRIGHT`: a folder in which
//! `npm install playwright-core` was run. `scripts/test --all` provides them. With
//! `LEVADA_SCREENSHOTS`, screenshots of the page are written to that folder.

use std::path::Path;
use std::process::Command;

use levada_core::{SecretKey, SystemRandom};

use super::server::{Server, draft, draft_with};

fn fill(server: &Server) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    server.import(&manifest.join("tests/rethink/objects"));
    let key = SecretKey::generate(&SystemRandom).unwrap();
    for (version, code) in
        [("1.0.0", "export const one = 1;\n"), ("1.1.0", "export const one = 1.1;\n")]
    {
        let code = code.repeat(500);
        let mut draft =
            draft_with(server, "hyperty/Chat", version, "text/javascript", code.as_bytes());
        draft.descriptor = br#"{
  "hypertyType": "communicator",
  "objectName": "Chat",
  "description": "Talks to everybody who listens.",
  "language": "javascript"
}"#
        .to_vec();
        draft.sign(&key);
        server.publish(&draft);
    }
    for number in 0..30 {
        server.publish(&draft(&format!("service/probe-{number}"), "1.0.0", "{}"));
    }
    let evil = r#"{"description": "<img src=x onerror=alert(1)></pre><script>alert(2)</script>"}"#;
    server.publish(&draft("service/<script>alert(3)<script>", "1.0.0", evil));
}

#[test]
fn a_browser_lists_searches_and_copies_commands() {
    let playwright = std::env::var_os("LEVADA_PLAYWRIGHT")
        .expect("LEVADA_PLAYWRIGHT is not set: run scripts/test --all");
    let server = Server::start();
    fill(&server);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/browser.mjs");
    // The script ends each step after a minute, so this wait ends too.
    let status = Command::new("node")
        .arg(script)
        .arg(server.url(""))
        .env("LEVADA_PLAYWRIGHT", playwright)
        .status();
    assert!(status.expect("node is not installed").success());
}
