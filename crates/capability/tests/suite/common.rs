//! A node and identities with fixed keys, and a forger that encodes links itself.

use levada_capability::{
    Capability, Chain, Context, LinkBody, Narrowing, Operation, Presented, Rights, SessionId,
    Verified, VerifyError, mint, verify,
};
use levada_core::{Identity, Params, SecretKey, UnixTime, hmac_sha256, sha256, wire};
use zeroize::Zeroizing;

pub const ROOT: [u8; 32] = [0x52; 32];
pub const EXPORTER: [u8; 32] = [0x45; 32];
pub const SESSION: SessionId = SessionId::from_bytes([0x53; 16]);
pub const EXPIRES: UnixTime = UnixTime(2_000_000_000);
pub const NOW: UnixTime = UnixTime(1_900_000_000);

pub const NODE: u8 = 1;
pub const ALICE: u8 = 2;
pub const BOB: u8 = 3;
pub const CAROL: u8 = 4;
pub const MALLORY: u8 = 9;

pub fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Zeroizing::new([seed; 32])).unwrap()
}

pub fn identity(seed: u8) -> Identity {
    key(seed).identity()
}

pub fn params(pairs: &[(&str, &[u8])]) -> Params {
    let mut params = Params::new();
    for (key, value) in pairs {
        params.add(key, value.to_vec()).unwrap();
    }
    params
}

pub fn body(holder: u8, rights: Rights) -> LinkBody {
    LinkBody {
        identity: identity(holder),
        rights,
        expires: EXPIRES,
        uses: 3,
        max_run: None,
        params: params(&[("a", b"1")]),
    }
}

/// A capability of one link, as the answer to a request.
pub fn minted(holder: u8, rights: Rights) -> Capability {
    minted_from(&ROOT, SESSION, &body(holder, rights))
}

pub fn minted_from(root: &[u8; 32], session: SessionId, body: &LinkBody) -> Capability {
    let (link, secret) = mint(root, body, identity(NODE), session).unwrap();
    let granted = wire::Granted { link, secret: secret.to_vec(), framing: "auto".into() };
    Capability::from_granted(granted, "echo".into(), vec!["127.0.0.1:5382".into()]).unwrap()
}

pub fn passed_on(capability: &Capability, from: u8, to: u8, rights: Rights) -> Capability {
    capability.grant(&key(from), identity(to), Narrowing::to_rights(rights)).unwrap()
}

/// Alice grants to Bob and Bob to Carol, each time narrowed.
pub fn chain_of_three() -> Capability {
    let alice = minted(ALICE, Rights::ALL);
    let to_bob = Narrowing {
        rights: Rights::EXECUTE | Rights::DISTRIBUTE,
        expires: Some(UnixTime(EXPIRES.0 - 1)),
        uses: Some(2),
        max_run: None,
        params: params(&[("b", b"2")]),
    };
    let bob = alice.grant(&key(ALICE), identity(BOB), to_bob).unwrap();
    passed_on(&bob, BOB, CAROL, Rights::EXECUTE)
}

pub fn context(peer: u8, operation: Operation) -> Context<'static> {
    let node = identity(NODE);
    let peer = identity(peer);
    Context { node, peer, exporter: &EXPORTER, operation, now: NOW }
}

/// The decision of the node when `peer` presents `capability` correctly.
pub fn present(
    capability: &Capability,
    peer: u8,
    operation: Operation,
) -> Result<Verified, VerifyError> {
    check(capability.present(&EXPORTER, operation), &context(peer, operation))
}

/// The decision of the node about a message.
pub fn check(message: wire::Presentation, context: &Context<'_>) -> Result<Verified, VerifyError> {
    verify(&Presented::decode(message)?, &ROOT, context)
}

/// The parts of a capability, which an attacker combines freely.
#[derive(Clone, Default)]
pub struct Forger {
    pub links: Vec<Vec<u8>>,
    pub signatures: Vec<Vec<u8>>,
    pub secret: [u8; 32],
}

impl Forger {
    /// A forger with the root of the session, which only the node has: its links are genuine.
    pub fn with_root() -> Self {
        Self { secret: ROOT, ..Self::default() }
    }

    /// A forger with the text of a capability, including its secret.
    pub fn with_text(capability: &Capability) -> Self {
        let message = capability.present(&EXPORTER, Operation::Connect);
        let secret = secret_of(capability);
        Self { links: message.links, signatures: message.signatures, secret }
    }

    /// Adds a link, signed by `signer` unless it is the first.
    pub fn push(&mut self, body: &LinkBody, signer: u8) {
        let mut link = b"levada/1 link".to_vec();
        link.extend_from_slice(body.identity.as_bytes());
        link.push(body.rights.byte());
        link.extend_from_slice(&body.expires.0.to_be_bytes());
        link.extend_from_slice(&body.uses.to_be_bytes());
        let params = body.params.encode();
        link.extend_from_slice(&(params.len() as u32).to_be_bytes());
        link.extend_from_slice(&params);
        let first = self.links.is_empty();
        if first {
            link.extend_from_slice(identity(NODE).as_bytes());
            link.extend_from_slice(SESSION.as_bytes());
        }
        self.push_raw(link);
        if !first {
            let digest = sha256(&[&self.links.concat()]);
            self.signatures.push(key(signer).sign("link", &digest).to_vec());
        }
    }

    pub fn push_raw(&mut self, link: Vec<u8>) {
        self.secret = hmac_sha256(&self.secret, &[&link]);
        self.links.push(link);
    }

    pub fn presentation(&self, operation: &str) -> wire::Presentation {
        let id = sha256(&[b"levada/1 link id", &self.links.concat()]);
        let parts: [&[u8]; 4] = [b"levada/1 proof", &EXPORTER, operation.as_bytes(), &id];
        let proof = hmac_sha256(&self.secret, &parts).to_vec();
        let links = self.links.clone();
        let signatures = self.signatures.clone();
        wire::Presentation { links, signatures, proof, service: String::new() }
    }

    /// The decision of the node when `peer` presents this to start the session.
    pub fn connect(&self, peer: u8) -> Result<Verified, VerifyError> {
        check(self.presentation("connect"), &context(peer, Operation::Connect))
    }

    pub fn chain(&self) -> Chain {
        Chain::decode(self.links.clone(), &self.signatures).unwrap()
    }
}

/// The secret, read from the text (`docs/protocol.md`).
pub fn secret_of(capability: &Capability) -> [u8; 32] {
    let text = capability.to_text();
    let bytes = levada_core::decode_text("lvcap1", &text, 1 << 20).unwrap();
    let chain = capability.chain();
    let links: usize = chain.link_bytes().map(|link| 4 + link.len()).sum();
    let at = 1 + links + 64 * chain.signatures().count();
    bytes[at..at + 32].try_into().unwrap()
}
