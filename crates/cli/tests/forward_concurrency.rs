//! Many connections over one session of `levada forward`: all bytes arrive, and no connection
//! blocks another.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::support::forward::*;
use crate::support::{Home, Ran, STEP_TIMEOUT, eventually, exclusive, peak_memory};
use levada_core::sha256;

const CONNECTIONS: u64 = 100;
const LENGTH: usize = 1 << 20;

/// What the target received on one connection: its number, the digest of its bytes, and whether it
/// ended without a reset.
type Seen = (u64, [u8; 32], bool);

/// Receives a number and 1 MiB, and sends another 1 MiB.
fn exchange(mut stream: TcpStream, seen: &mpsc::Sender<Seen>) {
    let mut number = [0; 8];
    stream.read_exact(&mut number).unwrap();
    stream.write_all(&number).unwrap();
    let number = u64::from_be_bytes(number);
    let mut sender = stream.try_clone().unwrap();
    let answer = std::thread::spawn(move || {
        let sent = sender.write_all(&noise(!number, LENGTH));
        sent.and_then(|()| sender.shutdown(Shutdown::Write))
    });
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).is_ok();
    let _ = answer.join().unwrap();
    seen.send((number, sha256(&[&bytes]), ended)).unwrap();
}

#[test]
fn a_reset_connection_harms_none_of_ninety_nine_others() {
    let _alone = exclusive();
    let home = Home::new();
    let (listener, target) = listener();
    let (seen, seen_by_target) = mpsc::channel();
    serve(listener, move |stream| exchange(stream, &seen));
    let node = home.up_forwarding(&[&target]);
    let forward = home.forward(&["well/forward", "--", &target]);
    const CUT: u64 = 37;
    let (there, all_there) = mpsc::channel();
    let mut waiting = Vec::new();
    let programs: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let mut stream = forward.connect();
            let there = there.clone();
            let (start, started) = mpsc::channel::<()>();
            waiting.push(start);
            std::thread::spawn(move || {
                stream.write_all(&number.to_be_bytes()).unwrap();
                stream.read_exact(&mut [0; 8]).unwrap();
                there.send(number).unwrap();
                // All connections are open when the sender is dropped.
                let all_open = started.recv_timeout(2 * STEP_TIMEOUT);
                assert_eq!(all_open, Err(mpsc::RecvTimeoutError::Disconnected));
                let bytes = noise(number, LENGTH);
                if number == CUT {
                    stream.write_all(&bytes[..LENGTH / 2]).unwrap();
                    reset(stream);
                    return None;
                }
                let mut sender = stream.try_clone().unwrap();
                let sent = std::thread::spawn(move || {
                    sender.write_all(&bytes).unwrap();
                    sender.shutdown(Shutdown::Write).unwrap();
                });
                let back = read_all(&mut stream);
                sent.join().unwrap();
                Some(sha256(&[&back]))
            })
        })
        .collect();
    for _ in 0..CONNECTIONS {
        all_there.recv_timeout(STEP_TIMEOUT).unwrap();
    }
    drop(waiting);
    for (number, program) in (0..CONNECTIONS).zip(programs) {
        let expected = (number != CUT).then(|| sha256(&[&noise(!number, LENGTH)]));
        assert!(program.join().unwrap() == expected, "the answer of {number} has changed");
    }
    let mut whole = 0;
    for _ in 0..CONNECTIONS {
        let (number, digest, ended) = seen_by_target.recv_timeout(STEP_TIMEOUT).unwrap();
        let expected = digest == sha256(&[&noise(number, LENGTH)]);
        assert_eq!((expected, ended), (number != CUT, number != CUT), "{number}");
        whole += u64::from(ended);
    }
    assert_eq!(whole, CONNECTIONS - 1);
    eventually("all files are closed", || {
        std::fs::read_dir(format!("/proc/{}/fd", node.process())).unwrap().count() < 50
    });
    assert_eq!(forward.errors(), "");
}

#[test]
fn unread_connections_block_no_others_and_use_bounded_memory() {
    let _alone = exclusive();
    let home = Home::new();
    let (listener, target) = listener();
    // The first byte selects: `e` echoes, any other sends without end.
    serve(listener, |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        if first == [b'e'] {
            return echo(stream);
        }
        let endless = vec![7; 1 << 20];
        while stream.write_all(&endless).is_ok() {}
    });
    let node = home.up_forwarding(&[&target]);
    let forward = home.forward(&["well/forward", "--", &target]);
    let stalled: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = forward.connect();
            stream.write_all(b"s").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream
        })
        .collect();
    for round in 0..5 {
        let mut stream = forward.connect();
        stream.write_all(b"e").unwrap();
        let bytes = noise(round, LENGTH);
        let sent = bytes.clone();
        let mut sender = stream.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            sender.write_all(&sent).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        assert!(read_all(&mut stream) == bytes);
        writer.join().unwrap();
    }
    let peaks = [peak_memory(node.process()), peak_memory(forward.process())];
    assert!(peaks.iter().all(|peak| *peak < 256 * 1024), "{peaks:?} KiB");
    drop(stalled);
}

/// Up to 150 connections at a time, through a session of at most `streams` and a service of at most
/// `connections`.
#[test]
fn connections_beyond_the_limit_wait_and_are_served() {
    let _alone = exclusive();
    for (streams, connections, all, together) in
        [(128, 256, 300, 150), (3, 256, 60, 60), (128, 2, 40, 40)]
    {
        let home = Home::new();
        let target = python_server(home.path());
        std::fs::write(home.path().join("config.toml"), format!("[limits]\nstreams = {streams}\n"))
            .unwrap();
        let service = home.path().join("few.toml");
        let text = format!(
            "name = 'few'\ntype = 'forward'\nallow = ['{}', 'listen:127.0.0.1:*']\nconnections = {connections}\n",
            target.address
        );
        std::fs::write(&service, text).unwrap();
        let _node = home.up(&format!("--name well --service {}", service.display()));
        for options in [&[][..], &["--reverse"]] {
            let words = [&["well/few"][..], options, &["--", &target.address]].concat();
            let forward = home.forward(&words);
            let url = format!("http://{}/page", forward.addresses[0]);
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--parallel", "--parallel-immediate", "--fail"]);
            curl.args(["--max-time", "60", "--parallel-max", &together.to_string()]);
            for _ in 0..all {
                curl.args(["--output", "-", &url]);
            }
            let ran = Ran::from(curl.output().unwrap());
            assert_eq!(
                ran.stdout.matches("water").count(),
                all,
                "{}{}",
                ran.stderr,
                forward.errors()
            );
            assert_eq!((ran.code, forward.errors().as_str()), (0, ""), "{}", ran.stderr);
        }
    }
}

/// A web server in a process of its own; killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python_server(folder: &Path) -> Server {
    std::fs::write(folder.join("page"), "water").unwrap();
    let program = "\
import http.server, functools, sys
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = Server(('127.0.0.1', 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Server { child, address: format!("127.0.0.1:{}", line.trim()) }
}

#[test]
fn a_connection_beyond_the_limit_waits_for_another_to_close() {
    let home = Home::new();
    let (listener, target) = listener();
    serve(listener, echo);
    std::fs::write(home.path().join("config.toml"), "[limits]\nstreams = 3\n").unwrap();
    let _node = home.up_forwarding(&[&target]);
    let forward = home.forward(&["well/forward", "--", &target]);
    let mut speaks = |stream: &mut TcpStream| {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    };
    let mut carried: Vec<_> = (0..3).map(|_| forward.connect()).collect();
    carried.iter_mut().for_each(&mut speaks);
    let mut waiting = forward.connect();
    waiting.write_all(b"x").unwrap();
    carried.iter_mut().for_each(&mut speaks);
    // The waiting connection is served when another one closes.
    let mut ended = carried.pop().unwrap();
    ended.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut ended), b"");
    waiting.read_exact(&mut [0]).unwrap();
    speaks(&mut waiting);
    carried.iter_mut().for_each(&mut speaks);
    assert_eq!(forward.errors(), "");
}
