use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use crate::content::{Layout, Manifest, ManifestError, Source};
use crate::{ChunkSize, ContentId};

/// A folder's content, and a place to download it to.
struct Content {
    source: Source,
    folder: tempfile::TempDir,
}

impl Content {
    /// The content of these files.
    fn of(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = folder.path().join("shared").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let chunk = ChunkSize::new(4096).unwrap();
        let source = Source::open(&[folder.path().join("shared")], chunk).unwrap();
        Self { source, folder }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    /// A download of it with all bytes.
    fn download(&self) -> Mutex<PartialFile> {
        let mut file = PartialFile::open_folder(&self.target(), self.source.id()).unwrap();
        give_all(&mut file, &self.source);
        Mutex::new(file)
    }

    /// What is in the folder beside the target.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut left: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.retain(|name| name != "shared");
        left.sort();
        left
    }
}

fn give_all(file: &mut PartialFile, source: &Source) {
    for index in 0..source.id().geometry.chunks() {
        let (siblings, bytes) = source.read(index, file.missing_levels(index)).unwrap();
        let hash = crate::content::chunk_hash(source.id().geometry, index, &bytes).unwrap();
        file.write(index, hash, &siblings, &bytes).unwrap();
    }
}

#[test]
fn a_folder_is_restored_and_its_chunks_can_still_be_read() {
    let long = vec![7; 100_000];
    let content = Content::of(&[("a/b", b"one"), ("a/c", b""), ("d", &long), ("z/e", b"")]);
    let script = content.folder.path().join("shared/a/b");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let source =
        Source::open(&[content.folder.path().join("shared")], ChunkSize::new(4096).unwrap());
    let content = Content { source: source.unwrap(), ..content };
    let file = content.download();
    assert_eq!(finish(&file).unwrap(), 0);
    let target = content.target();
    assert_eq!(fs::read(target.join("a/b")).unwrap(), b"one");
    assert_eq!(fs::read(target.join("d")).unwrap(), long);
    assert_eq!(fs::read(target.join("z/e")).unwrap(), b"");
    assert!(fs::metadata(target.join("a/b")).unwrap().permissions().mode() & 0o100 != 0);
    assert_eq!(content.left(), ["target"]);
    for index in 0..content.source.id().geometry.chunks() {
        let read = lock(&file).read(index, 1).unwrap();
        assert_eq!(read, content.source.read(index, 1).unwrap(), "{index}");
    }
    // What has changed since is not passed on.
    fs::write(target.join("d"), vec![8; 100_000]).unwrap();
    assert!(matches!(lock(&file).read(3, 0), Err(ContentError::Missing(3))));
}

#[test]
fn a_target_that_appears_costs_nothing() {
    let content = Content::of(&[("a", b"one"), ("b", b"two")]);
    let file = content.download();
    fs::create_dir(content.target()).unwrap();
    assert!(matches!(finish(&file), Err(ContentError::Exists(_))));
    drop(file);
    assert!(matches!(
        PartialFile::open_folder(&content.target(), content.source.id()),
        Err(ContentError::Exists(_))
    ));
    fs::remove_dir(content.target()).unwrap();
    let again = PartialFile::open_folder(&content.target(), content.source.id()).unwrap();
    assert!(again.have().is_full());
    finish(&Mutex::new(again)).unwrap();
    assert_eq!(fs::read(content.target().join("b")).unwrap(), b"two");
    assert_eq!(content.left(), ["target"]);
}

/// Also when it appears in the last moment.
#[test]
fn an_empty_folder_of_the_same_name_is_not_replaced() {
    let content = Content::of(&[("a", b"one")]);
    let file = content.download();
    let mut unpacking = Unpacking::begin(&file).unwrap();
    unpacking.move_all().unwrap();
    fs::create_dir(content.target()).unwrap();
    assert!(matches!(unpacking.complete(), Err(ContentError::Exists(_))));
    assert!(fs::read_dir(content.target()).unwrap().next().is_none());
}

/// After each step, the process may be killed.
#[test]
fn unpacking_goes_on_where_it_has_stopped() {
    let long: Vec<u8> = (0..200_000_u32).map(|n| (n / 7) as u8).collect();
    let content = Content::of(&[("a", b""), ("b/c", &long), ("d", b"two"), ("e", b"")]);
    let file = content.download();
    let mut unpacking = Unpacking::begin(&file).unwrap();
    // A step that ends in the second file, and a further part of it that the sidecar does not know
    // of.
    unpacking.bytes = unpacking.step - 90_000;
    let path = unpacking.path.clone();
    let folder = unpacking.folder.clone();
    for (entry, start) in folder.entries_from(0).take(4) {
        unpacking.make(entry, start, &path.join(&entry.path)).ok().unwrap();
    }
    assert!(
        lock(&file).moved() > 80_000 && lock(&file).moved() < content.source.id().geometry.length()
    );
    drop(unpacking);
    drop(file);
    let again = PartialFile::open_folder(&content.target(), content.source.id()).unwrap();
    assert!(again.have().is_full());
    let again = Mutex::new(again);
    // What was moved takes no room in the download, so it cannot be read from there.
    let download = File::open(content.folder.path().join("target.part")).unwrap();
    assert!(download.metadata().unwrap().blocks() * 512 < 200_000);
    finish(&again).unwrap();
    assert_eq!(fs::read(content.target().join("b/c")).unwrap(), long);
    assert_eq!(fs::read(content.target().join("d")).unwrap(), b"two");
    assert_eq!(fs::read(content.target().join("e")).unwrap(), b"");
    for index in 0..content.source.id().geometry.chunks() {
        assert_eq!(lock(&again).read(index, 0).unwrap(), content.source.read(index, 0).unwrap());
    }
}

#[test]
fn what_another_user_or_program_has_made_is_not_used() {
    let content = Content::of(&[("a", b"one")]);
    let file = content.download();
    let path = Unpacking::begin(&file).unwrap().path;
    for mode in [0o777, 0o722] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(finish(&file), Err(ContentError::Foreign(_))), "{mode:o}");
    }
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(content.folder.path(), &path).unwrap();
    assert!(matches!(finish(&file), Err(ContentError::Foreign(_))));
    fs::remove_file(&path).unwrap();
    // A link in the place of a file.
    fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    std::os::unix::fs::symlink(content.folder.path().join("elsewhere"), path.join("a")).unwrap();
    assert!(matches!(finish(&file), Err(ContentError::Foreign(_))));
    assert!(!content.folder.path().join("elsewhere").exists());
    fs::remove_file(path.join("a")).unwrap();
    finish(&file).unwrap();
}

#[test]
fn content_that_is_no_folder_is_refused_and_kept() {
    for bytes in [&[0xff; 20][..], &[0; 5], &[0, 0, 0, 0, 0, 0, 0, 9, 1]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        fs::write(&path, bytes).unwrap();
        let source = Source::open(&[path], ChunkSize::new(4096).unwrap()).unwrap();
        let target = folder.path().join("target");
        let id: ContentId = source.id();
        let mut file = PartialFile::open_folder(&target, id).unwrap();
        give_all(&mut file, &source);
        let refused = finish(&Mutex::new(file));
        assert!(matches!(refused, Err(ContentError::Manifest(_))), "{bytes:?}");
        assert!(!target.exists());
        assert!(PartialFile::open_folder(&target, id).unwrap().have().is_full());
    }
    assert_eq!(Manifest::decode(Layout::First, &[0; 3]), Err(ManifestError::Malformed));
}

/// With all that a folder has: the receiver has the same.
#[test]
fn modes_times_links_and_empty_folders_are_kept() {
    let content =
        Content::of(&[("a/private", b"secret"), ("a/script", b"run"), ("closed/x", b"y")]);
    let shared = content.folder.path().join("shared");
    fs::create_dir_all(shared.join("empty/deep")).unwrap();
    symlink("../a/script", shared.join("empty/link")).unwrap();
    symlink("nowhere", shared.join("dangling")).unwrap();
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::write(shared.join(name), "not UTF-8").unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    for (path, mode) in [
        ("a/private", 0o600),
        ("a/script", 0o755),
        ("a", 0o711),
        ("closed", 0o500),
        ("empty/deep", 0o700),
        ("empty", 0o777),
        ("", 0o770),
    ] {
        let path = shared.join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        File::open(&path).unwrap().set_modified(old).unwrap();
    }
    let source = Source::open(std::slice::from_ref(&shared), ChunkSize::new(4096).unwrap());
    let content = Content { source: source.unwrap(), ..content };
    let target = content.target();
    let file = content.download();
    // The process is killed when all is done but the name.
    let mut unpacking = Unpacking::begin(&file).unwrap();
    unpacking.move_all().unwrap();
    attributes::set_all(&unpacking.path, unpacking.folder.entries()).unwrap();
    drop(unpacking);
    drop(file);
    let again = PartialFile::open_folder(&target, content.source.id()).unwrap();
    finish(&Mutex::new(again)).unwrap();
    for path in ["", "a", "a/private", "a/script", "closed", "closed/x", "empty", "empty/deep"] {
        let [one, other] = [&shared, &target].map(|root| fs::metadata(root.join(path)).unwrap());
        assert_eq!(one.mode(), other.mode(), "{path}");
        assert_eq!(one.modified().unwrap(), other.modified().unwrap(), "{path}");
    }
    for (path, leads_to) in [("empty/link", "../a/script"), ("dangling", "nowhere")] {
        assert_eq!(fs::read_link(target.join(path)).unwrap(), Path::new(leads_to));
        let [one, other] =
            [&shared, &target].map(|root| fs::symlink_metadata(root.join(path)).unwrap());
        assert_eq!(one.modified().unwrap(), other.modified().unwrap(), "{path}");
    }
    assert_eq!(fs::read(target.join(name)).unwrap(), b"not UTF-8");
}
