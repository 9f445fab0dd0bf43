//! Sessions with middleboxes, as `channel` makes them.

use std::sync::Arc;
use std::time::Instant;

use levada_channel::{ClientConfig, ServerConfig};
use levada_contexts::{
    Action, Context, Direction, Hop, HopSetup, HopTickets, Inspector, Kem, Party as PathParty,
    Path, PathConnection, PathEvent, PathSessions, PathTickets, Piece, Purpose, Received, Relay,
    Right, ServerPaths,
};
use levada_core::{SecretKey, SystemRandom};

use super::end::Exchange;
use super::line::Party;
use super::script::{Script, Step};

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
    /// What the middleboxes do with records in memory.
    pub inspector: fn() -> Box<dyn Inspector>,
}

impl Parties {
    /// A path with this many middleboxes, each with this right in every context. Without `resume`,
    /// the client forgets its tickets.
    pub fn new(
        kem: Kem,
        (hops, right): (usize, Right),
        purposes: &[Purpose],
        resume: bool,
    ) -> anyhow::Result<Self> {
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
        let context =
            |purpose: &Purpose| Context { purpose: *purpose, pad: 0, rights: vec![right; hops] };
        Ok(Self {
            client: ClientConfig::new(&*key()?)?,
            tickets: Arc::default(),
            path: Path {
                kem,
                server: party(&server),
                hops: setups.iter().map(hop).collect(),
                contexts: purposes.iter().map(context).collect(),
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
            inspector: || Box::new(Pass),
        })
    }

    /// What the client of a new connection needs.
    pub fn client(&self) -> (&ClientConfig, Arc<PathTickets>, Path) {
        if !self.resume {
            self.tickets.forget(&self.path.server.identity);
        }
        (&self.client, self.tickets.clone(), self.path.clone())
    }

    /// What middlebox `number` needs, counted from 0.
    pub fn hop(&self, number: usize) -> HopSetup {
        self.hops[number].clone()
    }

    /// What the server needs.
    pub fn server(&self) -> ServerPaths {
        self.server.clone()
    }

    /// A new connection of all parties, which exchange nothing.
    pub fn line(&self) -> anyhow::Result<Vec<Box<dyn Party + '_>>> {
        self.line_of(None)
    }

    /// A new connection with these exchanges.
    pub fn line_with(&self, exchanges: &[Exchange]) -> anyhow::Result<Vec<Box<dyn Party + '_>>> {
        self.line_of(Some([Script::client(exchanges), Script::server(exchanges)]))
    }

    /// A new connection whose ends follow scripts, the client's first.
    pub fn line_of(
        &self,
        scripts: Option<[Script; 2]>,
    ) -> anyhow::Result<Vec<Box<dyn Party + '_>>> {
        let [client_script, server_script] = scripts.map_or([None, None], |both| both.map(Some));
        let now = Instant::now();
        let (config, tickets, path) = self.client();
        let client = PathConnection::client(config, tickets, path, now)?;
        let mut line: Vec<Box<dyn Party + '_>> = vec![Box::new(End::new(client, client_script))];
        for number in 0..self.hops.len() {
            line.push(Box::new(Middle(Relay::new(self.hop(number), (self.inspector)(), now))));
        }
        let server = PathConnection::server(self.server(), now);
        line.push(Box::new(End::new(server, server_script)));
        Ok(line)
    }
}

/// The purposes of this many contexts, heads and bodies first.
pub fn purposes(contexts: usize) -> Vec<Purpose> {
    const FIRST: [Purpose; 4] =
        [Purpose::RequestHead, Purpose::RequestBody, Purpose::ResponseHead, Purpose::ResponseBody];
    (0..contexts).map(|number| FIRST.get(number).copied().unwrap_or(Purpose::Other)).collect()
}

/// Passes everything on.
pub struct Pass;

impl Inspector for Pass {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn record(&mut self, _: Piece<'_>) -> Action {
        Action::Pass
    }
}

/// Puts a copy in the place of each record, as a plug-in that changes data does.
pub struct Rewrite;

impl Inspector for Rewrite {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        Action::Replace(piece.data.to_vec())
    }
}

/// A client or a server, which starts the session at once.
struct End {
    connection: PathConnection,
    bound: bool,
    script: Option<Script>,
}

impl End {
    fn new(connection: PathConnection, script: Option<Script>) -> Self {
        Self { connection, bound: false, script }
    }

    fn send(&mut self, contexts: &[usize], longest: usize) -> anyhow::Result<()> {
        let all = (1u8..).zip(contexts.iter().copied()).filter(|(_, bytes)| *bytes > 0);
        let mut left: Vec<(u8, usize)> = all.collect();
        while !left.is_empty() {
            // A record ends where the next one has another context.
            for (context, bytes) in &mut left {
                let piece = (*bytes).min(longest);
                self.connection.write(*context, &vec![7; piece])?;
                *bytes -= piece;
                if *bytes == 0 {
                    self.connection.end(*context)?;
                }
            }
            left.retain(|(_, bytes)| *bytes > 0);
        }
        Ok(self.connection.finish()?)
    }
}

impl Party for End {
    fn receive(&mut self, _: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        let consumed = self.connection.receive(bytes, Instant::now())?;
        bytes.drain(..consumed);
        Ok(())
    }

    fn transmit(&mut self, _: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        self.connection.transmit(out);
        Ok(())
    }

    fn advance(&mut self) -> anyhow::Result<bool> {
        let mut advanced = false;
        while let Some(event) = self.connection.poll_event() {
            if matches!(event, PathEvent::Bound { .. }) {
                self.bound = true;
                // Only a server can start; a client's attempt is refused.
                advanced |= self.connection.start(true, None, Instant::now()).is_ok();
            }
            if matches!(event, PathEvent::Received(Received::Exchange { .. }))
                && let Some(script) = &mut self.script
            {
                script.received_message();
            }
        }
        let longest = self.script.as_ref().map_or(usize::MAX, Script::longest);
        let next = self.script.as_mut().filter(|_| self.bound).and_then(Script::next);
        match next {
            None => return Ok(advanced),
            Some(Step::Send(contexts)) => {
                let contexts = contexts.to_vec();
                self.send(&contexts, longest)?;
            }
            Some(Step::Close) => self.connection.close()?,
        }
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.script.as_ref().is_none_or(Script::is_done)
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
