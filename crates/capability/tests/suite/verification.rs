//! Presentations that the node must refuse.

use levada_capability::{
    Chain, ChainError, Context, LinkBody, Operation, Presented, Rights, SessionId, VerifyError,
};
use levada_core::wire::{Presentation, Reason};
use levada_core::{Params, UnixTime};

use crate::common::*;

const OPERATIONS: [Operation; 3] = [Operation::Connect, Operation::Terminate, Operation::Revoke];

#[test]
fn each_right_and_each_pair_permits_its_operations_only() {
    for rights in (1..=7).map(|byte| Rights::from_byte(byte).unwrap()) {
        let alice = minted(ALICE, rights);
        for operation in OPERATIONS {
            let refused = match operation.right() {
                Some(right) if !rights.contains(right) => Some(VerifyError::Right(right)),
                _ => None,
            };
            assert_eq!(present(&alice, ALICE, operation).err(), refused, "{rights}");
        }
    }
    assert_eq!(VerifyError::Right(Rights::EXECUTE).reason(), Reason::Denied);
}

#[test]
fn expiry_ends_the_right_to_start_and_no_other() {
    let alice = minted(ALICE, Rights::ALL);
    for operation in OPERATIONS {
        let message = alice.present(&EXPORTER, operation);
        let at = |now| check(message.clone(), &Context { now, ..context(ALICE, operation) });
        assert!(at(UnixTime(EXPIRES.0 - 1)).is_ok());
        let refused = (operation == Operation::Connect).then_some(VerifyError::Expired(EXPIRES));
        assert_eq!(at(EXPIRES).err(), refused);
    }
    let never = LinkBody { expires: UnixTime::NEVER, ..body(ALICE, Rights::EXECUTE) };
    let mut forger = Forger::with_root();
    forger.push(&never, NODE);
    let message = forger.presentation("connect");
    let end_of_time = Context { now: UnixTime::NEVER, ..context(ALICE, Operation::Connect) };
    assert!(check(message, &end_of_time).is_ok());
}

#[test]
fn only_the_last_holder_starts_or_ends_a_session() {
    let carol = chain_of_three();
    for peer in [NODE, ALICE, BOB, MALLORY] {
        assert_eq!(present(&carol, peer, Operation::Connect), Err(VerifyError::NotHolder));
        assert_eq!(present(&carol, peer, Operation::Terminate), Err(VerifyError::NotHolder));
    }
    assert_eq!(VerifyError::NotHolder.reason(), Reason::Foreign);
}

#[test]
fn every_holder_on_the_chain_and_the_node_can_revoke() {
    let carol = chain_of_three();
    for peer in [NODE, ALICE, BOB, CAROL] {
        assert!(present(&carol, peer, Operation::Revoke).is_ok());
    }
    assert_eq!(present(&carol, MALLORY, Operation::Revoke), Err(VerifyError::NotHolder));
}

#[test]
fn another_node_connection_or_operation_is_refused() {
    let alice = minted(ALICE, Rights::ALL);
    let message = alice.present(&EXPORTER, Operation::Connect);
    let here = context(ALICE, Operation::Connect);
    assert!(check(message.clone(), &here).is_ok());
    let elsewhere = Context { node: identity(BOB), ..here };
    assert_eq!(check(message.clone(), &elsewhere), Err(VerifyError::Foreign));
    let replayed = Context { exporter: &[0; 32], ..here };
    assert_eq!(check(message.clone(), &replayed), Err(VerifyError::Forged));
    for operation in [Operation::Terminate, Operation::Revoke] {
        let other = Context { operation, ..here };
        assert_eq!(check(message.clone(), &other), Err(VerifyError::Forged));
    }
}

#[test]
fn another_root_is_refused() {
    let guess = minted_from(&[0; 32], SESSION, &body(MALLORY, Rights::ALL));
    assert_eq!(present(&guess, MALLORY, Operation::Connect), Err(VerifyError::Forged));
    let other = minted_from(&ROOT, SessionId::from_bytes([0; 16]), &body(ALICE, Rights::ALL));
    let mut message = other.present(&EXPORTER, Operation::Connect);
    message.links = minted(ALICE, Rights::ALL).present(&EXPORTER, Operation::Connect).links;
    assert_eq!(check(message, &context(ALICE, Operation::Connect)), Err(VerifyError::Forged));
}

/// Flips each bit of each part in turn; the node must refuse each result.
fn flip_each(
    genuine: &Presentation,
    parts: impl Fn(&mut Presentation) -> Vec<&mut Vec<u8>>,
    mut ask: impl FnMut(Presentation),
) -> usize {
    let mut copy = genuine.clone();
    let lengths: Vec<usize> = parts(&mut copy).iter().map(|part| part.len()).collect();
    for (part, length) in lengths.iter().enumerate() {
        for bit in 0..length * 8 {
            let mut flipped = genuine.clone();
            parts(&mut flipped)[part][bit / 8] ^= 1 << (bit % 8);
            ask(flipped);
        }
    }
    lengths.iter().sum()
}

#[test]
fn every_flipped_bit_is_refused() {
    let genuine = chain_of_three().present(&EXPORTER, Operation::Connect);
    let here = context(CAROL, Operation::Connect);
    assert!(check(genuine.clone(), &here).is_ok());
    let links = flip_each(
        &genuine,
        |m| m.links.iter_mut().collect(),
        |flipped| {
            let refused = check(flipped, &here).unwrap_err();
            // The proof fails before rights are checked.
            assert!(
                matches!(
                    refused,
                    VerifyError::Chain(ChainError::Malformed(_))
                        | VerifyError::Foreign
                        | VerifyError::NotHolder
                        | VerifyError::Forged
                ),
                "{refused}"
            );
        },
    );
    assert!(links > 3 * 62);
    flip_each(
        &genuine,
        |m| m.signatures.iter_mut().collect(),
        |flipped| {
            let refused = check(flipped, &here).unwrap_err();
            assert!(
                matches!(refused, VerifyError::Chain(ChainError::Signature(2 | 3))),
                "{refused}"
            );
        },
    );
    flip_each(
        &genuine,
        |m| vec![&mut m.proof],
        |flipped| {
            assert_eq!(check(flipped, &here), Err(VerifyError::Forged));
        },
    );
}

#[test]
fn every_cut_and_every_longer_part_is_refused() {
    let genuine = chain_of_three().present(&EXPORTER, Operation::Connect);
    let here = context(CAROL, Operation::Connect);
    let refused = |change: &dyn Fn(&mut Presentation)| {
        let mut message = genuine.clone();
        change(&mut message);
        let refused = check(message, &here).unwrap_err();
        assert_eq!(refused.reason(), Reason::Malformed, "{refused}");
    };
    for link in 0..3 {
        for length in 0..genuine.links[link].len() {
            refused(&|message| message.links[link].truncate(length));
        }
        refused(&|message| message.links[link].push(0));
    }
    refused(&|message| message.signatures[1].truncate(63));
    refused(&|message| message.signatures[0].push(0));
    refused(&|message| message.signatures.truncate(1));
    refused(&|message| message.signatures.push(vec![0; 64]));
    refused(&|message| message.proof.truncate(31));
    refused(&|message| message.proof.push(0));
    refused(&|message| message.links.clear());
    refused(&|message| message.links.truncate(1));
}

#[test]
fn an_observer_of_a_capability_cannot_grant_it() {
    let mut forger = Forger::with_text(&minted(ALICE, Rights::ALL));
    let to_himself = LinkBody { params: Params::new(), ..body(MALLORY, Rights::ALL) };
    forger.push(&to_himself, MALLORY);
    let expected = VerifyError::Chain(ChainError::Signature(2));
    assert_eq!(forger.connect(MALLORY), Err(expected.clone()));
    assert_eq!(expected.reason(), Reason::Forged);
}

#[test]
fn chains_cannot_be_spliced() {
    let alice = minted(ALICE, Rights::ALL);
    let [bob, carol] = [BOB, CAROL].map(|to| passed_on(&alice, ALICE, to, Rights::ALL));
    let to_mallory = passed_on(&bob, BOB, MALLORY, Rights::ALL);
    assert!(present(&to_mallory, MALLORY, Operation::Connect).is_ok());

    // Mallory appends a link from Bob to the chain of Carol, whose text is known, or to Alice's
    // first link. Bob's signature covers the links before it.
    for stem in [&carol, &alice] {
        let mut forger = Forger::with_text(stem);
        let genuine = Forger::with_text(&to_mallory);
        forger.push_raw(genuine.links[2].clone());
        forger.signatures.push(genuine.signatures[1].clone());
        let at = forger.links.len();
        assert_eq!(forger.connect(MALLORY), Err(VerifyError::Chain(ChainError::Signature(at))));
    }
}

#[test]
fn links_cannot_be_dropped_swapped_or_repeated() {
    let genuine = Forger::with_text(&chain_of_three());
    let refused = |change: &dyn Fn(&mut Forger)| {
        let mut forger = genuine.clone();
        change(&mut forger);
        for peer in [ALICE, BOB, CAROL] {
            assert!(forger.connect(peer).is_err());
        }
    };
    refused(&|forger| {
        forger.links.pop();
        forger.signatures.pop();
    });
    refused(&|forger| {
        forger.links.remove(1);
        forger.signatures.remove(0);
    });
    refused(&|forger| forger.links.swap(1, 2));
    refused(&|forger| {
        forger.links.swap(1, 2);
        forger.signatures.swap(0, 1);
    });
    refused(&|forger| {
        forger.links.push(forger.links[2].clone());
        forger.signatures.push(forger.signatures[1].clone());
    });
}

#[test]
fn the_last_secret_proves_no_shorter_chain() {
    // Carol has only the last secret, and earlier ones cannot be derived from it.
    let carol = chain_of_three();
    let mut forger = Forger::with_text(&carol);
    forger.links.truncate(2);
    forger.signatures.truncate(1);
    assert_eq!(forger.connect(BOB), Err(VerifyError::Forged));
}

#[test]
fn ids_name_each_link_and_all_behind_it() {
    let alice = minted(ALICE, Rights::ALL);
    let bob = passed_on(&alice, ALICE, BOB, Rights::ALL);
    let carol = passed_on(&bob, BOB, CAROL, Rights::ALL);
    let also_bob = passed_on(&alice, ALICE, BOB, Rights::EXECUTE);
    assert_eq!(carol.ids()[..2], bob.ids());
    assert_eq!(bob.ids()[0], alice.ids()[0]);
    assert_ne!(also_bob.ids()[1], bob.ids()[1]);
    assert_eq!(carol.chain().last_id(), carol.ids()[2]);
    let session = SessionId::from_bytes([0; 16]);
    let other = minted_from(&ROOT, session, &body(ALICE, Rights::ALL));
    assert_ne!(other.ids(), alice.ids());
}

#[test]
fn the_session_can_be_read_without_the_root() {
    let message = chain_of_three().present(&EXPORTER, Operation::Connect);
    let presented = Presented::decode(message).unwrap();
    assert_eq!(presented.session(), SESSION);
    assert_eq!(presented.chain().node(), identity(NODE));
    assert_eq!(presented.chain(), &Forger::with_text(&chain_of_three()).chain());
}

#[test]
fn refusals_are_one_line_for_any_input() {
    let mut forger = Forger::with_root();
    let named = params(&[(&format!("\x1b[2J\n{}", "x".repeat(9000)), b"")]);
    let first = LinkBody { params: named.clone(), ..body(ALICE, Rights::ALL) };
    forger.push(&first, NODE);
    forger.push(&LinkBody { params: named, ..body(BOB, Rights::ALL) }, ALICE);
    let text = forger.connect(BOB).unwrap_err().to_string();
    assert!(text.len() < 512 && !text.chars().any(char::is_control), "{text}");
}

#[test]
fn arbitrary_presentations_never_panic() {
    type Bytes = (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<u8>);
    let genuine = chain_of_three().present(&EXPORTER, Operation::Connect);
    let here = context(CAROL, Operation::Connect);
    bolero::check!().with_type::<Bytes>().for_each(|(links, signatures, proof)| {
        assert!(Chain::decode(links.clone(), signatures).is_err());
        let mut message = genuine.clone();
        for (link, tail) in message.links.iter_mut().zip(links) {
            link.truncate(tail.len());
            link.extend_from_slice(tail);
        }
        if message != genuine {
            assert!(check(message.clone(), &here).is_err());
        }
        message.proof.clone_from(proof);
        assert!(check(message, &here).is_err());
    });
}
