use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_core::{Clock, ManualClock, SystemClock, sha256};
use levada_database::DatabaseError;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::store::conformance::{NOW, check_all, content, draft, draft_with, publish, upload};
use crate::store::{Event, SearchCursor};

struct TestFolder(TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("catalogue")
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.path()).unwrap()
    }

    fn blob(&self, bytes: &[u8]) -> PathBuf {
        let name: String = sha256(&[bytes]).iter().map(|byte| format!("{byte:02x}")).collect();
        self.path().join("blobs").join(&name[..2]).join(&name[2..])
    }

    /// A connection to the database that bypasses the store.
    fn raw(&self) -> Connection {
        Connection::open(self.path().join(DATABASE)).unwrap()
    }
}

fn findings(store: &EmbeddedStore) -> Vec<Finding> {
    let mut findings = Vec::new();
    let verified = store.verify(&mut |finding| findings.push(finding)).unwrap();
    assert_eq!(verified.findings, findings.len() as u64);
    findings
}

/// Every path below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        }
        all.push(path);
    }
    all
}

#[test]
fn passes_the_conformance_suite() {
    let mut folders = Vec::new();
    check_all(|| {
        let folder = TestFolder::new();
        let store = folder.open();
        folders.push(folder);
        store
    });
}

#[test]
fn a_scratch_file_has_no_name() {
    let folder = TestFolder::new();
    let store = folder.open();
    // `None` if the disk is nearly full, or the file system does not support unnamed files.
    if let Some(mut file) = store.scratch() {
        file.write_all(b"scratch").unwrap();
    }
    assert_eq!(fs::read_dir(folder.path().join("blobs/temp")).unwrap().count(), 0);
}

#[test]
fn data_is_durable_and_the_store_is_exclusive() {
    let folder = TestFolder::new();
    let store = folder.open();
    let whole = draft_with(&store, "hyperty/a", "1.0.0", b"code");
    let revision = publish(&store, &whole);
    let second = EmbeddedStore::open(&folder.path()).err().unwrap();
    assert!(matches!(second, StoreError::Database(DatabaseError::InUse { .. })), "{second}");
    drop(store);
    let store = folder.open();
    assert_eq!(store.revision().unwrap(), revision);
    assert_eq!(store.get(&whole.key, &whole.version).unwrap().unwrap().revision, revision);
    assert_eq!(content(&store, &sha256(&[b"code"])).unwrap(), b"code");
    assert_eq!(store.search("javascript", None, None, 5).unwrap().len(), 1);
    assert!(findings(&store).is_empty());
}

#[test]
fn files_are_accessible_by_their_owner_only() {
    let folder = TestFolder::new();
    let store = folder.open();
    upload(&store, b"code");
    let mut writer = store.begin_blob().unwrap();
    writer.write(b"half").unwrap();
    for path in files(&folder.path()) {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
    }
}

#[test]
fn opening_removes_files_that_a_crash_left() {
    let folder = TestFolder::new();
    let store = folder.open();
    publish(&store, &draft_with(&store, "hyperty/a", "1.0.0", b"kept"));
    drop(store);
    // A partial file, and complete files without a row.
    let half = folder.path().join("blobs/temp/0");
    fs::write(&half, "ha").unwrap();
    for bytes in [&b"whole"[..], b"entire"] {
        fs::create_dir_all(folder.blob(bytes).parent().unwrap()).unwrap();
        fs::write(folder.blob(bytes), bytes).unwrap();
    }
    let foreign = folder.path().join("blobs/notes.txt");
    fs::write(&foreign, "mine").unwrap();
    let store = folder.open();
    assert!(!half.exists() && !folder.blob(b"whole").exists() && !folder.blob(b"entire").exists());
    assert!(folder.blob(b"kept").exists() && foreign.exists());
    assert_eq!(findings(&store), [Finding::Stray("notes.txt".into())]);
}

#[test]
fn an_aborted_upload_leaves_no_file() {
    let folder = TestFolder::new();
    let store = folder.open();
    let before = files(&folder.path()).len();
    let begin = || {
        let mut writer = store.begin_blob().unwrap();
        writer.write(b"half").unwrap();
        writer
    };
    drop(begin());
    begin().finish(Some(&[0; 32])).unwrap_err();
    assert_eq!(files(&folder.path()).len(), before);
}

#[test]
fn verify_finds_damage_and_an_upload_repairs_it() {
    let folder = TestFolder::new();
    let store = folder.open();
    for (name, bytes) in [("hyperty/a", b"aaaa"), ("hyperty/b", b"bbbb"), ("hyperty/c", b"cccc")] {
        publish(&store, &draft_with(&store, name, "1.0.0", bytes));
    }
    let stray = sha256(&[b"stray"]);
    fs::write(folder.blob(b"aaaa"), b"aaab").unwrap();
    fs::remove_file(folder.blob(b"bbbb")).unwrap();
    fs::create_dir_all(folder.blob(b"stray").parent().unwrap()).unwrap();
    fs::write(folder.blob(b"stray"), b"stray").unwrap();
    let found = findings(&store);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&Finding::Damaged(sha256(&[b"aaaa"]))));
    assert!(found.contains(&Finding::Missing(sha256(&[b"bbbb"]))));
    assert!(found.contains(&Finding::Stray(folder.blob(b"stray").display().to_string())));
    assert!(!store.has_blob(&stray).unwrap());
    upload(&store, b"aaaa");
    upload(&store, b"bbbb");
    store.collect(Duration::from_secs(3600), None, SystemClock.now()).unwrap();
    assert!(findings(&store).is_empty());
    assert_eq!(content(&store, &sha256(&[b"aaaa"])).unwrap(), b"aaaa");
}

#[test]
fn verify_finds_a_changed_descriptor_and_a_wrong_reference() {
    let folder = TestFolder::new();
    let store = folder.open();
    let whole = draft("hyperty/a", "1.0.0", r#"{"a":1}"#);
    publish(&store, &whole);
    publish(&store, &draft("hyperty/b", "1.0.0", "{}"));
    drop(store);
    let raw = folder.raw();
    raw.execute_batch(
        "DROP TRIGGER version_is_immutable; DROP TRIGGER version_revision_grows;
         UPDATE version SET descriptor = x'7b7d' WHERE object = 1;
         UPDATE object SET shown = NULL WHERE id = 2;",
    )
    .unwrap();
    drop(raw);
    let found = findings(&folder.open());
    let key = whole.key;
    let version = whole.version;
    let text = "the descriptor is not what was published".to_owned();
    assert!(found.contains(&Finding::Version { key, version, text }), "{found:?}");
    let wrong = "hyperty/b does not show its newest version".to_owned();
    assert!(found.contains(&Finding::Database(wrong)), "{found:?}");
}

/// The schema refuses such changes from any program.
#[test]
fn the_schema_refuses_to_change_what_was_published() {
    let folder = TestFolder::new();
    let store = folder.open();
    publish(&store, &draft_with(&store, "hyperty/a", "1.0.0", b"code"));
    publish(&store, &draft("hyperty/b", "1.0.0", "{}"));
    drop(store);
    let raw = folder.raw();
    raw.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    for sql in [
        "UPDATE version SET descriptor = x'7b7d', revision = 9 WHERE id = 1",
        "UPDATE version SET digest = zeroblob(32), revision = 9 WHERE id = 1",
        "UPDATE version SET package = NULL, package_type = NULL, package_description = NULL, revision = 9
         WHERE id = 1",
        "UPDATE version SET rowid = 17, revision = 9 WHERE id = 1",
        "UPDATE version SET publisher = zeroblob(32), revision = 9 WHERE id = 1",
        "UPDATE version SET published = 0, revision = 9 WHERE id = 1",
        "UPDATE version SET yanked = 1 WHERE id = 1",
        "UPDATE OR REPLACE version SET yanked = 1, revision = 2 WHERE id = 1",
        "DELETE FROM version",
        "INSERT OR REPLACE INTO version (id, object, version, revision, published, digest, signatures,
             descriptor) VALUES (1, 1, '1.0.0', 9, 0, zeroblob(32), x'', x'7b7d')",
        "INSERT OR REPLACE INTO version (object, version, revision, published, digest, signatures,
             descriptor) VALUES (1, '1.0.0', 9, 0, zeroblob(32), x'', x'7b7d')",
        "UPDATE object SET name = 'c' WHERE id = 1",
        "DELETE FROM object",
        "INSERT OR REPLACE INTO object (kind, name) VALUES ('hyperty', 'a')",
        "DELETE FROM blob",
        "UPDATE store SET revision = 1",
        "DELETE FROM store",
        "INSERT OR REPLACE INTO store VALUES (1, 0, 0)",
        "UPDATE change SET event = 'yanked'",
        "DELETE FROM change",
        "UPDATE audit SET identity = NULL, text = 'x'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit (id, time, action, outcome, text) VALUES (1, 0, '', '', '')",
    ] {
        let error = raw.execute(sql, []).expect_err(sql).to_string();
        let refused = ["never", "stays", "append-only", "has changed", "FOREIGN KEY"];
        assert!(refused.iter().any(|text| error.contains(text)), "{sql}: {error}");
    }
}

#[test]
fn old_changes_are_compacted_and_reported() {
    let folder = TestFolder::new();
    let options = Options { kept_changes: 10, ..Options::default() };
    let store = EmbeddedStore::open_with(&folder.path(), options.clone()).unwrap();
    for n in 0..50 {
        publish(&store, &draft("hyperty/a", &format!("{n}.0.0"), "{}"));
        let newest = store.revision().unwrap();
        let from = newest.saturating_sub(10);
        let changes = store.changes(from, 100).unwrap();
        assert_eq!(changes.len() as u64, newest - from);
        assert!(changes.iter().all(|change| change.event == Event::Published));
    }
    let compacted = |store: &EmbeddedStore| match store.changes(0, 5) {
        Err(StoreError::Compacted { after: 0, kept, newest: 50 }) => kept,
        other => panic!("{other:?}"),
    };
    let kept = compacted(&store);
    assert!((31..=40).contains(&kept), "{kept}");
    assert!(matches!(store.changes(kept - 1, 5), Err(StoreError::Compacted { .. })));
    assert_eq!(store.changes(kept, 1).unwrap()[0].revision, kept + 1);
    drop(store);
    let store = EmbeddedStore::open_with(&folder.path(), options).unwrap();
    assert_eq!(compacted(&store), kept);
    assert!(findings(&store).is_empty());
}

#[test]
fn every_upload_restarts_the_grace_period() {
    let folder = TestFolder::new();
    let clock = Arc::new(ManualClock::new(NOW));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = EmbeddedStore::open_with(&folder.path(), options).unwrap();
    let digest = upload(&store, b"code");
    let at = |seconds| UnixTime(NOW.0 + seconds);
    let minute = Duration::from_secs(60);
    clock.set(at(50));
    upload(&store, b"code");
    store.collect(minute, None, at(109)).unwrap();
    assert!(store.has_blob(&digest).unwrap());
    // A clock that was set back does not shorten it.
    clock.set(at(0));
    upload(&store, b"code");
    store.collect(minute, None, at(109)).unwrap();
    assert!(store.has_blob(&digest).unwrap());
    store.collect(minute, None, at(110)).unwrap();
    assert!(!store.has_blob(&digest).unwrap());
}

#[test]
fn a_backup_can_be_installed_as_a_store() {
    let [folder, copy, other] = [(); 3].map(|()| TestFolder::new());
    let store = folder.open();
    let whole = draft_with(&store, "hyperty/a", "1.0.0", b"code");
    publish(&store, &whole);
    let gone = draft_with(&store, "hyperty/a", "1.1.0", b"more code");
    publish(&store, &gone);
    store.yank(&gone.key, &gone.version, true, None, NOW).unwrap();
    upload(&store, b"unreferenced");
    let lost = draft_with(&store, "runtime/a", "1.0.0", b"lost");
    publish(&store, &lost);
    fs::remove_file(folder.blob(b"lost")).unwrap();
    fs::create_dir(copy.path()).unwrap();
    let missing = store.back_up(&copy.path()).unwrap();
    assert_eq!(missing, [sha256(&[b"lost"])]);
    // Later changes are not in the backup.
    publish(&store, &draft("hyperty/later", "1.0.0", "{}"));
    let later = store.revision().unwrap();
    drop(store);

    let before = other.open();
    publish(&before, &draft_with(&before, "hyperty/old", "1.0.0", b"old"));
    drop(before);
    EmbeddedStore::open(&copy.path()).unwrap().skip_revisions().unwrap();
    EmbeddedStore::install_backup(&copy.path(), &other.path()).unwrap();
    let store = other.open();
    assert_eq!(findings(&store), [Finding::Missing(sha256(&[b"lost"]))]);
    assert!(store.get(&whole.key, &whole.version).unwrap().is_some());
    assert!(store.get(&gone.key, &gone.version).unwrap().unwrap().yanked);
    assert_eq!(content(&store, &sha256(&[b"code"])).unwrap(), b"code");
    assert_eq!(content(&store, &sha256(&[b"unreferenced"])), None);
    assert_eq!(content(&store, &sha256(&[b"old"])), None);
    assert_eq!(store.list(None, "", None, 9).unwrap().len(), 2);
    // A client that follows the changes must read everything again, whatever its position.
    assert!(store.revision().unwrap() > later);
    assert!(matches!(store.changes(later, 9), Err(StoreError::Compacted { .. })));
    publish(&store, &draft("hyperty/new", "1.0.0", "{}"));
    assert_eq!(store.changes(store.revision().unwrap() - 1, 9).unwrap().len(), 1);
}

#[test]
fn refuses_newer_and_foreign_databases_unchanged() {
    let folder = TestFolder::new();
    drop(folder.open());
    let path = folder.path().join(DATABASE);
    let refused = |version: i64, id: i64| {
        let raw = folder.raw();
        raw.pragma_update(None, "user_version", version).unwrap();
        raw.pragma_update(None, "application_id", id).unwrap();
        drop(raw);
        let before = fs::read(&path).unwrap();
        let error = EmbeddedStore::open(&folder.path()).err().unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
        error
    };
    let ours = i64::from(CATALOGUE.application_id);
    let error = refused(3, ours);
    let newer =
        matches!(error, StoreError::Database(DatabaseError::Newer { found: 3, known: 2, .. }));
    assert!(newer && error.to_string().contains("catalogue.db"), "{error}");
    let error = refused(1, 0x4c76_6e64);
    assert!(matches!(error, StoreError::Database(DatabaseError::Foreign { .. })), "{error}");
}

#[test]
fn searches_and_lists_many_objects() {
    let folder = TestFolder::new();
    let store = folder.open();
    const COUNT: usize = 5000;
    let all: Vec<Draft> = (0..COUNT)
        .map(|n| {
            let descriptor =
                format!(r#"{{"d":"common {}","n":"only{n}"}}"#, ["even", "odd"][n % 2]);
            draft(&format!("hyperty/object-{n:05}"), "1.0.0", &descriptor)
        })
        .collect();
    all.chunks(500).for_each(|some| drop(store.publish_all(some, None, NOW).unwrap()));
    for (query, wanted) in
        [("common", COUNT), ("odd", COUNT / 2), ("only4321", 1), ("object 04321", 1)]
    {
        let mut found = 0;
        let mut after: Option<SearchCursor> = None;
        loop {
            let page = store.search(query, None, after.as_ref(), 300).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.cursor.clone());
            found += page.len();
        }
        assert_eq!(found, wanted, "{query}");
    }
    let listed = store.list(None, "object-049", None, 1000).unwrap();
    assert_eq!(listed.len(), 100);
    let mut count = 0;
    store.each(&mut |_| count += 1).unwrap();
    assert_eq!(count, COUNT);
}

/// Counts syncs.
struct Counting {
    disk: Arc<dyn Files>,
    syncs: Arc<AtomicUsize>,
}

struct CountingFile(Box<dyn NewFile>, Arc<AtomicUsize>);

impl NewFile for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync()
    }
}

impl Files for Counting {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.make_folder(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(CountingFile(self.disk.create(path)?, self.syncs.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.disk.sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.disk.names(folder)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        self.disk.read(path)
    }

    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.disk.begin_many(folder)
    }
}

#[test]
fn a_batch_of_blobs_needs_few_syncs() {
    let folder = TestFolder::new();
    let syncs = Arc::new(AtomicUsize::new(0));
    let counting = Counting { disk: files::operating_system(), syncs: syncs.clone() };
    let disk = Some(Disk { vfs: "unix", files: Arc::new(counting) });
    // With a simulated disk, the folder must exist.
    fs::create_dir(folder.path()).unwrap();
    let options = Options { disk, ..Options::default() };
    let store = EmbeddedStore::open_with(&folder.path(), options).unwrap();
    let before = syncs.load(Ordering::Relaxed);
    let contents: Vec<Vec<u8>> = (0..500_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let digests = store.add_blobs(&contents).unwrap();
    // For the names of the shards, for all contents, and for all names.
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 3);
    assert!(
        digests
            .iter()
            .zip(&contents)
            .all(|(digest, bytes)| content(&store, digest).unwrap() == *bytes)
    );
    assert!(findings(&store).is_empty());
}
