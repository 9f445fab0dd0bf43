//! One object as the original showed it.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use md5::{Digest as _, Md5};

use super::answer::{Template, attribute_body, reread};
use super::attributes::{self, Attribute, in_order};
use super::utf8::decode;
use super::write::{Pretty, TooLong, compact_members, write_escaped};
use super::{Members, Unfit, Value, parse};
use crate::model::Kind;

/// The longest body of an object, in bytes. Brackets nested deep make more text than they are.
const MAX_BODY: usize = 8 * 1024 * 1024;

const URL: &str = "sourcePackageURL";
const CGUID: &str = "cguid";
/// What stands in front of the host, and what behind it, in an answered [`URL`].
const URL_BEFORE: &str = "hyperty-catalogue://";
const URL_AFTER: &str = "/.well-known";

/// A descriptor with what the original's loader put into it.
#[derive(Debug)]
pub(super) struct Object {
    /// The text under which it is listed and asked for.
    pub(super) name: String,
    attributes: &'static [Attribute],
    members: Members,
}

impl Object {
    /// Reads a descriptor whose package has this class name.
    pub(super) fn read(kind: Kind, descriptor: &[u8], class: &str) -> Result<Self, Unfit> {
        let text = decode(descriptor);
        match parse(&text).map_err(Unfit::Descriptor)? {
            Some(Value::Object(members)) => Self::new(kind, members, class),
            _ => Err(Unfit::DescriptorForm),
        }
    }

    /// The loader: the package goes, its URL and a hash of the rest are put in, and what is mandatory must be there.
    pub(super) fn new(kind: Kind, mut members: Members, class: &str) -> Result<Self, Unfit> {
        let attributes = attributes::of(kind).ok_or(Unfit::Kind(kind))?;
        members.shift_remove("sourcePackage");
        members.insert(URL.to_owned(), Value::Text(format!("/sourcepackage/{class}")));
        members.shift_remove(CGUID);
        let cguid = md5_text(compact_members(&members).as_bytes());
        members.insert(CGUID.to_owned(), Value::Text(cguid));

        let missing = attributes
            .iter()
            .find(|attribute| attribute.mandatory && !members.contains_key(attribute.name));
        if let Some(attribute) = missing {
            return Err(Unfit::Missing(attribute.name));
        }
        let name = members.get("objectName").ok_or(Unfit::Missing("objectName"))?;
        if name.single().ok_or(Unfit::Name)? == "default" {
            return Err(Unfit::Default);
        }
        Ok(Self { name: name.carried().into_owned(), attributes, members })
    }

    /// The text of `version`, from which a semantic one is made.
    pub(super) fn version(&self) -> String {
        self.members.get("version").map_or_else(String::new, |value| value.carried().into_owned())
    }

    /// The body of the object.
    pub(super) fn body(&self) -> Result<Template, Unfit> {
        self.write_body().map_err(|TooLong| Unfit::TooLong(MAX_BODY))
    }

    fn write_body(&self) -> Result<Template, TooLong> {
        let mut out = Body::new(MAX_BODY)?;
        let mut hole = None;
        for attribute in in_order(self.attributes, |name| self.members.contains_key(name)) {
            let Some(value) = self.members.get(attribute.name) else { continue };
            let carried = value.carried();
            if attribute.name == URL && carried.starts_with('/') {
                hole = Some(out.url(&carried)?);
            } else {
                out.attribute(attribute.name, &carried)?;
            }
        }
        Ok(Template::json(out.end()?, hole))
    }

    /// The carried text of an attribute; `None` if it has none.
    pub(super) fn carried(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.iter().find(|attribute| attribute.name == name)?;
        self.members.get(name).map(Value::carried)
    }

    /// The body of one attribute; `None` if it has none or an empty one. `spliced` is whether a path to the package
    /// gets its host.
    pub(super) fn attribute(&self, name: &str, spliced: bool) -> Option<Template> {
        let carried = self.carried(name)?;
        if name == URL && spliced && carried.starts_with('/') {
            let text = format!("{URL_BEFORE}{URL_AFTER}{carried}");
            return Some(Template::bare(text, URL_BEFORE.len()));
        }
        attribute_body(&carried)
    }
}

/// A body in the making: an object with an attribute a line.
pub(super) struct Body {
    out: Pretty,
    empty: bool,
}

impl Body {
    pub(super) fn new(room: usize) -> Result<Self, TooLong> {
        let mut out = Pretty::new(room);
        out.raw("{")?;
        Ok(Self { out, empty: true })
    }

    /// An attribute whose value was sent as `carried`. What is empty or null is left out.
    pub(super) fn attribute(&mut self, name: &str, carried: &str) -> Result<(), TooLong> {
        let Some(value) = reread(carried).filter(|value| *value != Value::Null) else {
            return Ok(());
        };
        self.name(name)?;
        self.out.value(&value, 1)
    }

    /// The URL of the package, without a host: gives the offset where it belongs.
    fn url(&mut self, path: &str) -> Result<usize, TooLong> {
        self.name(URL)?;
        self.out.raw("\"")?;
        self.out.raw(URL_BEFORE)?;
        let hole = self.out.text.len();
        self.out.raw(URL_AFTER)?;
        write_escaped(path, true, &mut self.out.text);
        self.out.raw("\"")?;
        Ok(hole)
    }

    fn name(&mut self, name: &str) -> Result<(), TooLong> {
        self.out.name(name, !self.empty, 1)?;
        self.empty = false;
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<String, TooLong> {
        self.out.close("}", self.empty, 0)?;
        Ok(self.out.text)
    }
}

/// MD5 (RFC 1321) as 32 lower-case hexadecimal digits. It is what the original's clients compare; nothing here relies
/// on it.
pub(super) fn md5_text(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Md5::digest(bytes))
}
