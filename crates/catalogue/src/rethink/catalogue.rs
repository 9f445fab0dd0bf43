//! All objects as the original showed them, and the answer to each path.

mod path;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use levada_core::Digest;

use super::answer::{Answer, Template, attribute_body};
use super::object::Object;
use super::package::{EMPTY, Head, PackageIf};
use super::{Conditions, MAX_CODE, PackageRequest, Unfit, Wanted, name_of};
use crate::model::{Key, Kind};
use path::Path;
use table::{Packages, Table};

pub use path::{PathType, UnknownType};

/// The answer to the bare prefix. The original listed two more than types; they are not served here.
const TYPES: &str = "[\n  \"database\",\n  \"dataschema\",\n  \"hyperty\",\n  \"idp-proxy\",\n  \"protocolstub\",\n  \"restart\",\n  \"runtime\",\n  \"sourcepackage\"\n]";

/// What is shown of one object: the newest of its versions that is not yanked.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which object.
    pub key: Key,
    /// When its first version was published, as a number that only grows and that no other object has: of two packages
    /// with one class name, that of the object which was there first is shown.
    pub order: u64,
    /// Its descriptor.
    pub descriptor: Bytes,
    /// The code behind it.
    pub package: Option<PackageEntry>,
}

/// What is shown of a package. Its code is fetched when it is asked for.
#[derive(Clone, Debug)]
pub struct PackageEntry {
    /// [`crate::model::Package::description`].
    pub description: Bytes,
    /// SHA-256 of the code.
    pub digest: Digest,
    /// How many bytes the code has.
    pub length: u64,
}

/// An [`Entry`] whose body is built: putting it into the [`Catalogue`] is quick.
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
    /// [`Unfit`] if the original would have left the object out, or it names another object than its key.
    pub fn new(entry: Entry) -> Result<Self, Unfit> {
        let package = entry.package.ok_or(Unfit::NoPackage)?;
        let head = Head::read(&package.description)?;
        let object = Object::read(entry.key.kind, &entry.descriptor, &head.class)?;
        if name_of(&object.name).map_err(Unfit::Unpublishable)? != entry.key.name {
            let (found, key) = (object.name, entry.key.to_string());
            return Err(Unfit::OtherName { found, key });
        }
        let body = object.body()?;
        // Names are short, but many: those that are alike are kept once.
        let own = entry.key.name.shared();
        let share = |text: String| if text == *own { Arc::clone(&own) } else { Arc::from(text) };
        let (name, class) = (share(object.name), share(head.class));
        let package_name = if head.name == *class { Arc::clone(&class) } else { share(head.name) };
        let shown = Shown { body, descriptor: entry.descriptor, class };
        Ok(Self { key: entry.key, order: entry.order, name, shown, package_name, package })
    }
}

/// An object in the catalogue. Its attributes are read from the descriptor when they are asked for.
#[derive(Debug)]
struct Shown {
    body: Template,
    descriptor: Bytes,
    class: Arc<str>,
}

/// All objects of the original's types.
#[derive(Debug, Default)]
pub struct Catalogue {
    objects: BTreeMap<Kind, Table<Shown>>,
    packages: Table<Packages>,
    /// Under which names an object is shown.
    places: HashMap<Key, Place>,
    defaults: BTreeMap<PathType, Vec<String>>,
}

/// An object that a list may have: conditions are compared with its descriptor.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name under which it is listed.
    pub name: Arc<str>,
    kind: Kind,
    descriptor: Bytes,
    class: Arc<str>,
}

impl Candidate {
    /// Whether it meets `conditions`.
    pub fn meets(&self, conditions: &Conditions) -> bool {
        conditions.is_empty()
            || Object::read(self.kind, &self.descriptor, &self.class)
                .is_ok_and(|object| conditions.are_met(|name| object.carried(name)))
    }

    /// Its name as the list has it: read anew, like every text.
    pub fn listed(&self) -> String {
        let text = attribute_body(&self.name).map(|body| body.parts().0);
        text.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned())
    }
}

#[derive(Debug)]
struct Place {
    order: u64,
    /// Its name and that of its package; none if both are that of its key, as they mostly are.
    names: Option<Box<[Arc<str>; 2]>>,
}

impl Place {
    fn new(key: &Key, order: u64, names: [Arc<str>; 2]) -> Self {
        let own = names.iter().all(|name| **name == *key.name.as_str());
        Self { order, names: (!own).then(|| Box::new(names)) }
    }

    fn names(&self, key: &Key) -> [Arc<str>; 2] {
        match &self.names {
            Some(names) => names.as_ref().clone(),
            None => [key.name.shared(), key.name.shared()],
        }
    }
}

impl Catalogue {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses what the name `default` stands for: the first of `names` that is there.
    pub fn set_default(&mut self, of: PathType, names: Vec<String>) {
        self.defaults.insert(of, names);
    }

    /// Shows an object, in the place of what was shown of it.
    pub fn put(&mut self, prepared: Prepared) {
        let Prepared { key, order, name, shown, package_name, package } = prepared;
        if self.places.get(&key).is_some_and(|place| place.names(&key)[0] != name) {
            self.remove(&key);
        }
        self.remove_package(&key);
        self.objects.entry(key.kind).or_default().put(&name, shown);
        self.put_package(&package_name, order, package);
        let place = Place::new(&key, order, [name, package_name]);
        self.places.insert(key, place);
    }

    /// Shows an object no more.
    pub fn remove(&mut self, key: &Key) {
        self.remove_package(key);
        if let Some(place) = self.places.remove(key)
            && let Some(table) = self.objects.get_mut(&key.kind)
        {
            let [name, _] = place.names(key);
            table.remove(&name);
        }
    }

    /// How many objects are shown.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn put_package(&mut self, name: &Arc<str>, order: u64, package: PackageEntry) {
        if !self.packages.things.contains_key(name) {
            self.packages.put(name, Packages::default());
        }
        if let Some(packages) = self.packages.things.get_mut(name) {
            packages.put(order, package);
        }
    }

    fn remove_package(&mut self, key: &Key) {
        let Some(place) = self.places.get(key) else { return };
        let [_, name] = place.names(key);
        let Some(packages) = self.packages.things.get_mut(&name) else { return };
        packages.remove(place.order);
        if packages.is_empty() {
            self.packages.remove(&name);
        }
    }

    /// The answer to `path`, which is the path of the request as it stands: nothing is decoded. A query is ignored, and
    /// so are empty segments. `conditions` are those of a POST; a GET has none.
    pub fn answer(&self, path: &[u8], conditions: Option<&Conditions>) -> Answer {
        self.find(path, conditions).unwrap_or_else(Answer::Missing)
    }

    /// Up to `limit` objects of a kind in the order of their list, from the one behind `after`: a list with conditions
    /// takes long, and is made without holding up others.
    pub fn candidates(&self, kind: Kind, after: Option<&str>, limit: usize) -> Vec<Candidate> {
        let Some(table) = self.objects.get(&kind) else { return Vec::new() };
        let candidate = |name: &Arc<str>| {
            let Shown { descriptor, class, .. } = table.things.get(name)?;
            let (name, descriptor, class) = (name.clone(), descriptor.clone(), class.clone());
            Some(Candidate { name, kind, descriptor, class })
        };
        table.names_behind(after).take(limit).filter_map(candidate).collect()
    }

    fn find(&self, path: &[u8], conditions: Option<&Conditions>) -> Result<Answer, String> {
        let path = Path::read(path)?;
        let Some(of) = path.of else { return Ok(Answer::Body(Template::whole(TYPES))) };
        let Some(name) = path.name else { return self.list(of, conditions) };
        match of {
            PathType::Packages => self.find_package(name, path.attribute, conditions),
            PathType::Objects(kind) => {
                let shown = self.named(kind, name, conditions)?;
                Ok(match path.attribute {
                    None => Answer::Body(shown.body.clone()),
                    Some(attribute) => {
                        let body = shown.attribute(kind, attribute, path.spliced);
                        Answer::Body(body.ok_or(EMPTY)?)
                    }
                })
            }
        }
    }

    fn list(&self, of: PathType, conditions: Option<&Conditions>) -> Result<Answer, String> {
        match (of, conditions) {
            (PathType::Packages, None) => Ok(Answer::Body(self.packages.list())),
            // Lists were filtered by the name of objects, which packages do not have.
            (PathType::Packages, Some(conditions)) => Err(conditions.unmet_by_all(of)),
            (PathType::Objects(kind), None) => {
                let empty = Table::default();
                Ok(Answer::Body(self.objects.get(&kind).unwrap_or(&empty).list()))
            }
            (PathType::Objects(kind), Some(_)) => Ok(Answer::ListIf(kind)),
        }
    }

    /// The object that `name` stands for; of several that may be the default the first that meets the conditions.
    fn named(
        &self,
        kind: Kind,
        name: &str,
        conditions: Option<&Conditions>,
    ) -> Result<&Shown, String> {
        let of = PathType::Objects(kind);
        let table = self.objects.get(&kind);
        let mut found = self
            .meant(of, name)
            .filter_map(|name| table.and_then(|table| table.things.get(name)))
            .peekable();
        found.peek().ok_or_else(|| path::no_instance(of, name))?;
        match conditions {
            None => found.next().ok_or_else(|| path::no_instance(of, name)),
            Some(conditions) => found
                .find(|shown| shown.meets(kind, conditions))
                .ok_or_else(|| conditions.unmet_by(name)),
        }
    }

    /// The names that a name in a path stands for.
    fn meant<'a>(&'a self, of: PathType, name: &'a str) -> impl Iterator<Item = &'a str> {
        let chosen = self.defaults.get(&of).filter(|_| name == path::DEFAULT);
        let own = chosen.is_none().then_some(name);
        own.into_iter().chain(chosen.into_iter().flatten().map(String::as_str))
    }

    fn find_package(
        &self,
        name: &str,
        attribute: Option<&str>,
        conditions: Option<&Conditions>,
    ) -> Result<Answer, String> {
        let of = PathType::Packages;
        let mut found = self.meant(of, name).filter_map(|name| self.packages.things.get(name));
        let package = found.find_map(Packages::first).ok_or_else(|| path::no_instance(of, name))?;
        let answer = package.answer(attribute);
        let Some(conditions) = conditions.filter(|conditions| !conditions.is_empty()) else {
            return answer;
        };
        let needed = package.request(Wanted::Whole)?;
        let met = answer.unwrap_or_else(Answer::Missing);
        let unmet = conditions.unmet_by(name);
        Ok(Answer::PackageIf(Box::new(PackageIf::new(needed, conditions, met, unmet))))
    }
}

impl Shown {
    fn read(&self, kind: Kind) -> Option<Object> {
        Object::read(kind, &self.descriptor, &self.class).ok()
    }

    fn meets(&self, kind: Kind, conditions: &Conditions) -> bool {
        conditions.is_empty()
            || self.read(kind).is_some_and(|object| conditions.are_met(|name| object.carried(name)))
    }

    fn attribute(&self, kind: Kind, attribute: &str, spliced: bool) -> Option<Template> {
        self.read(kind)?.attribute(attribute, spliced)
    }
}

impl PackageEntry {
    fn answer(&self, attribute: Option<&str>) -> Result<Answer, String> {
        let Some(attribute) = attribute else {
            return self.request(Wanted::Whole).map(Answer::Package);
        };
        let head = Head::read(&self.description).map_err(|_| EMPTY)?;
        if head.needs_code(attribute) {
            return self.request(Wanted::attribute(attribute)).map(Answer::Package);
        }
        Ok(Answer::Body(head.attribute(attribute).ok_or(EMPTY)?))
    }

    fn request(&self, wanted: Wanted) -> Result<PackageRequest, String> {
        if self.length > MAX_CODE {
            return Err(format!(
                "a package of more than {MAX_CODE} bytes is not answered here: use /v1"
            ));
        }
        let Self { description, digest, length } = self.clone();
        Ok(PackageRequest { description, digest, length, wanted })
    }
}
