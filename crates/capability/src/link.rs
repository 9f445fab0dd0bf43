//! One link of a chain, its canonical encoding, and its secret.

use levada_core::{Identity, Params, UnixTime, hmac_sha256, label};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::SessionId;
use crate::reader::Reader;
use crate::rights::Rights;

/// A root secret or the secret of a link. Zeroized when dropped.
pub type Secret = Zeroizing<[u8; 32]>;

/// The reason why a link cannot be made.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// The parameters of one link are longer than [`Params::MAX_LEN`].
    #[error("the parameters are longer than {} bytes", Params::MAX_LEN)]
    ParamsTooLong,
    /// The link has no uses.
    #[error("a capability has at least one use")]
    NoUses,
    /// The link's running time is zero.
    #[error("a session runs for at least one second")]
    NoTime,
}

/// The content of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkBody {
    /// The holder of this link.
    pub identity: Identity,
    /// The rights that it permits.
    pub rights: Rights,
    /// From this time on the session cannot be started; [`UnixTime::NEVER`] for no limit.
    pub expires: UnixTime,
    /// How many times the session can be started through this link and all after it; at least 1.
    pub uses: u32,
    /// How many seconds one start may run, at least 1; `None` for no limit of this link.
    pub max_run: Option<u64>,
    /// The parameters that this link adds to those of the links before it.
    pub params: Params,
}

impl LinkBody {
    /// Whether the right to start has ended at `now`.
    pub fn expired(&self, now: UnixTime) -> bool {
        self.expires != UnixTime::NEVER && now >= self.expires
    }
}

/// The part that only the first link has: node and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: Identity,
    pub(crate) session: SessionId,
}

/// `label::LINK` ‖ identity 32 ‖ rights 1 ‖ expiry 8 ‖ uses 4 ‖ parameters (length 4 ‖ pairs), and
/// for the first link node key 32 ‖ session 16. Numbers are big-endian. A link that limits the
/// running time begins with `label::LIMITED_LINK` and has the limit in seconds, 8 bytes, after the
/// uses.
pub(crate) fn encode(body: &LinkBody, origin: Option<&Origin>) -> Result<Vec<u8>, LinkError> {
    let params = body.params.encode();
    let length = u32::try_from(params.len()).map_err(|_| LinkError::ParamsTooLong)?;
    if params.len() > Params::MAX_LEN {
        return Err(LinkError::ParamsTooLong);
    }
    if body.uses == 0 {
        return Err(LinkError::NoUses);
    }
    if body.max_run == Some(0) {
        return Err(LinkError::NoTime);
    }
    let label = if body.max_run.is_some() { label::LIMITED_LINK } else { label::LINK };
    let mut bytes = Vec::with_capacity(label.len() + 105 + params.len());
    bytes.extend_from_slice(label.as_bytes());
    bytes.extend_from_slice(body.identity.as_bytes());
    bytes.push(body.rights.byte());
    bytes.extend_from_slice(&body.expires.0.to_be_bytes());
    bytes.extend_from_slice(&body.uses.to_be_bytes());
    if let Some(seconds) = body.max_run {
        bytes.extend_from_slice(&seconds.to_be_bytes());
    }
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&params);
    if let Some(origin) = origin {
        bytes.extend_from_slice(origin.node.as_bytes());
        bytes.extend_from_slice(origin.session.as_bytes());
    }
    Ok(bytes)
}

/// Decodes a first link; `None` for anything that [`encode`] does not produce.
pub(crate) fn decode_first(bytes: &[u8]) -> Option<(LinkBody, Origin)> {
    let mut reader = Reader::new(bytes);
    let body = decode_body(&mut reader)?;
    let node = Identity::from_bytes(reader.array()?);
    let session = SessionId::from_bytes(reader.array()?);
    reader.end()?;
    Some((body, Origin { node, session }))
}

/// Decodes a link after the first; `None` for anything that [`encode`] does not produce.
pub(crate) fn decode_next(bytes: &[u8]) -> Option<LinkBody> {
    let mut reader = Reader::new(bytes);
    let body = decode_body(&mut reader)?;
    reader.end()?;
    Some(body)
}

/// The secret of `link`, derived by HMAC from the secret of the link before it, or from the root
/// for the first link. The derivation is one-way.
pub(crate) fn next_secret(previous: &[u8; 32], link: &[u8]) -> Secret {
    Zeroizing::new(hmac_sha256(previous, &[link]))
}

fn decode_body(reader: &mut Reader<'_>) -> Option<LinkBody> {
    let limited = reader.one_of([label::LINK.as_bytes(), label::LIMITED_LINK.as_bytes()])? == 1;
    let identity = Identity::from_bytes(reader.array()?);
    let rights = Rights::from_byte(reader.byte()?)?;
    let expires = UnixTime(reader.u64()?);
    let uses = reader.u32().filter(|uses| *uses > 0)?;
    let max_run = match limited {
        true => Some(reader.u64().filter(|seconds| *seconds > 0)?),
        false => None,
    };
    let length = usize::try_from(reader.u32()?).ok()?;
    let params = Params::decode(reader.slice(length)?).ok()?;
    Some(LinkBody { identity, rights, expires, uses, max_run, params })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identity, rights, expiry with the limit of the running time, uses, parameters, node and
    /// session.
    type Fields =
        ([u8; 32], u8, (u64, Option<u64>), u32, Vec<(String, Vec<u8>)>, ([u8; 32], [u8; 16]));

    fn link((identity, rights, times, uses, pairs, origin): &Fields) -> (LinkBody, Origin) {
        let mut params = Params::new();
        for (key, value) in pairs {
            let _ = params.add(key, value.clone());
        }
        let body = LinkBody {
            identity: Identity::from_bytes(*identity),
            rights: Rights::from_byte(rights % 7 + 1).unwrap(),
            expires: UnixTime(times.0),
            uses: (*uses).max(1),
            max_run: times.1.map(|seconds| seconds.max(1)),
            params,
        };
        let node = Identity::from_bytes(origin.0);
        (body, Origin { node, session: SessionId::from_bytes(origin.1) })
    }

    #[test]
    fn links_round_trip_and_the_encoding_is_canonical() {
        bolero::check!().with_type::<(Fields, usize, u8)>().for_each(|(fields, at, byte)| {
            let (body, origin) = link(fields);
            let mut bytes = encode(&body, Some(&origin)).unwrap();
            assert_eq!(decode_first(&bytes), Some((body.clone(), origin)));
            let at = at % bytes.len();
            let same = bytes[at] == *byte;
            bytes[at] = *byte;
            if let Some((other, elsewhere)) = decode_first(&bytes) {
                assert_eq!(encode(&other, Some(&elsewhere)).unwrap(), bytes);
                assert_eq!((other, elsewhere) == (body, origin), same);
            }
        });
    }

    #[test]
    fn different_links_have_different_encodings() {
        bolero::check!().with_type::<[Fields; 2]>().for_each(|fields| {
            let [one, two] = fields.each_ref().map(link);
            let [first, second] =
                [&one, &two].map(|(body, origin)| encode(body, Some(origin)).unwrap());
            assert_eq!(first == second, one == two);
            let next = encode(&one.0, None).unwrap();
            assert_eq!(decode_next(&next), Some(one.0));
            assert!(!first.starts_with(&second) || first == second);
            assert_ne!(next, second);
        });
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            for label in [label::LINK, label::LIMITED_LINK] {
                let labelled = [label.as_bytes(), bytes].concat();
                if let Some((body, origin)) = decode_first(&labelled) {
                    assert_eq!(encode(&body, Some(&origin)).unwrap(), labelled);
                }
                if let Some(body) = decode_next(&labelled) {
                    assert_eq!(encode(&body, None).unwrap(), labelled);
                }
            }
            assert!(decode_next(bytes).is_none_or(|body| encode(&body, None).unwrap() == *bytes));
        });
    }

    #[test]
    fn expiry_holds_to_the_second() {
        let (mut body, _) = link(&([0; 32], 0, (10, None), 1, Vec::new(), ([0; 32], [0; 16])));
        assert!(!body.expired(UnixTime(9)) && body.expired(UnixTime(10)));
        body.expires = UnixTime::NEVER;
        assert!(!body.expired(UnixTime(u64::MAX)));
    }
}
