//! All objects as the original showed them, and the answer to each path.

mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use levada_core::Digest;

use super::answer::{Answer, Problem, Template};
use super::object::Object;
use super::package::Head;
use super::{MAX_CODE, PREFIX, PackageRequest, Unfit, Wanted, name_of};
use crate::model::{Key, Kind};
use table::{Packages, Table};

/// The type under which packages are asked for.
const PACKAGES: &str = "sourcepackage";
/// Stands for an object that the operator chose.
const DEFAULT: &str = "default";
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
    defaults: BTreeMap<Kind, Vec<String>>,
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
    pub fn set_default(&mut self, kind: Kind, names: Vec<String>) {
        self.defaults.insert(kind, names);
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

    /// The answer to `GET` of `path`, which is the path of the request as it stands: nothing is decoded. A query is
    /// ignored, and so are empty segments.
    pub fn answer(&self, path: &[u8]) -> Answer {
        self.find(path).unwrap_or_else(Answer::Problem)
    }

    fn find(&self, path: &[u8]) -> Result<Answer, Problem> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let rest = path.strip_prefix(PREFIX.as_bytes());
        let rest = rest.and_then(|rest| str::from_utf8(rest).ok());
        let rest = rest.ok_or_else(|| Problem::not_found("there is no such path"))?;
        let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
        let Some(kind) = segments.next() else { return Ok(Answer::Body(Template::whole(TYPES))) };
        let (name, attribute) = (segments.next(), segments.next());
        if segments.next().is_some() {
            return Err(Problem::not_found("a path is TYPE/NAME/ATTRIBUTE and no longer"));
        }
        // The original looked at the end of the path, so that a slash behind it leaves the value as it is.
        let spliced = !path.ends_with(b"/");
        if kind == PACKAGES {
            return self.find_package(name, attribute);
        }
        let kind = kind_of(kind)?;
        let empty = Table::default();
        let table = self.objects.get(&kind).unwrap_or(&empty);
        let Some(name) = name else { return Ok(Answer::Body(table.list())) };
        let shown = self.named(kind, table, name)?;
        match attribute {
            None => Ok(Answer::Body(shown.body.clone())),
            Some(attribute) => find_attribute(kind, shown, attribute, spliced),
        }
    }

    fn named<'a>(
        &self,
        kind: Kind,
        table: &'a Table<Shown>,
        name: &str,
    ) -> Result<&'a Shown, Problem> {
        let chosen = self.defaults.get(&kind).filter(|_| name == DEFAULT);
        let shown = match chosen {
            Some(names) => names.iter().find_map(|name| table.things.get(name.as_str())),
            None => table.things.get(name),
        };
        shown.ok_or_else(|| Problem::not_found(format!("there is no {kind} of this name")))
    }

    fn find_package(&self, name: Option<&str>, attribute: Option<&str>) -> Result<Answer, Problem> {
        let Some(name) = name else { return Ok(Answer::Body(self.packages.list())) };
        let packages = self.packages.things.get(name);
        let package = packages.and_then(Packages::first);
        let package =
            package.ok_or_else(|| Problem::not_found("there is no package of this class name"))?;
        let Some(attribute) = attribute else { return wanted(package, Wanted::Whole) };
        let head = Head::read(&package.description).map_err(|_| no_attribute())?;
        if head.needs_code(attribute) {
            return wanted(package, Wanted::attribute(attribute));
        }
        head.attribute(attribute).map(Answer::Body).ok_or_else(no_attribute)
    }
}

/// A type by its name in paths.
fn kind_of(text: &str) -> Result<Kind, Problem> {
    let kind = text.parse::<Kind>().ok().filter(|kind| *kind != Kind::Service);
    kind.ok_or_else(|| {
        Problem::not_found(
            "there is no such type: use dataschema, hyperty, idp-proxy, protocolstub, runtime or sourcepackage",
        )
    })
}

fn find_attribute(
    kind: Kind,
    shown: &Shown,
    attribute: &str,
    spliced: bool,
) -> Result<Answer, Problem> {
    let object = Object::read(kind, &shown.descriptor, &shown.class).map_err(|_| no_attribute())?;
    object.attribute(attribute, spliced).map(Answer::Body).ok_or_else(no_attribute)
}

fn no_attribute() -> Problem {
    Problem::not_found("the object has no such attribute, or an empty one")
}

fn wanted(package: &PackageEntry, wanted: Wanted) -> Result<Answer, Problem> {
    if package.length > MAX_CODE {
        let detail =
            format!("a package of more than {MAX_CODE} bytes is not answered here: use /v1");
        return Err(Problem::not_found(detail));
    }
    let PackageEntry { description, digest, length } = package.clone();
    Ok(Answer::Package(PackageRequest { description, digest, length, wanted }))
}
