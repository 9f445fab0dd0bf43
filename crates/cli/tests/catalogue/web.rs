//! Catalogues that are read by HTTP, honest and not.

use std::io::Read;

use levada_core::printable::is_printable;
use serde_json::{Value, json};

use super::server::{meta, one_version, start, whole};
use super::support::{Home, Ran};

/// The title of the window, C1, and a character that turns what stands behind it.
const HARMFUL: &str = "\x1b]0;owned\x07\u{9b}31m\u{202e}end";

#[track_caller]
fn is_harmless(text: &str) {
    for c in text.chars() {
        assert!(is_printable(c) || matches!(c, '\n' | '\r' | '\t'), "{c:?}: {text:?}");
    }
}

/// `levada catalogue get hyperty/a --from …`.
fn get(home: &Home, address: &str, more: &[&str]) -> Ran {
    let from = format!("http://{address}");
    home.args([&["catalogue", "get", "hyperty/a", "--from", &from], more].concat())
}

#[test]
fn what_a_server_says_is_held_against_the_model_and_cannot_steer_the_terminal() {
    let home = Home::new();
    // A descriptor that is none, under its right digest.
    let address = start(|request, out| {
        one_version(request, out, &meta(HARMFUL.as_bytes()), HARMFUL.as_bytes())
    });
    let ran = get(&home, &address, &[]);
    is_harmless(&format!("{}{}", ran.stdout, ran.stderr));
    assert_eq!(ran.stdout, "");
    ran.fails(123, "not a JSON object");
    // What is said of a version has the form that the model gives it.
    for change in [
        json!({ "version": HARMFUL }),
        json!({ "version": format!("1.0.0-{}", "a".repeat(300)) }),
        json!({ "package": { "digest": format!("sha256:{}", "0".repeat(64)), "length": 1, "mediaType": HARMFUL } }),
        json!({ "publisher": HARMFUL }),
    ] {
        let address = start(move |request, out| {
            let mut meta = meta(b"{}");
            meta.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            one_version(request, out, &meta, b"{}")
        });
        let ran = get(&home, &address, &["--json"]);
        is_harmless(&format!("{}{}", ran.stdout, ran.stderr));
        assert_eq!(ran.stdout, "");
        ran.fails(123, "protocol");
    }
    // The words of a refusal are the server's.
    for (status, code) in [("404 Gone", 1), ("503 Busy", 122), ("418 Teapot", 123)] {
        let address = start(move |_, out| {
            whole(out, status, json!({ "detail": HARMFUL }).to_string().as_bytes())
        });
        let ran = get(&home, &address, &[]);
        is_harmless(&ran.stderr);
        ran.fails(code, "\\u{202e}end");
    }
}

#[test]
fn a_descriptor_is_printed_as_it_is_but_for_what_a_terminal_must_not_get() {
    let home = Home::new();
    // JSON has no raw control characters below a blank, but it has all others.
    let descriptor = "{\n\t\"a\": \"\u{9b}31m\u{7f}\u{202e}\u{e0041}é\"\n}\n";
    let address = start(|request, out| {
        one_version(request, out, &meta(descriptor.as_bytes()), descriptor.as_bytes())
    });
    // To a pipe, byte for byte: its digest is that of these bytes.
    assert_eq!(get(&home, &address, &[]).stdout, descriptor);
    let shown = get(&home, &address, &["--json"]).ok();
    is_harmless(&shown);
    let value: Value = serde_json::from_str(descriptor).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["descriptor"], value);
    let shown = in_terminal(
        &home,
        &["catalogue", "get", "hyperty/a", "--from", &format!("http://{address}")],
    );
    is_harmless(&shown);
    assert!(shown.contains("\"\\u009b31m\\u007f\\u202e\\udb40\\udc41é\""), "{shown:?}");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
}

/// What a command prints to a terminal.
fn in_terminal(home: &Home, words: &[&str]) -> String {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    let mut child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(words)
        .env("LEVADA_HOME", home.path())
        .spawn(inside)
        .unwrap();
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    // Linux says that all is read, and the command has ended, by an error.
    while let Ok(length @ 1..) = terminal.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&shown));
    String::from_utf8(shown).unwrap()
}
