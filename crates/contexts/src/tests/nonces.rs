//! No nonce is used twice under one key, by all parties together.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::caches::{self, Cache};
use super::chain::{Behaviour, Chain, Parties, events};
use super::probe::take_sealed;
use crate::Right::{Read, Write};
use crate::{Action, Direction, Relay};

/// How many keys have sealed something. No pair of a key and a nonce may occur twice.
fn keys_without_a_repeated_nonce(sealed: Vec<([u8; 32], [u8; 12])>) -> usize {
    let mut seen = HashSet::new();
    for one in &sealed {
        assert!(seen.insert(*one), "a nonce was used twice among {} records", sealed.len());
    }
    sealed.iter().map(|(key, _)| key).collect::<HashSet<_>>().len()
}

/// A writer that replaces every third record, by more than a record holds, by less, or by nothing.
fn rewriting() -> Behaviour {
    let mut count = 0;
    Box::new(move |piece| {
        count += 1;
        match count % 6 {
            // The first middlebox may only read there.
            _ if piece.context == 3 => Action::Pass,
            0 => Action::Replace(piece.data.repeat(40)),
            2 => Action::Replace(Vec::new()),
            4 => Action::Replace(vec![7; 1]),
            _ => Action::Pass,
        }
    })
}

/// Requests and answers in many records and epochs: in tests an epoch has 16 slots.
fn exchanges(chain: &mut Chain) {
    for _ in 0..6 {
        for end in 0..2 {
            for number in 0..20u8 {
                let end = if end == 0 { &mut chain.client } else { &mut chain.server };
                for context in 1..=3 {
                    end.write(context, &[number; 1000]).unwrap();
                }
                end.control(&[number]).unwrap();
                end.flush().unwrap();
                chain.run().unwrap();
            }
            let end = if end == 0 { &mut chain.client } else { &mut chain.server };
            end.finish().unwrap();
            chain.run().unwrap();
            events(&mut chain.client);
            events(&mut chain.server);
        }
    }
}

#[test]
fn rewritten_grown_and_resumed_sessions_repeat_no_nonce() {
    // Two contexts of one class, which share W and R, and one of another.
    let parties = Parties::new(&[&[Write, Write], &[Write, Write], &[Read, Write]]);
    take_sealed();
    for resumed in [false, true] {
        let mut chain = Chain::with(&parties, vec![rewriting(), rewriting()]);
        chain.open();
        exchanges(&mut chain);
        assert_eq!(chain.relays[0].is_resumed(), Some(resumed));
    }
    let sealed = take_sealed();
    // The endpoints alone seal 120 records in each of 4 contexts and both directions of 2 sessions,
    // in 8 epochs.
    assert!(sealed.len() > 120 * 4 * 2 * 2 + 500, "{}", sealed.len());
    let keys = keys_without_a_repeated_nonce(sealed);
    assert!(keys > 8 * 4 * 2 * 2, "{keys}");
}

/// The records of an answer of its own have no slot: their nonces are the middlebox's own count.
#[test]
fn answers_of_a_cache_repeat_no_nonce() {
    let parties = caches::parties(&[Write, Write]);
    take_sealed();
    let stored: Arc<Mutex<caches::Stored>> = Arc::default();
    let mut chain = Chain::new(&parties);
    chain.relays[0] =
        Relay::new(parties.hops[0].clone(), Box::new(Cache::new(&stored)), Instant::now());
    chain.open();
    let before = take_sealed();
    stored.lock().unwrap().answer = Some((b"200".to_vec(), vec![b'b'; 300_000]));
    for _ in 0..5 {
        caches::request(&mut chain);
        events(&mut chain.server);
        events(&mut chain.client);
    }
    assert!(chain.relays[0].flow(Direction::ToClient).is_some());
    let sealed = take_sealed();
    // 19 records of the body and one of the head, five times.
    assert!(sealed.len() > 5 * 20, "{}", sealed.len());
    keys_without_a_repeated_nonce([before, sealed].concat());
}
