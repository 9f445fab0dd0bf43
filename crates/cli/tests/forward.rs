//! `levada forward` between real processes: what is carried, how it ends, and who may.

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
use levada_services::forward::{Cause, answer};
use levada_session::{Class, StreamError};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

#[test]
fn bytes_go_both_ways_and_each_direction_ends_by_itself() {
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
    let (mut program, mut served) = (forward.connect(), accept(&listener));
    // A small message goes at once, in either direction.
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
fn a_target_that_refuses_resets_or_hangs_is_seen_to_do_so() {
    let home = Home::new();
    let (listener, resets) = listener();
    let (gone, refuses) = support::forward::listener();
    drop(gone);
    // A queue of one, which is full: whoever comes next gets no answer at all.
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
        assert!(queue.len() < 100, "the queue takes everybody");
    }
    let _node = home.up_forwarding(&[&resets, &refuses, &hangs]);

    let forward = home.forward(&["well/forward", "--", &resets]);
    let (mut program, mut served) = (forward.connect(), accept(&listener));
    served.write_all(b"last ").unwrap();
    assert_eq!(read_exactly(&mut program, 5), b"last ");
    served.write_all(b"words").unwrap();
    reset(served);
    assert_eq!(read_until_reset(&mut program), b"words");
    let (program, mut served) = (forward.connect(), accept(&listener));
    reset(program);
    read_until_reset(&mut served);

    let forward = home.forward(&["well/forward", "--", &refuses]);
    assert_eq!(read_until_reset(&mut forward.connect()), b"");
    eventually("it says so", || forward.errors().contains("Connection refused"));

    let forward = home.forward(&["well/forward", "--", &hangs]);
    assert_eq!(read_until_reset(&mut forward.connect()), b"");
    eventually("it says so", || forward.errors().contains("no answer in time"));
}

#[test]
fn datagrams_are_carried_for_many_senders_at_a_time() {
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
    // More senders than a session has streams: the oldest make room.
    for sender in 0..150_u64 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(&forward.addresses[0]).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let length = [0, 1, 1472, 60_000][sender as usize % 4];
        let (sent, mut back) = (noise(sender, length), vec![0; 65_535]);
        let mut came = None;
        // Datagrams may be lost.
        eventually("an answer", || {
            socket.send(&sent).unwrap();
            came = socket.recv(&mut back).ok();
            came.is_some()
        });
        assert!(back[..came.unwrap()] == sent, "{length}");
    }
}

#[test]
fn unix_sockets_stand_at_either_end() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let (path, door) = (folder.path().join("target"), folder.path().join("door"));
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
    // By the other door.
    let mut program = patient(TcpStream::connect(&forward.addresses[1]).unwrap());
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"here too").unwrap();
    drop(served);
    assert_eq!(read_all(&mut program), b"here too");
    forward.signal("INT");
    assert_eq!(forward.wait(), (0, String::new()));
    assert!(!door.exists());
}

#[test]
fn the_node_listens_and_this_side_connects() {
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
    // Nobody there: the visitor sees it.
    drop(listener);
    read_until_reset(&mut forward.connect());
    eventually("it says so", || forward.errors().contains("Connection refused"));
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
fn programs_say_by_socks_where_to_within_what_is_allowed() {
    let home = Home::new();
    let (a, b) = (web(), web());
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
    // Narrowed by what the session is for.
    let forward = home.forward(&["well/forward", "--socks", "--", "localhost:*"]);
    assert_eq!(curl(&forward, &name).ok(), "water");
    assert_eq!(curl(&forward, &a).code, 97);
    home.args(["forward", "well/forward", "--socks", "--", "192.0.2.0/24:1"]).denied("not allowed");
    // Whoever speaks something else is told, or cut off.
    let mut rude = forward.connect();
    rude.write_all(&[5, 1, 2]).unwrap();
    assert_eq!(read_all(&mut rude), [5, 0xff]);
    // Whoever goes on before he was answered still reads that he is refused.
    let mut eager = forward.connect();
    eager.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x01and more").unwrap();
    assert_eq!(read_all(&mut eager), [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    let mut rude = forward.connect();
    rude.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let _ = rude.read_to_end(&mut Vec::new());
    assert_eq!(curl(&forward, &name).ok(), "water");
}

#[test]
fn what_the_configuration_or_the_capability_does_not_name_is_denied() {
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
    guest.args(["forward", "well/forward", "--", "nowhere"]).fails(2, "no address");

    // A capability for one address is for no other, and whoever gets it cannot set another.
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

    // One that leaves the address to be named later is good for nothing before.
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

/// What becomes of a stream on which a connection to `address` is asked for.
async fn ask(streams: &Streams, address: &str) -> Result<Result<(), Cause>, StreamError> {
    let mut stream = streams.opener().open(Class::Bulk).await.unwrap();
    // It may have been refused already.
    let _ = stream.send(address.as_bytes()).await;
    answer(&mut stream).await.map(|answered| answered.map_err(|failure| failure.cause))
}

/// A client that asks on its streams for what it has no right to.
#[tokio::test]
async fn the_node_holds_every_connection_to_what_the_capability_names() {
    let home = Home::new();
    let (_listener, target) = listener();
    let (_other, elsewhere) = support::forward::listener();
    let _node = home.up_forwarding(&[&target, &elsewhere]);
    let client = Client::new(&levada_client::home::Home::at(home.path()).unwrap()).unwrap();
    let node = client.resolve("well", |_| Verdict::Unasked).await.unwrap();
    let mut params = levada_core::Params::new();
    let args = levada_core::encode_list(&[&target]);
    params.add(levada_core::Params::ARGS, args).unwrap();
    let spec = RequestSpec { service: "forward".into(), params, uses: 1, ..RequestSpec::default() };
    let capability = client.request(&node, spec).await.unwrap();
    let (running, streams) = client.connect_with_streams(&capability).await.unwrap();
    assert_eq!(ask(&streams, &elsewhere).await, Ok(Err(Cause::NotAllowed)));
    assert_eq!(ask(&streams, &target).await, Ok(Ok(())));
    // Nor does it give streams to a start that is none, to one on another connection, or of a service that takes none.
    let unknown = Err(StreamError::Reset(Reason::Unknown as u64));
    let (none, _) = Streams::new(running.connection.clone(), u64::MAX, 1);
    assert_eq!(ask(&none, &target).await, unknown);
    let other = client.connection_of_its_own(&node, levada_core::Framing::Auto).await.unwrap();
    while other.version() < 2 {
        // The node's first word is on its way.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (foreign, _) = Streams::new(other, 1, 1);
    // However often it is tried.
    for _ in 0..300 {
        assert_eq!(ask(&foreign, &target).await, unknown);
    }
    let spec = RequestSpec { service: "echo".into(), uses: 1, ..RequestSpec::default() };
    let echo = client.request(&node, spec).await.unwrap();
    let (echoing, streamless) = client.connect_with_streams(&echo).await.unwrap();
    assert_eq!(ask(&streamless, &target).await, unknown);
    // Nobody is the worse for it.
    assert_eq!(ask(&streams, &target).await, Ok(Ok(())));
    drop((running, echoing));
}

#[test]
fn it_ends_by_who_may_and_goes_on_for_who_may_not() {
    let (node_home, alice, bob) = (Home::new(), Home::new(), Home::new());
    let (listener, target) = listener();
    let node = node_home.up_forwarding(&[&target]);
    node.welcome(&alice, "well");
    for (verb, text) in [("terminate", "terminated"), ("revoke", "revoked")] {
        let root = alice.args(["request", "well/forward", "--", &target]).ok();
        let bobs = alice.args(["grant", &root, "--to", &bob.identity(), "--rights", "x"]).ok();
        let forward = bob.forward(&[&bobs]);
        let (mut program, mut served) = (forward.connect(), accept(&listener));
        // Neither the one who may only start it, nor one who has nothing to do with it.
        bob.args(["terminate", &bobs]).denied("lacks the right");
        bob.args([verb, &root]).denied("");
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
fn a_signal_ends_it_and_the_node_hears_of_it() {
    let home = Home::new();
    let (listener, target) = listener();
    let _node = home.up_forwarding(&[&target]);
    for signal in ["INT", "TERM"] {
        let forward = home.forward(&["well/forward", "--", &target]);
        let (mut program, mut served) = (forward.connect(), accept(&listener));
        forward.signal(signal);
        assert_eq!(forward.wait(), (0, String::new()));
        read_until_reset(&mut served);
        read_until_reset(&mut program);
        eventually("no session runs", || home.json("status")["running_sessions"] == 0);
    }
    // It is written down once it has.
    eventually("the end is in the log", || {
        home.run("sessions --log --limit 1").ok().contains("ended")
    });
}

#[test]
fn a_node_that_comes_back_is_found_again() {
    let home = Home::new();
    let (listener, target) = listener();
    // A port that stays free while the node is away.
    let service = home.forward_service(&[&target]);
    let up_at =
        |host: &str| format!("up --name well --http 127.0.0.1:0 --listen {host}:5382 {service}");
    let (up, up_elsewhere) = (up_at(&own_loopback()), up_at(&own_loopback()));
    let node = home.up_with(&up);
    // Once by a request for each start, once by a capability with a single use.
    let capability = home.args(["request", "well/forward", "--", &target]).ok();
    let requested = home.forward(&["well/forward", "--", &target]);
    let granted = home.forward(&[&capability]);
    let mut program = requested.connect();
    let _served = accept(&listener);
    node.kill();
    // What was carried is lost, and so is who comes now.
    read_until_reset(&mut program);
    eventually("it says so", || requested.errors().contains("trying again in"));
    read_until_reset(&mut requested.connect());
    // Another node has its address for a while: that is no refusal.
    let other = Home::new();
    let intruder = other.up_with(&up.replace(&service, ""));
    eventually("it goes on", || requested.errors().contains("no address leads to"));
    intruder.kill();
    let node = home.up_with(&up);
    eventually("it is back", || requested.errors().contains("connected again"));
    let mut program = requested.connect();
    accept(&listener).write_all(b"back").unwrap();
    assert_eq!(read_exactly(&mut program, 4), b"back");
    let (code, errors) = granted.wait();
    assert_eq!(code, 121, "{errors}");
    assert!(errors.contains("used up"), "{errors}");
    // Somewhere else: the key is what counts.
    node.kill();
    let _node = home.up_with(&up_elsewhere);
    eventually("it is back", || requested.errors().matches("connected again").count() == 2);
    let mut program = requested.connect();
    accept(&listener).write_all(b"back").unwrap();
    assert_eq!(read_exactly(&mut program, 4), b"back");
}

#[test]
fn what_cannot_be_listened_at_is_said_before_anything_is_asked_for() {
    let home = Home::new();
    let (taken, address) = listener();
    let _node = home.up_forwarding(&[&address]);
    let at = taken.local_addr().unwrap().to_string();
    let ran = home.args(["forward", "well/forward", "--listen", &at, "--", &address]);
    assert_eq!(ran.stdout, "");
    ran.fails(120, &format!("cannot listen at {at}"));
    home.args(["forward", "nobody/forward", "--", &address]).fails(2, "no node is known");
    home.args(["forward", "well/none", "--", &address]).fails(1, "no service");
    let nowhere = format!("{}@{}:1/forward", home.identity(), own_loopback());
    home.args(["forward", &nowhere, "--", &address]).fails(122, "unreachable");
}
