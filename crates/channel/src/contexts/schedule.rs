//! The keys of a session with middleboxes (`docs/protocol.md`, "Keys of contexts").

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use levada_core::{Digest, hmac_sha256, label, label::derive};
use zeroize::Zeroizing;

use super::path::{Path, Right};
use crate::Error;
use crate::exporter::Exporter;

/// A tag: HMAC-SHA256, cut to 16 bytes.
pub(crate) type Tag = [u8; 16];

/// The direction of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From the client to the server.
    ToServer = 0,
    /// From the server to the client.
    ToClient = 1,
}

/// A secret from which others are derived.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<Digest>);

impl Secret {
    pub(crate) fn new(bytes: Digest) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// X(self, label, context): HKDF-Expand (RFC 5869 section 2.3) to at most one block, with the info
    /// length 2 ‖ `levada/1 ` ‖ label ‖ 00 ‖ context.
    fn expand(&self, length: u16, label: &str, context: &[&[u8]]) -> Zeroizing<Digest> {
        let [high, low] = length.to_be_bytes();
        let head = [high, low];
        let mut parts: Vec<&[u8]> = vec![&head, b"levada/1 ", label.as_bytes(), &[0]];
        parts.extend_from_slice(context);
        parts.push(&[1]);
        Zeroizing::new(hmac_sha256(self.0.as_ref(), &parts))
    }

    /// X to 32 bytes.
    pub(crate) fn derive(&self, label: &str, context: &[&[u8]]) -> Self {
        Self(self.expand(32, label, context))
    }

    /// X to N bytes, at most 32.
    pub(crate) fn derive_bytes<const N: usize>(&self, label: &str, context: &[&[u8]]) -> [u8; N] {
        const { assert!(N <= 32) };
        let full = self.expand(N as u16, label, context);
        let mut bytes = [0; N];
        bytes.copy_from_slice(&full[..N]);
        bytes
    }

    /// The tag of `parts` under this secret.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> Tag {
        cut(&hmac_sha256(self.0.as_ref(), parts))
    }

    /// Whether `tag` is that of `parts`, in constant time.
    pub(crate) fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        verify_slices_are_equal(&self.tag(parts), tag).is_ok()
    }

    pub(crate) fn bytes(&self) -> &Digest {
        &self.0
    }
}

/// A key for many tags.
pub(crate) struct TagKey(hmac::Key);

impl TagKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.bytes()))
    }

    pub(crate) fn tag(&self, message: &[u8]) -> Tag {
        let mut tag = [0; 16];
        tag.copy_from_slice(&hmac::sign(&self.0, message).as_ref()[..16]);
        tag
    }

    /// Whether `tag` is that of `message`, in constant time.
    pub(crate) fn verify(&self, message: &[u8], tag: &[u8]) -> bool {
        verify_slices_are_equal(&self.tag(message), tag).is_ok()
    }
}

fn cut(digest: &Digest) -> Tag {
    let mut tag = [0; 16];
    tag.copy_from_slice(&digest[..16]);
    tag
}

/// What both endpoints have: E.
#[derive(Clone)]
pub(crate) struct EndpointSecret(pub(crate) Secret);

impl EndpointSecret {
    /// E = TLS-Exporter(`EXPORTER-levada-ctx`, TH1, 32).
    pub(crate) fn new(exporter: &Exporter, th1: &Digest) -> Result<Self, Error> {
        let mut bytes = Zeroizing::new(Digest::default());
        exporter.export(label::CONTEXTS_EXPORTER, th1, bytes.as_mut())?;
        Ok(Self(Secret(bytes)))
    }

    /// a_i.
    pub(crate) fn a(&self, hop: u8) -> Secret {
        self.0.derive(derive::BOX, &[&[hop]])
    }

    fn half(&self, side: &str, class: u8) -> Secret {
        self.0.derive(side, &[&[class]])
    }

    /// The halves that a hop gets from one endpoint: of what it may write, and the derived value of what it may only read.
    pub(crate) fn halves(&self, classes: &Classes, hop: u8, side: &str) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 * classes.rows.len()));
        for (class, right) in classes.of_hop(hop) {
            let half = self.half(side, class);
            match right {
                Right::Write => bytes.extend_from_slice(half.bytes()),
                _ => bytes.extend_from_slice(half.derive(derive::READ, &[]).bytes()),
            }
        }
        bytes
    }

    /// The keys of a context; those of context 0 and of private ones follow from E alone.
    pub(crate) fn context(&self, classes: &Classes, context: u8, th2: &Digest) -> ContextKeys {
        let Some(class) = classes.of_context(context) else {
            return ContextKeys { read: self.0.derive(derive::PRIVATE, &[th2]), write: None };
        };
        let client = self.half(derive::CLIENT_HALF, class);
        let server = self.half(derive::SERVER_HALF, class);
        ContextKeys::from_halves(&client, &server, th2)
    }

    /// The key of the endpoints' own tags of a context's records.
    pub(crate) fn endpoint(&self, context: u8, direction: Direction, th2: &Digest) -> Secret {
        self.0.derive(derive::ENDPOINT, &[th2, &[context, direction as u8]])
    }

    pub(crate) fn audit(&self, direction: Direction, th2: &Digest) -> Secret {
        self.0.derive(derive::AUDIT, &[th2, &[direction as u8]])
    }

    /// READY_0 of the endpoint that sends in this direction.
    pub(crate) fn ready(&self, direction: Direction, th2: &Digest) -> Tag {
        self.0.derive(derive::READY, &[th2, &[direction as u8]]).tag(&[th2])
    }
}

/// What an endpoint derives the keys of records and audits from. Each is derived when it is first needed: most sessions use few contexts, and
/// each in one direction.
pub(crate) struct EndpointKeys {
    pub(crate) secret: EndpointSecret,
    pub(crate) classes: Classes,
    pub(crate) th2: Digest,
    pub(crate) aes: bool,
    /// By hop, from 1.
    pub(crate) hops: Vec<HopSecrets>,
}

impl EndpointKeys {
    pub(crate) fn context(&self, context: u8) -> ContextKeys {
        self.secret.context(&self.classes, context, &self.th2)
    }

    /// The secrets of a hop, from 1.
    pub(crate) fn hop(&self, hop: u8) -> Option<&HopSecrets> {
        self.hops.get(usize::from(hop).checked_sub(1)?)
    }

    /// The key of a party's audits; 0 is the endpoint.
    pub(crate) fn audit(&self, party: u8, direction: Direction) -> Option<Secret> {
        match party {
            0 => Some(self.secret.audit(direction, &self.th2)),
            hop => self.hop(hop)?.audit(direction, &self.th2),
        }
    }
}

/// What one middlebox has, and the endpoints too: a_i both, z_i the server only.
#[derive(Clone)]
pub(crate) struct HopSecrets {
    pub(crate) a: Secret,
    /// Only at the server and at the middlebox itself.
    pub(crate) z: Option<Secret>,
}

impl HopSecrets {
    /// b_i: what the middlebox proves itself with to the receiving endpoint. None if z is needed and not here.
    pub(crate) fn b(&self, direction: Direction, th2: &Digest) -> Option<Secret> {
        match direction {
            Direction::ToServer => Some(self.z.as_ref()?.derive(derive::TO_SERVER, &[th2])),
            Direction::ToClient => Some(self.a.clone()),
        }
    }

    pub(crate) fn ready(&self, direction: Direction, th2: &Digest) -> Option<Tag> {
        let key = self.b(direction, th2)?.derive(derive::READY, &[&[direction as u8]]);
        Some(key.tag(&[th2]))
    }

    pub(crate) fn author(&self, context: u8, direction: Direction, th2: &Digest) -> Option<Secret> {
        let context = [context, direction as u8];
        Some(self.b(direction, th2)?.derive(derive::AUTHOR, &[th2, &context]))
    }

    pub(crate) fn audit(&self, direction: Direction, th2: &Digest) -> Option<Secret> {
        Some(self.b(direction, th2)?.derive(derive::AUDIT, &[th2, &[direction as u8]]))
    }

    pub(crate) fn endorse(&self, th2: &Digest) -> Option<Secret> {
        Some(self.z.as_ref()?.derive(derive::ENDORSE, &[th2]))
    }

    /// psk_ij, id_ij and y_ij of ticket j.
    pub(crate) fn resume(&self, ticket: u8, th2: &Digest) -> Resume {
        let context: &[&[u8]] = &[th2, &[ticket]];
        Resume {
            id: self.a.derive_bytes(derive::RESUME_ID, context),
            psk: self.a.derive(derive::RESUME, context),
            y: self.z.as_ref().map(|z| z.derive(derive::RESUME, context)),
        }
    }
}

/// What a middlebox and the endpoints keep for one later session.
#[derive(Clone)]
pub(crate) struct Resume {
    pub(crate) id: [u8; 16],
    pub(crate) psk: Secret,
    /// Not at the client.
    pub(crate) y: Option<Secret>,
}

/// The keys of a context.
#[derive(Clone)]
pub(crate) struct ContextKeys {
    /// R.
    pub(crate) read: Secret,
    /// W, at those who may write.
    pub(crate) write: Option<Secret>,
}

impl ContextKeys {
    /// From the write halves of both endpoints.
    pub(crate) fn from_halves(client: &Secret, server: &Secret, th2: &Digest) -> Self {
        let read = [client, server].map(|half| half.derive(derive::READ, &[]));
        let mut keys = Self::from_read_halves(&read[0], &read[1], th2);
        keys.write = Some(extract(th2, client, server));
        keys
    }

    /// From what both endpoints give to readers.
    pub(crate) fn from_read_halves(client: &Secret, server: &Secret, th2: &Digest) -> Self {
        Self { read: extract(th2, client, server), write: None }
    }

    /// T_0 of a direction.
    pub(crate) fn record(&self, context: u8, direction: Direction) -> Secret {
        self.read.derive(derive::RECORD, &[&[context, direction as u8]])
    }

    /// The key of writer tags.
    pub(crate) fn writer(&self, context: u8, direction: Direction) -> Option<Secret> {
        Some(self.write.as_ref()?.derive(derive::WRITER, &[&[context, direction as u8]]))
    }
}

/// HKDF-Extract (RFC 5869 section 2.2) with TH2 as the salt.
fn extract(th2: &Digest, first: &Secret, second: &Secret) -> Secret {
    Secret::new(hmac_sha256(th2, &[first.bytes(), second.bytes()]))
}

/// The classes of a path's contexts: contexts with the same row of rights share keys.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    rows: Vec<Vec<Right>>,
    of: Vec<Option<u8>>,
}

impl Classes {
    /// Classes are numbered from 0 by first appearance; a row without any right forms none.
    pub(crate) fn new(path: &Path) -> Self {
        let mut classes = Self { rows: Vec::new(), of: Vec::new() };
        for context in &path.contexts {
            if context.rights.iter().all(|right| *right == Right::None) {
                classes.of.push(None);
                continue;
            }
            let known = classes.rows.iter().position(|row| *row == context.rights);
            let class = known.unwrap_or_else(|| {
                classes.rows.push(context.rights.clone());
                classes.rows.len() - 1
            });
            classes.of.push(u8::try_from(class).ok());
        }
        classes
    }

    /// The class of a context; None for context 0 and private ones.
    pub(crate) fn of_context(&self, context: u8) -> Option<u8> {
        let at = usize::from(context).checked_sub(1)?;
        self.of.get(at).copied().flatten()
    }

    /// The classes in which a hop has rights, ascending.
    pub(crate) fn of_hop(&self, hop: u8) -> impl Iterator<Item = (u8, Right)> {
        let at = usize::from(hop).wrapping_sub(1);
        let rights = self.rows.iter().map(move |row| row.get(at).copied().unwrap_or_default());
        (0u8..).zip(rights).filter(|(_, right)| *right > Right::None)
    }

    /// The keys of a hop's contexts from the halves it got; None for those where it has no rights, and if the halves are
    /// of another number.
    pub(crate) fn keys_of_hop(
        &self,
        hop: u8,
        client: &[u8],
        server: &[u8],
        th2: &Digest,
    ) -> Option<Vec<Option<ContextKeys>>> {
        let (client, c_rest) = client.as_chunks::<32>();
        let (server, s_rest) = server.as_chunks::<32>();
        let given: Vec<_> = self.of_hop(hop).collect();
        let complete = c_rest.is_empty() && s_rest.is_empty();
        if !complete || client.len() != given.len() || server.len() != given.len() {
            return None;
        }
        let mut by_class = vec![None; self.rows.len()];
        for ((class, right), (client, server)) in given.into_iter().zip(client.iter().zip(server)) {
            let (client, server) = (Secret::new(*client), Secret::new(*server));
            let keys = match right {
                Right::Write => ContextKeys::from_halves(&client, &server, th2),
                _ => ContextKeys::from_read_halves(&client, &server, th2),
            };
            by_class[usize::from(class)] = Some(keys);
        }
        let of_class = |class: &Option<u8>| by_class[usize::from((*class)?)].clone();
        Some(self.of.iter().map(of_class).collect())
    }
}

/// z_i, from the random Z that never leaves the server.
pub(crate) fn z(seed: &Secret, hop: u8) -> Secret {
    seed.derive(derive::BOX, &[&[hop]])
}

#[cfg(test)]
mod tests {
    use levada_core::Identity;

    use super::*;
    use crate::contexts::path::tests::path;

    #[test]
    fn a_hop_derives_the_keys_of_the_endpoints_where_it_has_rights() {
        let key = |byte| Identity::from_bytes([byte; 32]);
        let rows: [&[Right]; 4] = [
            &[Right::Read, Right::None],
            &[Right::None, Right::None],
            &[Right::Write, Right::Read],
            &[Right::Read, Right::None],
        ];
        let classes = Classes::new(&path(key(9), &[key(2), key(3)], &rows));
        assert_eq!(classes.of, [Some(0), None, Some(1), Some(0)]);
        let (secret, th2) = (EndpointSecret(Secret::new([1; 32])), [2; 32]);
        for hop in [1, 2] {
            let client = secret.halves(&classes, hop, derive::CLIENT_HALF);
            let server = secret.halves(&classes, hop, derive::SERVER_HALF);
            let keys = classes.keys_of_hop(hop, &client, &server, &th2).unwrap();
            for context in 1..=4 {
                let own = secret.context(&classes, context, &th2);
                let right = rows[usize::from(context) - 1][usize::from(hop) - 1];
                let got = keys[usize::from(context) - 1].as_ref();
                assert_eq!(right > Right::None, got.is_some());
                let Some(got) = got else { continue };
                assert_eq!(got.read.bytes(), own.read.bytes());
                assert_eq!(got.write.is_some(), right == Right::Write);
                if let (Some(got), Some(own)) = (&got.write, &own.write) {
                    assert_eq!(got.bytes(), own.bytes());
                }
            }
            assert!(classes.keys_of_hop(hop, &client[32..], &server, &th2).is_none());
        }
        assert_eq!(classes.of_hop(2).collect::<Vec<_>>(), [(1, Right::Read)]);
    }

    #[test]
    fn derivation_is_hkdf_expand() {
        use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
        struct Length(usize);
        impl aws_lc_rs::hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let secret = Secret::new([7; 32]);
        let prk = Prk::new_less_safe(HKDF_SHA256, &[7; 32]);
        let mut expected = [0; 12];
        let info: &[&[u8]] = &[b"\x00\x0clevada/1 iv\x00\x05"];
        prk.expand(info, Length(12)).unwrap().fill(&mut expected).unwrap();
        assert_eq!(secret.derive_bytes::<12>("iv", &[&[5]]), expected);
    }
}
