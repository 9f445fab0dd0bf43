//! Catalogues read by HTTP, from honest and from hostile servers.

use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::printable::is_printable;
use serde_json::{Value, json};

use super::server::{certificate, chunked, meta, one_version, redirect, start, start_tls, whole};
use crate::support::{Home, Ran};

/// An escape sequence that sets the window title, a C1 control, and a bidirectional override.
const HARMFUL: &str = "\x1b]0;owned\x07\u{9b}31m\u{202e}end";

#[track_caller]
fn assert_harmless(text: &str) {
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
fn answers_of_a_server_are_validated_and_escaped() {
    let home = Home::new();
    // An invalid descriptor with its correct digest.
    let address = start(|request, out| {
        one_version(request, out, &meta(HARMFUL.as_bytes()), HARMFUL.as_bytes())
    });
    let ran = get(&home, &address, &[]);
    assert_harmless(&format!("{}{}", ran.stdout, ran.stderr));
    assert_eq!(ran.stdout, "");
    ran.fails(123, "not a JSON object");
    // Metadata that violates the model.
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
        assert_harmless(&format!("{}{}", ran.stdout, ran.stderr));
        assert_eq!(ran.stdout, "");
        ran.fails(123, "protocol");
    }
    // The text of an error comes from the server.
    for (status, code) in [("404 Gone", 1), ("503 Busy", 122), ("418 Teapot", 123)] {
        let address = start(move |_, out| {
            whole(out, status, json!({ "detail": HARMFUL }).to_string().as_bytes())
        });
        let ran = get(&home, &address, &[]);
        assert_harmless(&ran.stderr);
        ran.fails(code, "\\u{202e}end");
    }
}

#[test]
fn a_descriptor_is_printed_verbatim_except_for_terminal_controls() {
    let home = Home::new();
    // JSON forbids raw control characters below U+0020 and permits all others.
    let descriptor = "{\n\t\"a\": \"\u{9b}31m\u{7f}\u{202e}\u{e0041}é\"\n}\n";
    let address = start(|request, out| {
        one_version(request, out, &meta(descriptor.as_bytes()), descriptor.as_bytes())
    });
    // A pipe gets the bytes unchanged: the digest covers them.
    assert_eq!(get(&home, &address, &[]).stdout, descriptor);
    let shown = get(&home, &address, &["--json"]).ok();
    assert_harmless(&shown);
    let value: Value = serde_json::from_str(descriptor).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["descriptor"], value);
    let shown = in_terminal(
        &home,
        &["catalogue", "get", "hyperty/a", "--from", &format!("http://{address}")],
    );
    assert_harmless(&shown);
    assert!(shown.contains("\"\\u009b31m\\u007f\\u202e\\udb40\\udc41é\""), "{shown:?}");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
}

#[test]
fn https_requires_a_certificate_of_a_known_authority() {
    let home = Home::new();
    let config = certificate(home.path());
    let ca = home.path().join("ca.pem").display().to_string();
    let address = start_tls(config, |request, out| one_version(request, out, &meta(b"{}"), b"{}"));
    let port = address.rsplit(':').next().unwrap();
    let place = format!("https://localhost:{port}");
    let get = |place: &str, more: &[&str]| {
        let mut command =
            home.command([&["catalogue", "get", "hyperty/a", "--from", place], more].concat());
        command.env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR");
        command
    };
    let run = |place: &str, more: &[&str]| Ran::from(get(place, more).output().unwrap());
    assert_eq!(run(&place, &["--ca", &ca]).ok(), "{}");
    let by_environment = get(&place, &[]).env("SSL_CERT_FILE", &ca).output().unwrap();
    assert_eq!(Ran::from(by_environment).ok(), "{}");
    run(&place, &[]).fails(120, "--ca FILE");
    run(&place, &["--ca", &home.path().join("names").display().to_string()])
        .fails(120, "no certificate");
    // A certificate of another authority, and one for another name.
    fs::create_dir(home.path().join("other")).unwrap();
    certificate(&home.path().join("other"));
    let other = home.path().join("other/ca.pem").display().to_string();
    run(&place, &["--ca", &other]).denied("not trusted");
    run(&format!("https://127.0.0.1:{port}"), &["--ca", &ca]).denied("not trusted");
    // A server without TLS on an https address.
    let plain = start(|_, out| whole(out, "200 OK", b"{}"));
    let ran = run(&format!("https://{plain}"), &["--ca", &ca]);
    assert!([122, 123].contains(&ran.code), "{ran:?}");
    // A redirect from http to https is followed, and never one back.
    let upgrade = place.clone();
    let http = start(move |request, out| redirect(out, &format!("{upgrade}{}", request.path)));
    assert_eq!(run(&format!("http://{http}"), &["--ca", &ca]).ok(), "{}");
    let config = certificate(home.path());
    let down = start_tls(config, move |request, out| {
        redirect(out, &format!("http://{http}{}", request.path))
    });
    let down = format!("https://localhost:{}", down.rsplit(':').next().unwrap());
    run(&down, &["--ca", &ca]).fails(123, "from https to http");
}

#[test]
fn chunked_answers_and_redirects_are_followed_within_bounds() {
    let home = Home::new();
    let descriptor = br#"{"a": "chunks of a few bytes"}"#;
    let address = start(|request, out| match request.path.as_str() {
        path if path.ends_with("/meta") => chunked(out, meta(descriptor).to_string().as_bytes()),
        _ => chunked(out, descriptor),
    });
    assert_eq!(get(&home, &address, &[]).ok().as_bytes(), descriptor);
    let elsewhere =
        start(move |request, out| redirect(out, &format!("http://{address}{}", request.path)));
    assert_eq!(get(&home, &elsewhere, &[]).ok().as_bytes(), descriptor);
    let circle = start(|request, out| redirect(out, &request.path));
    get(&home, &circle, &[]).fails(123, "redirects");
    // An endless answer, and a slow one.
    let endless = start(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            out.write_all(b"10000\r\n")?;
            out.write_all(&[b' '; 0x10000])?;
            out.write_all(b"\r\n")?;
        }
    });
    get(&home, &endless, &[]).fails(123, "not that of a catalogue");
    let slow = start(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        loop {
            out.write_all(b" ")?;
            out.flush()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    get(&home, &slow, &["--timeout", "1s"]).fails(122, "--timeout");
}

#[test]
fn an_http_download_resumes_with_a_range_request() {
    let home = Home::new();
    let code: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let digest = levada_catalogue::model::digest_text(&levada_core::sha256(&[&code]));
    let mut meta = meta(b"{}");
    meta["package"] =
        json!({ "digest": digest, "length": code.len(), "mediaType": "text/javascript" });
    // The first answer is cut off in the middle. The second sends the requested range, or
    // everything.
    for sends_parts in [true, false] {
        let blobs = Arc::new(AtomicUsize::new(0));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let asked = blobs.clone();
        let seen = heads.clone();
        let code_there = code.clone();
        let meta = meta.clone();
        let address = start(move |request, out| {
            if !request.path.starts_with("/v1/blobs/") {
                return one_version(request, out, &meta, b"{}");
            }
            seen.lock().unwrap().push(request.head.clone());
            let length = code_there.len();
            let half = code_there.len() / 2;
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                return out.write_all(&code_there[..half]);
            }
            let from = request.head.split("range: bytes=").nth(1).unwrap();
            let from: usize = from.split('-').next().unwrap().parse().unwrap();
            if !sends_parts {
                return chunked(out, &code_there);
            }
            write!(
                out,
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{length}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                length - 1,
                length - from
            )?;
            out.write_all(&code_there[from..])
        });
        let target = home.path().join(format!("{sends_parts}.js"));
        let package = ["--package", target.to_str().unwrap()];
        get(&home, &address, &package).fails(122, "unreachable");
        assert!(!target.exists());
        get(&home, &address, &package).ok();
        assert!(fs::read(&target).unwrap() == code);
        let heads = heads.lock().unwrap();
        assert!(!heads[0].contains("range:") && heads[1].contains("range: bytes="), "{heads:?}");
        // The package is complete: nothing is requested.
        get(&home, &address, &package).ok();
        assert_eq!(blobs.load(Ordering::SeqCst), 2);
    }
}

/// The output of a command on a terminal.
fn in_terminal(home: &Home, words: &[&str]) -> String {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    let mut child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(words)
        .env("LEVADA_HOME", home.path())
        .spawn(inside)
        .unwrap();
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // Linux reports the end of the command as an error of the read (EIO).
    while let Ok(length @ 1..) = terminal.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&shown));
    String::from_utf8(shown).unwrap()
}
