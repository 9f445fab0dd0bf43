//! The searches.

use std::collections::BTreeSet;

use crate::Protection::{
    ClientHalfSealed, EndorsedRequest, HelloCoversKey, HelloTagForServer, ReadyUnderZ, ShareUnderY,
    SharesBound,
};
use crate::Right::{Nothing, Read, Write};
use crate::Violation::{Forgeable, Imitated, Secret};
use crate::{Middlebox, Protection, Right, Setting, Violation, check};

/// The rights of a cache, which here are in requests and responses, and none in the third context.
const CACHE: [Right; 3] = [Write, Write, Nothing];

fn honest(rights: [Right; 3]) -> Middlebox {
    Middlebox { corrupt: false, rights }
}

fn corrupt(rights: [Right; 3]) -> Middlebox {
    Middlebox { corrupt: true, rights }
}

fn setting(boxes: &[Middlebox], removed: &[Protection]) -> Setting {
    Setting { boxes: boxes.to_vec(), removed: removed.to_vec() }
}

/// Searches and shows that the honest client's sessions, full and resumed, come about at all.
fn violations(boxes: &[Middlebox], removed: &[Protection]) -> BTreeSet<Violation> {
    let outcome = check(setting(boxes, removed));
    assert!(outcome.accepted[0] >= 2 && outcome.accepted[1] >= 2, "{boxes:?}: {outcome:?}");
    let caches = boxes.iter().any(|hop| !hop.corrupt && hop.rights[..2] == [Write, Write]);
    let attacked = removed.contains(&HelloCoversKey);
    assert_eq!(caches && !attacked, outcome.stored > 0, "{boxes:?}: {outcome:?}");
    outcome.violations
}

/// Every pair of rights in requests and responses; the third context has what the number selects.
fn all_rights(other: Right) -> Vec<[Right; 3]> {
    let rights = [Nothing, Read, Write];
    rights.iter().flat_map(|first| rights.map(|second| [*first, second, other])).collect()
}

#[test]
fn one_middlebox_with_any_rights() {
    for rights in all_rights(Nothing).into_iter().chain(all_rights(Write)) {
        for hop in [honest(rights), corrupt(rights)] {
            assert_eq!(violations(&[hop], &[]), BTreeSet::new(), "{hop:?}");
        }
    }
}

#[test]
fn a_cache_beside_a_corrupt_middlebox() {
    for rights in [CACHE, [Read, Read, Read], [Write, Read, Write], [Read, Write, Nothing]] {
        for boxes in [[honest(CACHE), corrupt(rights)], [corrupt(rights), honest(CACHE)]] {
            assert_eq!(violations(&boxes, &[]), BTreeSet::new(), "{boxes:?}");
        }
    }
}

/// All rights of two middleboxes, of which none, either, or both are corrupt.
#[test]
fn two_middleboxes_with_any_rights() {
    let pairs = all_rights(Read)
        .into_iter()
        .flat_map(|first| all_rights(Write).into_iter().map(move |second| (first, second)));
    for (first, second) in pairs {
        for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
            let boxes = [
                Middlebox { corrupt: one, rights: first },
                Middlebox { corrupt: other, rights: second },
            ];
            assert_eq!(violations(&boxes, &[]), BTreeSet::new(), "{boxes:?}");
        }
    }
}

/// The violations that the search finds when one protection is removed; they are the same in both
/// orders.
fn found_without(removed: Protection) -> BTreeSet<Violation> {
    let boxes = [honest(CACHE), corrupt(CACHE)];
    let found = violations(&boxes, &[removed]);
    let reversed = violations(&[boxes[1], boxes[0]], &[removed]);
    assert_eq!(found, reversed, "{removed:?}");
    found
}

#[test]
fn c1_a_share_under_psk_lets_a_client_forge_endorsements() {
    let found = found_without(ShareUnderY);
    let expected = [
        Secret("z of an honest middlebox"),
        Imitated("endorsement at a cache"),
        Forgeable("endorsement at a cache"),
        Forgeable("READY at the server"),
        Forgeable("SSHARE at a middlebox"),
    ];
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn c2_without_a_tag_for_the_server_a_client_plays_the_middlebox() {
    let found = found_without(HelloTagForServer);
    assert_eq!(found, BTreeSet::from([Imitated("MBHELLO at the server")]));
}

#[test]
fn c3_a_client_that_has_the_key_of_ready_plays_the_middlebox() {
    let found = found_without(ReadyUnderZ);
    assert_eq!(found, BTreeSet::from([Forgeable("READY at the server")]));
}

/// Together they let a session come about in which an honest middlebox has no part at all.
#[test]
fn c2_and_c3_together_leave_no_trace_of_the_middlebox() {
    let outcome = check(setting(&[honest(CACHE)], &[HelloTagForServer, ReadyUnderZ]));
    let expected = [Imitated("MBHELLO at the server"), Imitated("READY at the server")];
    assert!(outcome.violations.is_superset(&BTreeSet::from(expected)), "{outcome:?}");
}

#[test]
fn r2_an_endorsement_of_the_answer_alone_is_stored_under_another_request() {
    let found = found_without(EndorsedRequest);
    assert_eq!(found, BTreeSet::from([Imitated("endorsement at a cache")]));
}

#[test]
fn a_signature_that_omits_the_kem_key_gives_the_shares_away() {
    let found = found_without(HelloCoversKey);
    assert!(found.contains(&Secret("z of an honest middlebox")), "{found:?}");
    assert!(found.contains(&Secret("a of an honest middlebox")), "{found:?}");
}

#[test]
fn a_server_signature_that_omits_the_shares_lets_others_in() {
    let found = found_without(SharesBound);
    assert!(found.contains(&Imitated("SSHARE at a middlebox")), "{found:?}");
    assert!(found.contains(&Imitated("endorsement at a cache")), "{found:?}");
}

#[test]
fn client_halves_in_the_clear_can_be_replaced() {
    let found = found_without(ClientHalfSealed);
    assert_eq!(found, BTreeSet::from([Imitated("CSHARE at a middlebox")]));
}
