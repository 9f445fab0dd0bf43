//! Links of which one stream goes over QUIC.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_transport::quic::{Endpoint, QuicListener, QuicOptions};

use super::*;

/// A TCP listener, and a QUIC endpoint at the same port.
async fn bind() -> (TcpListener, Endpoint, QuicListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Another process may use this port of UDP.
        if let Ok(socket) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            let (endpoint, listener) = Endpoint::new(socket, QuicOptions::default()).unwrap();
            return (tcp, endpoint, listener);
        }
    }
}

/// Serves the share of a coordinator over QUIC, too; returns the address.
pub(super) async fn serve(coordinator: &Coordinator) -> SocketAddr {
    let (tcp, endpoint, mut quic) = bind().await;
    let address = tcp.local_addr().unwrap();
    let config = ServerConfig::new(&coordinator.key).unwrap();
    let share = coordinator.share.clone();
    tokio::spawn(async move {
        let _endpoint = endpoint;
        while let Some((transport, _)) = quic.accept().await {
            let accepting = accept(Box::new(transport), &config, Options::default());
            if let Ok(connection) = accepting.await {
                serve_connection(share.clone(), connection);
            }
        }
    });
    address
}

/// A peer's network over both transports; `accepted` counts the connections over QUIC. If
/// `blocked`, none gets through.
pub(super) async fn network(
    key: &SecretKey,
    udp: UdpStream,
    blocked: bool,
    accepted: Arc<AtomicUsize>,
) -> Network {
    let (tcp, endpoint, mut quic) = bind().await;
    let address = tcp.local_addr().unwrap().to_string();
    let config = Arc::new(ServerConfig::new(key).unwrap());
    let (sender, incoming) = mpsc::channel(16);
    let of_quic = sender.clone();
    let config_of_quic = config.clone();
    tokio::spawn(async move {
        while let Some((transport, _)) = quic.accept().await {
            let accepting = accept(Box::new(transport), &config_of_quic, Options::default());
            if let Ok(connection) = accepting.await {
                accepted.fetch_add(1, Ordering::Relaxed);
                let _ = of_quic.send(connection).await;
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((socket, _)) = tcp.accept().await {
            let transport = Box::new(Tcp::new(socket).unwrap());
            if let Ok(connection) = accept(transport, &config, Options::default()).await {
                let _ = sender.send(connection).await;
            }
        }
    });
    let config = Arc::new(ClientConfig::new(key).unwrap());
    let of_udp = config.clone();
    let dial_udp: Dial = Arc::new(move |identity, addresses: Vec<String>| {
        let config = of_udp.clone();
        let endpoint = endpoint.clone();
        Box::pin(async move {
            if blocked {
                return Err(SessionError::Closed);
            }
            let quic = endpoint.connect(addresses[0].parse().unwrap(), LIMIT).await;
            let quic = quic.map_err(|error| SessionError::Transport(error.to_string()))?;
            connect(Box::new(quic), &config, Some(identity), Options::default()).await
        })
    });
    let dial: Dial =
        Arc::new(move |identity, addresses| Box::pin(dial(config.clone(), identity, addresses)));
    Network { dial, udp: Some((udp, dial_udp)), incoming, addresses: vec![address] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_exchange_chunks_over_tcp_and_udp_or_over_tcp_alone() {
    for (udp, blocked) in [
        (UdpStream::Data, false),
        (UdpStream::Control, false),
        (UdpStream::Data, true),
        (UdpStream::Control, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        let content = bytes(3_000_000);
        fs::write(&path, &content).unwrap();
        let coordinator = Coordinator::start(&path, Mode::Direct, Some(udp)).await;
        let id = coordinator.share.id();
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut running = Vec::new();
        for number in 0..4 {
            let peer = Peer::new(folder.path(), &number.to_string());
            let network = network(&peer.key, udp, blocked, accepted.clone()).await;
            running.push((peer.get_in(&coordinator, id, true, network).await, peer));
        }
        for (download, peer) in &mut running {
            assert!(download.completed().await.is_empty());
            assert!(fs::read(&peer.target).unwrap() == content, "{udp:?} {blocked}");
        }
        let mut from_peers = 0;
        for (download, _) in running {
            let received = download.stop().await.received;
            from_peers += received.iter().filter(|(from, _)| from.is_some()).count();
        }
        assert!(from_peers > 0, "{udp:?} {blocked}");
        assert_eq!(accepted.load(Ordering::Relaxed) > 0, !blocked, "{udp:?}");
    }
}
