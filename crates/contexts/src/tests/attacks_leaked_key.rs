//! The identity key of a middlebox leaks after a session: with all that went over both links, it
//! opens nothing.

use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA512, digest};
use levada_core::{Digest, Hasher, SecretKey, sha256};
use rustls::crypto::hpke::HpkePrivateKey;

use super::chain::{Behaviour, Chain, KEMS, Parties};
use crate::Direction::{ToClient, ToServer};
use crate::Right::Write;
use crate::kem::OneTimeKey;
use crate::messages::{self, Share, open_client_share};
use crate::record::{Cipher, Layout, View};
use crate::schedule::{Classes, Secret};
use crate::{Action, Direction, Kem, Path, frame};

const PLAINTEXT: &[u8] = b"what only the parties may read";

/// All frames on the client's link and on the server's, by direction.
type Links = Arc<Mutex<[[Vec<Vec<u8>>; 2]; 2]>>;

/// What an attacker computes from the recording.
struct Recording {
    links: [[Vec<Vec<u8>>; 2]; 2],
}

impl Recording {
    fn of(&self, link: usize, direction: Direction, kind: u8) -> &Vec<u8> {
        let frames = &self.links[link][direction as usize];
        frames.iter().find(|one| one[0] == kind).unwrap()
    }

    fn path(&self) -> Path {
        Path::decode(self.of(0, ToServer, frame::PATH)).unwrap()
    }

    /// TH1 and TH2.
    fn transcripts(&self) -> (Digest, Digest) {
        let [path, hello, first, ..] = &self.links[1][0][..] else { panic!() };
        let transcript = messages::first_transcript(path, hello);
        let transcript = messages::next_transcript(&transcript, first);
        let mut flight = Hasher::default();
        let tls = self.links[1][1].iter().take_while(|one| one[0] != frame::ECHO);
        tls.for_each(|one| flight.update(one));
        let th1 = messages::th1(&transcript, &flight.finish());
        (th1, messages::th2(&th1, self.of(1, ToClient, frame::SBIND)))
    }

    fn share(&self) -> &Vec<u8> {
        self.of(1, ToClient, frame::SSHARE)
    }

    /// Opens the server's share with a private key for the encapsulation.
    fn with_key(&self, kem: Kem, key: &OneTimeKey) -> Option<Share> {
        Share::open_sealed(kem, key, 1, &self.transcripts().0, self.share()).ok()
    }

    /// Opens the client's share under a_i, and with the halves of both the first record.
    fn with_share(&self, a: &Secret, server_halves: &[u8]) -> Option<Vec<u8>> {
        let th2 = self.transcripts().1;
        let client = open_client_share(a, &th2, 1, self.of(0, ToServer, frame::CSHARE)).ok()?;
        let classes = Classes::new(&self.path());
        let keys = classes.keys_of_hop(1, &client, server_halves, &th2)?;
        self.record(&keys[0].as_ref()?.read)
    }

    /// Opens the first record of context 1 under R. It has the second slot of all, behind the
    /// operation.
    fn record(&self, read: &Secret) -> Option<Vec<u8>> {
        let records = self.links[0][0].iter().filter(|one| one[0] == frame::RECORD);
        let mut whole = records.clone().find(|one| one[1] == 1).unwrap().clone();
        let layout = Layout::new(&self.path(), 1);
        let view = View::new(&whole, layout, 0, 1).unwrap();
        let secret = read.derive(levada_core::label::derive::RECORD, &[&[1, 0]]);
        let mut cipher = Cipher::new(secret, true);
        let (data, _) = view.open((&mut cipher, true), 0, layout.pad, &mut whole).ok()?;
        Some(whole[data].to_vec())
    }
}

/// A whole session with one middlebox: what went over both links, and what a memory dump of the
/// middlebox would have shown in the middle of its handshake, computed then.
fn session(parties: &Parties) -> (Recording, Option<Share>) {
    let pass: Behaviour = Box::new(|_| Action::Pass);
    let mut chain = Chain::with(parties, vec![pass]);
    let links: Links = Arc::default();
    let held: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let record = links.clone();
    let hold = held.clone();
    let mut holding = true;
    chain.attack = Some(Box::new(move |link, direction, frames| {
        record.lock().unwrap()[link][direction as usize].extend(frames.clone());
        // The server's flight waits while the test looks at the middlebox.
        if (link, direction) == (1, ToClient) && std::mem::take(&mut holding) {
            hold.lock().unwrap().extend(frames);
            return Vec::new();
        }
        frames
    }));
    chain.run().unwrap();
    let recording = || Recording { links: links.lock().unwrap().clone() };
    let key = chain.relays[0].handshake().one_time_key().unwrap();
    let opened = recording().with_key(parties.path.kem, key);
    let flight = held.lock().unwrap().concat();
    chain.inject(1, ToClient, &flight);
    chain.open();
    chain.client.write(1, PLAINTEXT).unwrap();
    chain.client.finish().unwrap();
    chain.run().unwrap();
    assert!(chain.relays[0].handshake().one_time_key().is_none(), "the key is gone");
    (recording(), opened)
}

/// All secrets of 32 bytes that an attacker may try: the identity key in each form, alone and with
/// what was public.
fn guesses(key: &SecretKey, recording: &Recording) -> Vec<Secret> {
    let seed: Digest = **key.seed();
    let expanded = digest(&SHA512, &seed);
    let (scalar, prefix) = expanded.as_ref().split_at(32);
    let mut all = vec![seed, scalar.try_into().unwrap(), prefix.try_into().unwrap()];
    all.push(*key.identity().as_bytes());
    let (th1, th2) = recording.transcripts();
    for known in all.clone() {
        for public in [&th1[..], &th2, recording.share(), recording.of(1, ToServer, frame::MBKEY)] {
            all.push(sha256(&[&known, public]));
        }
    }
    all.into_iter().map(Secret::new).collect()
}

#[test]
fn a_leaked_identity_key_opens_no_share_and_no_record_of_an_earlier_session() {
    for kem in KEMS {
        let mut parties = Parties::new(&[&[Write]]);
        parties.path.kem = kem;
        let (recording, opened) = session(&parties);
        // The same attempt with the one-time key opens everything.
        let opened = opened.unwrap();
        let read = recording.with_share(&opened.a, &opened.halves);
        assert_eq!(read.as_deref(), Some(PLAINTEXT), "{kem:?}");

        let leaked = &parties.hops[0].key;
        let (th1, _) = recording.transcripts();
        for guess in guesses(leaked, &recording) {
            if kem == Kem::X25519 {
                // As a scalar of X25519, to which an Ed25519 key can be converted.
                let private = HpkePrivateKey::from(guess.bytes().to_vec());
                let key = OneTimeKey::X25519 { public: Vec::new(), private };
                assert!(recording.with_key(kem, &key).is_none());
            }
            assert!(Share::open_resumed(&guess, 1, &th1, recording.share()).is_err());
            assert!(recording.with_share(&guess, &opened.halves).is_none());
            assert!(recording.record(&guess).is_none());
        }
        // With the identity key, the attacker takes part in a later session: another one-time key.
        parties.tickets = Arc::default();
        let (later, other) = session(&parties);
        let keys = [&recording, &later].map(|one| one.of(1, ToServer, frame::MBKEY).clone());
        assert_ne!(keys[0], keys[1], "{kem:?}");
        let other = other.unwrap();
        assert!(recording.with_share(&other.a, &opened.halves).is_none());
        assert!(recording.with_share(&other.a, &other.halves).is_none());
        let fresh = OneTimeKey::generate(kem).unwrap();
        assert!(recording.with_key(kem, &fresh).is_none());
    }
}
