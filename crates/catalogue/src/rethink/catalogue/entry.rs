//! Objects and packages as the catalogue holds them.

use std::sync::Arc;

use bytes::Bytes;
use levada_core::Digest;

use crate::model::{Key, Kind};
use crate::rethink::answer::EMPTY;
use crate::rethink::names::published_name;
use crate::rethink::object::Object;
use crate::rethink::package::Description;
use crate::rethink::template::attribute_template;
use crate::rethink::{
    Answer, Conditions, Incompatible, MAX_CODE, PackagePart, PackageRequest, Template,
};

/// The version of an object that is shown: the newest one that is not yanked.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The object.
    pub key: Key,
    /// The rank of the object by the publication of its first version, unique to the object: of two
    /// packages with one class name, the package of the object with the lower rank is shown.
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

impl PackageEntry {
    /// The answer for the package, or for one of its attributes.
    pub(super) fn answer(&self, attribute: Option<&str>) -> Result<Answer, String> {
        let Some(attribute) = attribute else {
            return self.request(PackagePart::Whole).map(Answer::Package);
        };
        let description = Description::parse(&self.description).map_err(|_| EMPTY)?;
        if description.needs_code(attribute) {
            return self.request(PackagePart::attribute(attribute)).map(Answer::Package);
        }
        Ok(Answer::Body(description.attribute(attribute).ok_or(EMPTY)?))
    }

    pub(super) fn request(&self, part: PackagePart) -> Result<PackageRequest, String> {
        if self.length > MAX_CODE {
            return Err(format!(
                "packages of more than {MAX_CODE} bytes are not served here: use /v1"
            ));
        }
        let Self { description, digest, length } = self.clone();
        Ok(PackageRequest { description, digest, length, part })
    }
}

/// An [`Entry`] whose body has been built, so that inserting it into the [`super::Catalogue`] is
/// fast.
#[derive(Debug)]
pub struct Prepared {
    pub(super) key: Key,
    pub(super) order: u64,
    pub(super) name: Arc<str>,
    pub(super) shown: Shown,
    pub(super) package_name: Arc<str>,
    pub(super) package: PackageEntry,
}

impl Prepared {
    /// Builds the body.
    ///
    /// # Errors
    /// [`Incompatible`] if reTHINK's catalogue would not show the object, or `objectName` differs
    /// from its key.
    pub fn new(entry: Entry) -> Result<Self, Incompatible> {
        let package = entry.package.ok_or(Incompatible::NoPackage)?;
        let description = Description::parse(&package.description)?;
        let object = Object::parse(entry.key.kind, &entry.descriptor, &description.class)?;
        if published_name(&object.name).map_err(Incompatible::Unpublishable)? != entry.key.name {
            let found = object.name;
            let key = entry.key.to_string();
            return Err(Incompatible::OtherName { found, key });
        }
        let body = object.body()?;
        // A catalogue has many names; equal ones share an allocation to save memory.
        let own = entry.key.name.shared();
        let share = |text: String| if text == *own { Arc::clone(&own) } else { Arc::from(text) };
        let name = share(object.name);
        let class = share(description.class);
        let package_name =
            if description.name == *class { Arc::clone(&class) } else { share(description.name) };
        let shown = Shown { body, descriptor: entry.descriptor, class };
        Ok(Self { key: entry.key, order: entry.order, name, shown, package_name, package })
    }
}

/// An object in the catalogue. Its attributes are parsed from the descriptor for each request.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) body: Template,
    pub(super) descriptor: Bytes,
    pub(super) class: Arc<str>,
}

impl Shown {
    pub(super) fn matches(&self, kind: Kind, conditions: &Conditions) -> bool {
        matches(kind, &self.descriptor, &self.class, conditions)
    }

    /// The body of an attribute; `None` if the object does not have it or it is empty.
    pub(super) fn attribute(
        &self,
        kind: Kind,
        attribute: &str,
        with_host: bool,
    ) -> Option<Template> {
        let object = Object::parse(kind, &self.descriptor, &self.class).ok()?;
        object.attribute(attribute, with_host)
    }
}

/// An object to be compared with the conditions of a filtered list.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its `objectName`.
    pub name: Arc<str>,
    pub(super) kind: Kind,
    pub(super) descriptor: Bytes,
    pub(super) class: Arc<str>,
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

/// Whether a descriptor whose package has the class name `class` matches `conditions`.
fn matches(kind: Kind, descriptor: &[u8], class: &str, conditions: &Conditions) -> bool {
    conditions.is_empty()
        || Object::parse(kind, descriptor, class)
            .is_ok_and(|object| conditions.matches(|name| object.serialized(name)))
}
