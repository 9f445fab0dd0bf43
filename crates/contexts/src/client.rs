//! The client's side of the handshake with middleboxes.

use std::sync::Arc;

use levada_core::{Digest, Hasher, Identity, label, label::derive};

use super::frame;
use super::messages::{
    self, Bind, BindProof, Hello, alert, each_hello, put_client_share, put_ready,
};
use super::path::{self, Path};
use super::schedule::{Classes, Direction, EndpointKeys, EndpointSecret, HopSecrets};
use super::tail::{Tail, put_records};
use super::tickets::{OneTicket, PathTickets};
use super::{ContextError, Role};
use levada_channel::ClientConfig;
use levada_channel::parts::Handshake;
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};
use levada_channel::parts::{Capture, Exporter};

/// What both endpoints have after the handshake.
pub(crate) struct Bound {
    pub(crate) keys: Arc<EndpointKeys>,
    pub(crate) peer: Identity,
    pub(crate) resumed: bool,
    pub(crate) exporter: Exporter,
    pub(crate) tail: Tail,
}

/// The handshake of a client, until SBIND was verified.
pub(crate) struct ClientHandshake {
    path: Path,
    tls: Handshake,
    store: Arc<OneTicket>,
    /// L: first L_0, then L_n.
    transcript: Digest,
    /// The hash of the server's TLS records.
    flight: Hasher,
    /// What rustls has written and must not leave before SBIND was verified.
    held: Vec<u8>,
    complete: bool,
    echo: Option<Vec<Hello>>,
}

impl ClientHandshake {
    /// Begins a session over `path`, whose resume ids are filled in from a ticket if there is one.
    /// Appends the first flight to `out`.
    pub(crate) fn new(
        config: &ClientConfig,
        tickets: &PathTickets,
        mut path: Path,
        out: &mut Vec<u8>,
    ) -> Result<Self, ContextError> {
        let server = path.server.identity;
        let ticket = tickets.take(&server);
        for hop in &mut path.hops {
            hop.resume = ticket.as_ref().and_then(|ticket| Some(ticket.of(&hop.party.identity)?.0));
        }
        let store = OneTicket::new(ticket);
        let whole = path.encode()?;
        let capture = Arc::new(Capture::default());
        let alpn = path::alpn(&whole);
        let (tls, name) = config.for_path(&server, alpn, store.clone(), capture.clone())?;
        let mut hello = Vec::new();
        let protocol = label::CONTEXTS_ALPN.as_bytes();
        let tls = Handshake::client_with(tls, name, capture, Some(server), protocol, &mut hello)?;
        let transcript = messages::first_transcript(&whole, &hello);
        out.extend_from_slice(&whole);
        out.extend_from_slice(&hello);
        Ok(Self {
            path,
            tls,
            store,
            transcript,
            flight: Hasher::default(),
            held: Vec::new(),
            complete: false,
            echo: None,
        })
    }

    /// What the client waits for; the server sends all of it, after every middlebox has added its
    /// part to the first flight.
    pub(crate) fn awaited(&self) -> (&'static str, Role) {
        let what = match (self.complete, &self.echo) {
            (false, _) => "its TLS flight",
            (true, None) => "ECHO",
            (true, Some(_)) => "SBIND",
        };
        (what, Role::Server)
    }

    pub(crate) fn store(&self) -> Arc<OneTicket> {
        self.store.clone()
    }

    /// Takes a whole frame. After SBIND it appends the second flight to `out` and is over.
    pub(crate) fn receive(
        mut self,
        whole: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step<Self>, ContextError> {
        let (header, body) = messages::split(whole)?;
        match header[0] {
            ALERT | HANDSHAKE | DATA if self.echo.is_none() && !self.complete => {
                self.flight.update(whole);
                self.complete = self.tls.receive(whole, &mut self.held)?;
            }
            // The server may still refuse, with an alert of TLS.
            frame::ECHO if self.complete && self.echo.is_none() => self.receive_echo(body)?,
            frame::SBIND if self.echo.is_some() => {
                return self
                    .receive_bind(whole, body, out)
                    .map(|bound| Step::Done(Box::new(bound)));
            }
            frame::ALERT => return Err(alert(body)),
            _ => return Err(ContextError::Unexpected("a frame before the server's SBIND")),
        }
        Ok(Step::More(self))
    }

    fn receive_echo(&mut self, body: &[u8]) -> Result<(), ContextError> {
        let mut hellos = Vec::new();
        let ticket = self.store.ticket.as_ref();
        each_hello(body, &self.path, &mut self.transcript, |hop, hello, before| {
            let kept = ticket.and_then(|ticket| ticket.of(&hop.party.identity));
            let named = kept.filter(|(id, _)| hop.resume == Some(*id));
            hello.verify_at_client(&self.path, before, named.map(|(_, psk)| psk))?;
            hellos.push(hello);
            Ok(())
        })?;
        self.echo = Some(hellos);
        Ok(())
    }

    fn receive_bind(
        self,
        whole: &[u8],
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Bound, ContextError> {
        let bind = Bind::take(body, self.path.hops.len())?;
        let all_resumed = self.echo.iter().flatten().all(Hello::is_resumed);
        if matches!(bind.proof, BindProof::Tagged { .. }) && !all_resumed {
            return Err(ContextError::forged("a SBIND without a signature"));
        }
        let th1 = messages::th1(&self.transcript, &self.flight.finish());
        let exporter = self.tls.exporter()?;
        let secret = EndpointSecret::new(&exporter, &th1)?;
        bind.verify(&self.path, &th1, 0, Some(&secret.0))?;
        let th2 = messages::th2(&th1, whole);
        let classes = Classes::new(&self.path);
        let aes = is_aes(&self.tls)?;
        // It checks the protocol and the server's key; nothing leaves before.
        let peer = self.tls.peer()?;
        let resumed = self.tls.is_resumed();
        put_records(out, &self.held, false)?;
        put_ready(out, 0, &secret.ready(Direction::ToServer, &th2), &[]);
        let mut hops = Vec::new();
        for (number, _) in (1..).zip(&self.path.hops) {
            let a = secret.a(number);
            let halves = secret.halves(&classes, number, derive::CLIENT_HALF);
            put_client_share(out, &a, &th2, number, &halves)?;
            hops.push(HopSecrets { a, z: None });
        }
        let keys = EndpointKeys { path: self.path, classes, secret, th2, aes, hops };
        let keys = Arc::new(keys);
        let tail = Tail::new(self.tls);
        Ok(Bound { keys, peer, resumed, exporter, tail })
    }
}

/// The result of a frame of the handshake.
pub(crate) enum Step<Handshake> {
    /// More frames are needed.
    More(Handshake),
    /// The handshake is over on this side.
    Done(Box<Bound>),
}

/// Whether TLS has chosen AES-256-GCM.
pub(crate) fn is_aes(tls: &Handshake) -> Result<bool, ContextError> {
    let suite = tls.suite()?.common.suite;
    Ok(suite == rustls::CipherSuite::TLS13_AES_256_GCM_SHA384)
}
