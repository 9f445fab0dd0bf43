//! Files and folders of a simulated disk, with loss of power and limited capacity.

use std::collections::{BTreeMap, BTreeSet};

use crate::Survival;
use crate::file::{Choice, Content, mix};

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Power is lost: everything fails until the restart.
    Off,
    /// The disk is full.
    Full,
}

use Failure::{Full, Off};

/// Refers to an open file.
pub(crate) type FileId = u64;

#[derive(Default)]
pub(crate) struct Disk {
    files: BTreeMap<FileId, Content>,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names since their folder was synced: the name's new file, or `None` for a
    /// deletion.
    pending_names: Vec<(String, Option<FileId>)>,
    /// The files that are folders; they have no content.
    folders: BTreeSet<FileId>,
    /// Files without a name, which a restart deletes.
    temporary: BTreeSet<FileId>,
    /// The capacity of the disk in bytes, if limited.
    capacity: Option<usize>,
    next_file: FileId,
    operations: u64,
    off_at: Option<u64>,
    off: bool,
}

impl Disk {
    pub fn operations(&self) -> u64 {
        self.operations
    }

    pub fn lose_power_at(&mut self, operation: u64) {
        self.off_at = Some(operation);
    }

    pub fn is_off(&self) -> bool {
        self.off
    }

    pub fn restart(&mut self, survival: Survival) {
        if let Survival::Part(seed) = survival {
            self.keep_part_of_names(Choice { seed: mix(seed) });
        }
        self.pending_names.clear();
        self.temporary.clear();
        self.drop_orphans();
        self.names = self.durable_names.clone();
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
        self.folders.retain(|id| named.contains(id));
        for (id, content) in &mut self.files {
            content.restart(survival, *id);
        }
        (self.off_at, self.off) = (None, false);
    }

    /// The file with this name; a new one if `create` and there is none.
    pub fn open(&mut self, name: &str, create: bool) -> Result<Option<FileId>, Failure> {
        self.check()?;
        if let Some(id) = self.names.get(name) {
            return Ok(Some(*id));
        }
        if !create {
            return Ok(None);
        }
        let id = self.new_file();
        self.put_name(name, Some(id));
        self.operation()?;
        Ok(Some(id))
    }

    pub fn make_folder(&mut self, name: &str) -> Result<(), Failure> {
        self.check()?;
        let id = self.new_file();
        self.folders.insert(id);
        self.put_name(name, Some(id));
        self.operation()
    }

    /// Whether there is a folder with this name; the root's name is empty.
    pub fn is_folder(&self, name: &str) -> bool {
        name.is_empty() || self.names.get(name).is_some_and(|id| self.folders.contains(id))
    }

    /// The names in a folder, without the folder's own.
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, Failure> {
        self.check()?;
        let names = self.names.keys().filter(|name| folder_of(name) == folder);
        Ok(names.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).collect())
    }

    /// Renames a file, replacing another. POSIX does not guarantee that both changes of names
    /// survive together.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        self.check()?;
        let id = self.names.get(from).copied().ok_or(Off)?;
        self.put_name(to, Some(id));
        self.put_name(from, None);
        self.operation()
    }

    pub fn sync_names_in(&mut self, folder: &str) -> Result<(), Failure> {
        self.check()?;
        self.operation()?;
        self.sync_folder(folder);
        Ok(())
    }

    pub fn sync_below(&mut self, folder: &str) -> Result<(), Failure> {
        self.check()?;
        self.operation()?;
        let inside = format!("{folder}/");
        let below = |name: &&str| folder.is_empty() || *name == folder || name.starts_with(&inside);
        let of_names = self.names.keys().chain(self.pending_names.iter().map(|(name, _)| name));
        let folders: BTreeSet<String> =
            of_names.map(|name| folder_of(name)).filter(below).map(str::to_owned).collect();
        folders.iter().for_each(|folder| self.sync_folder(folder));
        for id in self.names.iter().filter(|(name, _)| below(&name.as_str())).map(|(_, id)| id) {
            self.files.get_mut(id).ok_or(Off)?.sync();
        }
        Ok(())
    }

    pub fn limit(&mut self, capacity: Option<usize>) {
        self.capacity = capacity;
    }

    /// The length of all reachable files, in bytes.
    pub fn used(&self) -> usize {
        let reached: BTreeSet<&FileId> = self.names.values().chain(&self.temporary).collect();
        reached.into_iter().filter_map(|id| self.files.get(id)).map(Content::len).sum()
    }

    pub fn open_temporary(&mut self) -> Result<FileId, Failure> {
        self.check()?;
        let id = self.new_file();
        self.temporary.insert(id);
        Ok(id)
    }

    pub fn exists(&self, name: &str) -> Result<bool, Failure> {
        self.check()?;
        Ok(self.names.contains_key(name))
    }

    /// False if there is no such file.
    pub fn delete(&mut self, name: &str, sync_folder: bool) -> Result<bool, Failure> {
        self.check()?;
        if !self.names.contains_key(name) {
            return Ok(false);
        }
        self.put_name(name, None);
        self.operation()?;
        if sync_folder {
            self.operation()?;
            self.sync_folder(folder_of(name));
        }
        Ok(true)
    }

    pub fn read(&self, id: FileId, at: usize, out: &mut [u8]) -> Result<bool, Failure> {
        self.check()?;
        Ok(self.files.get(&id).ok_or(Off)?.read(at, out))
    }

    pub fn len(&self, id: FileId) -> Result<usize, Failure> {
        self.check()?;
        Ok(self.files.get(&id).ok_or(Off)?.len())
    }

    pub fn write(&mut self, id: FileId, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.check()?;
        let fits = self.fits(id, at, bytes.len())?;
        if fits > 0 || bytes.is_empty() {
            self.change(id, |content| content.write(at, &bytes[..fits]))?;
        }
        if fits == bytes.len() { Ok(()) } else { Err(Full) }
    }

    pub fn truncate(&mut self, id: FileId, to: usize) -> Result<(), Failure> {
        self.change(id, |content| content.truncate(to))
    }

    /// Syncs the content, then the folder: two operations.
    pub fn sync(&mut self, id: FileId, with_folder: bool) -> Result<(), Failure> {
        self.check()?;
        self.operation()?;
        self.files.get_mut(&id).ok_or(Off)?.sync();
        if with_folder {
            self.operation()?;
            let name = self.names.iter().find(|(_, named)| **named == id);
            let folder = name.map(|(name, _)| folder_of(name).to_owned()).unwrap_or_default();
            self.sync_folder(&folder);
        }
        Ok(())
    }

    /// How many of `length` bytes at offset `at` fit on the disk.
    fn fits(&self, id: FileId, at: usize, length: usize) -> Result<usize, Failure> {
        let Some(capacity) = self.capacity else {
            return Ok(length);
        };
        let longest = self.len(id)? + capacity.saturating_sub(self.used());
        Ok(longest.saturating_sub(at).min(length))
    }

    /// Applies a change to the cache before counting its operation, so that a part of it may
    /// survive.
    fn change(&mut self, id: FileId, change: impl FnOnce(&mut Content)) -> Result<(), Failure> {
        self.check()?;
        change(self.files.get_mut(&id).ok_or(Off)?);
        if self.temporary.contains(&id) { Ok(()) } else { self.operation() }
    }

    fn check(&self) -> Result<(), Failure> {
        if self.off { Err(Off) } else { Ok(()) }
    }

    fn operation(&mut self) -> Result<(), Failure> {
        self.operations += 1;
        if self.off_at.is_some_and(|at| self.operations >= at) {
            self.off = true;
        }
        self.check()
    }

    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        self.files.insert(self.next_file, Content::default());
        self.next_file
    }

    fn put_name(&mut self, name: &str, id: Option<FileId>) {
        set(&mut self.names, name, id);
        self.pending_names.push((name.to_owned(), id));
    }

    fn sync_folder(&mut self, folder: &str) {
        self.durable_names.retain(|name, _| folder_of(name) != folder);
        let names = self.names.iter().filter(|(name, _)| folder_of(name) == folder);
        self.durable_names.extend(names.map(|(name, id)| (name.clone(), *id)));
        self.pending_names.retain(|(name, _)| folder_of(name) != folder);
    }

    /// Removes names in folders that do not exist.
    fn drop_orphans(&mut self) {
        let mut kept: BTreeMap<String, FileId> = BTreeMap::new();
        // Names are sorted, so a folder comes before its content.
        for (name, id) in std::mem::take(&mut self.durable_names) {
            let folder = folder_of(&name);
            let has_folder = kept.get(folder).is_some_and(|id| self.folders.contains(id));
            if folder.is_empty() || has_folder {
                kept.insert(name, id);
            }
        }
        self.durable_names = kept;
    }

    /// Gives each name a state that it had since the last sync of its folder.
    fn keep_part_of_names(&mut self, choice: Choice) {
        let count = self.pending_names.len() as u64;
        for (number, (name, id)) in (0..).zip(&self.pending_names) {
            let what = name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
            if number < choice.up_to(what, count) {
                set(&mut self.durable_names, name, *id);
            }
        }
    }
}

/// The folder of a name; empty for the root.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn set(names: &mut BTreeMap<String, FileId>, name: &str, id: Option<FileId>) {
    match id {
        Some(id) => names.insert(name.to_owned(), id),
        None => names.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_durable_when_its_folder_is_synced() {
        let mut disk = Disk::default();
        let a = disk.open("a", true).unwrap().unwrap();
        disk.write(a, 0, b"a").unwrap();
        disk.sync(a, false).unwrap();
        disk.restart(Survival::Synced);
        assert_eq!(disk.open("a", false), Ok(None), "content without a name is lost");
        let a = disk.open("a", true).unwrap().unwrap();
        disk.write(a, 0, b"a").unwrap();
        disk.sync(a, true).unwrap();
        disk.delete("a", false).unwrap();
        assert_eq!(disk.exists("a"), Ok(false));
        disk.restart(Survival::Synced);
        assert_eq!(disk.exists("a"), Ok(true), "a deletion that was not synced comes undone");
        disk.delete("a", true).unwrap();
        disk.restart(Survival::Synced);
        assert_eq!(disk.exists("a"), Ok(false));
    }

    #[test]
    fn everything_fails_after_the_loss_of_power() {
        let mut disk = Disk::default();
        disk.lose_power_at(3);
        let a = disk.open("a", true).unwrap().unwrap();
        disk.write(a, 0, b"1").unwrap();
        assert_eq!(disk.sync(a, true), Err(Off));
        assert!(disk.is_off());
        assert_eq!(disk.write(a, 0, b"2"), Err(Off));
        assert_eq!(disk.exists("a"), Err(Off));
        assert_eq!(disk.operations(), 3);
        disk.restart(Survival::Synced);
        assert_eq!(disk.exists("a"), Ok(false));
        assert!(disk.open("a", true).is_ok());
    }

    #[test]
    fn the_content_of_a_folder_survives_if_folder_and_content_were_synced() {
        let mut disk = Disk::default();
        let put = |disk: &mut Disk, name: &str| {
            let id = disk.open(name, true).unwrap().unwrap();
            disk.write(id, 0, b"a").unwrap();
            disk.sync(id, false).unwrap();
        };
        disk.make_folder("f").unwrap();
        put(&mut disk, "f/a");
        disk.sync_names_in("f").unwrap();
        disk.restart(Survival::Synced);
        assert!(!disk.is_folder("f") && !disk.exists("f/a").unwrap(), "the folder was not synced");
        disk.make_folder("f").unwrap();
        disk.sync_names_in("").unwrap();
        put(&mut disk, "f/a");
        disk.sync_names_in("f").unwrap();
        put(&mut disk, "f/b");
        disk.rename("f/a", "f/c").unwrap();
        assert_eq!(disk.names_in("f").unwrap(), ["b", "c"]);
        disk.restart(Survival::Synced);
        assert_eq!(disk.names_in("f").unwrap(), ["a"], "the rename was not synced");
        disk.rename("f/a", "f/c").unwrap();
        disk.sync_names_in("f").unwrap();
        disk.restart(Survival::Synced);
        assert_eq!(disk.names_in("f").unwrap(), ["c"]);
    }

    #[test]
    fn sync_below_is_one_operation() {
        let mut disk = Disk::default();
        for folder in ["f", "f/g"] {
            disk.make_folder(folder).unwrap();
        }
        disk.sync_names_in("").unwrap();
        for name in ["f/a", "f/g/b", "f/g/gone", "c", "fa"] {
            let id = disk.open(name, true).unwrap().unwrap();
            disk.write(id, 0, b"a").unwrap();
        }
        disk.sync_names_in("f/g").unwrap();
        disk.delete("f/g/gone", false).unwrap();
        let before = disk.operations();
        disk.sync_below("f").unwrap();
        assert_eq!(disk.operations(), before + 1);
        disk.restart(Survival::Synced);
        let there = ["f/a", "f/g/b", "f/g/gone", "c", "fa"].map(|name| disk.exists(name).unwrap());
        assert_eq!(there, [true, true, false, false, false]);
        let a = disk.open("f/g/b", false).unwrap().unwrap();
        assert_eq!(disk.len(a), Ok(1));
        disk.open("c", true).unwrap();
        disk.sync_below("").unwrap();
        disk.restart(Survival::Synced);
        assert_eq!(disk.exists("c"), Ok(true));
    }

    #[test]
    fn a_full_disk_writes_the_part_that_fits() {
        let mut disk = Disk::default();
        let a = disk.open("a", true).unwrap().unwrap();
        let b = disk.open("b", true).unwrap().unwrap();
        disk.limit(Some(10));
        disk.write(a, 0, &[1; 6]).unwrap();
        assert_eq!(disk.write(b, 0, &[2; 6]), Err(Full));
        assert_eq!((disk.len(a), disk.len(b), disk.used()), (Ok(6), Ok(4), 10));
        disk.write(a, 2, &[3; 4]).unwrap();
        assert_eq!(disk.write(a, 6, &[3; 1]), Err(Full));
        disk.delete("b", false).unwrap();
        disk.write(a, 6, &[3; 1]).unwrap();
        disk.limit(None);
        disk.write(a, 0, &[4; 100]).unwrap();
    }

    #[test]
    fn unsynced_names_survive_in_part() {
        let survivors = (0..100).map(|seed| {
            let mut disk = Disk::default();
            disk.open("a", true).unwrap();
            disk.open("b", true).unwrap();
            disk.restart(Survival::Part(seed));
            (disk.exists("a").unwrap(), disk.exists("b").unwrap())
        });
        assert_eq!(survivors.collect::<BTreeSet<_>>().len(), 4);
    }
}
