//! Thousands of connections at once, of which few are active at a time.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        with_library(&mut client);
        let counted = Count::begin(&mut client);
        let mut client = client.spawn().unwrap();
        let mut opened = String::new();
        BufReader::new(client.stdout.take().unwrap()).read_line(&mut opened).unwrap();
        wait_for_rings(&counted, &mut client);
        drop(client.stdin.take());
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let traffic = counted.traffic();
        eprintln!("{trigger}: {} connections, {traffic:?}", opened.trim());
        assert!(traffic.ring() > traffic.tcp(), "{traffic:?}");
        assert!(server.wait().unwrap().success());
    }
}

/// Waits until the rings have carried more than TCP has: a busy machine takes longer to move the
/// connections to rings.
fn wait_for_rings(counted: &Count, client: &mut Child) {
    let begun = Instant::now();
    loop {
        let traffic = counted.traffic();
        if traffic.ring() > traffic.tcp() || client.try_wait().unwrap().is_some() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{traffic:?}");
        sleep(Duration::from_millis(100));
    }
}
