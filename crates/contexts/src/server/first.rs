//! The first flight at a server: PATH, ClientHello, and what the middleboxes add.

use levada_core::{Digest, Identity, sha256};

use super::paths::ServerPaths;
use crate::frame::Fields;
use crate::messages::{self, Hello, HelloProof};
use crate::path::{Path, ResumeId};
use crate::schedule::Secret;
use crate::{ContextError, Role};

/// What the first flight consists of.
pub(super) struct First {
    pub(super) path: Path,
    pub(super) path_frame: Vec<u8>,
    pub(super) client_hello: Vec<u8>,
    pub(super) transcript: Digest,
    pub(super) hellos: Vec<Hello>,
    pub(super) echo: Vec<u8>,
    /// The KEM key of each hop; empty for a resumed one.
    pub(super) keys: Vec<Vec<u8>>,
}

impl First {
    /// From a whole frame PATH, which the server's policy must allow.
    pub(super) fn new(paths: &ServerPaths, whole: &[u8]) -> Result<Self, ContextError> {
        let path = Path::decode(whole)?;
        if path.server.identity != paths.key.identity() {
            return Err(ContextError::Refused("the path leads to another server".to_owned()));
        }
        (paths.policy)(&path).map_err(ContextError::Refused)?;
        Ok(Self {
            path,
            path_frame: whole.to_vec(),
            client_hello: Vec::new(),
            transcript: Digest::default(),
            hellos: Vec::new(),
            echo: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// What is next: the part of a middlebox.
    pub(super) fn awaited(&self) -> (&'static str, Role) {
        let hop = |number: usize| Role::Middlebox(u8::try_from(number).unwrap_or(u8::MAX));
        if self.keys.len() < self.hellos.len() {
            ("MBKEY", hop(self.hellos.len()))
        } else {
            ("MBHELLO", hop(self.hellos.len() + 1))
        }
    }

    /// Memory in bytes, about; the decoded path takes as much as its frame.
    pub(super) fn memory(&self) -> usize {
        let keys: usize = self.keys.iter().map(Vec::capacity).sum();
        2 * self.path_frame.len() + self.client_hello.capacity() + 2 * self.echo.capacity() + keys
    }

    pub(super) fn receive_client_hello(&mut self, whole: &[u8]) {
        self.transcript = messages::first_transcript(&self.path_frame, whole);
        self.client_hello = whole.to_vec();
    }

    pub(super) fn receive_hello(&mut self, whole: &[u8], body: &[u8]) -> Result<(), ContextError> {
        if self.keys.len() != self.hellos.len() {
            return Err(ContextError::Unexpected("a MBHELLO where a MBKEY belongs"));
        }
        let hello = Hello::take(body)?;
        if usize::from(hello.hop) != self.hellos.len() + 1 {
            return Err(ContextError::Unexpected("a MBHELLO of another middlebox"));
        }
        if hello.is_resumed() {
            self.keys.push(Vec::new());
        }
        self.hellos.push(hello);
        self.echo.extend_from_slice(whole);
        Ok(())
    }

    pub(super) fn receive_key(&mut self, body: &[u8]) -> Result<(), ContextError> {
        let Some(Hello { hop, proof: HelloProof::Signed { key_hash, .. } }) = self.hellos.last()
        else {
            return Err(ContextError::Unexpected("a MBKEY without its MBHELLO"));
        };
        let mut fields = Fields::new(body, "a MBKEY");
        let of = fields.byte()?;
        let key = fields.rest();
        if of != *hop || self.keys.len() + 1 != self.hellos.len() {
            return Err(ContextError::Unexpected("a MBKEY without its MBHELLO"));
        }
        if key.len() != self.path.kem.key_len() || sha256(&[key]) != *key_hash {
            return Err(ContextError::forged_by("a MBKEY", of));
        }
        self.keys.push(key.to_vec());
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.keys.len() == self.path.hops.len() && self.hellos.len() == self.keys.len()
    }

    /// Verifies every MBHELLO; `kept` is what was kept beside the TLS session that is resumed. The
    /// transcript becomes L_n. Returns y of each resumed hop.
    pub(super) fn verify(
        &mut self,
        kept: &[(Identity, ResumeId, Secret)],
    ) -> Result<Vec<Option<Secret>>, ContextError> {
        let mut transcript = self.transcript;
        let mut keys = Vec::new();
        messages::each_hello(&self.echo, &self.path, &mut transcript, |hop, hello, before| {
            let kept = kept.iter().find(|(key, ..)| *key == hop.party.identity);
            let kept = kept.filter(|(_, id, _)| hop.resume == Some(*id));
            let y = kept.map(|(.., y)| y.clone());
            hello.verify_at_server(&self.path, before, y.as_ref())?;
            keys.push(y.filter(|_| hello.is_resumed()));
            Ok(())
        })?;
        self.transcript = transcript;
        Ok(keys)
    }
}
