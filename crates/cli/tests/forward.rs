//! `levada forward` between real processes: TCP, UDP, Unix sockets, SOCKS, ends of connections, and
//! rights.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use crate::support::forward::*;
use crate::support::{self, Home, Ran, eventually, own_loopback};
use levada_client::{Client, RequestSpec, Verdict};
use levada_core::wire::Reason;
use levada_service::Streams;
use levada_services::forward::{Cause, receive_answer};
use levada_session::{Class, StreamError};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

#[test]
fn bytes_pass_both_ways_and_each_direction_closes_by_itself() {
    let home = Home::new();
    let (listener, target) = listener();
    let _node = home.up_forwarding(&[&target]);
    let forward = home.forward(&["well/forward", "--", &target]);
    assert!(forward.addresses[0].starts_with("127.0.0.1:"), "{:?}", forward.addresses);
    for program_first in [true, false] {
        let program = forward.connect();
        let served = accept(&listener);
        let (mut one, mut other) =
            if program_first { (program, served) } else { (served, program) };
        one.write_all(b"question").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut other), b"question");
        let answer = noise(1, 3_000_000);
        let writer = std::thread::spawn(move || other.write_all(&answer).map(|()| other).unwrap());
        assert!(read_exactly(&mut one, 3_000_000) == noise(1, 3_000_000));
        drop(writer.join().unwrap());
        assert_eq!(read_all(&mut one), b"");
    }
    let mut program = forward.connect();
    let mut served = accept(&listener);
    // A small message is sent at once, in either direction.
    for n in 0..200_u8 {
        program.write_all(&[n]).unwrap();
        assert_eq!(read_exactly(&mut served, 1), [n]);
        served.write_all(&[n]).unwrap();
        assert_eq!(read_exactly(&mut program, 1), [n]);
    }
}

fn read_exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn refusals_resets_and_timeouts_of_the_target_reach_the_client() {
    let home = Home::new();
    let (listener, resets) = listener();
    let (gone, refuses) = support::forward::listener();
    drop(gone);
    // A listener whose queue is full: further connections get no answer.
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&full, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&full, 0).unwrap();
    let full = TcpListener::from(full);
    let hangs = full.local_addr().unwrap().to_string();
    let mut queue = Vec::new();
    while let Ok(one) =
        TcpStream::connect_timeout(&full.local_addr().unwrap(), Duration::from_millis(300))
    {
        queue.push(one);
        assert!(queue.len() < 100, "the queue does not fill");
    }
    let _node = home.up_forwarding(&[&resets, &refuses, &hangs]);

    let forward = home.forward(&["well/forward", "--", &resets]);
    let mut program = forward.connect();
    let mut served = accept(&listener);
    served.write_all(b"last ").unwrap();
    assert_eq!(read_exactly(&mut program, 5), b"last ");
    served.write_all(b"words").unwrap();
    reset(served);
    assert_eq!(read_until_reset(&mut program), b"words");
    let program = forward.connect();
    let mut served = accept(&listener);
    reset(program);
    read_until_reset(&mut served);

    let forward = home.forward(&["well/forward", "--", &refuses]);
    assert_eq!(read_until_reset(&mut forward.connect()), b"");
    eventually("the refusal is reported", || forward.errors().contains("Connection refused"));

    let forward = home.forward(&["well/forward", "--", &hangs]);
    assert_eq!(read_until_reset(&mut forward.connect()), b"");
    eventually("the timeout is reported", || forward.errors().contains("no answer in time"));
}

#[test]
fn datagrams_of_many_senders_are_forwarded() {
    let home = Home::new();
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap().to_string();
    let _node = home.up_forwarding(&[&format!("udp:{address}")]);
    let forward = home.forward(&["well/forward", "--udp", "--", &address]);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = target.recv_from(&mut buffer) {
            target.send_to(&buffer[..length], from).unwrap();
        }
    });
    // More senders than a session has streams: the oldest flows are closed.
    for sender in 0..150_u64 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(&forward.addresses[0]).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let length = [0, 1, 1472, 60_000][sender as usize % 4];
        let sent = noise(sender, length);
        let mut back = vec![0; 65_535];
        let mut came = None;
        // Datagrams may be lost: they are repeated.
        eventually("an answer", || {
            socket.send(&sent).unwrap();
            came = socket.recv(&mut back).ok();
            came.is_some()
        });
        assert!(back[..came.unwrap()] == sent, "{length}");
    }
}

#[test]
fn unix_sockets_are_forwarded() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("target");
    let door = folder.path().join("door");
    let listener = UnixListener::bind(&path).unwrap();
    let target = format!("unix:{}", path.display());
    let _node = home.up_forwarding(&[&target]);
    let listen = format!("unix:{}", door.display());
    let words = ["well/forward", "--listen", &listen, "--listen", "0", "--", &target];
    let forward = home.forward(&words);
    assert_eq!(forward.addresses[0], listen);
    assert_eq!(std::fs::metadata(&door).unwrap().permissions().mode() & 0o777, 0o600);
    let mut program = UnixStream::connect(&door).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    program.write_all(b"question").unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    let mut read = String::new();
    served.read_to_string(&mut read).unwrap();
    served.write_all(b" and answer").unwrap();
    drop(served);
    program.read_to_string(&mut read).unwrap();
    assert_eq!(read, "question and answer");
    // Through the other listener.
    let mut program = with_timeouts(TcpStream::connect(&forward.addresses[1]).unwrap());
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"here too").unwrap();
    drop(served);
    assert_eq!(read_all(&mut program), b"here too");
    forward.signal("INT");
    assert_eq!(forward.wait(), (0, String::new()));
    assert!(!door.exists());
}

#[test]
fn a_reverse_forward_listens_at_the_node() {
    let home = Home::new();
    let (listener, target) = listener();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let _node = home.up_forwarding(&["listen:127.0.0.1:*"]);
    let forward = home.forward(&["well/forward", "--reverse", "--", &target]);
    let mut visitor = forward.connect();
    let mut served = accept(&listener);
    visitor.write_all(b"question").unwrap();
    visitor.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut served), b"question");
    served.write_all(b"answer").unwrap();
    drop(served);
    assert_eq!(read_all(&mut visitor), b"answer");
    // Nothing listens at the target: the visitor sees a reset.
    drop(listener);
    read_until_reset(&mut forward.connect());
    eventually("the refusal is reported", || forward.errors().contains("Connection refused"));
    forward.signal("TERM");
    let address = forward.addresses[0].clone();
    assert_eq!(forward.wait().0, 0);
    eventually("the node listens no more", || TcpStream::connect(&address).is_err());

    let reverse = |listen: &str| {
        home.args(["forward", "well/forward", "--reverse", "--listen", listen, "--", &target])
    };
    reverse(&at).fails(120, "cannot listen at");
    reverse("127.0.0.2:1").denied("not allowed");
    reverse("0.0.0.0:0").denied("not allowed");
}

/// A small HTTP server.
fn web() -> String {
    let (listener, address) = listener();
    serve(listener, |mut stream| {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let body = "water";
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    });
    address
}

#[test]
fn socks_reaches_allowed_addresses_only() {
    let home = Home::new();
    let a = web();
    let b = web();
    let port = a.rsplit(':').next().unwrap().to_owned();
    let name = format!("localhost:{port}");
    let _node = home.up_forwarding(&[&a, &b, &name]);
    let curl = |forward: &Forward, address: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--socks5-hostname"]);
        Ran::from(curl.args([forward.addresses[0].as_str(), address]).output().unwrap())
    };
    let forward = home.forward(&["well/forward", "--socks"]);
    assert_eq!(curl(&forward, &a).ok(), "water");
    assert_eq!(curl(&forward, &b).ok(), "water");
    assert_eq!(curl(&forward, &name).ok(), "water");
    let refused = curl(&forward, "127.0.0.1:1");
    assert_eq!((refused.code, refused.stdout.as_str()), (97, ""), "{}", refused.stderr);
    assert!(forward.errors().contains("127.0.0.1:1 is not allowed"), "{}", forward.errors());
    // The parameters of the session narrow the allowed addresses.
    let forward = home.forward(&["well/forward", "--socks", "--", "localhost:*"]);
    assert_eq!(curl(&forward, &name).ok(), "water");
    assert_eq!(curl(&forward, &a).code, 97);
    home.args(["forward", "well/forward", "--socks", "--", "192.0.2.0/24:1"]).denied("not allowed");
    // A client without a supported method gets 0xff (RFC 1928 section 3).
    let mut unsupported = forward.connect();
    unsupported.write_all(&[5, 1, 2]).unwrap();
    assert_eq!(read_all(&mut unsupported), [5, 0xff]);
    // A client that sends its request early still reads the refusal.
    let mut eager = forward.connect();
    eager.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x01and more").unwrap();
    assert_eq!(read_all(&mut eager), [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    // A client that does not speak SOCKS is disconnected.
    let mut other = forward.connect();
    other.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let _ = other.read_to_end(&mut Vec::new());
    assert_eq!(curl(&forward, &name).ok(), "water");
}

#[test]
fn addresses_outside_the_configuration_or_capability_are_denied() {
    let home = Home::new();
    let guest = Home::new();
    let (listener, target) = listener();
    let (_other, elsewhere) = support::forward::listener();
    let node = home.up_forwarding(&[&target, &elsewhere]);
    node.welcome(&guest, "well");
    for address in ["127.0.0.1:1", "192.0.2.1:80", "db.example:5432", "unix:/run/a"] {
        guest.args(["forward", "well/forward", "--", address]).denied("not allowed");
    }
    guest.args(["forward", "well/forward", "--udp", "--", &target]).denied("not allowed");
    guest.args(["forward", "well/forward"]).fails(2, "HOST:PORT");
    guest.args(["forward", "well/forward", "--", "nowhere"]).fails(2, "not an address");

    // A capability for one address is valid for no other, and its holder cannot set another.
    let capability = guest.args(["request", "well/forward", "--uses", "9", "--", &target]).ok();
    guest.args(["forward", &capability, "--", &elsewhere]).denied("the capability is for");
    guest
        .args(["forward", &capability, "--reverse", "--", &target])
        .denied("the capability is for");
    let id = guest.identity();
    let widened =
        guest.args(["grant", &capability, "--to", &id, "--rights", "x", "--", &elsewhere]);
    widened.denied("args");
    let forward = guest.forward(&[&capability]);
    let mut program = forward.connect();
    accept(&listener).write_all(b"here").unwrap();
    assert_eq!(read_exactly(&mut program, 4), b"here");

    // A capability without an address is unusable until a link sets one.
    let open = guest.args(["request", "well/forward", "--uses", "9"]).ok();
    guest.args(["forward", &open]).denied("names no address");
    guest.args(["connect", &open]).denied("no address is named");
    let narrowed = guest.args(["grant", &open, "--to", &id, "--rights", "x", "--", &target]).ok();
    let forward = guest.forward(&[&narrowed]);
    let _program = forward.connect();
    accept(&listener);
    let wrong =
        guest.args(["grant", &open, "--to", &id, "--rights", "x", "--", "127.0.0.1:1"]).ok();
    guest.args(["forward", &wrong]).denied("not allowed");
}

/// Requests a connection to `address` on a new stream: the answer.
async fn ask(streams: &Streams, address: &str) -> Result<Result<(), Cause>, StreamError> {
    let mut stream = streams.opener().open(Class::Bulk).await.unwrap();
    // The node may have reset the stream already.
    let _ = stream.send(address.as_bytes()).await;
    receive_answer(&mut stream).await.map(|answered| answered.map_err(|failure| failure.cause))
}

/// A client whose streams request addresses that its capability does not name.
#[tokio::test]
async fn the_node_checks_every_connection_against_the_capability() {
    let home = Home::new();
    let (_listener, target) = listener();
    let (_other, elsewhere) = support::forward::listener();
    let _node = home.up_forwarding(&[&target, &elsewhere]);
    let client = Client::new(&levada_home::Home::at(home.path()).unwrap()).unwrap();
    let node = client.resolve("well", |_| Verdict::Unasked).await.unwrap();
    let mut params = levada_core::Params::new();
    let args = levada_core::encode_list(&[&target]);
    params.add(levada_core::Params::ARGS, args).unwrap();
    let spec = RequestSpec { service: "forward".into(), params, uses: 1, ..RequestSpec::default() };
    let capability = client.request(&node, spec).await.unwrap();
    let (running, streams) = client.connect_with_streams(&capability).await.unwrap();
    assert_eq!(ask(&streams, &elsewhere).await, Ok(Err(Cause::NotAllowed)));
    assert_eq!(ask(&streams, &target).await, Ok(Ok(())));
    // The node accepts no streams for an unknown start, for a start on another connection, or for a
    // service without streams.
    let unknown = Err(StreamError::Reset(Reason::Unknown as u64));
    let (none, _) = Streams::new(running.connection.clone(), u64::MAX, 1);
    assert_eq!(ask(&none, &target).await, unknown);
    let other = client.dedicated_connection(&node, levada_core::Framing::Auto).await.unwrap();
    while other.version() < 2 {
        // The node's HELLO has not arrived yet.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (foreign, _) = Streams::new(other, 1, 1);
    // Also if it is tried more often than a session has streams.
    for _ in 0..300 {
        assert_eq!(ask(&foreign, &target).await, unknown);
    }
    let spec = RequestSpec { service: "echo".into(), uses: 1, ..RequestSpec::default() };
    let echo = client.request(&node, spec).await.unwrap();
    let (echoing, streamless) = client.connect_with_streams(&echo).await.unwrap();
    assert_eq!(ask(&streamless, &target).await, unknown);
    // The first session still works.
    assert_eq!(ask(&streams, &target).await, Ok(Ok(())));
    drop((running, echoing));
}

#[test]
fn only_authorised_identities_can_end_a_forward() {
    let node_home = Home::new();
    let alice = Home::new();
    let bob = Home::new();
    let (listener, target) = listener();
    let node = node_home.up_forwarding(&[&target]);
    node.welcome(&alice, "well");
    for (verb, text) in [("terminate", "terminated"), ("revoke", "revoked")] {
        let root = alice.args(["request", "well/forward", "--", &target]).ok();
        let bobs = alice.args(["grant", &root, "--to", &bob.identity(), "--rights", "x"]).ok();
        let forward = bob.forward(&[&bobs]);
        let mut program = forward.connect();
        let mut served = accept(&listener);
        // Neither the holder of the right to execute, nor the holder of a later link for the first
        // link.
        bob.args(["terminate", &bobs]).denied("lacks the right");
        bob.args([verb, &root]).denied("bound to another identity");
        served.write_all(b"on").unwrap();
        assert_eq!(read_exactly(&mut program, 2), b"on");
        alice.args([verb, &root]).ok();
        read_until_reset(&mut program);
        read_until_reset(&mut served);
        let (code, errors) = forward.wait();
        assert_eq!(code, 121, "{errors}");
        assert!(errors.contains(text), "{errors}");
        bob.args(["forward", &bobs]).denied(text);
    }
}

#[test]
fn a_signal_ends_the_forward_and_its_session() {
    let home = Home::new();
    let (listener, target) = listener();
    let _node = home.up_forwarding(&[&target]);
    for signal in ["INT", "TERM"] {
        let forward = home.forward(&["well/forward", "--", &target]);
        let mut program = forward.connect();
        let mut served = accept(&listener);
        forward.signal(signal);
        assert_eq!(forward.wait(), (0, String::new()));
        read_until_reset(&mut served);
        read_until_reset(&mut program);
        eventually("no session runs", || home.json("status")["running_sessions"] == 0);
    }
    // The audit log is written after the end.
    eventually("the end is in the audit log", || {
        home.run("sessions --log --limit 1").ok().contains("ended")
    });
}

#[test]
fn a_forward_reconnects_to_a_restarted_node() {
    let home = Home::new();
    let (listener, target) = listener();
    // A port that stays free while the node is down.
    let service = home.forward_service(&[&target]);
    let up_at =
        |host: &str| format!("up --name well --http 127.0.0.1:0 --listen {host}:5382 {service}");
    let up = up_at(&own_loopback());
    let up_elsewhere = up_at(&own_loopback());
    let node = home.up_with(&up);
    // One forward requests a session for each start; the other has a capability with a single use.
    let capability = home.args(["request", "well/forward", "--", &target]).ok();
    let requested = home.forward(&["well/forward", "--", &target]);
    let granted = home.forward(&[&capability]);
    let mut program = requested.connect();
    let _served = accept(&listener);
    node.kill();
    // Open connections are reset, and so are new ones.
    read_until_reset(&mut program);
    eventually("the retry is reported", || requested.errors().contains("trying again in"));
    read_until_reset(&mut requested.connect());
    // Another node at this address is not a refusal: the forward retries.
    let other = Home::new();
    let intruder = other.up_with(&up.replace(&service, ""));
    eventually("the other key is reported", || requested.errors().contains("no address leads to"));
    intruder.kill();
    let node = home.up_with(&up);
    eventually("it has reconnected", || requested.errors().contains("connected again"));
    let mut program = requested.connect();
    accept(&listener).write_all(b"back").unwrap();
    assert_eq!(read_exactly(&mut program, 4), b"back");
    let (code, errors) = granted.wait();
    assert_eq!(code, 121, "{errors}");
    assert!(errors.contains("used up"), "{errors}");
    // At another address, the node is found by its key.
    node.kill();
    let _node = home.up_with(&up_elsewhere);
    eventually("it has reconnected", || requested.errors().matches("connected again").count() == 2);
    let mut program = requested.connect();
    accept(&listener).write_all(b"back").unwrap();
    assert_eq!(read_exactly(&mut program, 4), b"back");
}

#[test]
fn an_address_in_use_is_reported_before_the_node_is_asked() {
    let home = Home::new();
    let (taken, address) = listener();
    let _node = home.up_forwarding(&[&address]);
    let at = taken.local_addr().unwrap().to_string();
    let ran = home.args(["forward", "well/forward", "--listen", &at, "--", &address]);
    assert_eq!(ran.stdout, "");
    ran.fails(120, &format!("cannot listen at {at}"));
    home.args(["forward", "unknown/forward", "--", &address]).fails(2, "no node is pinned");
    home.args(["forward", "well/none", "--", &address]).fails(1, "no service");
    let nowhere = format!("{}@{}:1/forward", home.identity(), own_loopback());
    home.args(["forward", &nowhere, "--", &address]).fails(122, "unreachable");
}
