//! What every store must do, as tests that any of them can be given to.
//!
//! A test of a store calls [`check_all`] with a function that makes an empty one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Nothing but tests.

mod blobs;
mod feed;
mod many;
mod publish;
mod search;

use std::io::Read;

use levada_core::{Digest, Identity, SecretKey, UnixTime, sha256};

use super::{Blob, Outcome, Store};
use crate::model::{DescriptorSignature, Draft, Key, Package, Published};

/// When everything happens, unless a check says otherwise.
pub const NOW: UnixTime = UnixTime(1_700_000_000);

/// A check gets an empty store.
pub type Check = fn(&dyn Store);

/// Every check and its name.
pub const CHECKS: &[(&str, Check)] = &[
    ("publish::what_was_published_is_read_back", publish::what_was_published_is_read_back),
    ("publish::a_version_is_created_once", publish::a_version_is_created_once),
    ("publish::every_part_makes_a_version_another", publish::every_part_makes_a_version_another),
    (
        "publish::a_draft_that_breaks_a_bound_is_refused",
        publish::a_draft_that_breaks_a_bound_is_refused,
    ),
    ("publish::many_at_once_are_as_one_by_one", publish::many_at_once_are_as_one_by_one),
    ("publish::versions_ascend", publish::versions_ascend),
    ("publish::a_yanked_version_stays_readable", publish::a_yanked_version_stays_readable),
    (
        "publish::objects_are_listed_in_order_and_pages",
        publish::objects_are_listed_in_order_and_pages,
    ),
    (
        "publish::each_goes_in_the_order_of_publication",
        publish::each_goes_in_the_order_of_publication,
    ),
    ("feed::every_change_has_a_revision", feed::every_change_has_a_revision),
    ("feed::changes_come_in_pages", feed::changes_come_in_pages),
    ("feed::a_revision_of_the_future_is_refused", feed::a_revision_of_the_future_is_refused),
    ("feed::the_audit_log_says_who_did_what", feed::the_audit_log_says_who_did_what),
    ("search::all_words_must_be_there", search::all_words_must_be_there),
    (
        "search::the_newest_version_that_is_not_yanked_counts",
        search::the_newest_version_that_is_not_yanked_counts,
    ),
    (
        "search::names_come_first_and_pages_fit_together",
        search::names_come_first_and_pages_fit_together,
    ),
    ("search::a_batch_is_found_as_one_by_one", search::a_batch_is_found_as_one_by_one),
    ("search::no_text_is_syntax", search::no_text_is_syntax),
    ("blobs::a_blob_is_there_when_it_is_finished", blobs::a_blob_is_there_when_it_is_finished),
    ("blobs::the_same_bytes_are_one_blob", blobs::the_same_bytes_are_one_blob),
    ("blobs::many_at_once_are_as_one_by_one", blobs::many_at_once_are_as_one_by_one),
    ("blobs::what_was_announced_must_come", blobs::what_was_announced_must_come),
    ("blobs::a_package_must_be_here", blobs::a_package_must_be_here),
    ("blobs::garbage_is_collected_and_nothing_else", blobs::garbage_is_collected_and_nothing_else),
    ("blobs::a_sound_store_has_no_findings", blobs::a_sound_store_has_no_findings),
    ("many::of_those_who_race_one_wins", many::of_those_who_race_one_wins),
    (
        "many::collecting_while_others_publish_takes_nothing_in_use",
        many::collecting_while_others_publish_takes_nothing_in_use,
    ),
];

/// Runs every check on a store of its own. Which one runs is said on standard error.
///
/// # Panics
/// If one fails.
pub fn check_all<S: Store>(mut make: impl FnMut() -> S) {
    for (name, check) in CHECKS {
        eprintln!("{name}");
        check(&make());
    }
}

/// A version without a package; `descriptor` is JSON.
pub fn draft(key: &str, version: &str, descriptor: &str) -> Draft {
    Draft {
        key: key.parse().unwrap(),
        version: version.parse().unwrap(),
        descriptor: descriptor.into(),
        package: None,
        signatures: Vec::new(),
    }
}

/// As [`draft`], with `content` uploaded as its package.
pub fn draft_with(store: &dyn Store, key: &str, version: &str, content: &[u8]) -> Draft {
    let package = package(upload(store, content), content.len() as u64);
    Draft { package: Some(package), ..draft(key, version, r#"{"language":"javascript"}"#) }
}

/// A package of some type and description.
pub fn package(digest: Digest, length: u64) -> Package {
    let media_type = "text/javascript".to_owned();
    Package { digest, length, media_type, description: br#"{"encoding":"none"}"#.to_vec() }
}

/// Stores `content`.
pub fn upload(store: &dyn Store, content: &[u8]) -> Digest {
    let mut writer = store.begin_blob().unwrap();
    content.chunks(1000).for_each(|chunk| writer.write(chunk).unwrap());
    let (digest, length) = writer.finish(None).unwrap();
    assert_eq!((digest, length), (sha256(&[content]), content.len() as u64));
    digest
}

/// All of a blob.
pub fn content(store: &dyn Store, digest: &Digest) -> Option<Vec<u8>> {
    match store.open_blob(digest).unwrap()? {
        Blob::Bytes(bytes) => Some(bytes.to_vec()),
        Blob::File(mut file, length) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, length);
            Some(bytes)
        }
    }
}

/// Publishes what must be new; its revision.
pub fn publish(store: &dyn Store, draft: &Draft) -> u64 {
    match store.publish(draft, None, NOW).unwrap() {
        Outcome::Created(revision) => revision,
        other => panic!("{}: {other:?}", draft.key),
    }
}

/// Adds the signature of `key` over all that a version is.
pub fn sign(draft: &mut Draft, key: &SecretKey) {
    let package = draft.package.as_ref().map_or([0; 32], |package| package.digest);
    let (name, version) = (draft.key.to_string(), draft.version.to_string());
    let digest = sha256(&[&draft.descriptor]);
    let message = sha256(&[name.as_bytes(), &[0], version.as_bytes(), &[0], &digest, &package]);
    let signature = key.sign("descriptor", &message);
    draft.signatures.push(DescriptorSignature { identity: key.identity(), signature });
}

/// That `found` is what was published by `by`, at [`NOW`].
pub fn assert_is(found: &Published, draft: &Draft, by: Option<Identity>) {
    assert_eq!((&found.key, &found.version), (&draft.key, &draft.version));
    assert_eq!(found.descriptor, draft.descriptor, "{}", draft.key);
    assert_eq!(found.digest, sha256(&[&draft.descriptor]), "{}", draft.key);
    assert_eq!(parts(found.package.as_ref()), parts(draft.package.as_ref()), "{}", draft.key);
    let signatures = |all: &[DescriptorSignature]| {
        all.iter().map(|one| (one.identity, one.signature)).collect::<Vec<_>>()
    };
    assert_eq!(signatures(&found.signatures), signatures(&draft.signatures), "{}", draft.key);
    assert_eq!((found.publisher, found.published), (by, NOW), "{}", draft.key);
}

fn parts(package: Option<&Package>) -> Option<(Digest, u64, &str, &[u8])> {
    package.map(|it| (it.digest, it.length, it.media_type.as_str(), it.description.as_slice()))
}

fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::to_string).collect()
}
