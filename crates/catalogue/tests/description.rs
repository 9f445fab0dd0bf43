//! Whether `/v1` is as its OpenAPI description says: schemathesis makes requests from it, right ones and wrong ones.
//!
//! Needs the program in `LEVADA_SCHEMATHESIS`; `scripts/test --all` provides it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests, as in tests.

#[allow(dead_code)] // The other tests use the rest of it.
#[path = "http/support.rs"]
mod support;

use std::process::Command;

use support::{Server, draft, draft_with};

#[test]
fn every_answer_is_as_described() {
    let program = std::env::var_os("LEVADA_SCHEMATHESIS")
        .expect("LEVADA_SCHEMATHESIS does not name the program: use scripts/test --all");
    let server = Server::start();
    for number in 0..20 {
        server.publish(&draft(
            &format!("service/{number}"),
            "1.0.0",
            r#"{"description":"0 1 2 a b c"}"#,
        ));
    }
    server.publish(&draft_with(&server, "runtime/0", "0.0.0", "text/javascript", b"code"));
    // It writes into the folder that it is started in.
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(program)
        .current_dir(folder.path())
        .args(["run", "--no-color", "--max-examples", "100", "--request-timeout", "20"])
        .arg(server.url("/v1/openapi.json"))
        .status();
    assert!(status.expect("schemathesis cannot be started").success());
}
