//! Attacks before and during the handshake: half-open connections, garbage, altered bytes, wrong
//! invitations.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use levada_core::{Clock, SystemClock};
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

/// The node may open 1024 files. The attacker holds a thousand connections with unfinished
/// handshakes, from the client's own address, and reopens each one that the node closes.
#[test]
fn a_client_connects_within_two_seconds_beside_a_thousand_half_open_connections() {
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
            let stop = stop.clone();
            let held = held.clone();
            let address = address.clone();
            std::thread::spawn(move || hold_half_open(250, &address, &stop, &held))
        })
        .collect();
    eventually("a thousand are held", || held.load(Ordering::SeqCst) >= 990);

    for _ in 0..5 {
        let start = Instant::now();
        let node = format!("{}@{address}/clock", home.identity());
        home.args(["run", &node]).ok();
        // The only time limit in these tests: it is what the node guarantees under this attack.
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

/// Keeps `count` connections open, each after half a ClientHello. A closed one is reopened within
/// about 50 ms.
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
        // The pause bounds the rate of the attack: the test measures the node, not two busy cores.
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

/// 300 bytes of garbage instead of a handshake, with each possible first byte.
#[test]
fn garbage_instead_of_a_handshake_is_rejected() {
    let home = Home::new();
    let node = home.up("");
    let address = node.address();
    for first in 0..=255u8 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(support::STEP_TIMEOUT)).unwrap();
        let garbage: Vec<u8> = (0..300u32).map(|n| first.wrapping_add((n * 7) as u8)).collect();
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // The node sends an alert or nothing, and closes.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096);
    }
    home.args(["run", &format!("{}/clock", node.at())]).ok();
    assert!(peak_memory(node.process()) < 64 * 1024, "{} KiB", peak_memory(node.process()));
}

/// A proxy flips one bit at each position of a connection. The client reports an error, never a
/// wrong answer, and the node keeps serving.
#[test]
fn a_flipped_bit_at_any_byte_is_detected() {
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
            // The last bytes close the connection, after the answer.
            let closing = at + 400 > whole[direction];
            assert!(ran.code != 0 || closing, "byte {at} of direction {direction}: {ran:?}");
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

/// Runs `clock` through a proxy that flips the lowest bit of one byte: the result, and the bytes in
/// each direction.
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
        let client2 = client.try_clone().unwrap();
        let node2 = node.try_clone().unwrap();
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

/// After three wrong invitations, a source cannot use a good one either.
#[test]
fn a_source_of_wrong_invitations_is_locked_out() {
    let home = Home::new();
    let node = home.up_with("up --listen 127.0.0.1:0 --listen 127.0.0.2:0 --http 127.0.0.1:0");
    let good = node.invite("");
    let guest = Home::new();
    for _ in 0..3 {
        guest.args(["join", &wrong_invitation(&good)]).denied("has not issued this invitation");
    }
    guest.args(["join", &good]).denied("too many");
    drop(node);
}

/// The invitation `good` with a secret that the node did not issue.
fn wrong_invitation(good: &str) -> String {
    use levada_capability::Invitation;
    let secret = Invitation::generate_secret(&levada_core::SystemRandom).unwrap();
    let good = Invitation::from_text(good).unwrap();
    let addresses = good.addresses().to_vec();
    Invitation::new(good.node(), secret, addresses).unwrap().to_text().to_string()
}

#[test]
fn invitations_are_single_use_and_expire() {
    let home = Home::new();
    let node = home.up("");
    let code = node.invite("--service clock");
    let guest = Home::new();
    guest.args(["join", &code, "--as", "well"]).ok();
    guest.run("run well/clock").ok();
    guest.run("run well/echo").denied("may not request");
    Home::new().args(["join", &code]).denied("used");
    let short = node.invite("--expires 1s");
    // An attempt before the expiry would use the invitation up, so the test waits for the clock.
    let expired = SystemClock.now().after(Duration::from_secs(2));
    eventually("the invitation expires", || SystemClock.now() >= expired);
    Home::new().args(["join", &short]).denied("expired");
}
