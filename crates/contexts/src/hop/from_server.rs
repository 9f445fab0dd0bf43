//! What a middlebox receives from the server's side during the handshake.

use std::time::Instant;

use levada_core::sha256;

use super::{First, FromClient, FromServer, HopBound, HopHandshake, NO_PATH, NO_SECRET};
use crate::ContextError;
use crate::frame;
use crate::messages::{self, Bind, BindProof, START, Share, Start, alert, each_hello, put_ready};
use crate::schedule::{Classes, Direction, HopSecrets};
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};

impl HopHandshake {
    /// Takes a whole frame from the server's side; appends what goes to the client to `out`.
    pub(crate) fn receive_from_server(
        &mut self,
        whole: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        if self.from_client == FromClient::Path {
            return Err(ContextError::Unexpected("a frame of the server before the client's"));
        }
        let (header, body) = messages::split(whole)?;
        match (header[0], self.from_server) {
            (HANDSHAKE | DATA | ALERT, FromServer::Flight) => {
                if header[0] == HANDSHAKE && self.suite.is_none() {
                    self.suite = chosen_suite(body);
                }
                self.flight.update(whole);
                out.extend_from_slice(whole);
            }
            (frame::ECHO, FromServer::Flight) => {
                self.receive_echo(body)?;
                out.extend_from_slice(whole);
                self.from_server = FromServer::Share(1);
            }
            (frame::SSHARE, FromServer::Share(hop)) if body.first() == Some(&hop) => {
                if hop == self.number() {
                    self.share = Some(whole.to_vec());
                    self.from_server = FromServer::Bind;
                } else {
                    out.extend_from_slice(whole);
                    self.from_server = FromServer::Share(hop + 1);
                }
            }
            (frame::SBIND, FromServer::Bind) => {
                self.receive_bind(whole, body)?;
                out.extend_from_slice(whole);
                self.from_server = FromServer::Start;
            }
            (frame::READY, FromServer::Start) => {
                out.extend_from_slice(whole);
                let hops = self.receive_start(whole)?;
                self.ready_in_turn(hops, out, now)?;
            }
            (frame::READY, FromServer::Ready(hop)) if body.first() == Some(&hop) => {
                out.extend_from_slice(whole);
                self.ready_in_turn(hop - 1, out, now)?;
            }
            (frame::ALERT, _) => return Err(alert(body)),
            _ => return Err(ContextError::Unexpected("a frame of the server's handshake")),
        }
        Ok(())
    }

    fn receive_echo(&mut self, body: &[u8]) -> Result<(), ContextError> {
        let first = self.first.as_ref().ok_or(NO_PATH)?;
        let mut transcript = first.l_0;
        let mut own = Vec::new();
        each_hello(body, &first.path, &mut transcript, |_, hello, before| {
            if hello.hop == first.number && *before == first.before {
                hello.put(&mut own);
            }
            Ok(())
        })?;
        if own != first.own || own.is_empty() {
            return Err(ContextError::forged("an ECHO without this middlebox's own message"));
        }
        self.l_n = transcript;
        Ok(())
    }

    /// Verifies SBIND under the server's key of PATH, or under y; only then the share is opened.
    fn receive_bind(&mut self, whole: &[u8], body: &[u8]) -> Result<(), ContextError> {
        let First { path, number, key, resume, .. } = self.first.take().ok_or(NO_PATH)?;
        let bind = Bind::take(body, path.hops.len())?;
        let flight = std::mem::take(&mut self.flight).finish();
        let th1 = messages::th1(&self.l_n, &flight);
        // A resumption that the server did not join is fatal, and so is one that this middlebox did
        // not.
        let y = if key.is_some() { None } else { resume.as_ref().and_then(|kept| kept.y.as_ref()) };
        if matches!(bind.proof, BindProof::Tagged { .. }) && y.is_none() {
            return Err(ContextError::forged("a SBIND without a signature"));
        }
        bind.verify(&path, &th1, number, y)?;
        let share = self.share.take().ok_or(ContextError::Unexpected("a SBIND before SSHARE"))?;
        if bind.shares.get(usize::from(number) - 1) != Some(&sha256(&[&share])) {
            return Err(ContextError::forged("a share that SBIND does not cover"));
        }
        let opened = match (key, y) {
            (Some(key), _) => Share::open_sealed(path.kem, &key, number, &th1, &share)?,
            (None, Some(y)) => Share::open_resumed(y, number, &th1, &share)?,
            (None, None) => return Err(NO_SECRET),
        };
        let classes = Classes::new(&path);
        // Here, and not with the client's halves: this share is the server's.
        if opened.halves.len() != 32 * classes.of_hop(number).count() {
            return Err(ContextError::Malformed("the halves in a SSHARE"));
        }
        self.bound = Some(HopBound {
            classes,
            number,
            secrets: HopSecrets { a: opened.a, z: Some(opened.z) },
            server_halves: opened.halves,
            th2: messages::th2(&th1, whole),
            tickets: bind.tickets,
            resumed: y.is_some(),
            aes: match self.suite {
                Some(0x1302) => true,
                Some(0x1303) => false,
                _ => return Err(ContextError::Malformed("a ServerHello with another cipher")),
            },
            path,
        });
        Ok(())
    }

    /// Opens the own part of the server's READY. Returns how many hops there are.
    fn receive_start(&mut self, whole: &[u8]) -> Result<u8, ContextError> {
        const WHAT: ContextError = ContextError::Malformed("the starts in a READY");
        let bound = self.bound.as_ref().ok_or(ContextError::Unexpected("a READY before SBIND"))?;
        let (header, body) = messages::split(whole)?;
        let (tag, starts) = body.split_at_checked(17).ok_or(WHAT)?;
        let (starts, rest) = starts.as_chunks::<START>();
        if tag[0] != 0 || starts.len() != bound.path.hops.len() || !rest.is_empty() {
            return Err(WHAT);
        }
        let z = bound.secrets.z.as_ref().ok_or(NO_SECRET)?;
        let aad = [&header[..], &tag[1..]].concat();
        let own = &starts[usize::from(bound.number) - 1];
        self.start = Some(Start::open(z, &bound.th2, &aad, own)?);
        u8::try_from(starts.len()).map_err(|_| WHAT)
    }

    /// After READY of hop `next` + 1: appends the own one if it is this middlebox's turn, and keeps
    /// what a later session needs.
    fn ready_in_turn(
        &mut self,
        next: u8,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let bound = self.bound.as_ref().ok_or(ContextError::Unexpected("a READY before SBIND"))?;
        if next != bound.number {
            self.from_server = FromServer::Ready(next);
            return Ok(());
        }
        if self.keys.is_none() {
            return Err(ContextError::Unexpected(
                "a READY of the server before the client's share",
            ));
        }
        let HopBound { secrets, th2, path, .. } = bound;
        let tag = secrets.ready(Direction::ToClient, th2).ok_or(NO_SECRET)?;
        put_ready(out, bound.number, &tag, &[]);
        if self.start.is_some_and(|start| start.started) {
            for ticket in 0..bound.tickets {
                let resume = secrets.resume(ticket, th2);
                self.setup.tickets.insert(path.server.identity, resume, now);
            }
        }
        self.from_server = FromServer::Open;
        Ok(())
    }
}

/// The cipher suite in a ServerHello (RFC 8446 section 4.1.3): header 4, version 2, random 32,
/// session id 1 + n, suite 2. TH1 covers it, so SBIND authenticates it.
fn chosen_suite(message: &[u8]) -> Option<u16> {
    const SERVER_HELLO: u8 = 2;
    let rest = message.get(38..).filter(|_| message[0] == SERVER_HELLO)?;
    let (&length, rest) = rest.split_first()?;
    let suite = rest.get(usize::from(length)..)?.first_chunk()?;
    Some(u16::from_be_bytes(*suite))
}
