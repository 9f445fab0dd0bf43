//! An attacker on both links of a middlebox carries records around it.

use std::cell::RefCell;
use std::rc::Rc;

use super::chain::{Behaviour, Chain, Parties, data_of, events};
use crate::Direction::ToServer;
use crate::Right::{None as No, Read, Write};
use crate::{Action, ContextError, Right, frame};

type Frames = Vec<Vec<u8>>;

fn open(right: Right) -> Chain {
    let mut chain = Chain::new(&Parties::new(&[&[right], &[right]]));
    chain.open();
    chain
}

/// What the middlebox gets of the frames on its link from the client, and what the server gets of
/// these and of what the middlebox sends.
fn around(
    chain: &mut Chain,
    mut give: impl FnMut(&Frames) -> Frames + 'static,
    mut put: impl FnMut(Frames, Frames) -> Frames + 'static,
) {
    let kept = Rc::new(RefCell::new(Frames::new()));
    chain.attack = Some(Box::new(move |link, direction, frames| match (link, direction) {
        (0, ToServer) => {
            let given = give(&frames);
            kept.borrow_mut().extend(frames);
            given
        }
        (1, ToServer) => put(kept.take(), frames),
        _ => frames,
    }));
}

fn request(chain: &mut Chain) {
    chain.client.write(1, b"one").unwrap();
    chain.client.write(2, b"two").unwrap();
    chain.client.finish().unwrap();
}

fn nothing_arrives(chain: &mut Chain) {
    assert_eq!(data_of(&events(&mut chain.server)), (vec![], 0));
}

/// One message, which goes around the middlebox as a whole, with the endpoint's audit.
#[test]
fn without_the_audit_of_a_middlebox_nothing_is_handed_up() {
    for right in [No, Read, Write] {
        let mut chain = open(right);
        let kept = Rc::new(RefCell::new(Frames::new()));
        let keep = kept.clone();
        chain.attack((0, ToServer), move |frames| {
            keep.replace(frames);
            Vec::new()
        });
        request(&mut chain);
        chain.client.close().unwrap();
        chain.run().unwrap();
        let mut frames = kept.take();
        let close = frames.pop().unwrap();
        let exchange = frames.iter().position(|frame| frame[0] == frame::AUDIT).unwrap();
        chain.inject(1, ToServer, &frames[..=exchange].concat());
        chain.run().unwrap();
        nothing_arrives(&mut chain);
        chain.inject(1, ToServer, &close);
        let error = ContextError::Unexpected("a frame in a session");
        assert_eq!(chain.run(), Err((2, error)));
        nothing_arrives(&mut chain);
    }
}

#[test]
fn an_audit_of_another_exchange_does_not_stand_for_the_one_that_went_around() {
    for right in [No, Read, Write] {
        let mut chain = open(right);
        let kept = Rc::new(RefCell::new(Frames::new()));
        let keep = kept.clone();
        chain.attack((1, ToServer), move |frames| {
            keep.replace(frames.clone());
            frames
        });
        request(&mut chain);
        chain.run().unwrap();
        assert_eq!(data_of(&events(&mut chain.server)).1, 1);
        let old = kept.take().pop().unwrap();
        chain.attack = None;
        request(&mut chain);
        let mut frames = Vec::new();
        chain.client.transmit(&mut frames);
        chain.inject(1, ToServer, &[frames, old].concat());
        assert_eq!(chain.run(), Err((2, ContextError::forged_by("an AUDIT", 1))));
        nothing_arrives(&mut chain);
    }
}

/// A middlebox without rights accepts any bytes in a record's place, and so makes an audit over
/// them.
#[test]
fn the_audit_of_a_middlebox_without_rights_is_over_what_it_passed_on() {
    let mut chain = open(No);
    let other = |frames: &Frames| {
        let mut frames = frames.clone();
        *frames[0].last_mut().unwrap() ^= 1;
        frames
    };
    let put_back = |kept: Frames, mut sent: Frames| {
        sent[0] = kept[0].clone();
        sent
    };
    around(&mut chain, other, put_back);
    request(&mut chain);
    assert_eq!(chain.run(), Err((2, ContextError::Audit(1))));
    nothing_arrives(&mut chain);
}

#[test]
fn a_middlebox_that_missed_a_record_has_another_count() {
    let mut chain = open(No);
    around(
        &mut chain,
        |frames| frames[1..].to_vec(),
        |kept, sent| [vec![kept[0].clone()], sent].concat(),
    );
    request(&mut chain);
    assert_eq!(chain.run(), Err((2, ContextError::forged_by("an AUDIT", 1))));
    nothing_arrives(&mut chain);
}

#[test]
fn a_middlebox_with_keys_finds_that_a_record_went_around_it() {
    for right in [Read, Write] {
        let mut chain = open(right);
        around(
            &mut chain,
            |frames| frames[1..].to_vec(),
            |kept, sent| [vec![kept[0].clone()], sent].concat(),
        );
        request(&mut chain);
        let error = ContextError::Forged { what: "a record", hop: Some(0), context: Some(2) };
        assert_eq!(chain.run(), Err((1, error)));
        nothing_arrives(&mut chain);
    }
}

/// Two middleboxes; the attacker is on both links of the second one.
#[test]
fn the_change_of_a_middlebox_cannot_be_left_out() {
    let parties = Parties::new(&[&[No, Write]]);
    let filter: Behaviour = Box::new(|_| Action::Replace(b"filtered".to_vec()));
    let pass: Behaviour = Box::new(|_| Action::Pass);
    let mut chain = Chain::with(&parties, vec![pass, filter]);
    chain.open();
    let mut kept = Frames::new();
    chain.attack = Some(Box::new(move |link, direction, mut frames| {
        match (link, direction) {
            (1, ToServer) => kept = frames.clone(),
            (2, ToServer) => frames[0] = kept[0].clone(),
            _ => {}
        }
        frames
    }));
    chain.client.write(1, b"data").unwrap();
    chain.client.finish().unwrap();
    assert_eq!(chain.run(), Err((3, ContextError::Audit(2))));
    nothing_arrives(&mut chain);
}
