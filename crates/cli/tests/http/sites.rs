//! Two services of one node in headless Chromium: neither reaches the cookies of the other, or
//! changes anything there. Needs what `contexts/browser.rs` needs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Parties, Started, host_port};
use crate::support::Watchdog;

/// The outcome of `sites.mjs`.
fn browse(one: &str, two: &str) -> Value {
    let playwright = std::env::var_os("LEVADA_PLAYWRIGHT")
        .expect("LEVADA_PLAYWRIGHT is not set: run scripts/test --all");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http/sites.mjs");
    let mut command = Command::new("node");
    command.arg(script).args([one, two]).env("LEVADA_PLAYWRIGHT", playwright);
    let browser = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let browser = browser.expect("node is not installed");
    let watchdog = Watchdog::over(browser.id());
    let output = browser.wait_with_output().unwrap();
    drop(watchdog);
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_service_reaches_nothing_of_another_in_a_browser() {
    let parties = Parties::new();
    let file = |name: &str| {
        let file = parties.node.path().join(format!("{name}.toml"));
        let origin = &parties.origin.address;
        let text = format!("name = '{name}'\ntype = 'http'\norigin = '{origin}'\n");
        std::fs::write(&file, text).unwrap();
        format!("--service {} ", file.display())
    };
    let services = file("one") + &file("two");
    let node = parties.node.up(&format!("{services}--allow {}", parties.client.identity()));
    let start =
        |name: &str| Started::start(&parties.client, &["http", &format!("{}/{name}", node.at())]);
    let one = start("one");
    let two = start("two");
    let seen = browse(&one.address, &two.address);
    let (site, _) = host_port(&one.address).split_once(':').unwrap();
    assert!(site.starts_with("one--") && site.ends_with(".localhost"), "{site}");
    // The origin asked for a cookie of all of localhost, which is now one of this host.
    let expected = serde_json::json!({
        "own": 200,
        "reached": {
            "cookie": "", "read": "failed", "opaque": "opaque", "forged": "opaque",
        },
        "cookies": [format!("session {site}")],
    });
    assert_eq!(seen, expected);
    let requests = parties.origin.take();
    let cookie = |target: &str| {
        let request = requests.iter().find(|request| request.target() == target);
        request.map(|request| request.values("cookie").join(";"))
    };
    assert_eq!(cookie("/own").as_deref(), Some("session=secret"));
    assert_eq!(cookie("/read").as_deref(), Some(""));
    assert_eq!(cookie("/opaque").as_deref(), Some(""));
    assert_eq!(cookie("/forged"), None);
}
