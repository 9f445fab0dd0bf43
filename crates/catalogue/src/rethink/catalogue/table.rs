//! Things by name, and their list.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use super::PackageEntry;
use crate::rethink::answer::Template;
use crate::rethink::names::Sorted;
use crate::rethink::{Value, pretty};

/// The things of one type, by name.
#[derive(Debug)]
pub(super) struct Table<T> {
    pub(super) things: HashMap<Arc<str>, T>,
    names: BTreeSet<Sorted>,
    /// Their list, once it has been asked for.
    list: OnceLock<Template>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { things: HashMap::new(), names: BTreeSet::new(), list: OnceLock::new() }
    }
}

impl<T> Table<T> {
    pub(super) fn put(&mut self, name: &Arc<str>, thing: T) {
        if self.things.insert(Arc::clone(name), thing).is_none() {
            self.names.insert(Sorted(Arc::clone(name)));
            self.list = OnceLock::new();
        }
    }

    pub(super) fn remove(&mut self, name: &Arc<str>) {
        if self.things.remove(name).is_some() {
            self.names.remove(&Sorted(Arc::clone(name)));
            self.list = OnceLock::new();
        }
    }

    /// The names behind `after`, in the order of the list.
    pub(super) fn names_behind(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        let start = match after {
            Some(after) => Bound::Excluded(Sorted(after.into())),
            None => Bound::Unbounded,
        };
        self.names.range((start, Bound::Unbounded)).map(|name| &name.0)
    }

    pub(super) fn list(&self) -> Template {
        let build = || {
            let names = self.names.iter().map(|name| Value::Text(name.0.to_string()));
            let list = pretty(&Value::List(names.collect()), usize::MAX);
            Template::whole(list.unwrap_or_default())
        };
        self.list.get_or_init(build).clone()
    }
}

/// The packages of one class name, that of the object which was there first in front.
#[derive(Debug, Default)]
pub(super) struct Packages(Vec<(u64, PackageEntry)>);

impl Packages {
    fn place(&self, order: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&order, |(order, _)| *order)
    }

    pub(super) fn put(&mut self, order: u64, package: PackageEntry) {
        match self.place(order) {
            Ok(place) => self.0[place].1 = package,
            Err(place) => {
                if self.0.is_empty() {
                    // It mostly stays alone.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (order, package));
            }
        }
    }

    pub(super) fn remove(&mut self, order: u64) {
        if let Ok(place) = self.place(order) {
            self.0.remove(place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&PackageEntry> {
        self.0.first().map(|(_, package)| package)
    }
}
