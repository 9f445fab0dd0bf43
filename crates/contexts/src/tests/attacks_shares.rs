//! A malicious server that withholds its half or gives another one, and points of small order.

use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use levada_core::{Digest, Hasher, hmac_sha256, label, sha256};

use super::attacks_handshake::{forged, forged_by, malformed, parties};
use super::chain::{Chain, KEMS, Parties, events};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{Read, Write};
use crate::kem::OneTimeKey;
use crate::messages::{self, Bind, BindProof, Hello, Share};
use crate::schedule::Secret;
use crate::{ContextError, Kem, PathEvent, Received, frame};

/// A session with a server that alters the share of middlebox 1 before it seals and signs it.
fn with_share(parties: &mut Parties, change: impl Fn(&mut Share) + Send + Sync + 'static) -> Chain {
    parties.server.alter_share = Some(Arc::new(move |number, share| {
        if number == 1 {
            change(share);
        }
    }));
    Chain::new(parties)
}

fn resize(share: &mut Share, length: usize) {
    share.halves.resize(length, 7);
}

#[test]
fn a_middlebox_refuses_a_share_whose_halves_do_not_fit_its_rights() {
    for kem in KEMS {
        let mut parties = parties();
        parties.path.kem = kem;
        // It has rights in one class, hence one half of 32 bytes.
        assert_eq!(with_share(&mut parties, |share| resize(share, 32)).whole_session(), Ok(()));
        for length in [0, 1, 31, 33, 64] {
            let mut chain = with_share(&mut parties, move |share| resize(share, length));
            let error = malformed("the halves in a SSHARE");
            assert_eq!(chain.run(), Err((1, error)), "{kem:?}, {length}");
            assert!(chain.relays[0].handshake().keys().is_none());
            // Nothing leaves the client.
            assert!(!events(&mut chain.client).contains(&PathEvent::Ready));
        }
    }
}

/// Both endpoints have both halves, so only a middlebox can notice.
#[test]
fn another_half_in_a_share_is_found_out_at_the_first_record() {
    for (right, direction) in
        [(Read, ToServer), (Read, ToClient), (Write, ToServer), (Write, ToClient)]
    {
        let mut parties = Parties::new(&[&[right]]);
        let mut chain = with_share(&mut parties, |share| share.halves.fill(7));
        chain.open();
        let end = if direction == ToServer { &mut chain.client } else { &mut chain.server };
        end.write(1, b"data").unwrap();
        end.flush().unwrap();
        let error = ContextError::Forged { what: "a record", hop: Some(0), context: Some(1) };
        assert_eq!(chain.run(), Err((1, error)), "{right:?}, {direction:?}");
        for end in [&mut chain.client, &mut chain.server] {
            let data = |one: &PathEvent| matches!(one, PathEvent::Received(Received::Data { .. }));
            assert!(!events(end).iter().any(data));
        }
    }
}

#[test]
fn other_secrets_in_a_share_end_the_handshake() {
    let other = || Secret::new([7; 32]);
    let mut chain = with_share(&mut parties(), move |share| share.a = other());
    assert_eq!(chain.run(), Err((1, forged("a client's share"))));
    let mut chain = with_share(&mut parties(), move |share| share.z = other());
    assert_eq!(chain.run(), Err((3, forged_by("a READY", 1))));
}

/// Points of small order, canonical and not: X25519 gives all zeros with each (RFC 7748 section
/// 6.1).
fn small_order() -> Vec<[u8; 32]> {
    let bytes = |first: u8, middle: u8, last: u8| {
        let mut point = [middle; 32];
        (point[0], point[31]) = (first, last);
        point
    };
    vec![
        [0; 32],
        bytes(1, 0, 0),
        // p - 1, p, p + 1.
        bytes(0xec, 0xff, 0x7f),
        bytes(0xed, 0xff, 0x7f),
        bytes(0xee, 0xff, 0x7f),
        // Of order 8.
        [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f,
            0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16,
            0x5f, 0x49, 0xb8, 0x00,
        ],
        [
            0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83,
            0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd,
            0xd0, 0x9f, 0x11, 0x57,
        ],
    ]
}

/// Middlebox 1 signs a one-time key of small order itself. The other middlebox is honest, so the
/// error must name the first.
#[test]
fn a_server_refuses_a_signed_key_of_small_order_and_names_its_middlebox() {
    for kem in KEMS {
        for point in small_order() {
            let mut parties = parties();
            parties.path.kem = kem;
            let key = parties.hops[0].key.clone();
            let mut chain = Chain::new(&parties);
            chain.attack((1, ToServer), move |mut frames| {
                if frames[0][0] != frame::PATH {
                    return frames;
                }
                let before = messages::first_transcript(&frames[0], &frames[1]);
                // What stands before the point in the hybrid key stays valid.
                let mut public = frames[3][6..].to_vec();
                let at = public.len() - 32;
                public[at..].copy_from_slice(&point);
                frames.truncate(2);
                let mut own = Vec::new();
                Hello::signed(&key, 1, &before, &public).put(&mut own);
                frame::put(&mut own, frame::MBKEY, &[&[1], &public]);
                frames.push(own);
                frames
            });
            assert_eq!(chain.run(), Err((3, ContextError::BadKey(1))), "{kem:?}, {point:?}");
            let mut sent = Vec::new();
            chain.server.transmit(&mut sent);
            // Only the ALERT that tells why.
            assert!(super::chain::frames(&sent).iter().all(|one| one[0] != frame::SSHARE));
        }
    }
}

/// Replaces the encapsulation in SSHARE_1 and signs SBIND anew, as only the server can.
fn with_encapsulation(parties: &Parties, change: impl Fn(&mut [u8]) + 'static) -> Chain {
    let kem = parties.path.kem;
    let key = parties.server.key.clone();
    let mut chain = Chain::new(parties);
    let first: Arc<Mutex<Option<Digest>>> = Arc::default();
    chain.attack = Some(Box::new(move |link, direction, mut frames| {
        let last = link == 2;
        if last && direction == ToServer && frames[0][0] == frame::PATH {
            let mut transcript = messages::first_transcript(&frames[0], &frames[1]);
            for hello in frames.iter().filter(|one| one[0] == frame::MBHELLO) {
                transcript = messages::next_transcript(&transcript, hello);
            }
            *first.lock().unwrap() = Some(transcript);
        }
        if last && direction == ToClient && frames.iter().any(|one| one[0] == frame::SBIND) {
            let mut flight = Hasher::default();
            frames
                .iter()
                .take_while(|one| one[0] != frame::ECHO)
                .for_each(|one| flight.update(one));
            let th1 = messages::th1(&first.lock().unwrap().unwrap(), &flight.finish());
            let shares = frames.iter_mut().filter(|one| one[0] == frame::SSHARE);
            let mut hashes = Vec::new();
            for share in shares {
                if share[5] == 1 {
                    change(&mut share[6..6 + kem.output_len()]);
                }
                hashes.push(sha256(&[share]));
            }
            let covered = Bind::covered(&th1, 1, 2, &hashes);
            let proof = BindProof::Signed(key.sign(label::SERVER_BIND, &covered));
            let bind = Bind { tickets: 2, shares: hashes, proof };
            let at = frames.iter().position(|one| one[0] == frame::SBIND).unwrap();
            frames[at] = bind.encode();
        }
        frames
    }));
    chain
}

#[test]
fn a_middlebox_refuses_an_encapsulation_of_small_order_under_a_valid_sbind() {
    for kem in KEMS {
        let mut parties = parties();
        parties.path.kem = kem;
        // The attack by itself changes nothing.
        let mut chain = with_encapsulation(&parties, |_| ());
        chain.run().unwrap();
        assert!(chain.relays[0].handshake().bound().is_some());
        for point in small_order() {
            let change = move |output: &mut [u8]| {
                let at = output.len() - 32;
                output[at..].copy_from_slice(&point);
            };
            let mut chain = with_encapsulation(&parties, change);
            let error = forged("a server's share");
            assert_eq!(chain.run(), Err((1, error)), "{kem:?}, {point:?}");
            assert!(chain.relays[0].handshake().bound().is_none());
        }
    }
}

/// What X25519 gives with a point of small order.
const ZERO: [u8; 32] = [0; 32];

/// SSHARE_1 as HPKE makes it (RFC 9180 sections 4.1 and 5.1) from the output of X25519 and both
/// public keys.
fn sealed_with(dh: &[u8; 32], output: &[u8], public: &[u8], message: &[u8]) -> Vec<u8> {
    let extract = |suite: &[u8], salt: &[u8], name: &str, secret: &[u8]| {
        hmac_sha256(salt, &[b"HPKE-v1", suite, name.as_bytes(), secret])
    };
    let expand = |suite: &[u8], secret: &Digest, name: &str, info: &[u8], length: u8| {
        hmac_sha256(secret, &[&[0, length], b"HPKE-v1", suite, name.as_bytes(), info, &[1]])
    };
    // DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
    let kem = b"KEM\x00\x20";
    let suite = b"HPKE\x00\x20\x00\x01\x00\x02";
    let extracted = extract(kem, b"", "eae_prk", dh);
    let shared = expand(kem, &extracted, "shared_secret", &[output, public].concat(), 32);
    let header = frame::header(frame::SSHARE, 1 + 32 + message.len() + 16);
    let info = [label::SERVER_SHARE.as_bytes(), &[1], &ZERO].concat();
    let hashes = [extract(suite, b"", "psk_id_hash", b""), extract(suite, b"", "info_hash", &info)];
    let context = [&[0][..], &hashes.concat()].concat();
    let secret = extract(suite, &shared, "secret", b"");
    let key = expand(suite, &secret, "key", &context, 32);
    let nonce = expand(suite, &secret, "base_nonce", &context, 12);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
    let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).unwrap();
    let mut sealed = message.to_vec();
    let aad = [&header[..], &[1]].concat();
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).unwrap();
    [&header[..], &[1], output, &sealed].concat()
}

/// With such a point the secret does not depend on the private key, so an attacker could seal for
/// any middlebox.
#[test]
fn a_share_that_is_sealed_with_a_point_of_small_order_does_not_open() {
    let key = OneTimeKey::generate(Kem::X25519).unwrap();
    let open = |share: &[u8]| Share::open_sealed(Kem::X25519, &key, 1, &ZERO, share);
    let message = [9; 64 + 32];
    let own = PrivateKey::generate(&X25519).unwrap();
    let output = own.compute_public_key().unwrap();
    let public = UnparsedPublicKey::new(&X25519, key.public());
    let dh = agree(&own, public, (), |dh| Ok(*dh.first_chunk::<32>().unwrap())).unwrap();
    let honest = open(&sealed_with(&dh, output.as_ref(), key.public(), &message)).unwrap();
    assert_eq!(honest.a.bytes(), &[9; 32]);
    for point in small_order() {
        let share = sealed_with(&ZERO, &point, key.public(), &message);
        assert_eq!(open(&share).err(), Some(forged("a server's share")), "{point:?}");
    }
}
