//! The conformance suite: tests that every implementation of [`Store`] must pass.
//!
//! The test of a store calls [`check_all`] with a function that returns an empty store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests.

mod blobs;
mod feed;
mod many;
mod publish;
mod search;
mod support;

use super::Store;

pub use support::{NOW, assert_is, content, draft, draft_with, package, publish, sign, upload};

/// A check, called with an empty store.
pub type Check = fn(&dyn Store);

/// All checks with their names.
pub const CHECKS: &[(&str, Check)] = &[
    ("publish::reads_back_what_was_published", publish::reads_back_what_was_published),
    ("publish::a_version_is_created_once", publish::a_version_is_created_once),
    ("publish::any_difference_is_a_conflict", publish::any_difference_is_a_conflict),
    (
        "publish::a_draft_that_exceeds_a_limit_is_refused",
        publish::a_draft_that_exceeds_a_limit_is_refused,
    ),
    ("publish::a_batch_equals_single_calls", publish::a_batch_equals_single_calls),
    (
        "publish::one_refused_version_of_a_batch_stops_no_other",
        publish::one_refused_version_of_a_batch_stops_no_other,
    ),
    ("publish::versions_ascend", publish::versions_ascend),
    ("publish::a_yanked_version_stays_readable", publish::a_yanked_version_stays_readable),
    (
        "publish::objects_are_listed_in_order_and_pages",
        publish::objects_are_listed_in_order_and_pages,
    ),
    (
        "publish::each_follows_the_order_of_publication",
        publish::each_follows_the_order_of_publication,
    ),
    ("feed::every_change_has_a_revision", feed::every_change_has_a_revision),
    ("feed::changes_come_in_pages", feed::changes_come_in_pages),
    ("feed::an_unknown_revision_is_refused", feed::an_unknown_revision_is_refused),
    ("feed::the_audit_log_records_every_action", feed::the_audit_log_records_every_action),
    ("search::a_hit_has_all_words", search::a_hit_has_all_words),
    (
        "search::search_uses_the_newest_version_that_is_not_yanked",
        search::search_uses_the_newest_version_that_is_not_yanked,
    ),
    (
        "search::hits_in_names_come_first_on_all_pages",
        search::hits_in_names_come_first_on_all_pages,
    ),
    ("search::a_published_batch_is_found", search::a_published_batch_is_found),
    ("search::a_query_has_no_syntax", search::a_query_has_no_syntax),
    ("blobs::a_blob_is_visible_when_it_is_finished", blobs::a_blob_is_visible_when_it_is_finished),
    ("blobs::the_same_bytes_are_one_blob", blobs::the_same_bytes_are_one_blob),
    ("blobs::a_batch_equals_single_calls", blobs::a_batch_equals_single_calls),
    (
        "blobs::an_upload_must_have_the_announced_digest",
        blobs::an_upload_must_have_the_announced_digest,
    ),
    ("blobs::a_package_must_be_stored", blobs::a_package_must_be_stored),
    ("blobs::collects_unreferenced_blobs_only", blobs::collects_unreferenced_blobs_only),
    ("blobs::a_hash_tree_stays_with_its_blob", blobs::a_hash_tree_stays_with_its_blob),
    ("blobs::a_sound_store_has_no_findings", blobs::a_sound_store_has_no_findings),
    (
        "many::one_of_several_concurrent_publications_wins",
        many::one_of_several_concurrent_publications_wins,
    ),
    (
        "many::concurrent_collection_keeps_published_packages",
        many::concurrent_collection_keeps_published_packages,
    ),
];

/// Runs every check on a new store, and prints its name on standard error.
///
/// # Panics
/// If a check fails.
pub fn check_all<S: Store>(mut make: impl FnMut() -> S) {
    for (name, check) in CHECKS {
        eprintln!("{name}");
        check(&make());
    }
}
