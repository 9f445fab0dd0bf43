//! Sessions with middleboxes, as `channel` makes them.

use std::sync::Arc;
use std::time::Instant;

use levada_channel::contexts::{
    Action, Context, Direction, Hop, HopSetup, HopTickets, Inspector, Kem, Party as PathParty,
    Path, PathConnection, PathEvent, PathSessions, PathTickets, Piece, Purpose, Relay, Right,
    ServerPaths,
};
use levada_channel::{ClientConfig, ServerConfig};
use levada_core::{SecretKey, SystemRandom};

use super::line::Party;

/// The tickets of a session: as many as rustls issues.
const TICKETS: u8 = 2;

/// The keys and stores of a client, middleboxes and a server.
pub struct Parties {
    client: ClientConfig,
    tickets: Arc<PathTickets>,
    hops: Vec<HopSetup>,
    server: ServerPaths,
    path: Path,
    resume: bool,
}

impl Parties {
    /// A path with this many middleboxes, each with write in all of `contexts` contexts. Without `resume`, the client forgets its tickets.
    pub fn new(kem: Kem, hops: usize, contexts: usize, resume: bool) -> anyhow::Result<Self> {
        let key = || anyhow::Ok(Arc::new(SecretKey::generate(&SystemRandom)?));
        let mut setups = Vec::new();
        for _ in 0..hops {
            let tickets = Arc::new(HopTickets::new(HopTickets::MAX_LIFETIME));
            setups.push(HopSetup { key: key()?, tickets, policy: Arc::new(|_, _| Ok(())) });
        }
        let server = key()?;
        let party = |key: &SecretKey| PathParty {
            identity: key.identity(),
            address: "host.example:5382".to_owned(),
        };
        let hop = |setup: &HopSetup| Hop { party: party(&setup.key), resume: None };
        let purposes = [
            Purpose::RequestHead,
            Purpose::RequestBody,
            Purpose::ResponseHead,
            Purpose::ResponseBody,
        ];
        let context = |number: usize| Context {
            purpose: purposes.get(number).copied().unwrap_or(Purpose::Other),
            pad: 0,
            rights: vec![Right::Write; hops],
        };
        Ok(Self {
            client: ClientConfig::new(&*key()?)?,
            tickets: Arc::default(),
            path: Path {
                kem,
                server: party(&server),
                hops: setups.iter().map(hop).collect(),
                contexts: (0..contexts).map(context).collect(),
            },
            hops: setups,
            server: ServerPaths {
                config: Arc::new(ServerConfig::new(&server)?),
                key: server,
                sessions: Arc::new(PathSessions::default()),
                tickets: TICKETS,
                policy: Arc::new(|_| Ok(())),
            },
            resume,
        })
    }

    /// A new connection of all parties.
    pub fn line(&self) -> anyhow::Result<Vec<Box<dyn Party + '_>>> {
        if !self.resume {
            self.tickets.forget(&self.path.server.identity);
        }
        let now = Instant::now();
        let (path, tickets) = (self.path.clone(), self.tickets.clone());
        let client = PathConnection::client(&self.client, tickets, path, now)?;
        let mut line: Vec<Box<dyn Party + '_>> = vec![Box::new(End(client))];
        for setup in &self.hops {
            line.push(Box::new(Middle(Relay::new(setup.clone(), Box::new(Pass), now))));
        }
        line.push(Box::new(End(PathConnection::server(self.server.clone(), now))));
        Ok(line)
    }
}

struct Pass;

impl Inspector for Pass {
    fn record(&mut self, _: Piece<'_>) -> Action {
        Action::Pass
    }
}

/// A client or a server, which starts the session at once.
struct End(PathConnection);

impl Party for End {
    fn receive(&mut self, _: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let consumed = self.0.receive(bytes, Instant::now())?;
        bytes.drain(..consumed);
        Ok(())
    }

    fn transmit(&mut self, _: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        self.0.transmit(out);
        Ok(())
    }

    fn advance(&mut self) -> anyhow::Result<bool> {
        let mut started = false;
        while let Some(event) = self.0.poll_event() {
            // Only a server can start; a client's attempt is refused.
            if matches!(event, PathEvent::Bound { .. }) {
                started |= self.0.start(true, None, Instant::now()).is_ok();
            }
        }
        Ok(started)
    }
}

struct Middle(Relay);

impl Party for Middle {
    fn receive(&mut self, forward: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let consumed = self.0.receive(direction(forward), bytes, Instant::now())?;
        bytes.drain(..consumed);
        Ok(())
    }

    fn transmit(&mut self, forward: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        self.0.transmit(direction(forward), out);
        Ok(())
    }
}

fn direction(forward: bool) -> Direction {
    if forward { Direction::ToServer } else { Direction::ToClient }
}
