//! SBIND: the server binds all parties to the transcript and the shares.

use levada_core::{Digest, Signature, label, label::derive};

use super::MAX_TICKETS;
use crate::ContextError;
use crate::frame::{self, Fields};
use crate::path::Path;
use crate::schedule::{Secret, Tag};
use levada_channel::parts::HEADER;

/// SBIND: binds all parties to the transcript and the shares.
pub(crate) struct Bind {
    /// How many tickets the server will send.
    pub(crate) tickets: u8,
    /// The hash of each SSHARE, as whole frames.
    pub(crate) shares: Vec<Digest>,
    pub(crate) proof: BindProof,
}

/// How the server proves SBIND.
pub(crate) enum BindProof {
    /// By its identity key.
    Signed(Signature),
    /// By a tag for each middlebox, and one for the client; only if all middleboxes are resumed.
    Tagged { hops: Vec<Tag>, client: Tag },
}

impl Bind {
    /// TH1 ‖ form ‖ tickets ‖ hashes: what the proof is over.
    pub(crate) fn covered(th1: &Digest, form: u8, tickets: u8, shares: &[Digest]) -> Vec<u8> {
        let mut covered = [&th1[..], &[form, tickets]].concat();
        covered.extend(shares.iter().flatten());
        covered
    }

    /// The whole frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.form(), self.tickets];
        body.extend(self.shares.iter().flatten());
        match &self.proof {
            BindProof::Signed(signature) => body.extend_from_slice(signature),
            BindProof::Tagged { hops, client } => {
                body.extend(hops.iter().flatten());
                body.extend_from_slice(client);
            }
        }
        let mut whole = Vec::with_capacity(HEADER + body.len());
        frame::put(&mut whole, frame::SBIND, &[&body]);
        whole
    }

    /// From a frame's body, on a path of `hops` middleboxes.
    pub(crate) fn take(body: &[u8], hops: usize) -> Result<Self, ContextError> {
        let mut fields = Fields::new(body, "a SBIND");
        let [form, tickets] = fields.array()?;
        if tickets > MAX_TICKETS {
            return Err(fields.error());
        }
        let mut shares = Vec::with_capacity(hops);
        for _ in 0..hops {
            shares.push(fields.array()?);
        }
        let proof = match form {
            1 => BindProof::Signed(fields.array()?),
            2 => {
                let mut tags = Vec::with_capacity(hops);
                for _ in 0..hops {
                    tags.push(fields.array()?);
                }
                BindProof::Tagged { hops: tags, client: fields.array()? }
            }
            _ => return Err(fields.error()),
        };
        fields.end()?;
        Ok(Self { tickets, shares, proof })
    }

    fn form(&self) -> u8 {
        match self.proof {
            BindProof::Signed(_) => 1,
            BindProof::Tagged { .. } => 2,
        }
    }

    /// Verifies the proof for the client (`hop` 0, with E) or a middlebox (with y, if it is
    /// resumed).
    pub(crate) fn verify(
        &self,
        path: &Path,
        th1: &Digest,
        hop: u8,
        secret: Option<&Secret>,
    ) -> Result<(), ContextError> {
        let covered = Self::covered(th1, self.form(), self.tickets, &self.shares);
        let verified = match (&self.proof, secret) {
            (BindProof::Signed(signature), _) => {
                #[cfg(test)]
                crate::tests::probe::public_key_operation();
                let server = &path.server.identity;
                server.verify(label::SERVER_BIND, &covered, signature).is_ok()
            }
            (BindProof::Tagged { hops, client }, Some(secret)) => {
                let at = usize::from(hop).checked_sub(1);
                let tag = at.map_or(Some(client), |at| hops.get(at));
                let key = secret.derive(derive::BIND, &[]);
                tag.is_some_and(|tag| key.verify(&[&covered], tag))
            }
            (BindProof::Tagged { .. }, None) => false,
        };
        if verified { Ok(()) } else { Err(ContextError::forged("a SBIND")) }
    }
}
