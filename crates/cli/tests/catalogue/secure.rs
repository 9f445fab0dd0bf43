//! The HTTP port with TLS.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use super::{publish, serve};
use crate::support::{Home, Ran, eventually};

/// Makes a certificate for 127.0.0.1 with the common name `name`, and its key.
fn make_certificate(folder: &Path, name: &str) {
    let options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
                   -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem";
    let made = Command::new("openssl")
        .args(options.split_whitespace())
        .args(["-subj", &format!("/CN={name}")])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn curl(certificate: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-s", "-S", "-m", "60", "--cacert"]).arg(certificate).args(options);
    command.output().unwrap()
}

#[test]
fn a_catalogue_is_served_with_tls() {
    let home = Home::new();
    make_certificate(home.path(), "first");
    let file = |name: &str| home.path().join(name);
    let first = file("first.pem");
    fs::copy(file("cert.pem"), &first).unwrap();
    let options = format!("--tls-cert {0}/cert.pem --tls-key {0}/key.pem", home.path().display());
    let node = serve(&home, &options);
    eventually("the log shows the address", || node.log().contains("https://127.0.0.1:"));
    let address = node.http_address();
    let url = |path: &str| format!("https://{address}{path}");
    // A connection that never completes its handshake does not delay others.
    let mut silent = TcpStream::connect(&address).unwrap();
    silent.write_all(&[22]).unwrap();

    let code: Vec<u8> = (0..2_500_000_u32).map(|number| (number % 251) as u8).collect();
    let package = file("code.bin");
    fs::write(&package, &code).unwrap();
    let descriptor = file("descriptor.json");
    fs::write(&descriptor, "{}").unwrap();
    let package = package.display().to_string();
    let descriptor = descriptor.display().to_string();
    home.args(["catalogue", "publish", "runtime/Long@1.0.0", &descriptor, "--package", &package])
        .ok();
    publish(&home, "hyperty/One@1.0.0", &[]).ok();
    let about = home.json("catalogue get runtime/Long");
    let blob = url(&format!("/v1/blobs/{}", about["package"]["digest"].as_str().unwrap()));
    eventually("the index has it", || curl(&first, &["-f", &blob]).status.success());
    // Several requests on one connection, long and short ones, and a range request.
    let one = url("/v1/objects/hyperty/One/1.0.0");
    let got = curl(&first, &[&one, &blob, &one, "-w", "%{num_connects}"]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(got.stdout.windows(code.len()).any(|window| window == code));
    let numbers = text(&got.stdout[got.stdout.len() - 1..]);
    assert_eq!(numbers, "0", "the last request used an existing connection");
    assert_eq!(curl(&first, &["-r", "2000000-", &blob]).stdout, code[2_000_000..]);
    assert_eq!(text(&curl(&first, &[&url("/healthz")]).stdout), "ok\n");
    let post = ["-d", "{}", "-w", "%{http_code}", "-o", "/dev/null"];
    let posted = curl(&first, &[&post[..], &[&url("/.well-known/")]].concat());
    assert_eq!(text(&posted.stdout), "200");
    // The port does not answer without TLS.
    assert!(!curl(&first, &[&format!("http://{address}/healthz")]).status.success());

    // SIGHUP loads a new certificate. An unreadable one is logged, and the previous one stays.
    make_certificate(home.path(), "second");
    node.signal("HUP");
    let second = file("cert.pem");
    eventually("the new certificate is in use", || {
        curl(&second, &[&url("/healthz")]).status.success()
    });
    assert!(!curl(&first, &[&url("/healthz")]).status.success());
    fs::copy(&second, file("second.pem")).unwrap();
    fs::write(&second, "nothing").unwrap();
    node.signal("HUP");
    eventually("the log reports it", || node.log().contains("the old one stays in use"));
    assert!(curl(&file("second.pem"), &[&url("/healthz")]).status.success());
}

#[test]
fn an_unusable_certificate_is_named_in_the_error() {
    let home = Home::new();
    make_certificate(home.path(), "first");
    fs::copy(home.path().join("key.pem"), home.path().join("old.pem")).unwrap();
    make_certificate(home.path(), "second");
    let file = |name: &str| home.path().join(name).display().to_string();
    for (certificate, key, words) in [
        ("none.pem", "key.pem", "none.pem cannot be read"),
        ("cert.pem", "cert.pem", "cert.pem has no private key in PEM"),
        ("key.pem", "key.pem", "key.pem has no certificate in PEM"),
        ("cert.pem", "old.pem", "old.pem cannot be used"),
    ] {
        let certificate = file(certificate);
        let key = file(key);
        let words_of_it = ["--tls-cert", &certificate, "--tls-key", &key];
        let line = ["catalogue", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let ran: Ran = home.args([&line[..], &words_of_it].concat());
        ran.fails(120, words);
    }
    home.run("catalogue serve --tls-cert cert.pem").fails(2, "--tls-key");
}
