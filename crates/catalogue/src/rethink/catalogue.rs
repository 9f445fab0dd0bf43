//! All objects in the form of reTHINK's catalogue, and the answer to each path.

mod path;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use levada_core::Digest;

use super::answer::{Answer, Template, attribute_template};
use super::object::Object;
use super::package::{ConditionalPackage, Description, EMPTY};
use super::{Conditions, Incompatible, MAX_CODE, PackagePart, PackageRequest, published_name};
use crate::model::{Key, Kind};
use path::Path;
use table::{Packages, Table};

pub use path::{PathType, UnknownType};

/// The answer to the prefix alone. `database` and `restart` are listed as in reTHINK's catalogue, but not served.
const TYPES: &str = "[\n  \"database\",\n  \"dataschema\",\n  \"hyperty\",\n  \"idp-proxy\",\n  \"protocolstub\",\n  \"restart\",\n  \"runtime\",\n  \"sourcepackage\"\n]";

/// The version of an object that is shown: the newest one that is not yanked.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The object.
    pub key: Key,
    /// The rank of the object by the publication of its first version, unique to the object: of two packages with one
    /// class name, that of the object with the lower rank is shown.
    pub order: u64,
    /// Its descriptor.
    pub descriptor: Bytes,
    /// Its package.
    pub package: Option<PackageEntry>,
}

/// A package without its code, which is fetched for each request.
#[derive(Clone, Debug)]
pub struct PackageEntry {
    /// [`crate::model::Package::description`].
    pub description: Bytes,
    /// SHA-256 of the code.
    pub digest: Digest,
    /// The length of the code in bytes.
    pub length: u64,
}

/// An [`Entry`] whose body has been built, so that inserting it into the [`Catalogue`] is fast.
#[derive(Debug)]
pub struct Prepared {
    key: Key,
    order: u64,
    name: Arc<str>,
    shown: Shown,
    package_name: Arc<str>,
    package: PackageEntry,
}

impl Prepared {
    /// Builds the body.
    ///
    /// # Errors
    /// [`Incompatible`] if reTHINK's catalogue would not show the object, or `objectName` differs from its key.
    pub fn new(entry: Entry) -> Result<Self, Incompatible> {
        let package = entry.package.ok_or(Incompatible::NoPackage)?;
        let description = Description::parse(&package.description)?;
        let object = Object::parse(entry.key.kind, &entry.descriptor, &description.class)?;
        if published_name(&object.name).map_err(Incompatible::Unpublishable)? != entry.key.name {
            let (found, key) = (object.name, entry.key.to_string());
            return Err(Incompatible::OtherName { found, key });
        }
        let body = object.body()?;
        // A catalogue has many names; equal ones share an allocation to save memory.
        let own = entry.key.name.shared();
        let share = |text: String| if text == *own { Arc::clone(&own) } else { Arc::from(text) };
        let (name, class) = (share(object.name), share(description.class));
        let package_name =
            if description.name == *class { Arc::clone(&class) } else { share(description.name) };
        let shown = Shown { body, descriptor: entry.descriptor, class };
        Ok(Self { key: entry.key, order: entry.order, name, shown, package_name, package })
    }
}

/// An object in the catalogue. Its attributes are parsed from the descriptor for each request.
#[derive(Debug)]
struct Shown {
    body: Template,
    descriptor: Bytes,
    class: Arc<str>,
}

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

/// An object to be compared with the conditions of a filtered list.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its `objectName`.
    pub name: Arc<str>,
    kind: Kind,
    descriptor: Bytes,
    class: Arc<str>,
}

impl Candidate {
    /// Whether it matches `conditions`.
    pub fn matches(&self, conditions: &Conditions) -> bool {
        matches(self.kind, &self.descriptor, &self.class, conditions)
    }

    /// Its name in the list: parsed the second time, like every value.
    pub fn list_name(&self) -> String {
        let text = attribute_template(&self.name).map(|body| body.parts().0);
        text.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned())
    }
}

#[derive(Debug)]
struct Listing {
    order: u64,
    /// Its name and that of its package. `None` if both equal the name of its key, which is the usual case and saves
    /// memory.
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

    /// Sets the object or package that the name `default` stands for: the first of `names` that exists.
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

    /// The answer to `path`, the undecoded path of the request. A query and empty segments are ignored. `conditions` are
    /// those of a POST; a GET has none.
    pub fn answer(&self, path: &[u8], conditions: Option<&Conditions>) -> Answer {
        self.find(path, conditions).unwrap_or_else(Answer::Missing)
    }

    /// Up to `limit` objects of a kind in the order of their list, starting after `after`. A filtered list takes long
    /// to build, so it is built from such pages without holding a lock on the catalogue.
    pub fn candidates(&self, kind: Kind, after: Option<&str>, limit: usize) -> Vec<Candidate> {
        let Some(table) = self.objects.get(&kind) else { return Vec::new() };
        let candidate = |name: &Arc<str>| {
            let Shown { descriptor, class, .. } = table.entries.get(name)?;
            let (name, descriptor, class) = (name.clone(), descriptor.clone(), class.clone());
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
            // reTHINK's catalogue filtered lists by the names of objects, which packages do not have.
            (PathType::Packages, Some(conditions)) => Err(conditions.no_list_match(path_type)),
            (PathType::Objects(kind), None) => {
                let empty = Table::default();
                Ok(Answer::Body(self.objects.get(&kind).unwrap_or(&empty).list()))
            }
            (PathType::Objects(kind), Some(_)) => Ok(Answer::FilteredList(kind)),
        }
    }

    /// The object that `name` stands for; of several defaults, the first that matches the conditions.
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

impl Shown {
    fn matches(&self, kind: Kind, conditions: &Conditions) -> bool {
        matches(kind, &self.descriptor, &self.class, conditions)
    }

    fn attribute(&self, kind: Kind, attribute: &str, with_host: bool) -> Option<Template> {
        let object = Object::parse(kind, &self.descriptor, &self.class).ok()?;
        object.attribute(attribute, with_host)
    }
}

/// Whether a descriptor whose package has the class name `class` matches `conditions`.
fn matches(kind: Kind, descriptor: &[u8], class: &str, conditions: &Conditions) -> bool {
    conditions.is_empty()
        || Object::parse(kind, descriptor, class)
            .is_ok_and(|object| conditions.matches(|name| object.serialized(name)))
}

impl PackageEntry {
    fn answer(&self, attribute: Option<&str>) -> Result<Answer, String> {
        let Some(attribute) = attribute else {
            return self.request(PackagePart::Whole).map(Answer::Package);
        };
        let description = Description::parse(&self.description).map_err(|_| EMPTY)?;
        if description.needs_code(attribute) {
            return self.request(PackagePart::attribute(attribute)).map(Answer::Package);
        }
        Ok(Answer::Body(description.attribute(attribute).ok_or(EMPTY)?))
    }

    fn request(&self, part: PackagePart) -> Result<PackageRequest, String> {
        if self.length > MAX_CODE {
            return Err(format!(
                "packages of more than {MAX_CODE} bytes are not served here: use /v1"
            ));
        }
        let Self { description, digest, length } = self.clone();
        Ok(PackageRequest { description, digest, length, part })
    }
}
