//! The messages of the handshake (`docs/protocol.md`, "Messages of the handshake").

use levada_core::{Digest, SecretKey, Signature, label, label::derive, sha256};
use zeroize::Zeroizing;

use super::ContextError;
use super::frame::{self, Fields};
use super::kem::{self, Binding, OneTimeKey, open_once, seal_once};
use super::path::{Kem, Path};
use super::schedule::{Direction, Resume, Secret, Tag};
use crate::record::HEADER;

/// The most tickets that a server may send.
pub(crate) const MAX_TICKETS: u8 = 8;

/// MBHELLO: what a middlebox says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) hop: u8,
    pub(crate) proof: HelloProof,
}

/// How the middlebox proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelloProof {
    /// By its identity key, for a one-time key.
    Signed { key_hash: Digest, signature: Signature },
    /// By the secrets of an earlier session.
    Resumed { nonce: [u8; 32], for_client: Tag, for_server: Tag },
}

impl Hello {
    /// Signed by the middlebox `hop`, after the transcript `before` (L of the hop before it).
    pub(crate) fn signed(key: &SecretKey, hop: u8, before: &Digest, kem_key: &[u8]) -> Self {
        let key_hash = sha256(&[kem_key]);
        let message = signed_hello(hop, before, &key_hash);
        let signature = key.sign(label::MIDDLEBOX_HELLO, &message);
        Self { hop, proof: HelloProof::Signed { key_hash, signature } }
    }

    /// Tagged with the secrets of an earlier session. None without y.
    pub(crate) fn resumed(
        resume: &Resume,
        hop: u8,
        before: &Digest,
        nonce: [u8; 32],
    ) -> Option<Self> {
        let for_client = hello_tag(&resume.psk, hop, before, &nonce);
        let for_server = hello_tag(resume.y.as_ref()?, hop, before, &nonce);
        Some(Self { hop, proof: HelloProof::Resumed { nonce, for_client, for_server } })
    }

    pub(crate) fn is_resumed(&self) -> bool {
        matches!(self.proof, HelloProof::Resumed { .. })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match &self.proof {
            HelloProof::Signed { key_hash, signature } => {
                frame::put(out, frame::MBHELLO, &[&[self.hop, 1], key_hash, signature]);
            }
            HelloProof::Resumed { nonce, for_client, for_server } => {
                let parts: &[&[u8]] = &[&[self.hop, 2], nonce, for_client, for_server];
                frame::put(out, frame::MBHELLO, parts);
            }
        }
    }

    /// From a frame's body.
    pub(crate) fn take(body: &[u8]) -> Result<Self, ContextError> {
        let mut fields = Fields::new(body, "a MBHELLO");
        let [hop, mode] = fields.array()?;
        let proof = match mode {
            1 => HelloProof::Signed { key_hash: fields.array()?, signature: fields.array()? },
            2 => HelloProof::Resumed {
                nonce: fields.array()?,
                for_client: fields.array()?,
                for_server: fields.array()?,
            },
            _ => return Err(fields.error()),
        };
        fields.end()?;
        Ok(Self { hop, proof })
    }

    /// At the client: the signature under the key of PATH, or the tag under what the client kept.
    pub(crate) fn verify_at_client(
        &self,
        path: &Path,
        before: &Digest,
        psk: Option<&Secret>,
    ) -> Result<(), ContextError> {
        match &self.proof {
            HelloProof::Signed { .. } => self.verify_signature(path, before),
            HelloProof::Resumed { nonce, for_client, .. } => {
                let expected = psk.map(|psk| hello_tag(psk, self.hop, before, nonce));
                self.compare(expected, for_client)
            }
        }
    }

    /// At the server: the signature under the key of PATH, or the tag under y, which no client has.
    pub(crate) fn verify_at_server(
        &self,
        path: &Path,
        before: &Digest,
        y: Option<&Secret>,
    ) -> Result<(), ContextError> {
        match &self.proof {
            HelloProof::Signed { .. } => self.verify_signature(path, before),
            HelloProof::Resumed { nonce, for_server, .. } => {
                let expected = y.map(|y| hello_tag(y, self.hop, before, nonce));
                self.compare(expected, for_server)
            }
        }
    }

    fn compare(&self, expected: Option<Tag>, tag: &Tag) -> Result<(), ContextError> {
        let fits = expected.is_some_and(|expected| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&expected, tag).is_ok()
        });
        if fits { Ok(()) } else { Err(ContextError::forged_by("a MBHELLO", self.hop)) }
    }

    fn verify_signature(&self, path: &Path, before: &Digest) -> Result<(), ContextError> {
        let forged = ContextError::forged_by("a MBHELLO", self.hop);
        let HelloProof::Signed { key_hash, signature } = &self.proof else { return Err(forged) };
        let at = usize::from(self.hop).checked_sub(1);
        let Some(hop) = at.and_then(|at| path.hops.get(at)) else { return Err(forged) };
        let message = signed_hello(self.hop, before, key_hash);
        let verified = hop.party.identity.verify(label::MIDDLEBOX_HELLO, &message, signature);
        verified.map_err(|_| forged)
    }
}

/// L_{i-1} ‖ i ‖ 1 ‖ H(KEM key).
fn signed_hello(hop: u8, before: &Digest, key_hash: &Digest) -> Vec<u8> {
    [&before[..], &[hop, 1], key_hash].concat()
}

/// The tag of L_{i-1} ‖ i ‖ 2 ‖ nonce.
fn hello_tag(key: &Secret, hop: u8, before: &Digest, nonce: &[u8; 32]) -> Tag {
    key.derive(derive::HELLO, &[]).tag(&[before, &[hop, 2], nonce])
}

/// L_0: the frames PATH and ClientHello.
pub(crate) fn first_transcript(path: &[u8], client_hello: &[u8]) -> Digest {
    sha256(&[path, client_hello])
}

/// L_i, from L_{i-1} and the whole frame MBHELLO_i.
pub(crate) fn next_transcript(before: &Digest, hello: &[u8]) -> Digest {
    sha256(&[before, hello])
}

/// TH1: L_n and the hash of all TLS records of the server before ECHO.
pub(crate) fn th1(l: &Digest, flight: &Digest) -> Digest {
    sha256(&[l, flight])
}

/// TH2: TH1 and the whole frame SBIND.
pub(crate) fn th2(th1: &Digest, bind: &[u8]) -> Digest {
    sha256(&[th1, bind])
}

/// What the server sends one middlebox: a_i, z_i, and the server's halves.
pub(crate) struct Share {
    pub(crate) a: Secret,
    pub(crate) z: Secret,
    pub(crate) halves: Zeroizing<Vec<u8>>,
}

impl Share {
    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(64 + self.halves.len()));
        bytes.extend_from_slice(self.a.bytes());
        bytes.extend_from_slice(self.z.bytes());
        bytes.extend_from_slice(&self.halves);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (a, rest) = bytes.split_first_chunk()?;
        let (z, halves) = rest.split_first_chunk()?;
        let halves = Zeroizing::new(halves.to_vec());
        Some(Self { a: Secret::new(*a), z: Secret::new(*z), halves })
    }

    /// Appends SSHARE_i, sealed to a one-time key.
    pub(crate) fn put_sealed(
        &self,
        out: &mut Vec<u8>,
        (kem, key): (Kem, &[u8]),
        hop: u8,
        th1: &Digest,
    ) -> Result<(), ContextError> {
        let message = self.encode();
        let length = 1 + kem.output_len() + message.len() + kem::OVERHEAD;
        let binding = Binding { hop, th1, header: frame::header(frame::SSHARE, length) };
        let (output, sealed) = kem::seal(kem, key, &binding, &message)?;
        frame::put(out, frame::SSHARE, &[&[hop], &output, &sealed]);
        Ok(())
    }

    /// Appends SSHARE_i, sealed under y of an earlier session.
    pub(crate) fn put_resumed(
        &self,
        out: &mut Vec<u8>,
        y: &Secret,
        hop: u8,
        th1: &Digest,
    ) -> Result<(), ContextError> {
        let message = self.encode();
        let header = frame::header(frame::SSHARE, 1 + message.len() + kem::OVERHEAD);
        let aad = Binding { hop, th1, header }.aad();
        let sealed = seal_once(&y.derive(derive::SHARE, &[th1]), &aad, &message)?;
        frame::put(out, frame::SSHARE, &[&[hop], &sealed]);
        Ok(())
    }

    /// Opens a whole frame SSHARE_i that was sealed to a one-time key.
    pub(crate) fn open_sealed(
        kem: Kem,
        key: OneTimeKey,
        hop: u8,
        th1: &Digest,
        whole: &[u8],
    ) -> Result<Self, ContextError> {
        let (header, body) = split(whole)?;
        let mut fields = Fields::new(body, "a SSHARE");
        fields.byte()?;
        let output = fields.bytes(kem.output_len())?;
        let opened = key.open(&Binding { hop, th1, header }, output, fields.rest())?;
        Self::decode(&opened).ok_or(ContextError::Malformed("a SSHARE"))
    }

    /// Opens a whole frame SSHARE_i that was sealed under y.
    pub(crate) fn open_resumed(
        y: &Secret,
        hop: u8,
        th1: &Digest,
        whole: &[u8],
    ) -> Result<Self, ContextError> {
        let (header, body) = split(whole)?;
        let aad = Binding { hop, th1, header }.aad();
        let sealed = body.get(1..).ok_or(ContextError::Malformed("a SSHARE"))?;
        let opened = open_once(&y.derive(derive::SHARE, &[th1]), &aad, sealed)?;
        let opened = opened.ok_or(ContextError::forged("a server's share"))?;
        Self::decode(&opened).ok_or(ContextError::Malformed("a SSHARE"))
    }
}

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

    /// Verifies the proof for the client (`hop` 0, with E) or a middlebox (with y, if it is resumed).
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

/// The verdict on a session's start, for one middlebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) started: bool,
    /// Who may share stored answers; zeros: they must not be shared.
    pub(crate) realm: [u8; 16],
}

/// Bytes of a sealed [`Start`].
pub(crate) const START: usize = 33;

impl Start {
    /// `aad` is the header of READY_0 and its tag.
    pub(crate) fn seal(
        self,
        z: &Secret,
        th2: &Digest,
        aad: &[u8],
    ) -> Result<Vec<u8>, ContextError> {
        let mut message = [0; 17];
        message[0] = u8::from(self.started);
        message[1..].copy_from_slice(&self.realm);
        seal_once(&z.derive(derive::START, &[th2]), aad, &message)
    }

    pub(crate) fn open(
        z: &Secret,
        th2: &Digest,
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Self, ContextError> {
        let opened = open_once(&z.derive(derive::START, &[th2]), aad, sealed)?;
        let opened = opened.ok_or(ContextError::forged("a start"))?;
        match opened.split_first() {
            Some((verdict @ 0..=1, realm)) => {
                let realm = realm.try_into().map_err(|_| ContextError::Malformed("a start"))?;
                Ok(Self { started: *verdict == 1, realm })
            }
            _ => Err(ContextError::Malformed("a start")),
        }
    }
}

/// The header and body of a whole frame.
pub(crate) fn split(whole: &[u8]) -> Result<([u8; HEADER], &[u8]), ContextError> {
    let (header, body) =
        whole.split_first_chunk().ok_or(ContextError::Malformed("a short frame"))?;
    Ok((*header, body))
}

/// Appends CSHARE_i: the client's halves.
pub(crate) fn put_client_share(
    out: &mut Vec<u8>,
    a: &Secret,
    th2: &Digest,
    hop: u8,
    halves: &[u8],
) -> Result<(), ContextError> {
    let header = frame::header(frame::CSHARE, 1 + halves.len() + kem::OVERHEAD);
    let aad = Binding { hop, th1: th2, header }.aad();
    let sealed = seal_once(&a.derive(derive::CSHARE, &[th2]), &aad, halves)?;
    frame::put(out, frame::CSHARE, &[&[hop], &sealed]);
    Ok(())
}

/// Opens a whole frame CSHARE_i.
pub(crate) fn open_client_share(
    a: &Secret,
    th2: &Digest,
    hop: u8,
    whole: &[u8],
) -> Result<Zeroizing<Vec<u8>>, ContextError> {
    let (header, body) = split(whole)?;
    let aad = Binding { hop, th1: th2, header }.aad();
    let sealed = body.get(1..).ok_or(ContextError::Malformed("a CSHARE"))?;
    let opened = open_once(&a.derive(derive::CSHARE, &[th2]), &aad, sealed)?;
    opened.ok_or(ContextError::forged("a client's share"))
}

/// The direction in which a frame travels that an endpoint or middlebox receives from a side.
impl Direction {
    /// The other direction.
    pub fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}
