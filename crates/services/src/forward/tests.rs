//! Sessions of `forward` over a real connection, between real sockets.

use std::io;
use std::time::Duration;

use levada_core::encode_list;
use levada_service::Streams;
use levada_service::stdio::{Message, MessageReader};
use levada_service::testing::{End, definition, invocation, params};
use levada_session::testing::connections;
use levada_session::{Class, Options, ReceiveHalf, SendHalf, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

/// How long a step may take before a test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A running session, from the client's side.
struct Session {
    send: SendHalf,
    receive: ReceiveHalf,
    streams: Streams,
    service: JoinHandle<Result<(), ServiceError>>,
}

fn service(options: &str) -> Forward {
    let text = format!("name = 'f'\ntype = 'forward'\n{options}");
    Forward::new(definition(service_type(), &text).unwrap().read_options().unwrap())
}

impl Session {
    async fn start(service: Forward, args: &[&str]) -> Self {
        let (client, server) = connections(Options::default()).await.unwrap();
        let mut near = client.open(Class::Bulk).unwrap();
        near.send(b"").await.unwrap();
        let mut far = server.accept().await.unwrap();
        far.receive(0).await.unwrap();
        let run = service
            .prepare(&params(&[(Params::ARGS, &encode_list(args))]), Over::Stream)
            .unwrap()
            .into_stream()
            .unwrap();
        let invocation = Invocation { streams: Streams::receiving(server, 1, 16), ..invocation() };
        let streams = Streams::receiving(client, 1, 16);
        let service = tokio::spawn(run.start(invocation, far));
        let (send, receive) = near.split();
        Self { send, receive, streams, service }
    }

    /// A stream on which the client has requested `address`.
    async fn ask(&self, address: &str) -> Stream {
        let mut stream = self.streams.opener().open(Class::Bulk).await.unwrap();
        stream.send(address.as_bytes()).await.unwrap();
        stream
    }

    /// Why the service does not connect to `address`.
    async fn refused(&self, address: &str) -> Failure {
        receive_answer(&mut self.ask(address).await).await.unwrap().unwrap_err()
    }

    /// A program's end of a connection that the session carries to `address`.
    async fn through(&self, address: &str) -> TcpStream {
        let (program, socket) = tcp_pair().await;
        let stream = self.ask(address).await;
        tokio::spawn(carry(Socket::tcp(socket).unwrap(), stream, true));
        program
    }

    async fn line(&mut self) -> String {
        match MessageReader::new().next(&mut self.receive).await.unwrap() {
            Some(Message::Data(line)) => String::from_utf8(line.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Sends the end of the input, and waits until the service has ended.
    async fn end(mut self) -> End {
        self.send.send(&Message::End.to_bytes()).await.unwrap();
        let end = End::collect(&mut self.receive).await;
        self.send.finish().await.unwrap();
        self.service.await.unwrap().unwrap();
        end
    }
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// A listener, its address, and a session that may connect to it.
async fn target() -> (TcpListener, String, Session) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let session = Session::start(service(&format!("allow = ['{address}']")), &[&address]).await;
    (listener, address, session)
}

/// Reads until the end, which must not be a reset.
async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    bytes
}

/// Reads until the connection is reset: the bytes before that.
async fn read_until_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    bytes
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

#[tokio::test]
async fn bytes_are_carried_both_ways_and_each_direction_ends_separately() {
    let (listener, address, session) = target().await;
    // The program ends first, and still receives the answer.
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    let much = pattern(3_000_000);
    program.write_all(b"question").await.unwrap();
    program.shutdown().await.unwrap();
    assert_eq!(read_all(&mut served).await, b"question");
    let ((), read) = tokio::join!(
        async {
            served.write_all(&much).await.unwrap();
            served.shutdown().await.unwrap();
        },
        read_all(&mut program),
    );
    assert!(read == much);
    // The target ends first.
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    served.write_all(b"banner").await.unwrap();
    served.shutdown().await.unwrap();
    assert_eq!(read_all(&mut program).await, b"banner");
    let ((), read) = tokio::join!(
        async {
            program.write_all(&much).await.unwrap();
            program.shutdown().await.unwrap();
        },
        read_all(&mut served),
    );
    assert!(read == much);
    let end = session.end().await;
    assert_eq!((end.exit, end.failure), (Some(0), None));
}

#[tokio::test]
async fn a_reset_of_one_side_resets_the_other_after_its_bytes() {
    let (listener, address, session) = target().await;
    for by_target in [true, false] {
        let program = session.through(&address).await;
        let (served, _) = listener.accept().await.unwrap();
        let (mut one, mut other) = if by_target { (served, program) } else { (program, served) };
        one.write_all(b"last ").await.unwrap();
        other.read_exact(&mut [0; 5]).await.unwrap();
        one.write_all(b"words").await.unwrap();
        one.set_zero_linger().unwrap();
        drop(one);
        assert_eq!(read_until_reset(&mut other).await, b"words");
    }
    // A socket that has ended its side and is closed: a write to it is answered with a reset.
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    served.shutdown().await.unwrap();
    assert_eq!(read_all(&mut program).await, b"");
    drop(served);
    let gone = async {
        while program.write_all(&[0; 1000]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, gone).await.unwrap();
    // The session continues.
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    program.write_all(b"on").await.unwrap();
    program.shutdown().await.unwrap();
    assert_eq!(read_all(&mut served).await, b"on");
}

#[tokio::test]
async fn a_message_after_the_bytes_is_a_reset_or_invalid_also_in_pieces() {
    let (listener, address, session) = target().await;
    for last in [&[1][..], &[7], &[1, 1], &[]] {
        let mut stream = session.ask(&address).await;
        let (mut served, _) = listener.accept().await.unwrap();
        assert_eq!(receive_answer(&mut stream).await, Ok(Ok(())));
        stream.write(b"by", false).await.unwrap();
        stream.send(b"tes").await.unwrap();
        // The service may reset the stream before the last piece.
        for byte in last {
            let _ = stream.write(std::slice::from_ref(byte), false).await;
        }
        let _ = stream.write(b"", true).await;
        assert_eq!(read_until_reset(&mut served).await, b"bytes", "{last:?}");
    }
    // An end in an empty piece is an end.
    let mut stream = session.ask(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    stream.write(b"bytes", false).await.unwrap();
    stream.write(b"", true).await.unwrap();
    stream.finish().await.unwrap();
    assert_eq!(read_all(&mut served).await, b"bytes");
}

#[tokio::test]
async fn a_refusing_target_is_reported_with_its_cause_and_by_a_reset() {
    let (listener, address, session) = target().await;
    drop(listener);
    let failure = session.refused(&address).await;
    assert_eq!(failure.cause, Cause::Refused);
    assert!(failure.text.starts_with(&address), "{failure}");
    let mut program = session.through(&address).await;
    // Sent before the refusal arrives.
    let _ = program.write_all(b"early").await;
    assert_eq!(read_until_reset(&mut program).await, b"");
}

#[tokio::test]
async fn addresses_need_the_permission_of_configuration_and_parameters() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let allowed = format!("127.0.0.1:{port}");
    let options = format!("allow = ['{allowed}', '*:{port}', '127.0.0.2:81']");
    let session = Session::start(service(&options), &[&allowed, "*.example:*"]).await;
    for address in [
        // Allowed only by the configuration.
        "127.0.0.2:81",
        "192.0.2.1:80",
        // Allowed only by the parameters.
        "www.example:80",
        "udp:127.0.0.1:80",
        "unix:/run/a",
        "nowhere",
        "",
        "listen:127.0.0.1:80",
    ] {
        assert_eq!(session.refused(address).await.cause, Cause::NotAllowed, "{address}");
    }
    let failure = session.refused("127.0.0.2:81").await;
    assert_eq!(failure, Failure::new(Cause::NotAllowed, "127.0.0.2:81 is not allowed"));
    let mut stream = session.ask(&"x".repeat(MAX_ADDRESS + 1)).await;
    assert!(matches!(receive_answer(&mut stream).await, Err(StreamError::Reset(_))));
    // An allowed address is still served.
    let _program = session.through(&allowed).await;
    listener.accept().await.unwrap();
}

#[tokio::test]
async fn a_name_is_connected_only_to_allowed_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("localhost:{port}");
    // First the name is allowed but not its address, then only its address, then `localhost`, which
    // is always loopback.
    let elsewhere = format!("allow = ['*:{port}', '192.0.2.0/24:{port}']");
    let session = Session::start(service(&elsewhere), &[&name]).await;
    let failure = session.refused(&name).await;
    assert_eq!(failure.cause, Cause::NotAllowed);
    assert!(failure.text.contains("here, which is not allowed"), "{failure}");
    for allowed in [format!("127.0.0.0/8:{port}"), name.clone()] {
        let session = Session::start(service(&format!("allow = ['{allowed}']")), &[&name]).await;
        let _program = session.through(&name).await;
        timeout(TEST_TIMEOUT, listener.accept()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_terminated_session_resets_its_connections_on_both_sides() {
    let (listener, address, session) = target().await;
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    served.write_all(b"x").await.unwrap();
    program.read_exact(&mut [0]).await.unwrap();
    // As the node does when the session is terminated.
    session.service.abort();
    assert_eq!(read_until_reset(&mut served).await, b"");
    assert_eq!(read_until_reset(&mut program).await, b"");
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_connections() {
    let (listener, address, session) = target().await;
    let _program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    let Session { send, receive, service, .. } = session;
    drop((send, receive));
    let ended = timeout(TEST_TIMEOUT, service).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ServiceError::Stream(_) | ServiceError::Gone)));
    read_until_reset(&mut served).await;
}

#[tokio::test]
async fn a_connection_above_the_limit_is_refused_after_the_wait_and_the_others_continue() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options = format!("allow = ['{address}']\nconnections = 2");
    let mut service = service(&options);
    service.shared.wait = Duration::from_millis(200);
    let session = Session::start(service, &[&address]).await;
    let mut first = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    let second = session.through(&address).await;
    let second = (second, listener.accept().await.unwrap());
    assert_eq!(session.refused(&address).await.cause, Cause::Busy);
    first.write_all(b"on").await.unwrap();
    first.shutdown().await.unwrap();
    assert_eq!(read_all(&mut served).await, b"on");
    drop(second);
    // Its permit is free again once its end has been carried.
    let free = async {
        loop {
            match receive_answer(&mut session.ask(&address).await).await.unwrap() {
                Ok(()) => return,
                Err(failure) => assert_eq!(failure.cause, Cause::Busy),
            }
        }
    };
    timeout(TEST_TIMEOUT, free).await.unwrap();
}

#[tokio::test]
async fn a_connection_above_the_limit_gets_the_permit_of_one_that_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options = format!("allow = ['{address}']\nconnections = 1");
    let session = Session::start(service(&options), &[&address]).await;
    let first = session.through(&address).await;
    let served = listener.accept().await.unwrap();
    let mut waiting = session.ask(&address).await;
    drop((first, served));
    assert_eq!(receive_answer(&mut waiting).await, Ok(Ok(())));
}

#[tokio::test]
async fn unix_sockets_are_connected_by_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let address = format!("unix:{}", path.display());
    let session = Session::start(service(&format!("allow = ['{address}']")), &[&address]).await;
    assert_eq!(session.refused(&address).await.cause, Cause::Refused);
    let listener = UnixListener::bind(&path).unwrap();
    let mut program = session.through(&address).await;
    let (mut served, _) = listener.accept().await.unwrap();
    program.write_all(b"question").await.unwrap();
    program.shutdown().await.unwrap();
    let mut question = Vec::new();
    served.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    served.write_all(b"answer").await.unwrap();
    drop(served);
    assert_eq!(read_all(&mut program).await, b"answer");
}

#[tokio::test]
async fn datagrams_keep_their_boundaries_and_an_idle_flow_ends() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = format!("udp:{}", target.local_addr().unwrap());
    let mut quick = service(&format!("allow = ['{address}']"));
    quick.shared.idle = Duration::from_secs(2);
    let session = Session::start(quick, &[&address]).await;
    let mut flow = session.ask(&address).await;
    receive_answer(&mut flow).await.unwrap().unwrap();
    let (mut send, mut receive) = flow.split();
    let mut buffer = vec![0; MAX_DATAGRAM];
    for length in [0, 1, 1472, 60_000] {
        send.send(&pattern(length)).await.unwrap();
        let (got, from) =
            timeout(TEST_TIMEOUT, target.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(buffer[..got], pattern(length));
        target.send_to(&buffer[..got], from).await.unwrap();
        assert_eq!(receive.receive(MAX_DATAGRAM).await, Ok(Some(pattern(length))));
    }
    assert_eq!(timeout(TEST_TIMEOUT, receive.receive(0)).await.unwrap(), Ok(None));
    // Without a listener datagrams are lost, and the flow stays: a listener may start later.
    drop(target);
    let mut flow = session.ask(&address).await;
    receive_answer(&mut flow).await.unwrap().unwrap();
    let (mut send, _receive) = flow.split();
    send.send(b"lost").await.unwrap();
    send.send(b"lost").await.unwrap();
    let target = UdpSocket::bind(address.strip_prefix("udp:").unwrap()).await.unwrap();
    let found = async {
        loop {
            send.send(b"found").await.unwrap();
            let wait = Duration::from_millis(50);
            if timeout(wait, target.recv_from(&mut buffer)).await.is_ok() {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, found).await.unwrap();
}

#[tokio::test]
async fn connections_accepted_by_the_node_are_carried_to_the_client() {
    let session = service("allow = ['listen:127.0.0.1:*']");
    let mut session = Session::start(session, &["listen:127.0.0.1:0"]).await;
    let address = session.line().await.trim_end().to_owned();
    let mut visitor = TcpStream::connect(&address).await.unwrap();
    let mut stream = session.streams.accept().await;
    let from = stream.receive(MAX_ADDRESS).await.unwrap().unwrap();
    assert_eq!(from, visitor.local_addr().unwrap().to_string().as_bytes());
    let (mut served, socket) = tcp_pair().await;
    tokio::spawn(carry_accepted(stream, Ok(Socket::tcp(socket).unwrap())));
    visitor.write_all(b"question").await.unwrap();
    visitor.shutdown().await.unwrap();
    assert_eq!(read_all(&mut served).await, b"question");
    served.write_all(b"answer").await.unwrap();
    drop(served);
    assert_eq!(read_all(&mut visitor).await, b"answer");
    // If the client cannot connect, the connection is reset here.
    let mut visitor = TcpStream::connect(&address).await.unwrap();
    let mut stream = session.streams.accept().await;
    stream.receive(MAX_ADDRESS).await.unwrap();
    let failure = Failure::new(Cause::Refused, "no listener");
    tokio::spawn(carry_accepted(stream, Err(failure)));
    read_until_reset(&mut visitor).await;
    // The client cannot request a connection.
    let mut stream = session.ask("127.0.0.1:80").await;
    assert!(matches!(receive_answer(&mut stream).await, Err(StreamError::Reset(_))));
    assert_eq!(session.end().await.exit, Some(0));
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("listen:{}", taken.local_addr().unwrap());
    let session = service(&format!("allow = ['{address}']"));
    let mut session = Session::start(session, &[&address]).await;
    let end = End::collect(&mut session.receive).await;
    assert_eq!(end.exit, Some(120));
    assert!(end.failure.unwrap().starts_with("cannot listen at 127.0.0.1:"));
}

#[test]
fn only_a_start_needs_the_addresses() {
    let service = service("allow = ['127.0.0.1:1']");
    assert_eq!(service.check(&params(&[])), Ok(()));
    let missing = service.prepare(&params(&[]), Over::Stream).unwrap_err();
    assert_eq!(missing.to_string(), "no address is named");
    for complete in [false, true] {
        let check = |args: &[&str]| {
            let params = params(&[(Params::ARGS, &encode_list(args))]);
            if complete {
                service.prepare(&params, Over::Stream).map(drop)
            } else {
                service.check(&params)
            }
        };
        assert_eq!(check(&["127.0.0.1:1"]), Ok(()));
        assert_eq!(check(&[]), Err(missing.clone()));
        let refused = check(&["127.0.0.1:2"]).unwrap_err().to_string();
        assert_eq!(refused, "the address \"127.0.0.1:2\" is not allowed");
    }
}
