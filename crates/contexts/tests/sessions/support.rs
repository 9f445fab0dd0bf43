//! A client, a middlebox and a server over transports.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use levada_contexts::{
    Action, Context, Direction, Hop, HopSetup, HopTickets, Inspector, Kem, Party, Path, PathEvent,
    PathSession, PathSessions, PathTickets, Piece, Purpose, Received, Relay, Right, ServerPaths,
    accept_incoming, accept_path, connect_path, is_path, relay,
};
use levada_core::{SecretKey, SystemRandom};
use levada_session::{Budget, ClientConfig, ServerConfig, first_record};
use levada_transport::{Tcp, Transport};
use tokio::io::duplex;
use tokio::net::{TcpListener, TcpStream};

struct Upper;

impl Inspector for Upper {
    fn record(&mut self, piece: Piece<'_>) -> Action {
        match piece.direction {
            Direction::ToServer => Action::Replace(piece.data.to_ascii_uppercase()),
            Direction::ToClient => Action::Pass,
        }
    }
}

fn key() -> Arc<SecretKey> {
    Arc::new(SecretKey::generate(&SystemRandom).unwrap())
}

/// Stops a task as SIGSTOP stops a process: its sockets stay open.
#[derive(Clone, Default)]
pub(crate) struct Freezer(Arc<AtomicBool>);

impl Freezer {
    pub(crate) fn freeze(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Runs `task` until it is frozen.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let frozen = self.0.clone();
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| match frozen.load(Ordering::Relaxed) {
                true => Poll::Pending,
                false => task.as_mut().poll(cx),
            })
            .await;
        });
    }
}

pub(crate) type Ends = [Box<dyn Transport>; 2];

/// The two links of a path with one middlebox, in memory.
pub(crate) fn links() -> [Ends; 2] {
    [(); 2].map(|()| {
        let (near, far) = duplex(64 * 1024);
        [Box::new(near) as Box<dyn Transport>, Box::new(far)]
    })
}

/// A link over TCP on loopback.
pub(crate) async fn tcp_link() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let end = |stream| Box::new(Tcp::new(stream).unwrap()) as Box<dyn Transport>;
    [end(near.unwrap()), end(far.unwrap().0)]
}

/// A client and a server with one middlebox that turns requests to upper case.
pub(crate) async fn connected() -> (PathSession, PathSession) {
    connected_over(links(), &Freezer::default(), true).await
}

/// As [`connected`], over the client's link and the server's; `admitted`: the middlebox carries the
/// session.
pub(crate) async fn connected_over(
    links: [Ends; 2],
    freezer: &Freezer,
    admitted: bool,
) -> (PathSession, PathSession) {
    let context = |right| Context { purpose: Purpose::Other, pad: 0, rights: vec![right] };
    let contexts = vec![context(Right::Write), context(Right::None)];
    connected_with(links, (contexts, Box::new(Upper)), freezer, admitted).await
}

/// As [`connected_over`], with these contexts and this middlebox.
pub(crate) async fn connected_with(
    links: [Ends; 2],
    middlebox: (Vec<Context>, Box<dyn Inspector>),
    freezer: &Freezer,
    admitted: bool,
) -> (PathSession, PathSession) {
    let (client, server) = unstarted(links, middlebox, freezer, (admitted, None)).await;
    client.control(b"operation").unwrap();
    let event = server.next().await.unwrap();
    assert_eq!(event, Some(PathEvent::Received(Received::Control(b"operation".to_vec()))));
    server.start(true, None).unwrap();
    assert_eq!(client.next().await.unwrap(), Some(PathEvent::Ready));
    (client, server)
}

/// A session that the server has accepted and not started, whose memory counts against a budget,
/// under a source.
pub(crate) async fn bounded(budget: &Arc<Budget>, source: IpAddr) -> (PathSession, PathSession) {
    let context = Context { purpose: Purpose::Other, pad: 0, rights: vec![Right::None] };
    let middlebox = (vec![context], Box::new(Upper) as Box<dyn Inspector>);
    let within = (true, Some((budget, source)));
    unstarted(links(), middlebox, &Freezer::default(), within).await
}

/// A session before its start, in the server's budget if there is one.
async fn unstarted(
    [[near, hop_near], [hop_far, far]]: [Ends; 2],
    (contexts, inspector): (Vec<Context>, Box<dyn Inspector>),
    freezer: &Freezer,
    (admitted, budget): (bool, Option<(&Arc<Budget>, IpAddr)>),
) -> (PathSession, PathSession) {
    let hop = key();
    let server = key();
    let party = |key: &SecretKey| Party { identity: key.identity(), address: "h:1".to_owned() };
    let path = Path {
        kem: Kem::X25519,
        server: party(&server),
        hops: vec![Hop { party: party(&hop), resume: None }],
        contexts,
    };
    let setup = HopSetup {
        key: hop,
        tickets: Arc::new(HopTickets::new(Duration::from_secs(60))),
        policy: Arc::new(|_, _| Ok(())),
    };
    let paths = ServerPaths {
        config: Arc::new(ServerConfig::new(&server).unwrap()),
        key: server,
        sessions: Arc::new(PathSessions::default()),
        tickets: 2,
        policy: Arc::new(|_| Ok(())),
    };
    let client = ClientConfig::new(&key()).unwrap();
    let middle = Relay::new(setup, inspector, Instant::now());
    let carried =
        relay(middle, hop_near, Vec::new(), |_, _| async { Ok(hop_far) }, move || admitted);
    freezer.spawn(async {
        let _ = carried.await;
    });
    let accepted = async {
        let Some((budget, source)) = budget else {
            return accept_path(far, paths).await;
        };
        let incoming = first_record(far).await.unwrap();
        assert!(is_path(&incoming));
        accept_incoming(incoming.bounded(budget, source), paths).await
    };
    let tickets = Arc::new(PathTickets::default());
    let (client, server) = tokio::join!(connect_path(near, &client, tickets, path), accepted);
    (client.unwrap(), server.unwrap())
}

/// Everything of one exchange in a context.
pub(crate) async fn exchange(session: &PathSession, wanted: u8) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match session.next().await.unwrap().unwrap() {
            PathEvent::Received(Received::Data { context, data, .. }) if context == wanted => {
                all.extend_from_slice(&data);
            }
            PathEvent::Received(Received::Exchange { .. }) => return all,
            _ => {}
        }
    }
}
