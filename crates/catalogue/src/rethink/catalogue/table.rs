//! Objects or packages by name, and the list of the names.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use super::entry::PackageEntry;
use crate::rethink::names::Utf16Name;
use crate::rethink::{Template, Value, pretty};

/// The objects of one type, or the packages, by name.
#[derive(Debug)]
pub(super) struct Table<T> {
    pub(super) entries: HashMap<Arc<str>, T>,
    names: BTreeSet<Utf16Name>,
    /// The list of the names, built by the first request for it.
    list: OnceLock<Template>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), names: BTreeSet::new(), list: OnceLock::new() }
    }
}

impl<T> Table<T> {
    pub(super) fn put(&mut self, name: &Arc<str>, entry: T) {
        if self.entries.insert(Arc::clone(name), entry).is_none() {
            self.names.insert(Utf16Name(Arc::clone(name)));
            self.list = OnceLock::new();
        }
    }

    pub(super) fn remove(&mut self, name: &Arc<str>) {
        if self.entries.remove(name).is_some() {
            self.names.remove(&Utf16Name(Arc::clone(name)));
            self.list = OnceLock::new();
        }
    }

    /// The names after `after`, in the order of the list.
    pub(super) fn names_after(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        let start = match after {
            Some(after) => Bound::Excluded(Utf16Name(after.into())),
            None => Bound::Unbounded,
        };
        self.names.range((start, Bound::Unbounded)).map(|name| &name.0)
    }

    pub(super) fn list(&self) -> Template {
        let build = || {
            let names = self.names.iter().map(|name| Value::Text(name.0.to_string()));
            let list = pretty(&Value::List(names.collect()), usize::MAX);
            Template::constant(list.unwrap_or_default())
        };
        self.list.get_or_init(build).clone()
    }
}

/// The packages of one class name, ordered by the rank of their objects.
#[derive(Debug, Default)]
pub(super) struct Packages(Vec<(u64, PackageEntry)>);

impl Packages {
    fn position(&self, order: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&order, |(order, _)| *order)
    }

    pub(super) fn put(&mut self, order: u64, package: PackageEntry) {
        match self.position(order) {
            Ok(position) => self.0[position].1 = package,
            Err(position) => {
                if self.0.is_empty() {
                    // Usually it stays the only one.
                    self.0.reserve_exact(1);
                }
                self.0.insert(position, (order, package));
            }
        }
    }

    pub(super) fn remove(&mut self, order: u64) {
        if let Ok(position) = self.position(order) {
            self.0.remove(position);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&PackageEntry> {
        self.0.first().map(|(_, package)| package)
    }
}
