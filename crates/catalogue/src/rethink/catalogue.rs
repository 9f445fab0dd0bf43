//! All objects in the form of reTHINK's catalogue, and the answer to each path.

mod entry;
mod path;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::answer::EMPTY;
use super::{Answer, ConditionalPackage, Conditions, PackagePart, Template};
use crate::model::{Key, Kind};
use entry::Shown;
use path::Path;
use table::{Packages, Table};

pub use entry::{Candidate, Entry, PackageEntry, Prepared};
pub use path::{PathType, UnknownType};

/// The answer to the prefix alone. `database` and `restart` are listed as in reTHINK's catalogue,
/// but not served.
const TYPES: &str = "[\n  \"database\",\n  \"dataschema\",\n  \"hyperty\",\n  \"idp-proxy\",\n  \"protocolstub\",\n  \"restart\",\n  \"runtime\",\n  \"sourcepackage\"\n]";

/// All objects of reTHINK's types.
#[derive(Debug, Default)]
pub struct Catalogue {
    objects: BTreeMap<Kind, Table<Shown>>,
    packages: Table<Packages>,
    /// The names under which each object and its package are listed.
    listings: HashMap<Key, Listing>,
    /// For each type, the names that `default` stands for, in order of preference.
    defaults: BTreeMap<PathType, Vec<String>>,
}

#[derive(Debug)]
struct Listing {
    order: u64,
    /// Its name and the name of its package. `None` if both equal the name of its key, which is the
    /// usual case and saves memory.
    names: Option<Box<[Arc<str>; 2]>>,
}

impl Listing {
    fn new(key: &Key, order: u64, names: [Arc<str>; 2]) -> Self {
        let equal = names.iter().all(|name| **name == *key.name.as_str());
        Self { order, names: (!equal).then(|| Box::new(names)) }
    }

    fn names(&self, key: &Key) -> [Arc<str>; 2] {
        match &self.names {
            Some(names) => names.as_ref().clone(),
            None => [key.name.shared(), key.name.shared()],
        }
    }
}

impl Catalogue {
    /// An empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the object or package that the name `default` stands for: the first of `names` that
    /// exists.
    pub fn set_default(&mut self, of: PathType, names: Vec<String>) {
        self.defaults.insert(of, names);
    }

    /// Inserts an object, or replaces the one with the same key.
    pub fn put(&mut self, prepared: Prepared) {
        let Prepared { key, order, name, shown, package_name, package } = prepared;
        if self.listings.get(&key).is_some_and(|listing| listing.names(&key)[0] != name) {
            self.remove(&key);
        }
        self.remove_package(&key);
        self.objects.entry(key.kind).or_default().put(&name, shown);
        self.put_package(&package_name, order, package);
        let listing = Listing::new(&key, order, [name, package_name]);
        self.listings.insert(key, listing);
    }

    /// Removes an object and its package.
    pub fn remove(&mut self, key: &Key) {
        self.remove_package(key);
        if let Some(listing) = self.listings.remove(key)
            && let Some(table) = self.objects.get_mut(&key.kind)
        {
            let [name, _] = listing.names(key);
            table.remove(&name);
        }
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.listings.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.listings.is_empty()
    }

    fn put_package(&mut self, name: &Arc<str>, order: u64, package: PackageEntry) {
        if !self.packages.entries.contains_key(name) {
            self.packages.put(name, Packages::default());
        }
        if let Some(packages) = self.packages.entries.get_mut(name) {
            packages.put(order, package);
        }
    }

    fn remove_package(&mut self, key: &Key) {
        let Some(listing) = self.listings.get(key) else { return };
        let [_, name] = listing.names(key);
        let Some(packages) = self.packages.entries.get_mut(&name) else { return };
        packages.remove(listing.order);
        if packages.is_empty() {
            self.packages.remove(&name);
        }
    }

    /// The answer to `path`, the undecoded path of the request. A query and empty segments are
    /// ignored. A POST has `conditions`; a GET has none.
    pub fn answer(&self, path: &[u8], conditions: Option<&Conditions>) -> Answer {
        self.find(path, conditions).unwrap_or_else(Answer::Missing)
    }

    /// Up to `limit` objects of a kind in the order of their list, starting after `after`. A
    /// filtered list takes long to build, so it is built from such pages without holding a lock on
    /// the catalogue.
    pub fn candidates(&self, kind: Kind, after: Option<&str>, limit: usize) -> Vec<Candidate> {
        let Some(table) = self.objects.get(&kind) else { return Vec::new() };
        let candidate = |name: &Arc<str>| {
            let Shown { descriptor, class, .. } = table.entries.get(name)?;
            let name = name.clone();
            let descriptor = descriptor.clone();
            let class = class.clone();
            Some(Candidate { name, kind, descriptor, class })
        };
        table.names_after(after).take(limit).filter_map(candidate).collect()
    }

    fn find(&self, path: &[u8], conditions: Option<&Conditions>) -> Result<Answer, String> {
        let path = Path::parse(path)?;
        let Some(path_type) = path.path_type else {
            return Ok(Answer::Body(Template::constant(TYPES)));
        };
        let Some(name) = path.name else { return self.list(path_type, conditions) };
        match path_type {
            PathType::Packages => self.find_package(name, path.attribute, conditions),
            PathType::Objects(kind) => {
                let shown = self.named(kind, name, conditions)?;
                Ok(match path.attribute {
                    None => Answer::Body(shown.body.clone()),
                    Some(attribute) => {
                        let body = shown.attribute(kind, attribute, path.with_host);
                        Answer::Body(body.ok_or(EMPTY)?)
                    }
                })
            }
        }
    }

    fn list(&self, path_type: PathType, conditions: Option<&Conditions>) -> Result<Answer, String> {
        match (path_type, conditions) {
            (PathType::Packages, None) => Ok(Answer::Body(self.packages.list())),
            // reTHINK's catalogue filtered lists by the names of objects, which packages do not
            // have.
            (PathType::Packages, Some(conditions)) => Err(conditions.no_list_match(path_type)),
            (PathType::Objects(kind), None) => {
                let empty = Table::default();
                Ok(Answer::Body(self.objects.get(&kind).unwrap_or(&empty).list()))
            }
            (PathType::Objects(kind), Some(_)) => Ok(Answer::FilteredList(kind)),
        }
    }

    /// The object that `name` stands for; of several defaults, the first that matches the
    /// conditions.
    fn named(
        &self,
        kind: Kind,
        name: &str,
        conditions: Option<&Conditions>,
    ) -> Result<&Shown, String> {
        let path_type = PathType::Objects(kind);
        let table = self.objects.get(&kind);
        let mut found = self
            .resolve(path_type, name)
            .filter_map(|name| table.and_then(|table| table.entries.get(name)))
            .peekable();
        found.peek().ok_or_else(|| path::no_instance(path_type, name))?;
        match conditions {
            None => found.next().ok_or_else(|| path::no_instance(path_type, name)),
            Some(conditions) => found
                .find(|shown| shown.matches(kind, conditions))
                .ok_or_else(|| conditions.no_match(name)),
        }
    }

    /// The names that a name in a path stands for: several for `default`.
    fn resolve<'a>(&'a self, path_type: PathType, name: &'a str) -> impl Iterator<Item = &'a str> {
        let chosen = self.defaults.get(&path_type).filter(|_| name == path::DEFAULT);
        let own = chosen.is_none().then_some(name);
        own.into_iter().chain(chosen.into_iter().flatten().map(String::as_str))
    }

    fn find_package(
        &self,
        name: &str,
        attribute: Option<&str>,
        conditions: Option<&Conditions>,
    ) -> Result<Answer, String> {
        let path_type = PathType::Packages;
        let mut found =
            self.resolve(path_type, name).filter_map(|name| self.packages.entries.get(name));
        let package =
            found.find_map(Packages::first).ok_or_else(|| path::no_instance(path_type, name))?;
        let answer = package.answer(attribute);
        let Some(conditions) = conditions.filter(|conditions| !conditions.is_empty()) else {
            return answer;
        };
        let package = package.request(PackagePart::Whole)?;
        let answer = answer.unwrap_or_else(Answer::Missing);
        let no_match = conditions.no_match(name);
        let conditional = ConditionalPackage::new(package, conditions, answer, no_match);
        Ok(Answer::ConditionalPackage(Box::new(conditional)))
    }
}
