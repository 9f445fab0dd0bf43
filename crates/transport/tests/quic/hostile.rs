//! Peers that do not keep to the protocol, on raw UDP sockets.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use levada_transport::quic::QuicOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{LIMIT, connecting, listening, socket, within};

/// The length of a datagram that begins a connection (RFC 9000 section 14.1).
const INITIAL: usize = 1200;
/// How long a raw socket waits for the next answer: longer than the first retransmissions of an
/// endpoint.
const SILENCE: Duration = Duration::from_millis(2500);

/// The first datagrams of `count` different connections.
async fn initials(count: usize) -> Vec<Vec<u8>> {
    let trap = socket();
    let address = trap.local_addr().unwrap();
    let mut found = HashMap::new();
    let client = connecting();
    while found.len() < count {
        let dial = client.connect(address, Duration::from_millis(20));
        assert!(dial.await.is_err());
        trap.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2048];
        while let Ok(length) = trap.recv(&mut buffer) {
            // Byte 5 is the length of the connection ID, which is 8 to 20 bytes (RFC 9000 section
            // 17.2).
            let end = 6 + usize::from(buffer[5]);
            if length == INITIAL && buffer[0] & 0xf0 == 0xc0 {
                found.entry(buffer[6..end].to_vec()).or_insert_with(|| buffer[..length].to_vec());
            }
        }
    }
    found.into_values().collect()
}

/// All answers until there is silence.
fn answers(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

async fn answers_to(datagrams: Vec<Vec<u8>>, to: SocketAddr) -> Vec<Vec<u8>> {
    let from = socket();
    for datagram in &datagrams {
        from.send_to(datagram, to).unwrap();
        tokio::task::yield_now().await;
    }
    tokio::task::spawn_blocking(move || answers(&from)).await.unwrap()
}

fn is_retry(datagram: &[u8]) -> bool {
    datagram[0] & 0xf0 == 0xf0 && datagram[1..5] == [0, 0, 0, 1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unvalidated_address_gets_at_most_three_times_what_it_sent() {
    let (_endpoint, mut listener, address) = listening(QuicOptions::default());
    tokio::spawn(async move { while listener.accept().await.is_some() {} });
    for initial in initials(2).await {
        let sent = initial.len();
        let received: usize = answers_to(vec![initial], address).await.iter().map(Vec::len).sum();
        assert!(received > 0 && received <= 3 * sent, "{received} bytes for {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_a_few_open_handshakes_an_address_must_be_validated() {
    let options = QuicOptions { unvalidated: 2, ..QuicOptions::default() };
    let (_endpoint, mut listener, address) = listening(options);
    tokio::spawn(async move {
        while let Some((mut accepted, _)) = listener.accept().await {
            accepted.write_all(b"welcome").await.unwrap();
            accepted.shutdown().await.unwrap();
        }
    });
    let initials = initials(6).await;
    let answers = answers_to(initials.clone(), address).await;
    let retries = answers.iter().filter(|answer| is_retry(answer)).count();
    assert_eq!(retries, 4);
    // A client with an address of its own goes on, also while the others are open.
    answers_to(initials[..2].to_vec(), address).await;
    let mut near = within(connecting().connect(address, LIMIT)).await.unwrap();
    near.write_all(b"!").await.unwrap();
    let mut received = Vec::new();
    within(near.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, b"welcome");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_connects_during_a_flood() {
    let (_endpoint, mut listener, address) = listening(QuicOptions::default());
    let initials = initials(40).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let flood = std::thread::spawn(move || {
        let mut number: u64 = 88_172_645_463_325_252;
        let mut garbage = [0; INITIAL];
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            // A new source for each round; its answers are not read.
            let from = socket();
            for initial in &initials {
                let _ = from.send_to(initial, address);
                for chunk in garbage.chunks_mut(8) {
                    number ^= number << 13;
                    number ^= number >> 7;
                    number ^= number << 17;
                    chunk.copy_from_slice(&number.to_be_bytes());
                }
                let length = number as usize % INITIAL;
                let _ = from.send_to(&garbage[..length], address);
                // A long header of version 1 with random contents.
                garbage[0] = 0xc0 | (garbage[0] & 0x0f);
                garbage[1..5].copy_from_slice(&[0, 0, 0, 1]);
                let _ = from.send_to(&garbage, address);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let near = async {
        loop {
            // The socket's buffer may be full of the flood, so that a handshake fails.
            let connected = connecting().connect(address, Duration::from_secs(5)).await;
            let Ok(mut near) = connected else { continue };
            if near.write_all(b"through").await.is_ok() {
                return near;
            }
        }
    };
    let far = async {
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            let mut received = [0; 7];
            if far.read_exact(&mut received).await.is_ok() {
                return received;
            }
        }
    };
    let (_near, received) = within(async { tokio::join!(near, far) }).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!(&received, b"through");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_source_cannot_hold_all_handshakes() {
    let options = QuicOptions { handshakes_per_source: 2, ..QuicOptions::default() };
    let (_endpoint, mut listener, address) = listening(options);
    let accepting = tokio::spawn(async move { listener.accept().await.map(|(_, from)| from) });
    let client = connecting();
    // Handshakes of clients that send nothing after them.
    let mut idle = Vec::new();
    for _ in 0..2 {
        idle.push(within(client.connect(address, LIMIT)).await.unwrap());
    }
    let error = within(client.connect(address, LIMIT)).await.err().unwrap();
    assert!(error.to_string().contains("refused"), "{error}");
    idle[0].write_all(b"!").await.unwrap();
    assert_eq!(within(accepting).await.unwrap(), client.local_address().ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_of_versions_gets_one_short_answer() {
    let (_endpoint, mut listener, address) = listening(QuicOptions::default());
    tokio::spawn(async move { while listener.accept().await.is_some() {} });
    let mut probe = vec![0; INITIAL];
    // A long header with a reserved version (RFC 9000 section 6.3), and two connection IDs of 8
    // bytes.
    probe[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
    probe[14] = 8;
    let answers = answers_to(vec![probe.clone()], address).await;
    let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!(answer[1..5], [0; 4]);
    let versions: Vec<&[u8]> = answer[23..].chunks(4).collect();
    assert!(versions.contains(&&[0, 0, 0, 1][..]) && versions.len() <= 2, "{versions:?}");
    probe.truncate(INITIAL - 1);
    assert!(answers_to(vec![probe], address).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_is_refused() {
    let (_endpoint, mut listener, address) = listening(QuicOptions::default());
    tokio::spawn(async move { while listener.accept().await.is_some() {} });
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(std::sync::Arc::new(tls));
    let connecting = client.connect_with(config, address, "levada").unwrap();
    assert!(within(connecting).await.is_err());
}
