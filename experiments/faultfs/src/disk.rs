//! One folder of files, and the power that it can lose.

use std::collections::{BTreeMap, BTreeSet};

use crate::Survival;
use crate::file::{Choice, Content, mix};

/// Power is lost: nothing works until the restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Off;

/// Refers to an open file.
pub(crate) type FileId = u64;

#[derive(Default)]
pub(crate) struct Disk {
    files: BTreeMap<FileId, Content>,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names since the folder was synced: what a name stands for from then on.
    pending_names: Vec<(String, Option<FileId>)>,
    /// Files without a name go with the process.
    temporary: BTreeSet<FileId>,
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
        self.names = self.durable_names.clone();
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
        for (id, content) in &mut self.files {
            content.restart(survival, *id);
        }
        (self.off_at, self.off) = (None, false);
    }

    /// The file with this name; a new one if `create` and there is none.
    pub fn open(&mut self, name: &str, create: bool) -> Result<Option<FileId>, Off> {
        self.check()?;
        if let Some(id) = self.names.get(name) {
            return Ok(Some(*id));
        }
        if !create {
            return Ok(None);
        }
        let id = self.new_file();
        self.rename(name, Some(id));
        self.operation()?;
        Ok(Some(id))
    }

    pub fn open_temporary(&mut self) -> Result<FileId, Off> {
        self.check()?;
        let id = self.new_file();
        self.temporary.insert(id);
        Ok(id)
    }

    pub fn exists(&self, name: &str) -> Result<bool, Off> {
        self.check()?;
        Ok(self.names.contains_key(name))
    }

    /// False if there is no such file.
    pub fn delete(&mut self, name: &str, sync_folder: bool) -> Result<bool, Off> {
        self.check()?;
        if !self.names.contains_key(name) {
            return Ok(false);
        }
        self.rename(name, None);
        self.operation()?;
        if sync_folder {
            self.operation()?;
            self.sync_folder();
        }
        Ok(true)
    }

    pub fn read(&self, id: FileId, at: usize, out: &mut [u8]) -> Result<bool, Off> {
        self.check()?;
        Ok(self.files.get(&id).ok_or(Off)?.read(at, out))
    }

    pub fn len(&self, id: FileId) -> Result<usize, Off> {
        self.check()?;
        Ok(self.files.get(&id).ok_or(Off)?.len())
    }

    pub fn write(&mut self, id: FileId, at: usize, bytes: &[u8]) -> Result<(), Off> {
        self.change(id, |content| content.write(at, bytes))
    }

    pub fn truncate(&mut self, id: FileId, to: usize) -> Result<(), Off> {
        self.change(id, |content| content.truncate(to))
    }

    /// Syncs the content, then the folder: two operations.
    pub fn sync(&mut self, id: FileId, with_folder: bool) -> Result<(), Off> {
        self.check()?;
        self.operation()?;
        self.files.get_mut(&id).ok_or(Off)?.sync();
        if with_folder {
            self.operation()?;
            self.sync_folder();
        }
        Ok(())
    }

    /// A change reaches the cache before its operation counts, so that a part of it may survive.
    fn change(&mut self, id: FileId, change: impl FnOnce(&mut Content)) -> Result<(), Off> {
        self.check()?;
        change(self.files.get_mut(&id).ok_or(Off)?);
        if self.temporary.contains(&id) { Ok(()) } else { self.operation() }
    }

    fn check(&self) -> Result<(), Off> {
        if self.off { Err(Off) } else { Ok(()) }
    }

    fn operation(&mut self) -> Result<(), Off> {
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

    fn rename(&mut self, name: &str, id: Option<FileId>) {
        set(&mut self.names, name, id);
        self.pending_names.push((name.to_owned(), id));
    }

    fn sync_folder(&mut self) {
        self.durable_names = self.names.clone();
        self.pending_names.clear();
    }

    /// Each name in a state that it had at some time since the folder was synced.
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
    fn from_the_chosen_operation_on_everything_fails() {
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
    fn names_survive_in_part() {
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
