//! A malicious middlebox: it has the keys that both endpoints gave it, and does not keep to the
//! protocol.

use levada_core::Digest;

use crate::audit::{self, Counters, Digests, Kind};
use crate::record::{self, Cipher, Head, Layout, Position, SealKeys, View};
use crate::schedule::{ContextKeys, HopSecrets, Secret, TagKey};
use crate::{Direction, Path, Relay};

#[derive(Clone)]
pub(crate) struct Insider {
    pub(crate) path: Path,
    pub(crate) number: u8,
    pub(crate) secrets: HopSecrets,
    pub(crate) th2: Digest,
    /// By context, from 1.
    pub(crate) keys: Vec<Option<ContextKeys>>,
    aes: bool,
}

impl Insider {
    /// Takes the place of an honest middlebox whose keys have arrived.
    pub(crate) fn of(relay: &Relay) -> Self {
        let (bound, keys) = relay.handshake().keys().unwrap();
        Self {
            path: bound.path.clone(),
            number: bound.number,
            secrets: bound.secrets.clone(),
            th2: bound.th2,
            keys: keys.to_vec(),
            aes: bound.aes,
        }
    }

    fn keys(&self, context: u8) -> &ContextKeys {
        self.keys[usize::from(context) - 1].as_ref().unwrap()
    }

    fn cipher(&self, context: u8, direction: Direction) -> Cipher {
        Cipher::new(self.keys(context).record(context, direction), self.aes)
    }

    /// The data of a record, which has its place.
    pub(crate) fn open(&self, direction: Direction, whole: &[u8], (n, g): (u64, u64)) -> Vec<u8> {
        let mut whole = whole.to_vec();
        let context = Head::of(&whole).unwrap().context;
        let layout = Layout::new(&self.path, context);
        let view = View::new(&whole, layout, n, g).unwrap();
        let mut cipher = self.cipher(context, direction);
        let (data, _) = view.open((&mut cipher, true), n, layout.pad, &mut whole).unwrap();
        whole[data].to_vec()
    }

    /// A record with any head. Tags whose keys this middlebox does not have are wrong; the third
    /// one is its own.
    pub(crate) fn seal(
        &self,
        direction: Direction,
        head: Head,
        position: Position,
        data: &[u8],
    ) -> Vec<u8> {
        let context = head.context;
        let writer = self.keys(context).writer(context, direction);
        let writer = TagKey::new(&writer.unwrap_or(Secret::new([9; 32])));
        let author = TagKey::new(&self.secrets.author(context, direction, &self.th2).unwrap());
        let mut cipher = self.cipher(context, direction);
        let keys = SealKeys { cipher: &mut cipher, writer: Some(&writer), third: Some(&author) };
        let mut out = Vec::new();
        let layout = Layout::new(&self.path, context);
        record::seal(keys, (head, position, layout), data, &mut out).unwrap();
        out
    }

    /// An audit of this middlebox over records that arrived and left, each list with the records'
    /// q.
    pub(crate) fn audit(
        &self,
        direction: Direction,
        kind: Kind,
        (arrived, left): (&[Vec<u8>], &[Vec<u8>]),
        counters: Counters,
    ) -> Vec<u8> {
        let digests = |records: &[Vec<u8>]| {
            let mut digests = Digests::new(&self.path);
            for whole in records {
                let layout = Layout::new(&self.path, whole[1]);
                digests.add_view(&View::new(whole, layout, 0, 0).unwrap(), whole);
            }
            digests
        };
        let key = self.secrets.audit(direction, &self.th2).unwrap();
        let mut out = Vec::new();
        let digests = (&digests(arrived), &digests(left));
        audit::put(&mut out, (self.number, kind), digests, (&key, counters), &[]);
        out
    }
}
