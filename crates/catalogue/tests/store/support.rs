//! Shared by the tests of the store: drafts, a check of every invariant, and a disk that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_catalogue::model::{Draft, Key, Package, Version};
use levada_catalogue::store::embedded::{Disk, EmbeddedStore, Files, NewFile, Options, SyncAll};
use levada_catalogue::store::{Blob, Event, Outcome, Store, StoreError};
use levada_core::{Clock, Digest, UnixTime, sha256};
use levada_faultfs::{FaultFile, FaultFs};

pub const NOW: UnixTime = UnixTime(1_700_000_000);

/// Whether tests run with the counts of `scripts/test --all`.
pub fn in_full() -> bool {
    std::env::var_os("LEVADA_TEST_FULL").is_some()
}

/// Version 1.0.`version` of `hyperty/object{object}`, with `content` as its package. Its descriptor
/// contains [`word`].
pub fn draft(object: u64, version: u64, content: Option<&[u8]>) -> Draft {
    let package = content.map(|content| Package {
        digest: sha256(&[content]),
        length: content.len() as u64,
        media_type: "text/javascript".to_owned(),
        description: format!(r#"{{"of":{object}}}"#).into_bytes(),
    });
    Draft {
        key: format!("hyperty/object{object}").parse().unwrap(),
        version: Version::new(1, 0, version),
        descriptor: format!(r#"{{"word":"{}"}}"#, word(object, version)).into_bytes(),
        package,
        signatures: Vec::new(),
    }
}

/// A word that only this version contains. No word is a prefix of another.
pub fn word(object: u64, version: u64) -> String {
    format!("w{object:06}v{version:06}")
}

pub fn upload(store: &dyn Store, content: &[u8]) -> Result<Digest, StoreError> {
    let mut writer = store.begin_blob()?;
    content.chunks(16 * 1024).try_for_each(|chunk| writer.write(chunk))?;
    Ok(writer.finish(Some(&sha256(&[content])))?.0)
}

pub fn publish(store: &dyn Store, draft: &Draft) -> Result<u64, StoreError> {
    match store.publish(draft, None, NOW)? {
        Outcome::Created(revision) => Ok(revision),
        other => panic!("{} {}: {other:?}", draft.key, draft.version),
    }
}

pub fn content(store: &dyn Store, digest: &Digest) -> Option<Vec<u8>> {
    match store.open_blob(digest).unwrap()? {
        Blob::Bytes(bytes) => Some(bytes.to_vec()),
        Blob::File(mut file, _) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            Some(bytes)
        }
    }
}

/// Asserts that tables, search index, change feed and files of the store agree: no write is there
/// in part.
pub fn check_consistent(store: &dyn Store, when: &str) {
    let mut findings = Vec::new();
    store.verify(&mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{when}: {findings:?}");
    let mut all: BTreeMap<Key, Vec<(Version, bool, u64)>> = BTreeMap::new();
    store
        .each(&mut |it| all.entry(it.key).or_default().push((it.version, it.yanked, it.revision)))
        .unwrap();
    check_changes(store, &all, when);
    let mut listed: Vec<Key> = Vec::new();
    loop {
        let page = store.list(None, "", listed.last(), 1000).unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert!(listed.iter().eq(all.keys()), "{when}: {listed:?}");
    for (key, versions) in &all {
        let newest = versions.iter().filter(|(_, yanked, _)| !yanked).map(|(it, ..)| it).max();
        let object: u64 = key.name.as_str().strip_prefix("object").unwrap().parse().unwrap();
        for (version, ..) in versions {
            let hits = store.search(&word(object, version.patch), None, None, 5).unwrap();
            let wanted = usize::from(newest == Some(version));
            assert_eq!(hits.len(), wanted, "{when}: {key} {version}: {hits:?}");
        }
    }
}

/// Asserts that the last change of each version has the version's revision and its `yanked`.
fn check_changes(store: &dyn Store, all: &BTreeMap<Key, Vec<(Version, bool, u64)>>, when: &str) {
    let mut last = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = store.changes(after, 1000).unwrap();
        for change in &page {
            assert!(change.revision > after, "{when}: {change:?}");
            after = change.revision;
            let yanked = change.event == Event::Yanked;
            last.insert((change.key.clone(), change.version.clone()), (yanked, change.revision));
        }
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(after, store.revision().unwrap(), "{when}");
    let mut versions = BTreeMap::new();
    for (key, of_key) in all {
        for (version, yanked, revision) in of_key {
            versions.insert((key.clone(), version.clone()), (*yanked, *revision));
        }
    }
    assert_eq!(last, versions, "{when}");
    let revisions: BTreeSet<u64> = last.values().map(|(_, revision)| *revision).collect();
    assert_eq!(revisions.len(), last.len(), "{when}");
}

/// Opens the store on a disk that can fail, with the folder operations of that disk.
pub fn open_on(disk: FaultFs) -> Result<EmbeddedStore, StoreError> {
    let files: Arc<dyn Files> = Arc::new(Faulty(disk));
    open_with(disk, files)
}

/// As [`open_on`], with other folder operations.
pub fn open_with(disk: FaultFs, files: Arc<dyn Files>) -> Result<EmbeddedStore, StoreError> {
    let disk = Some(Disk { vfs: disk.name(), files });
    let clock = Arc::new(Ticking::default());
    EmbeddedStore::open_with(Path::new(""), Options { disk, clock, ..Options::default() })
}

/// A clock that is a second later each time it is read. What the store writes depends on the time,
/// and each run must write the same.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> UnixTime {
        UnixTime(NOW.0 + self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// The plain files of a disk that can fail.
pub struct Faulty(pub FaultFs);

struct FaultyFile(FaultFile);

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Files for Faulty {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.0.make_folder(name(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(FaultyFile(self.0.create(name(path))?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(name(from), name(to))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.0.sync_folder(name(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(name(path))
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.0.names(name(folder))?.into_iter().map(OsString::from).collect())
    }

    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll> {
        let disk = self.0;
        let folder = name(folder).to_owned();
        Ok(Box::new(move || disk.sync_below(&folder)))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        match self.0.read(name(path)) {
            Ok(bytes) => Ok(Some(Blob::Bytes(bytes.into()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl NewFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}
