//! An object in the form of reTHINK's catalogue.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use md5::{Digest as _, Md5};

use super::attributes::{self, Attribute, in_order};
use super::template::{Template, attribute_template, reparse};
use super::utf8::decode;
use super::write::{PrettyWriter, TooLong, compact_members, write_escaped};
use super::{Incompatible, Members, Value, parse};
use crate::model::Kind;

/// The maximum length of the body of an object, in bytes. Deeply nested brackets are much longer
/// with indentation.
const MAX_BODY: usize = 8 * 1024 * 1024;

const URL: &str = "sourcePackageURL";
const CGUID: &str = "cguid";
/// The text before and after the host in the answer for [`URL`].
const URL_BEFORE: &str = "hyperty-catalogue://";
const URL_AFTER: &str = "/.well-known";

/// A descriptor with the attributes that reTHINK's loader adds.
#[derive(Debug)]
pub(super) struct Object {
    /// The name in lists and paths.
    pub(super) name: String,
    attributes: &'static [Attribute],
    members: Members,
}

impl Object {
    /// Parses a descriptor whose package has the class name `class`.
    pub(super) fn parse(kind: Kind, descriptor: &[u8], class: &str) -> Result<Self, Incompatible> {
        let text = decode(descriptor);
        match parse(&text).map_err(Incompatible::Descriptor)? {
            Some(Value::Object(members)) => Self::new(kind, members, class),
            _ => Err(Incompatible::DescriptorForm),
        }
    }

    /// Applies the rules of reTHINK's loader: removes the package, adds its URL and a hash of the
    /// rest, and checks the mandatory attributes.
    pub(super) fn new(kind: Kind, mut members: Members, class: &str) -> Result<Self, Incompatible> {
        let attributes = attributes::attributes_of(kind).ok_or(Incompatible::Kind(kind))?;
        members.shift_remove("sourcePackage");
        members.insert(URL.to_owned(), Value::Text(format!("/sourcepackage/{class}")));
        members.shift_remove(CGUID);
        let cguid = md5_text(compact_members(&members).as_bytes());
        members.insert(CGUID.to_owned(), Value::Text(cguid));

        let missing = attributes
            .iter()
            .find(|attribute| attribute.mandatory && !members.contains_key(attribute.name));
        if let Some(attribute) = missing {
            return Err(Incompatible::Missing(attribute.name));
        }
        let name = members.get("objectName").ok_or(Incompatible::Missing("objectName"))?;
        if name.scalar().ok_or(Incompatible::Name)? == "default" {
            return Err(Incompatible::Default);
        }
        Ok(Self { name: name.serialized().into_owned(), attributes, members })
    }

    /// The serialized `version`.
    pub(super) fn version(&self) -> String {
        self.members
            .get("version")
            .map_or_else(String::new, |value| value.serialized().into_owned())
    }

    /// The body of the object.
    pub(super) fn body(&self) -> Result<Template, Incompatible> {
        self.write_body().map_err(|TooLong| Incompatible::TooLong(MAX_BODY))
    }

    fn write_body(&self) -> Result<Template, TooLong> {
        let mut out = BodyWriter::new(MAX_BODY)?;
        let mut host_at = None;
        for attribute in in_order(self.attributes, |name| self.members.contains_key(name)) {
            let Some(value) = self.members.get(attribute.name) else { continue };
            let serialized = value.serialized();
            if attribute.name == URL && serialized.starts_with('/') {
                host_at = Some(out.url(&serialized)?);
            } else {
                out.attribute(attribute.name, &serialized)?;
            }
        }
        Ok(Template::json(out.end()?, host_at))
    }

    /// The serialized value of an attribute; `None` if the object or its type does not have it.
    pub(super) fn serialized(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.iter().find(|attribute| attribute.name == name)?;
        self.members.get(name).map(Value::serialized)
    }

    /// The body of an attribute; `None` if the object does not have it or it is empty. With
    /// `with_host` the host is inserted into the URL of the package.
    pub(super) fn attribute(&self, name: &str, with_host: bool) -> Option<Template> {
        let serialized = self.serialized(name)?;
        if name == URL && with_host && serialized.starts_with('/') {
            let text = format!("{URL_BEFORE}{URL_AFTER}{serialized}");
            return Some(Template::plain(text, URL_BEFORE.len()));
        }
        attribute_template(&serialized)
    }
}

/// Writes a body: an object with one attribute per line.
pub(super) struct BodyWriter {
    out: PrettyWriter,
    empty: bool,
}

impl BodyWriter {
    pub(super) fn new(max_len: usize) -> Result<Self, TooLong> {
        let mut out = PrettyWriter::new(max_len);
        out.raw("{")?;
        Ok(Self { out, empty: true })
    }

    /// Writes an attribute with this serialized value, unless it is empty or null.
    pub(super) fn attribute(&mut self, name: &str, serialized: &str) -> Result<(), TooLong> {
        let Some(value) = reparse(serialized).filter(|value| *value != Value::Null) else {
            return Ok(());
        };
        self.name(name)?;
        self.out.value(&value, 1)
    }

    /// Writes the URL of the package without its host. Returns the offset at which the host is
    /// inserted.
    fn url(&mut self, path: &str) -> Result<usize, TooLong> {
        self.name(URL)?;
        self.out.raw("\"")?;
        self.out.raw(URL_BEFORE)?;
        let host_at = self.out.text.len();
        self.out.raw(URL_AFTER)?;
        write_escaped(path, true, &mut self.out.text);
        self.out.raw("\"")?;
        Ok(host_at)
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

/// MD5 (RFC 1321) as 32 lower-case hexadecimal digits. reTHINK's clients compare it; nothing here
/// relies on it for security.
pub(super) fn md5_text(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Md5::digest(bytes))
}
