//! Conformance of `/v1` to its OpenAPI description: schemathesis generates valid and invalid
//! requests from it.
//!
//! Needs the program in `LEVADA_SCHEMATHESIS`; `scripts/test --all` provides it.

use std::process::Command;

use super::server::{Server, draft, draft_with};

#[test]
fn every_response_conforms_to_the_description() {
    let program = std::env::var_os("LEVADA_SCHEMATHESIS")
        .expect("LEVADA_SCHEMATHESIS is not set: run scripts/test --all");
    let server = Server::start();
    for number in 0..20 {
        server.publish(&draft(
            &format!("service/{number}"),
            "1.0.0",
            r#"{"description":"0 1 2 a b c"}"#,
        ));
    }
    server.publish(&draft_with(&server, "runtime/0", "0.0.0", "text/javascript", b"code"));
    // It writes files to its working directory.
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(program)
        .current_dir(folder.path())
        .args(["run", "--no-color", "--max-examples", "100", "--request-timeout", "20"])
        .arg(server.url("/v1/openapi.json"))
        .status();
    assert!(status.expect("schemathesis cannot be started").success());
}
