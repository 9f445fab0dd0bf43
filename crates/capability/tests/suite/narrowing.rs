//! Links can only narrow rights and caveats: `grant` refuses anything else, and the node refuses
//! forged links.

use levada_capability::{
    Capability, Chain, ChainError, GrantError, LinkBody, LinkError, Narrowing, Operation, Rights,
    VerifyError, Widening,
};
use levada_core::wire::Reason;
use levada_core::{Params, UnixTime};
use zeroize::Zeroizing;

use crate::common::*;

fn refused_grant(capability: &Capability, narrowing: Narrowing) -> GrantError {
    capability.grant(&key(ALICE), identity(BOB), narrowing).unwrap_err()
}

/// The decision of the node about a forged link that differs from Alice's by `change`.
fn refused_link(change: impl FnOnce(&mut LinkBody)) -> Widening {
    let mut forger = Forger::with_root();
    forger.push(&body(ALICE, Rights::EXECUTE | Rights::DISTRIBUTE), NODE);
    let mut next = body(BOB, Rights::EXECUTE);
    next.params = Params::new();
    forger.push(&next, ALICE);
    assert!(forger.connect(BOB).is_ok(), "it holds without the change");
    forger = Forger::with_root();
    forger.push(&body(ALICE, Rights::EXECUTE | Rights::DISTRIBUTE), NODE);
    change(&mut next);
    forger.push(&next, ALICE);
    let refused = forger.connect(BOB).unwrap_err();
    assert_eq!(refused.reason(), Reason::Forged);
    match refused {
        VerifyError::Chain(ChainError::Widened { link: 2, how }) => how,
        other => panic!("{other}"),
    }
}

#[test]
fn a_narrowed_capability_has_the_limits_of_its_last_link() {
    let carol = chain_of_three();
    let verified = present(&carol, CAROL, Operation::Connect).unwrap();
    assert_eq!(verified.rights, Rights::EXECUTE);
    assert_eq!(verified.holder, identity(CAROL));
    assert_eq!(verified.expires, UnixTime(EXPIRES.0 - 1));
    assert_eq!(verified.params, params(&[("a", b"1"), ("b", b"2")]));
    assert_eq!(verified.session, SESSION);
    assert_eq!(verified.ids, carol.ids());
    assert_eq!(verified.identities, [ALICE, BOB, CAROL].map(identity));
    let uses: Vec<_> = carol.ids().into_iter().zip([3, 2, 2]).collect();
    assert_eq!(verified.uses, uses);
    assert_eq!((carol.uses(), carol.params()), (2, &verified.params));
}

#[test]
fn every_set_of_rights_narrows_to_its_subsets_only() {
    for held in (1..=7).map(|byte| Rights::from_byte(byte).unwrap()) {
        let alice = minted(ALICE, held);
        for given in (1..=7).map(|byte| Rights::from_byte(byte).unwrap()) {
            let granted = alice.grant(&key(ALICE), identity(BOB), Narrowing::to_rights(given));
            let may = held.contains(Rights::DISTRIBUTE) && held.contains(given);
            assert_eq!(granted.is_ok(), may, "{held} to {given}");
            let mut forger = Forger::with_text(&alice);
            let mut next = body(BOB, given);
            next.params = Params::new();
            forger.push(&next, ALICE);
            let connects = may && given.contains(Rights::EXECUTE);
            assert_eq!(forger.connect(BOB).is_ok(), connects, "{held} to {given}");
        }
    }
}

#[test]
fn a_capability_without_distribute_cannot_be_granted() {
    let alice = minted(ALICE, Rights::EXECUTE | Rights::TERMINATE);
    let error = refused_grant(&alice, Narrowing::to_rights(Rights::EXECUTE));
    assert_eq!(error, GrantError::Widened(Widening::Distribute));
    let mut forger = Forger::with_text(&alice);
    forger.push(&body(BOB, Rights::EXECUTE), ALICE);
    let expected = ChainError::Widened { link: 2, how: Widening::Distribute };
    assert_eq!(forger.connect(BOB), Err(VerifyError::Chain(expected)));
}

#[test]
fn rights_expiry_uses_and_parameters_never_widen() {
    let alice = minted(ALICE, Rights::EXECUTE | Rights::DISTRIBUTE);
    let same = Narrowing::to_rights(Rights::EXECUTE);
    let grant = |narrowing| match refused_grant(&alice, narrowing) {
        GrantError::Widened(how) => how,
        other => panic!("{other}"),
    };

    assert_eq!(grant(Narrowing::to_rights(Rights::TERMINATE)), Widening::Rights);
    assert_eq!(refused_link(|link| link.rights = Rights::ALL), Widening::Rights);

    for later in [UnixTime(EXPIRES.0 + 1), UnixTime::NEVER] {
        assert_eq!(grant(Narrowing { expires: Some(later), ..same.clone() }), Widening::Expiry);
        assert_eq!(refused_link(|link| link.expires = later), Widening::Expiry);
    }

    assert_eq!(grant(Narrowing { uses: Some(4), ..same.clone() }), Widening::Uses);
    assert_eq!(refused_link(|link| link.uses = 4), Widening::Uses);

    for value in [b"1", b"2"] {
        let again = params(&[("a", value)]);
        let expected = Widening::Parameter("a".into());
        assert_eq!(grant(Narrowing { params: again.clone(), ..same.clone() }), expected);
        assert_eq!(refused_link(|link| link.params = again), expected);
    }
}

#[test]
fn a_parameter_of_any_earlier_link_is_fixed() {
    let mut forger = Forger::with_root();
    forger.push(&body(ALICE, Rights::ALL), NODE);
    let mut next = body(BOB, Rights::ALL);
    next.params = params(&[("b", b"2")]);
    forger.push(&next, ALICE);
    forger.push(&body(CAROL, Rights::ALL), BOB);
    let how = Widening::Parameter("a".into());
    let expected = VerifyError::Chain(ChainError::Widened { link: 3, how });
    assert_eq!(forger.connect(CAROL), Err(expected));
}

#[test]
fn a_link_is_narrowed_against_its_predecessor() {
    let narrow = LinkBody {
        expires: UnixTime(EXPIRES.0 - 10),
        uses: 2,
        params: Params::new(),
        ..body(BOB, Rights::EXECUTE | Rights::DISTRIBUTE)
    };
    let same = LinkBody { identity: identity(CAROL), ..narrow.clone() };
    let connect = |second: &LinkBody, third: &LinkBody| {
        let mut forger = Forger::with_root();
        forger.push(&body(ALICE, Rights::ALL), NODE);
        forger.push(second, ALICE);
        forger.push(third, BOB);
        forger.connect(CAROL)
    };
    let widened = |how| Err(VerifyError::Chain(ChainError::Widened { link: 3, how }));
    assert!(connect(&narrow, &same).is_ok());
    // Each change is within the limits of the first link, and exceeds those of the second.
    let rights = LinkBody { rights: Rights::ALL, ..same.clone() };
    assert_eq!(connect(&narrow, &rights), widened(Widening::Rights));
    let later = LinkBody { expires: EXPIRES, ..same.clone() };
    assert_eq!(connect(&narrow, &later), widened(Widening::Expiry));
    let more = LinkBody { uses: 3, ..same.clone() };
    assert_eq!(connect(&narrow, &more), widened(Widening::Uses));
    let last = LinkBody { rights: Rights::EXECUTE, ..narrow };
    let execute = LinkBody { rights: Rights::EXECUTE, ..same };
    assert_eq!(connect(&last, &execute), widened(Widening::Distribute));
}

#[test]
fn a_forged_capability_cannot_be_granted() {
    let mut forger = Forger::with_text(&minted(ALICE, Rights::ALL));
    let to_mallory = LinkBody { params: Params::new(), ..body(MALLORY, Rights::ALL) };
    forger.push(&to_mallory, MALLORY);
    let secret = Zeroizing::new(forger.secret);
    let forged = Capability::new(forger.chain(), secret, "echo".into(), Vec::new()).unwrap();
    let narrowing = Narrowing::to_rights(Rights::EXECUTE);
    let error = forged.grant(&key(MALLORY), identity(BOB), narrowing).unwrap_err();
    assert_eq!(error, GrantError::Chain(ChainError::Signature(2)));
}

#[test]
fn a_link_without_uses_is_malformed() {
    let mut forger = Forger::with_root();
    forger.push(&LinkBody { uses: 0, ..body(ALICE, Rights::ALL) }, NODE);
    assert_eq!(forger.connect(ALICE), Err(VerifyError::Chain(ChainError::Malformed(1))));
}

#[test]
fn only_the_holder_can_grant() {
    let alice = minted(ALICE, Rights::ALL);
    let narrowing = Narrowing::to_rights(Rights::EXECUTE);
    let error = alice.grant(&key(MALLORY), identity(MALLORY), narrowing).unwrap_err();
    assert_eq!(error, GrantError::NotHolder { holder: identity(ALICE) });
}

#[test]
fn no_uses_and_too_long_parameters_are_refused() {
    let alice = minted(ALICE, Rights::ALL);
    let same = Narrowing::to_rights(Rights::EXECUTE);
    let none = refused_grant(&alice, Narrowing { uses: Some(0), ..same.clone() });
    assert_eq!(none, GrantError::Link(LinkError::NoUses));
    let long = params(&[("b", &[0; Params::MAX_LEN])]);
    let long = refused_grant(&alice, Narrowing { params: long, ..same });
    assert_eq!(long, GrantError::Link(LinkError::ParamsTooLong));
}

#[test]
fn a_chain_has_at_most_sixteen_links() {
    let mut capability = minted(ALICE, Rights::ALL);
    for _ in 1..Chain::MAX_LINKS {
        capability = passed_on(&capability, ALICE, ALICE, Rights::ALL);
    }
    assert!(present(&capability, ALICE, Operation::Connect).is_ok());
    let error = refused_grant(&capability, Narrowing::to_rights(Rights::ALL));
    assert_eq!(error, GrantError::Chain(ChainError::Length));

    let mut forger = Forger::with_text(&capability);
    let mut next = body(ALICE, Rights::ALL);
    next.params = Params::new();
    forger.push(&next, ALICE);
    assert_eq!(forger.connect(ALICE), Err(VerifyError::Chain(ChainError::Length)));
}

#[test]
fn a_chain_fits_into_one_message() {
    let mut capability = minted(ALICE, Rights::ALL);
    let error = (0..Chain::MAX_LINKS)
        .find_map(|number| {
            let params = params(&[(&format!("p{number}"), &[0; Params::MAX_LEN - 16])]);
            let narrowing = Narrowing { params, ..Narrowing::to_rights(Rights::ALL) };
            let granted = capability.grant(&key(ALICE), identity(ALICE), narrowing);
            granted.map(|granted| capability = granted).err()
        })
        .unwrap();
    assert_eq!(error, GrantError::Chain(ChainError::TooLong));
    let message = capability.present(&EXPORTER, Operation::Connect);
    assert!(levada_core::wire::encode(&message).len() < levada_core::wire::MAX_MESSAGE);
    assert!(present(&capability, ALICE, Operation::Connect).is_ok());
}
