use std::os::unix::fs::FileExt;

use super::*;
use crate::ChunkSize;

struct Whole {
    bytes: Vec<u8>,
    tree: Tree,
}

fn whole(length: usize) -> Whole {
    let bytes: Vec<u8> = (0..length).map(|at| (at / 7 % 256) as u8).collect();
    let geometry = Geometry::new(length as u64, ChunkSize::new(1024).unwrap()).unwrap();
    let hash = |at: u32| {
        let range = geometry.range(at);
        chunk_hash(geometry, at, &bytes[range.start as usize..range.end as usize]).unwrap()
    };
    let tree = Tree::build(geometry, (0..geometry.chunks()).map(hash));
    Whole { bytes, tree }
}

impl Whole {
    fn give(&self, file: &mut PartialFile, index: u32) -> Result<(), ContentError> {
        let geometry = self.tree.id().geometry;
        let range = geometry.range(index);
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        let siblings = self.tree.siblings(index, file.missing_levels(index)).unwrap();
        file.write(index, chunk_hash(geometry, index, bytes).unwrap(), &siblings, bytes)
    }
}

#[test]
fn a_download_becomes_the_file() {
    for length in [0, 1, 1024, 5000, 300_000] {
        let whole = whole(length);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
        for index in (0..whole.tree.id().geometry.chunks()).rev() {
            assert!(matches!(file.finish(), Err(ContentError::Missing(_))));
            whole.give(&mut file, index).unwrap();
        }
        file.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), whole.bytes);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        if length > 0 {
            let levels = whole.tree.id().geometry.levels();
            let (siblings, bytes) = file.read(0, levels).unwrap();
            assert_eq!(Some(siblings), whole.tree.siblings(0, levels));
            assert_eq!(bytes, whole.bytes[..bytes.len()]);
        }
    }
}

#[test]
fn a_complete_file_is_provided_and_not_changed() {
    let whole = whole(5000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let id = whole.tree.id();
    fs::write(&path, &whole.bytes).unwrap();
    let mut file = PartialFile::complete(&path, id).unwrap();
    assert!(file.have().is_full());
    whole.give(&mut file, 1).unwrap();
    file.finish().unwrap();
    file.sync().unwrap();
    let (siblings, bytes) = file.read(4, 3).unwrap();
    assert_eq!(Some(siblings), whole.tree.siblings(4, 3));
    assert_eq!(bytes, whole.bytes[4096..]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read(&path).unwrap(), whole.bytes);
    for other in [&whole.bytes[1..], &[1; 5000]] {
        fs::write(&path, other).unwrap();
        assert!(matches!(PartialFile::complete(&path, id), Err(ContentError::Changed(_))));
    }
}

#[test]
fn a_download_that_only_verifies_writes_nothing() {
    let whole = whole(5000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let id = whole.tree.id();
    fs::write(&path, &whole.bytes).unwrap();
    let mut file = PartialFile::verify_only(&path, id).unwrap();
    let siblings = whole.tree.siblings(2, 3).unwrap();
    let refused = file.write(2, [9; 32], &siblings, &[0; 1024]);
    assert!(matches!(refused, Err(ContentError::BadChunk(_))));
    assert!(matches!(file.read(2, 0), Err(ContentError::Missing(2))));
    for index in 0..5 {
        assert!(matches!(file.finish(), Err(ContentError::Missing(_))));
        whole.give(&mut file, index).unwrap();
    }
    assert_eq!(file.read(4, 0).unwrap().1, whole.bytes[4096..]);
    file.finish().unwrap();
    file.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole.bytes);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_dropped_download_goes_on_with_at_most_one_percent_again() {
    let whole = whole(1000 * 1024);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let mut given = 0;
    for (round, upto) in [(0, 333), (1, 337), (2, 1000)] {
        let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
        assert!(given - file.have().count() <= 10, "{round}");
        let gaps: Vec<u32> = file.have().gaps().flatten().collect();
        for index in gaps.into_iter().filter(|at| *at < upto) {
            whole.give(&mut file, index).unwrap();
        }
        given = file.have().count();
        assert_eq!(given, upto);
        if round == 2 {
            file.finish().unwrap();
        }
    }
    assert_eq!(fs::read(target).unwrap(), whole.bytes);
}

#[test]
fn after_a_crash_of_the_system_only_chunks_that_were_lost_are_missing() {
    let whole = whole(1000 * 1024);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
    (0..100).for_each(|index| whole.give(&mut file, index).unwrap());
    file.sync().unwrap();
    (100..200).for_each(|index| whole.give(&mut file, index).unwrap());
    drop(file);
    // The system has not written chunk 150, and another one runs.
    let data = File::options().write(true).open(folder.path().join("file.part")).unwrap();
    data.write_all_at(&[0; 1024], 150 * 1024).unwrap();
    let sidecar = folder.path().join("file.part.levada");
    File::options().write(true).open(&sidecar).unwrap().write_all_at(&[7; 12], 52).unwrap();
    let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
    let missing: Vec<_> = file.have().gaps().collect();
    assert_eq!(missing, [150..151, 200..1000]);
    drop(file);
    file = PartialFile::open(&target, whole.tree.id()).unwrap();
    assert_eq!(file.have().gaps().collect::<Vec<_>>(), missing);
    missing.into_iter().flatten().for_each(|index| whole.give(&mut file, index).unwrap());
    file.finish().unwrap();
    assert_eq!(fs::read(target).unwrap(), whole.bytes);
}

#[test]
fn what_is_there_already_is_not_replaced() {
    let one = whole(5000);
    let other = whole(6000);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let mut file = PartialFile::open(&target, one.tree.id()).unwrap();
    let again = PartialFile::open(&target, one.tree.id());
    assert!(matches!(again, Err(ContentError::InUse(_))));
    (0..5).for_each(|index| one.give(&mut file, index).unwrap());
    fs::write(&target, "mine").unwrap();
    assert!(matches!(file.finish(), Err(ContentError::Exists(_))));
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    drop(file);
    assert!(matches!(PartialFile::open(&target, one.tree.id()), Err(ContentError::Exists(_))));
    fs::remove_file(&target).unwrap();
    let refused = PartialFile::open(&target, other.tree.id());
    assert!(matches!(refused, Err(ContentError::OtherDownload(_))));
    PartialFile::open(&target, one.tree.id()).unwrap().finish().unwrap();
}

#[test]
fn a_file_that_takes_the_place_of_a_download_gets_no_name() {
    let whole = whole(5000);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let part = folder.path().join("file.part");
    let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
    (0..5).for_each(|index| whole.give(&mut file, index).unwrap());
    fs::rename(&part, folder.path().join("moved")).unwrap();
    fs::write(&part, "evil").unwrap();
    assert!(matches!(file.finish(), Err(ContentError::Foreign(_))));
    assert!(!target.exists());
    assert_eq!(fs::read(&part).unwrap(), b"evil");
}

#[test]
fn content_without_bytes_has_one_root() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let id = ContentId { root: [7; 32], ..whole(0).tree.id() };
    assert!(matches!(PartialFile::open(&target, id), Err(ContentError::Impossible)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_without_a_record_is_not_touched() {
    let whole = whole(5000);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let part = folder.path().join("file.part");
    fs::write(&part, "of another program").unwrap();
    for has_empty_sidecar in [false, true] {
        if has_empty_sidecar {
            fs::write(folder.path().join("file.part.levada"), "").unwrap();
        }
        let refused = PartialFile::open(&target, whole.tree.id());
        assert!(matches!(refused, Err(ContentError::Foreign(path)) if path == part));
        assert_eq!(fs::read(&part).unwrap(), b"of another program");
    }
    // A download that was killed before it had a record.
    fs::write(&part, "").unwrap();
    assert!(PartialFile::open(&target, whole.tree.id()).is_ok());
}

#[test]
fn wrong_bytes_are_not_written() {
    let whole = whole(5000);
    let folder = tempfile::tempdir().unwrap();
    let mut file = PartialFile::open(&folder.path().join("file"), whole.tree.id()).unwrap();
    let siblings = whole.tree.siblings(2, 3).unwrap();
    let refused = file.write(2, [9; 32], &siblings, &[0; 1024]);
    assert!(matches!(refused, Err(ContentError::BadChunk(_))));
    assert_eq!(file.have().count(), 0);
    assert!(matches!(file.read(2, 0), Err(ContentError::Missing(2))));
    assert_eq!(fs::read(folder.path().join("file.part")).unwrap(), [0; 5000]);
}

#[test]
fn a_damaged_sidecar_loses_only_what_it_does_not_prove() {
    let whole = whole(100 * 1024);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let mut file = PartialFile::open(&target, whole.tree.id()).unwrap();
    (0..50).for_each(|index| whole.give(&mut file, index).unwrap());
    drop(file);
    let sidecar = folder.path().join("file.part.levada");
    let stored = fs::read(&sidecar).unwrap();
    for at in (64..stored.len()).step_by(97) {
        let mut damaged = stored.clone();
        damaged[at] ^= 0x55;
        fs::write(&sidecar, damaged).unwrap();
        let file = PartialFile::open(&target, whole.tree.id()).unwrap();
        for index in file.have().runs().flatten() {
            // A flipped bit may claim a chunk whose nodes are known as siblings only.
            assert!(index < 64, "{at}");
        }
    }
}
