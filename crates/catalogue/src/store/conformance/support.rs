//! What the checks share: drafts, uploads and assertions.

use std::io::Read;

use levada_core::{Digest, Identity, SecretKey, UnixTime, sha256};

use crate::model::{DescriptorSignature, Draft, Key, Package, Published};
use crate::store::{Blob, Outcome, Store};

/// The time of every call, unless a check uses another.
pub const NOW: UnixTime = UnixTime(1_700_000_000);

/// A draft without a package; `descriptor` is JSON.
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

/// A package with an arbitrary type and description.
pub fn package(digest: Digest, length: u64) -> Package {
    let media_type = "text/javascript".to_owned();
    Package { digest, length, media_type, description: br#"{"encoding":"none"}"#.to_vec() }
}

/// Uploads `content` and returns its digest.
pub fn upload(store: &dyn Store, content: &[u8]) -> Digest {
    let mut writer = store.begin_blob().unwrap();
    content.chunks(1000).for_each(|chunk| writer.write(chunk).unwrap());
    let (digest, length) = writer.finish(None).unwrap();
    assert_eq!((digest, length), (sha256(&[content]), content.len() as u64));
    digest
}

/// The content of a blob.
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

/// Publishes a draft that must be new, and returns its revision.
pub fn publish(store: &dyn Store, draft: &Draft) -> u64 {
    match store.publish(draft, None, NOW).unwrap() {
        Outcome::Created(revision) => revision,
        other => panic!("{}: {other:?}", draft.key),
    }
}

/// Adds the signature of `key`.
pub fn sign(draft: &mut Draft, key: &SecretKey) {
    let package = draft.package.as_ref().map_or([0; 32], |package| package.digest);
    let name = draft.key.to_string();
    let version = draft.version.to_string();
    let digest = sha256(&[&draft.descriptor]);
    let message = sha256(&[name.as_bytes(), &[0], version.as_bytes(), &[0], &digest, &package]);
    let signature = key.sign("descriptor", &message);
    draft.signatures.push(DescriptorSignature { identity: key.identity(), signature });
}

/// Asserts that `found` is `draft`, published by `by` at [`NOW`].
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

pub(super) fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::to_string).collect()
}
