//! Thousands of connections at once, of which few are active at a time.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::library::{Count, in_full, with_library};

/// Echoes what comes on any connection, until the first one ends.
const SERVER: &str = include_str!("many/server.py");
/// Exchanges messages on all, and then on some of them, in an order that has no pattern.
const CLIENT: &str = include_str!("many/client.py");

#[test]
fn many_connections_are_served_by_one_epoll() {
    let count = if in_full() { 10_000 } else { 400 };
    for trigger in ["level", "edge"] {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, trigger]).stdout(Stdio::piped());
        with_library(&mut command);
        let mut server = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let mut client = Command::new("python3");
        client.args(["-c", CLIENT, port.trim(), &count.to_string()]);
        with_library(&mut client);
        let counted = Count::begin(&mut client);
        let output = client.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let opened: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let traffic = counted.traffic();
        eprintln!("{trigger}: {opened} connections, {traffic:?}");
        assert!(traffic.ring() > traffic.tcp(), "{traffic:?}");
        assert!(server.wait().unwrap().success());
    }
}
