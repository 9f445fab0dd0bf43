//! The largest paths, and those that are too large; and the other cipher suite.

use std::collections::HashSet;

use levada_core::{SecretKey, SystemRandom};

use super::attacks_handshake::malformed;
use super::chain::{Chain, KEMS, Parties};
use crate::Direction::ToServer;
use crate::Right::{self, None as No, Read, Write};
use crate::{ContextError, MAX_CONTEXTS, MAX_MIDDLEBOXES, frame};
use levada_channel::ClientConfig;

/// A path with as many middleboxes and contexts. No two rows of rights are the same, so that there
/// are as many classes.
fn parties(hops: usize, contexts: usize) -> Parties {
    let row = |context: usize| -> Vec<Right> {
        let right = |hop: usize| match (context >> (hop % 7)) & 1 {
            _ if hop == 15 => Write,
            0 if context == 0 => No,
            0 => Read,
            _ => Write,
        };
        (0..hops).map(right).collect()
    };
    let rows: Vec<Vec<Right>> = (0..contexts).map(row).collect();
    Parties::new(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// In how many contexts and directions a middlebox has seen data.
fn messages_seen(chain: &Chain, hop: usize) -> usize {
    let seen = chain.seen[hop].lock().unwrap();
    let data = seen.iter().filter(|(_, _, data, _)| !data.is_empty());
    data.map(|(direction, context, ..)| (*direction as u8, *context)).collect::<HashSet<_>>().len()
}

#[test]
fn a_session_with_the_most_middleboxes_or_contexts_works_in_full_and_resumed() {
    for (hops, contexts) in [(MAX_MIDDLEBOXES, 3), (7, MAX_CONTEXTS)] {
        for kem in KEMS {
            let mut parties = parties(hops, contexts);
            parties.path.kem = kem;
            for resumed in [false, true] {
                let mut chain = Chain::new(&parties);
                assert_eq!(chain.whole_session(), Ok(()), "{hops}, {contexts}, {kem:?}");
                let all = chain.relays.iter().all(|relay| relay.is_resumed() == Some(resumed));
                assert!(all, "{hops}, {contexts}, {kem:?}, {resumed}");
                // A request and an answer, in every context that it may read.
                let readable = parties.path.contexts.iter().filter(|one| one.rights[0] != No);
                assert_eq!(messages_seen(&chain, 0), 2 * readable.count());
            }
        }
    }
}

#[test]
fn a_session_with_the_most_middleboxes_and_contexts_works() {
    let mut chain = Chain::new(&parties(MAX_MIDDLEBOXES, MAX_CONTEXTS));
    assert_eq!(chain.whole_session(), Ok(()));
    assert_eq!(messages_seen(&chain, 15), 2 * MAX_CONTEXTS);
}

/// What the first middlebox and the server say to another PATH.
fn with_path(parties: &Parties, change: fn(&mut Vec<u8>)) -> [ContextError; 2] {
    let hops = parties.hops.len();
    [(0, 1), (hops, hops + 1)].map(|(link, party)| {
        let mut chain = Chain::new(parties);
        chain.replace((link, ToServer), frame::PATH, move |mut whole| {
            change(&mut whole);
            vec![whole]
        });
        let (found, error) = chain.run().unwrap_err();
        assert_eq!(found, party, "{error}");
        error
    })
}

/// Where the number of middleboxes stands: after header, version, encapsulation, key, and
/// `host.example:1`.
const COUNT: usize = 5 + 2 + 32 + 1 + 14;
/// Bytes of a middlebox with that address.
const HOP: usize = 32 + 16 + 1 + 14;

fn set_length(whole: &mut [u8]) {
    let length = u16::try_from(whole.len() - 5).unwrap();
    whole[3..5].copy_from_slice(&length.to_be_bytes());
}

/// Adds a middlebox with another key, and a byte to each row where one is needed.
fn add_hop(whole: &mut Vec<u8>) {
    let count = whole[COUNT];
    assert_eq!(count, 16);
    whole[COUNT] = count + 1;
    let mut hop = whole[COUNT + 1..][..HOP].to_vec();
    hop[..32].copy_from_slice(SecretKey::generate(&SystemRandom).unwrap().identity().as_bytes());
    let at = COUNT + 1 + HOP * usize::from(count);
    whole.splice(at..at, hop);
    // One context: its row is the end.
    whole.push(0);
    set_length(whole);
}

/// Adds a context without rights.
fn add_context(whole: &mut Vec<u8>) {
    let at = COUNT + 1 + HOP * usize::from(whole[COUNT]);
    assert_eq!(whole[at], 64);
    whole[at] += 1;
    whole.splice(at + 1..at + 1, [0, 0]);
    whole.push(0);
    set_length(whole);
}

#[test]
fn one_middlebox_or_context_too_many_is_refused_by_a_middlebox_and_the_server() {
    let most = || malformed("a PATH without middleboxes or contexts, or with too many");
    assert_eq!(with_path(&parties(MAX_MIDDLEBOXES, 1), add_hop), [most(), most()]);
    assert_eq!(with_path(&parties(1, MAX_CONTEXTS), add_context), [most(), most()]);
    for (hops, contexts) in [(MAX_MIDDLEBOXES + 1, 1), (1, MAX_CONTEXTS + 1)] {
        assert_eq!(parties(hops, contexts).path.encode(), Err(most()));
    }
}

#[test]
fn a_path_over_8_kib_is_refused_before_it_is_read() {
    // A decoder that reads it would complain about the version.
    let longest: fn(&mut Vec<u8>) = |whole| {
        whole.resize(8192, 0);
        whole[5] = 9;
        set_length(whole);
    };
    let longer: fn(&mut Vec<u8>) = |whole| {
        whole.resize(8193, 0);
        whole[5] = 9;
        set_length(whole);
    };
    let parties = parties(1, 1);
    let version = || malformed("a PATH of another version");
    assert_eq!(with_path(&parties, longest), [version(), version()]);
    assert_eq!(with_path(&parties, longer), [malformed("a PATH"), malformed("a PATH")]);
}

#[test]
fn a_session_of_a_client_without_aes_uses_chacha20_poly1305() {
    for rights in [[Read, No], [Write, Read]] {
        let mut parties = Parties::new(&[&rights, &[No, No], &[Write, Write]]);
        let key = SecretKey::generate(&SystemRandom).unwrap();
        parties.client = ClientConfig::chacha20(&key).unwrap();
        for resumed in [false, true] {
            let mut chain = Chain::new(&parties);
            chain.run().unwrap();
            assert!(!chain.client.bound().unwrap().keys.aes);
            assert!(!chain.server.bound().unwrap().keys.aes);
            for relay in &chain.relays {
                assert!(!relay.handshake().bound().unwrap().aes);
                assert_eq!(relay.is_resumed(), Some(resumed));
            }
            assert_eq!(chain.whole_session(), Ok(()));
            assert!(!chain.seen[0].lock().unwrap().is_empty());
        }
    }
}
