//! The HTTP port while one source opens as many connections as it can.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::serve_with_files;
use crate::support::{Home, eventually, exclusive};

/// The limit of open files of the node; a third of them may be connections.
const FILES: u32 = 1024;
const ATTACK: usize = 400;
const REQUEST: &[u8] = b"GET /v1/objects HTTP/1.1\r\nHost: h\r\n\r\n";

/// Requests `url` from another address of loopback, which is another source: the status, or 000
/// after 30 s.
fn ask_from(source: &str, url: &str) -> String {
    let options =
        ["-s", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}", "--interface", source];
    let output = Command::new("curl").args(options).arg(url).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_http_flood_from_one_source_does_not_shut_out_others() {
    let _alone = exclusive();
    // With a catalogue, and without one.
    for line in ["catalogue serve", "up"] {
        let home = Home::new();
        let node = serve_with_files(&home, FILES, line);
        let address = node.http_address();
        let url = |path: &str| format!("http://{address}{path}");
        // Each connection sends one request and stays idle; every tenth does not complete its
        // request. An earlier version kept such a connection for ever if it sent one request a
        // minute.
        let attack: Vec<TcpStream> = (0..ATTACK)
            .map(|number| {
                let mut stream = TcpStream::connect(&address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                if number % 10 == 0 {
                    let _ = stream.write_all(&REQUEST[..20]);
                } else {
                    let _ = stream.write_all(REQUEST);
                    let _ = stream.read(&mut [0; 64]);
                }
                stream
            })
            .collect();
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(ask_from("127.0.0.2", &url(path)), "200", "{line} {path}");
            // The attacking source reaches them too: connections are reserved for health and
            // metrics.
            assert_eq!(ask_from("127.0.0.1", &url(path)), "200", "{line} {path}");
        }
        let expected = if line == "up" { "404" } else { "200" };
        assert_eq!(ask_from("127.0.0.2", &url("/v1/objects")), expected);
        let count = |name: &str| -> usize {
            let (_, metrics) = node.http("/metrics");
            let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
            line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
        };
        assert!(count("levada_catalogue_http_evicted_total") > 0);
        // Half of the connections, the 32 reserved ones, and the one of this request.
        let most = FILES as usize / 6 + 32 + 1;
        eventually("the other connections are closed", || {
            count("levada_catalogue_http_open") <= most
        });
        drop(attack);
    }
}
