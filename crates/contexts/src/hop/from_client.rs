//! What a middlebox receives from the client's side during the handshake.

use std::time::Instant;

use levada_core::{Digest, Random, SystemRandom};

use super::{First, FromClient, HopBound, HopHandshake, NO_PATH, NO_SECRET};
use crate::ContextError;
use crate::frame;
use crate::kem::OneTimeKey;
use crate::messages::{self, Hello, alert, open_client_share, put_ready};
use crate::path::Path;
use crate::schedule::Direction;
use levada_channel::Error;
use levada_channel::parts::{ALERT, DATA, HANDSHAKE};

impl HopHandshake {
    /// Takes a whole frame from the client's side; appends what goes to the server to `out`.
    pub(crate) fn receive_from_client(
        &mut self,
        whole: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let (header, body) = messages::split(whole)?;
        match (header[0], self.from_client) {
            (frame::PATH, FromClient::Path) => {
                self.receive_path(whole)?;
                out.extend_from_slice(whole);
                self.from_client = FromClient::ClientHello;
            }
            (HANDSHAKE, FromClient::ClientHello) => {
                out.extend_from_slice(whole);
                let first = self.first.as_mut().ok_or(NO_PATH)?;
                first.l_0 = messages::first_transcript(&first.whole, whole);
                first.before = first.l_0;
                self.from_client = FromClient::Hello { hop: 1, key: false };
                self.answer_in_turn(1, out, now)?;
            }
            (frame::MBHELLO, FromClient::Hello { hop, key: false }) => {
                out.extend_from_slice(whole);
                self.pass_hello(whole, body, hop, out, now)?;
            }
            (frame::MBKEY, FromClient::Hello { hop, key: true }) => {
                out.extend_from_slice(whole);
                self.from_client = FromClient::Hello { hop: hop + 1, key: false };
                self.answer_in_turn(hop + 1, out, now)?;
            }
            (DATA | ALERT, FromClient::Second) => out.extend_from_slice(whole),
            (frame::READY, FromClient::Second) if body.first() == Some(&0) => {
                out.extend_from_slice(whole);
                self.from_client = self.after_ready(0);
            }
            (frame::READY, FromClient::Ready(hop)) if body.first() == Some(&hop) => {
                out.extend_from_slice(whole);
                self.from_client = self.after_ready(hop);
            }
            (frame::CSHARE, FromClient::Share(hop)) if body.first() == Some(&hop) => {
                self.receive_client_share(whole, hop, out)?;
            }
            (frame::ALERT, _) => return Err(alert(body)),
            _ => return Err(ContextError::Unexpected("a frame of the client's handshake")),
        }
        Ok(())
    }

    fn after_ready(&self, hop: u8) -> FromClient {
        if hop + 1 == self.number() {
            FromClient::Share(hop + 1)
        } else {
            FromClient::Ready(hop + 1)
        }
    }

    fn receive_path(&mut self, whole: &[u8]) -> Result<(), ContextError> {
        let path = Path::decode(whole)?;
        let own = self.setup.key.identity();
        // Keys in a PATH are distinct, so there is at most one place.
        let at = path.hops.iter().position(|hop| hop.party.identity == own);
        let at = at.ok_or(ContextError::Refused("the path does not lead here".to_owned()))?;
        let number = u8::try_from(at + 1).unwrap_or(u8::MAX);
        let refused = (self.setup.policy)(&path, number).map_err(ContextError::Refused);
        // Also before a refusal, whose ALERT names this middlebox.
        self.first = Some(First {
            path,
            whole: whole.to_vec(),
            number,
            l_0: Digest::default(),
            before: Digest::default(),
            own: Vec::new(),
            key: None,
            resume: None,
        });
        refused
    }

    /// Passes on the MBHELLO of a hop before this one.
    fn pass_hello(
        &mut self,
        whole: &[u8],
        body: &[u8],
        hop: u8,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let hello = Hello::take(body)?;
        if hello.hop != hop {
            return Err(ContextError::Unexpected("a MBHELLO of another middlebox"));
        }
        let first = self.first.as_mut().ok_or(NO_PATH)?;
        first.before = messages::next_transcript(&first.before, whole);
        if !hello.is_resumed() {
            self.from_client = FromClient::Hello { hop, key: true };
            return Ok(());
        }
        self.from_client = FromClient::Hello { hop: hop + 1, key: false };
        self.answer_in_turn(hop + 1, out, now)
    }

    /// Appends the own MBHELLO and MBKEY if it is this middlebox's turn.
    fn answer_in_turn(
        &mut self,
        hop: u8,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let Self { first, setup, .. } = self;
        let first = first.as_mut().ok_or(NO_PATH)?;
        if hop != first.number {
            return Ok(());
        }
        let id = first.path.hops[usize::from(hop) - 1].resume;
        let server = &first.path.server.identity;
        first.resume = id.and_then(|id| setup.tickets.take(server, &id, now));
        let mut nonce = [0; 32];
        SystemRandom.fill(&mut nonce).map_err(|_| Error::Internal("no random bytes"))?;
        let resumed = first.resume.as_ref();
        let resumed = resumed.and_then(|resume| Hello::resumed(resume, hop, &first.before, nonce));
        let start = out.len();
        if let Some(hello) = resumed {
            hello.put(out);
            first.own = out[start..].to_vec();
        } else {
            let key = OneTimeKey::generate(first.path.kem)?;
            Hello::signed(&setup.key, hop, &first.before, key.public()).put(out);
            first.own = out[start..].to_vec();
            frame::put(out, frame::MBKEY, &[&[hop], key.public()]);
            first.key = Some(key);
        }
        self.from_client = FromClient::Second;
        Ok(())
    }

    /// Opens the own CSHARE, and proves to the server that this middlebox has the keys; passes on
    /// those of later hops.
    fn receive_client_share(
        &mut self,
        whole: &[u8],
        hop: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let bound = self.bound.as_ref().ok_or(ContextError::Unexpected("a CSHARE before SBIND"))?;
        if hop == bound.number {
            let HopBound { secrets, th2, classes, server_halves, .. } = bound;
            let halves = open_client_share(&secrets.a, th2, hop, whole)?;
            let keys = classes.keys_of_hop(hop, &halves, server_halves, th2);
            self.keys = Some(keys.ok_or(ContextError::Malformed("a CSHARE"))?);
            let tag = secrets.ready(Direction::ToServer, th2).ok_or(NO_SECRET)?;
            put_ready(out, hop, &tag, &[]);
        } else {
            out.extend_from_slice(whole);
        }
        let last = usize::from(hop) == bound.path.hops.len();
        self.from_client = if last { FromClient::Open } else { FromClient::Share(hop + 1) };
        Ok(())
    }
}
