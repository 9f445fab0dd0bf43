//! What the operator of a node sees of sessions through middleboxes.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{Parties, Service, curl};
use crate::support::eventually;

#[test]
fn a_node_shows_what_each_middlebox_of_a_session_was_granted() {
    let parties = Parties::new();
    let (http, [first, second], _node) = parties.run();
    assert_eq!(curl(&[&http.address]), "the page");

    let sessions = parties.node.json("sessions");
    let path = &sessions["sessions"][0]["paths"][0];
    assert_eq!(
        (&path["resumed"], &path["key_encapsulation"]),
        (&json!(false), &json!("X25519MLKEM768"))
    );
    let hop = |home: usize, service: &Service, rights| {
        json!({
            "identity": parties.hops[home].identity(),
            "identity_name": null,
            "address": service.host_port(),
            "rights": rights,
        })
    };
    let expected = json!([
        hop(0, &first, json!({ "request-head": "r" })),
        hop(1, &second, json!({ "response-head": "rw" })),
    ]);
    assert_eq!(path["middleboxes"], expected, "{sessions}");
    let short = |home: usize| parties.hops[home].identity()[..10].to_owned();
    let text = parties.node.run("sessions").ok();
    let column = format!("{} request-head=r, then {} response-head=rw", short(0), short(1));
    assert!(text.contains("  through") && text.contains(&column), "{text}");

    // A request that is not complete keeps its session, so the next one opens another, which
    // resumes keys of the first.
    let mut busy = Command::new("curl")
        .args([
            "--silent",
            "--noproxy",
            "*",
            "--upload-file",
            "-",
            "--request",
            "POST",
            &http.address,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut body = busy.stdin.take().unwrap();
    body.write_all(b"a part").unwrap();
    let resumed = || {
        let sessions = parties.node.json("sessions")["sessions"].take();
        let mut paths = sessions.as_array().unwrap().iter().map(|one| one["paths"][0].clone());
        paths.any(|path| path["resumed"] == true && path["middleboxes"] == expected)
    };
    eventually("a further session is resumed", || {
        assert_eq!(curl(&[&http.address]), "the page");
        resumed()
    });
    drop(body);
    busy.wait().unwrap();

    // After the end the audit log has it.
    drop(http);
    let ended = || {
        let sessions = parties.node.json("sessions")["sessions"].take();
        sessions.as_array().unwrap().iter().all(|one| one["paths"] == json!([]))
    };
    eventually("the sessions have ended", ended);
    let log = parties.node.json("sessions --log");
    let text = format!(
        "through {} (request-head=r), {} (response-head=rw)",
        parties.hops[0].identity(),
        parties.hops[1].identity()
    );
    let entries = log["log"].as_array().unwrap();
    assert!(entries.iter().any(|one| one["text"] == text.as_str()), "{log}");
    assert!(!parties.node.run("sessions").ok().contains("  through"));
}
