use std::time::Duration;

use levada_core::{Clock, SystemClock, sha256};

use super::support::{NOW, content, draft, draft_with, package, publish, upload};
use crate::model::Draft;
use crate::store::{Action, Collected, Outboard, Store, StoreError};

const HOUR: Duration = Duration::from_secs(3600);

pub fn a_blob_is_visible_when_it_is_finished(store: &dyn Store) {
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.wrapping_mul(n) as u8).collect();
    let digest = sha256(&[&bytes]);
    let state = || (store.has_blob(&digest).unwrap(), content(store, &digest).is_some());
    let mut writer = store.begin_blob().unwrap();
    writer.write(&bytes).unwrap();
    assert_eq!(state(), (false, false));
    drop(writer);
    assert_eq!(state(), (false, false));
    assert_eq!(upload(store, &bytes), digest);
    assert_eq!(state(), (true, true));
    assert_eq!(content(store, &digest).unwrap(), bytes);
    assert_eq!(content(store, &upload(store, b"")).unwrap(), b"");
}

pub fn the_same_bytes_are_one_blob(store: &dyn Store) {
    let digest = upload(store, b"twice");
    let replaced = store.replaced();
    let mut late = store.begin_blob().unwrap();
    late.write(b"twice").unwrap();
    upload(store, b"twice");
    assert_eq!(late.finish(Some(&digest)).unwrap(), (digest, 5));
    assert_eq!(store.replaced(), replaced + 2, "content that was read before must be read again");
    let later = SystemClock.now().after(2 * HOUR);
    assert_eq!(store.collect(HOUR, None, later).unwrap(), Collected { blobs: 1, bytes: 5 });
    assert!(!store.has_blob(&digest).unwrap() && content(store, &digest).is_none());
}

pub fn a_batch_equals_single_calls(store: &dyn Store) {
    upload(store, b"content 3");
    let mut contents: Vec<Vec<u8>> = (0..50).map(|n| format!("content {n}").into_bytes()).collect();
    contents.extend([Vec::new(), vec![7; 100_000], b"content 5".to_vec()]);
    let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let digests = store.add_blobs(&contents).unwrap();
    assert_eq!(digests.len(), contents.len());
    for (digest, bytes) in digests.iter().zip(&contents) {
        assert_eq!(*digest, sha256(&[*bytes]));
        assert!(store.has_blob(digest).unwrap());
        assert_eq!(content(store, digest).unwrap(), *bytes);
    }
    assert!(store.add_blobs(&[]).unwrap().is_empty());
    assert_eq!(store.add_blobs(&contents[..2]).unwrap(), digests[..2]);
    publish(
        store,
        &Draft { package: Some(package(digests[9], 9)), ..draft("hyperty/a", "1.0.0", "{}") },
    );
    let later = SystemClock.now().after(2 * HOUR);
    assert_eq!(store.collect(HOUR, None, later).unwrap().blobs, 51);
    assert_eq!(content(store, &digests[9]).unwrap(), b"content 9");
}

pub fn an_upload_must_have_the_announced_digest(store: &dyn Store) {
    let mut writer = store.begin_blob().unwrap();
    writer.write(b"something").unwrap();
    let expected = sha256(&[b"another thing"]);
    let found = sha256(&[b"something"]);
    let outcome = writer.finish(Some(&expected));
    let Err(StoreError::WrongDigest { expected: said, found: came }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((said, came), (expected, found));
    assert!(!store.has_blob(&expected).unwrap() && !store.has_blob(&found).unwrap());
}

pub fn a_package_must_be_stored(store: &dyn Store) {
    let whole = draft_with(store, "hyperty/a", "1.0.0", b"code");
    let missing = Draft { package: Some(package([7; 32], 4)), ..whole.clone() };
    let outcome = store.publish(&missing, None, NOW);
    assert!(matches!(outcome, Err(StoreError::NoSuchBlob(digest)) if digest == [7; 32]));
    let digest = sha256(&[b"code"]);
    let short = Draft { package: Some(package(digest, 3)), ..whole.clone() };
    let outcome = store.publish(&short, None, NOW);
    assert!(matches!(outcome, Err(StoreError::PackageLength { claimed: 3, found: 4, .. })));
    assert_eq!((store.revision().unwrap(), store.audit(9, None).unwrap().len()), (0, 0));
    publish(store, &whole);
}

pub fn collects_unreferenced_blobs_only(store: &dyn Store) {
    let used = draft_with(store, "hyperty/a", "1.0.0", b"used");
    publish(store, &used);
    let yanked = draft_with(store, "hyperty/b", "1.0.0", b"yanked");
    publish(store, &yanked);
    store.yank(&yanked.key, &yanked.version, true, None, NOW).unwrap();
    let unused = [upload(store, b"unused"), upload(store, b"not used")];
    let now = SystemClock.now();
    assert_eq!(store.collect(HOUR, None, now).unwrap(), Collected::default());
    assert!(store.has_blob(&unused[0]).unwrap(), "within the grace period");
    let collected = store.collect(HOUR, None, now.after(2 * HOUR)).unwrap();
    assert_eq!(collected, Collected { blobs: 2, bytes: 14 });
    assert!(unused.iter().all(|digest| !store.has_blob(digest).unwrap()));
    assert!(unused.iter().all(|digest| content(store, digest).is_none()));
    for kept in [&b"used"[..], b"yanked"] {
        assert_eq!(content(store, &sha256(&[kept])).unwrap(), kept);
    }
    assert_eq!(store.audit(1, None).unwrap()[0].action, Action::Collect);
    assert_eq!(store.collect(HOUR, None, now.after(2 * HOUR)).unwrap(), Collected::default());
    // A collected blob can be uploaded again.
    upload(store, b"unused");
    publish(store, &draft_with(store, "hyperty/c", "1.0.0", b"unused"));
}

pub fn a_hash_tree_stays_with_its_blob(store: &dyn Store) {
    let digest = sha256(&[b"long"]);
    let tree =
        |number| Outboard { root: [number; 32], part: 65_536, hashes: vec![[number; 32]; 3] };
    store.add_outboard(&digest, &tree(1)).unwrap();
    assert_eq!(store.outboard(&digest).unwrap(), None);
    upload(store, b"long");
    for number in [2, 3] {
        store.add_outboard(&digest, &tree(number)).unwrap();
        assert_eq!(store.outboard(&digest).unwrap(), Some(tree(number)));
    }
    upload(store, b"long");
    assert_eq!(store.outboard(&digest).unwrap(), Some(tree(3)));
    let later = SystemClock.now().after(2 * HOUR);
    assert_eq!(store.collect(HOUR, None, later).unwrap().blobs, 1);
    assert_eq!(store.outboard(&digest).unwrap(), None);
}

pub fn a_sound_store_has_no_findings(store: &dyn Store) {
    for n in 0..40 {
        let bytes = vec![n; 1000 * usize::from(n % 4)];
        publish(
            store,
            &draft_with(store, &format!("hyperty/o{}", n % 10), &format!("{n}.0.0"), &bytes),
        );
    }
    let late = draft("hyperty/o9", "39.0.0", "{}");
    store.yank(&late.key, &late.version, true, None, NOW).unwrap();
    let mut findings = Vec::new();
    let verified = store.verify(&mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    // Those of length 0 are one blob.
    assert_eq!((verified.versions, verified.blobs, verified.findings), (40, 31, 0));
    assert_eq!(verified.bytes, 60_000);
}
