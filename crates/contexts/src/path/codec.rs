//! The bytes of PATH.

use levada_core::Identity;

use super::{
    Context, Hop, Kem, MAX_CONTEXTS, MAX_MIDDLEBOXES, Party, Path, Purpose, ResumeId, Right,
};
use crate::ContextError;
use crate::frame::{self, Fields};
use levada_channel::parts::HEADER;

/// The longest PATH, header included, in bytes.
const MAX_PATH: usize = 8 * 1024;
/// The version of the protocol.
const VERSION: u8 = 1;

impl Path {
    /// The whole frame.
    ///
    /// # Errors
    /// [`ContextError::Malformed`] if it breaks a rule of the protocol: [`Self::decode`] has the
    /// list.
    pub fn encode(&self) -> Result<Vec<u8>, ContextError> {
        let mut body = vec![VERSION, self.kem as u8];
        put_party(&mut body, &self.server.identity, None, &self.server.address)?;
        body.push(small(self.hops.len())?);
        for hop in &self.hops {
            let resume = Some(hop.resume.unwrap_or_default());
            put_party(&mut body, &hop.party.identity, resume, &hop.party.address)?;
        }
        body.push(small(self.contexts.len())?);
        for context in &self.contexts {
            body.extend_from_slice(&[context.purpose as u8, context.pad]);
        }
        for context in &self.contexts {
            let mut row = vec![0; self.hops.len().div_ceil(4)];
            for (hop, right) in context.rights.iter().enumerate() {
                *row.get_mut(hop / 4).ok_or(INVALID)? |= (*right as u8) << (hop % 4 * 2);
            }
            body.extend_from_slice(&row);
        }
        let mut frame = Vec::new();
        frame::put(&mut frame, frame::PATH, &[&body]);
        // One set of rules: what cannot be decoded is not sent.
        if Self::decode(&frame)? == *self { Ok(frame) } else { Err(INVALID) }
    }

    /// Decodes a whole frame.
    ///
    /// # Errors
    /// [`ContextError::Malformed`] for another form or version, no middlebox or more than
    /// [`MAX_MIDDLEBOXES`], no context or more than [`MAX_CONTEXTS`], a key twice or one that no
    /// honest party has, an address that is none, a purpose of 1 to 4 twice, or an unknown right.
    pub fn decode(frame: &[u8]) -> Result<Self, ContextError> {
        if frame.len() > MAX_PATH || frame.first() != Some(&frame::PATH) {
            return Err(INVALID);
        }
        let mut fields = Fields::new(frame.get(HEADER..).ok_or(INVALID)?, "a PATH");
        if fields.byte()? != VERSION {
            return Err(ContextError::Malformed("a PATH of another version"));
        }
        let kem = match fields.byte()? {
            1 => Kem::X25519,
            2 => Kem::Hybrid,
            _ => return Err(ContextError::Malformed("a PATH with an unknown key encapsulation")),
        };
        let server = take_party(&mut fields, None)?;
        let mut hops = Vec::new();
        for _ in 0..count(fields.byte()?, MAX_MIDDLEBOXES)? {
            let mut resume = ResumeId::default();
            let party = take_party(&mut fields, Some(&mut resume))?;
            hops.push(Hop { party, resume: (resume != [0; 16]).then_some(resume) });
        }
        let contexts = take_contexts(&mut fields, hops.len())?;
        fields.end()?;
        let path = Self { kem, server, hops, contexts };
        path.check()?;
        Ok(path)
    }
}

const INVALID: ContextError = ContextError::Malformed("a PATH");

const COUNT: ContextError =
    ContextError::Malformed("a PATH without middleboxes or contexts, or with too many");
const ADDRESS: ContextError = ContextError::Malformed("a PATH with an address that is none");
const RIGHTS: ContextError = ContextError::Malformed("a PATH with an unknown right");

fn small(count: usize) -> Result<u8, ContextError> {
    u8::try_from(count).map_err(|_| INVALID)
}

fn count(count: u8, most: usize) -> Result<usize, ContextError> {
    let count = usize::from(count);
    let fits = (1..=most).contains(&count);
    if fits { Ok(count) } else { Err(COUNT) }
}

fn put_party(
    body: &mut Vec<u8>,
    identity: &Identity,
    resume: Option<ResumeId>,
    address: &str,
) -> Result<(), ContextError> {
    body.extend_from_slice(identity.as_bytes());
    body.extend(resume.into_iter().flatten());
    body.push(small(address.len())?);
    body.extend_from_slice(address.as_bytes());
    Ok(())
}

fn take_party(
    fields: &mut Fields<'_>,
    resume: Option<&mut ResumeId>,
) -> Result<Party, ContextError> {
    let identity = Identity::from_bytes(fields.array()?);
    if let Some(resume) = resume {
        *resume = fields.array()?;
    }
    let length = fields.byte()?;
    let address = std::str::from_utf8(fields.bytes(length.into())?).map_err(|_| ADDRESS)?;
    let (host, port) = address.rsplit_once(':').ok_or(ADDRESS)?;
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ADDRESS);
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse::<u16>().ok().filter(|_| digits).ok_or(ADDRESS)?;
    Ok(Party { identity, address: address.to_owned() })
}

fn take_contexts(fields: &mut Fields<'_>, hops: usize) -> Result<Vec<Context>, ContextError> {
    let number = count(fields.byte()?, MAX_CONTEXTS)?;
    let mut contexts = Vec::with_capacity(number);
    for _ in 0..number {
        let [purpose, pad] = fields.array()?;
        let purpose = match purpose {
            0 => Purpose::Other,
            1 => Purpose::RequestHead,
            2 => Purpose::RequestBody,
            3 => Purpose::ResponseHead,
            4 => Purpose::ResponseBody,
            5 => Purpose::Fields,
            6 => Purpose::Trailers,
            _ => return Err(ContextError::Malformed("a PATH with an unknown purpose")),
        };
        contexts.push(Context { purpose, pad, rights: Vec::new() });
    }
    for context in &mut contexts {
        context.rights = take_row(fields.bytes(hops.div_ceil(4))?, hops)?;
    }
    Ok(contexts)
}

fn take_row(row: &[u8], hops: usize) -> Result<Vec<Right>, ContextError> {
    let cells = row.iter().flat_map(|byte| [0, 2, 4, 6].map(|shift| byte >> shift & 3));
    let mut rights = Vec::with_capacity(hops);
    for (hop, cell) in cells.enumerate() {
        match cell {
            0 if hop >= hops => {}
            _ if hop >= hops => return Err(RIGHTS),
            0 => rights.push(Right::None),
            1 => rights.push(Right::Read),
            2 => rights.push(Right::Write),
            _ => return Err(RIGHTS),
        }
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{key, path};

    #[test]
    fn a_path_that_breaks_a_rule_is_neither_sent_nor_accepted() {
        let good = path(key(9), &[key(2)], &[&[Right::Read]]);
        let broken = |change: &dyn Fn(&mut Path)| {
            let mut path = good.clone();
            change(&mut path);
            assert!(path.encode().is_err(), "{path:?}");
        };
        broken(&|path| path.hops.clear());
        broken(&|path| path.contexts.clear());
        broken(&|path| path.hops = vec![path.hops[0].clone(); 2]);
        broken(&|path| path.hops[0].party.identity = key(9));
        broken(&|path| path.hops[0].party.identity = key(0));
        broken(&|path| path.server.identity = key(0xff));
        broken(&|path| path.server.address = "host".to_owned());
        broken(&|path| path.server.address = "host:70000".to_owned());
        broken(&|path| path.server.address = "ho st:1".to_owned());
        broken(&|path| path.contexts[0].rights.clear());
        broken(&|path| {
            path.contexts[0].purpose = Purpose::RequestHead;
            path.contexts.push(path.contexts[0].clone());
        });
        let frame = good.encode().unwrap();
        // A right of 3, and a bit of a hop that does not exist.
        for bits in [3, 4] {
            let mut frame = frame.clone();
            *frame.last_mut().unwrap() = bits;
            assert!(Path::decode(&frame).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_are_decoded_to_what_encodes_to_them() {
        let good = path(key(9), &[key(2), key(3)], &[&[Right::Read, Right::Write]]);
        let frame = good.encode().unwrap();
        bolero::check!().with_type::<(Vec<u8>, u16, u8)>().for_each(|(bytes, at, value)| {
            let mut changed = frame.clone();
            let at = usize::from(*at) % changed.len();
            changed[at] = *value;
            for input in [bytes, &changed] {
                if let Ok(path) = Path::decode(input) {
                    assert_eq!(&path.encode().unwrap()[5..], &input[5..]);
                }
            }
        });
    }
}
