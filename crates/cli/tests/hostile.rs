//! Peers that behave badly, against a real node: it says no, forgets nothing, and serves on.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{self, Home, eventually, exclusive, peak_memory};

/// The limit of open files of this process is as high as it may be, until this is dropped.
struct ManyFiles(Rlimit);

impl ManyFiles {
    fn allow() -> Self {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }).unwrap();
        Self(before)
    }
}

impl Drop for ManyFiles {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

fn open_files(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Under `ulimit -n 1024`, a thousand connections from the client's own address that never finish
/// their handshake are held open throughout; whichever the node drops is opened again.
#[test]
fn a_thousand_half_open_connections_keep_nobody_out() {
    let _alone = exclusive();
    let _files = ManyFiles::allow();
    let home = Home::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 1024; exec \"$0\" up --listen 127.0.0.1:0 --http 127.0.0.1:0"]);
    command.arg(env!("CARGO_BIN_EXE_levada")).env("LEVADA_HOME", home.path());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.process_group(0).spawn().unwrap();
    eventually("the node is up", || home.run("status --json").code == 0);
    let address = home.json("status")["listening"][0].as_str().unwrap().to_owned();

    let stop = Arc::new(AtomicBool::new(false));
    let held = Arc::new(AtomicUsize::new(0));
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let (stop, held, address) = (stop.clone(), held.clone(), address.clone());
            std::thread::spawn(move || hold_half_open(250, &address, &stop, &held))
        })
        .collect();
    eventually("a thousand are held", || held.load(Ordering::SeqCst) >= 990);

    for _ in 0..5 {
        let start = Instant::now();
        let node = format!("{}@{address}/clock", home.identity());
        home.args(["run", &node]).ok();
        // The only bound on time in these tests: it is what the node promises under this attack.
        assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
    }
    stop.store(true, Ordering::SeqCst);
    for holder in holders {
        holder.join().unwrap();
    }
    assert!(open_files(child.id()) < 1024);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Keeps `count` connections open, each with half a ClientHello sent; one that was dropped is opened
/// again after a short while.
fn hold_half_open(count: usize, address: &str, stop: &AtomicBool, held: &AtomicUsize) {
    let connect = || -> Option<TcpStream> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut connections: Vec<Option<TcpStream>> = (0..count).map(|_| connect()).collect();
    held.fetch_add(connections.iter().flatten().count(), Ordering::SeqCst);
    while !stop.load(Ordering::SeqCst) {
        // The pause bounds the attack's rate: this is about the node, not about two busy cores.
        std::thread::sleep(Duration::from_millis(50));
        for connection in &mut connections {
            let alive = connection.as_mut().is_some_and(|stream| {
                matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            });
            if !alive {
                *connection = connect();
            }
        }
    }
}

/// Garbage instead of a handshake, of every first byte and of some length.
#[test]
fn garbage_is_turned_away() {
    let home = Home::new();
    let node = home.up("");
    let address = node.address();
    for first in 0..=255u8 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let garbage: Vec<u8> = (0..300u32).map(|n| first.wrapping_add((n * 7) as u8)).collect();
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // An alert or nothing, then the end.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096);
    }
    home.args(["run", &format!("{}/clock", node.at())]).ok();
    assert!(peak_memory(node.process()) < 64 * 1024, "{} KiB", peak_memory(node.process()));
}

/// A proxy flips one bit of one byte, at every place of a conversation: an error on the client's side,
/// never a wrong answer, and the node serves on.
#[test]
fn a_flipped_bit_at_any_byte_is_noticed() {
    let home = Home::new();
    let node = home.up("");
    let address = node.address();
    let identity = home.identity();
    let whole = conversation_length(&home, &identity, &address);
    assert!(whole.iter().all(|length| *length > 1000), "{whole:?}");
    let step = if support::in_full() { 3 } else { 251 };
    let mut tried = 0;
    for direction in [0, 1] {
        for at in (0..whole[direction]).step_by(step) {
            let ran = through_proxy(&home, &identity, &address, Some((direction, at))).0;
            // The last bytes are the farewell: the answer had arrived already.
            let farewell = at + 400 > whole[direction];
            assert!(ran.code != 0 || farewell, "byte {at} of direction {direction}: {ran:?}");
            tried += 1;
        }
    }
    assert!(tried > 5);
    home.args(["run", &format!("{identity}@{address}/clock")]).ok();
}

fn conversation_length(home: &Home, identity: &str, address: &str) -> [usize; 2] {
    let (ran, lengths) = through_proxy(home, identity, address, None);
    ran.ok();
    lengths
}

/// Runs `clock` through a proxy that flips the lowest bit of one byte; how many bytes went each way.
fn through_proxy(
    home: &Home,
    identity: &str,
    address: &str,
    flip: Option<(usize, usize)>,
) -> (support::Ran, [usize; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let address = address.to_owned();
    let lengths = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counters = lengths.clone();
    let forwarder = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let node = TcpStream::connect(address).unwrap();
        let (client2, node2) = (client.try_clone().unwrap(), node.try_clone().unwrap());
        let counters2 = counters.clone();
        let back = std::thread::spawn(move || forward(node2, client2, 1, flip, &counters2));
        forward(client, node, 0, flip, &counters);
        back.join().unwrap();
    });
    let ran = home.args(["run", &format!("{identity}@{proxy}/clock")]);
    forwarder.join().unwrap();
    (ran, [0, 1].map(|direction| lengths[direction].load(Ordering::SeqCst)))
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    direction: usize,
    flip: Option<(usize, usize)>,
    counters: &[AtomicUsize; 2],
) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let start = counters[direction].fetch_add(length, Ordering::SeqCst);
        if let Some((flipped, at)) = flip
            && flipped == direction
            && (start..start + length).contains(&at)
        {
            buffer[at - start] ^= 1;
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Three wrong invitations shut one source out; another source and the invitation are untouched.
#[test]
fn wrong_invitations_shut_their_source_out() {
    let home = Home::new();
    let node = home.up_with("up --listen 127.0.0.1:0 --listen 127.0.0.2:0 --http 127.0.0.1:0");
    let good = node.invite("");
    let guest = Home::new();
    for _ in 0..3 {
        guest.args(["join", &wrong_invitation(&good)]).denied("unknown");
    }
    guest.args(["join", &good]).denied("too many");
    drop(node);
}

/// The invitation `good` with a secret that the node never made.
fn wrong_invitation(good: &str) -> String {
    use levada_capability::Invitation;
    let secret = Invitation::generate_secret(&levada_core::SystemRandom).unwrap();
    let good = Invitation::from_text(good).unwrap();
    let addresses = good.addresses().to_vec();
    Invitation::new(good.node(), secret, addresses).unwrap().to_text().to_string()
}

#[test]
fn invitations_are_used_once_and_end() {
    let home = Home::new();
    let node = home.up("");
    let code = node.invite("--service clock");
    let guest = Home::new();
    guest.args(["join", &code, "--as", "well"]).ok();
    guest.run("run well/clock").ok();
    guest.run("run well/echo").denied("may not request");
    Home::new().args(["join", &code]).denied("used");
    let short = node.invite("--expires 1s");
    // Whoever tried in between might be in time, and use it up.
    std::thread::sleep(Duration::from_secs(2));
    Home::new().args(["join", &short]).denied("expired");
}
