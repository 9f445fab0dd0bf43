use std::time::Duration;

use super::*;
use crate::ChunkSize;
use crate::message::runs_of;

const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);

fn geometry(chunks: u64) -> Geometry {
    Geometry::new(chunks << 16, ChunkSize::DEFAULT).unwrap()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A peer that has got `chunks` from the source, before it had other neighbours.
fn peer_with(chunks: std::ops::Range<u32>) -> Exchange {
    let geometry = geometry(100);
    let have = Bitmap::new(geometry.chunks());
    let mut exchange = Exchange::new(geometry, have, Random::new(1));
    chunks.for_each(|index| exchange.received(PeerId::COORDINATOR, index, at(0)));
    exchange
}

/// The chunks that were offered to `peer` since the last call.
fn offers(exchange: &mut Exchange, peer: PeerId) -> Vec<u32> {
    take(exchange, |output| match output {
        Output::Send(to, Message::Offer(index)) if *to == peer => Some(*index),
        _ => None,
    })
}

/// The chunks that leave for `peer` since the last call.
fn leaving(exchange: &mut Exchange, peer: PeerId) -> Vec<u32> {
    take(exchange, |output| match output {
        Output::SendChunk { to, index, .. } if *to == peer => Some(*index),
        _ => None,
    })
}

/// Removes the outputs for which `chunk` returns one.
fn take(exchange: &mut Exchange, chunk: impl Fn(&Output) -> Option<u32>) -> Vec<u32> {
    let found = exchange.out.iter().filter_map(&chunk).collect();
    exchange.out.retain(|output| chunk(output).is_none());
    found
}

#[test]
fn a_late_answer_to_a_withdrawn_offer_counts() {
    let mut exchange = Exchange::of_source(geometry(100), Random::new(1));
    exchange.link(A, at(0));
    let offered = offers(&mut exchange, A);
    exchange.link(B, at(0));
    offers(&mut exchange, B);
    // Neither answers. What was offered to the first one is given to the other when that says
    // something.
    exchange.handle_timeout(at(3));
    exchange.handle(B, &Message::Decline(99), at(3));
    assert!(offers(&mut exchange, B).iter().all(|index| offered.contains(index)));
    assert_eq!(offers(&mut exchange, A), []);
    for index in &offered {
        exchange.handle(A, &Message::Accept(*index, 0), at(4));
        exchange.handle(A, &Message::Accept(*index, 0), at(4));
    }
    assert_eq!(leaving(&mut exchange, A), offered);
    offered.iter().for_each(|index| exchange.sent(A, *index, at(4)));
    assert!(!offers(&mut exchange, A).is_empty());
    exchange.unlink(A, at(5));
    exchange.unlink(B, at(5));
    let copies = &exchange.copies;
    assert!((0..100).all(|index| copies.all(index) == copies.present(index)));
}

#[test]
fn the_chunk_with_the_fewest_copies_is_passed_on_first() {
    let mut exchange = peer_with(1..3);
    exchange.link(A, at(0));
    assert_eq!(offers(&mut exchange, A), [1, 2]);
    exchange.handle(A, &Message::Have(runs_of(&[1])), at(0));
    exchange.link(B, at(0));
    assert_eq!(offers(&mut exchange, B), [2, 1]);
}

#[test]
fn declined_offers_that_leave_the_uplink_idle_are_followed_by_more_at_a_time() {
    let mut exchange = peer_with(0..100);
    exchange.link(A, at(0));
    let first = offers(&mut exchange, A);
    first.iter().for_each(|index| exchange.handle(A, &Message::Decline(*index), at(0)));
    // As many as before replace them.
    assert!(offers(&mut exchange, A).len() > first.len());
}
