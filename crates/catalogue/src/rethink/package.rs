//! A package in the form of reTHINK's catalogue.

use std::borrow::Cow;

use super::attributes::{PACKAGE, in_order};
use super::object::{BodyWriter, md5_text};
use super::template::{Template, attribute_template};
use super::utf8::decode;
use super::write::TooLong;
use super::{Conditions, Incompatible, Members, Value, parse};

/// The maximum length of a body, in bytes. A text of [`super::MAX_CODE`] bytes takes at most 96
/// MiB, with 6 bytes for an escape.
const MAX_BODY: usize = 128 * 1024 * 1024;

const CODE: &str = "sourceCode";
pub(super) const MD5: &str = "md5";

/// The description of a package: its attributes without the code.
#[derive(Debug)]
pub(super) struct Description {
    members: Members,
    /// The class name in the URL of the package.
    pub(super) class: String,
    /// The class name in lists and paths.
    pub(super) name: String,
}

impl Description {
    pub(super) fn parse(description: &[u8]) -> Result<Self, Incompatible> {
        let text = decode(description);
        match parse(&text).map_err(Incompatible::Package)? {
            Some(Value::Object(members)) => Self::new(members),
            _ => Err(Incompatible::PackageForm),
        }
    }

    pub(super) fn new(members: Members) -> Result<Self, Incompatible> {
        let class = members.get("sourceCodeClassname").ok_or(Incompatible::ClassName)?;
        let name = class.serialized().into_owned();
        let class = class.scalar().ok_or(Incompatible::ClassName)?.into_owned();
        if members.get("objectName").and_then(Value::scalar).is_some_and(|name| name == "default") {
            return Err(Incompatible::Default);
        }
        Ok(Self { members, class, name })
    }

    /// Its attribute `md5`, if valid. The import adds it only if it differs from the MD5 of the
    /// code.
    fn md5(&self) -> Option<&str> {
        let Some(Value::Text(md5)) = self.members.get(MD5) else { return None };
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (md5.len() == 32 && md5.bytes().all(digits)).then_some(md5)
    }

    /// Whether the answer for an attribute needs the code.
    pub(super) fn needs_code(&self, attribute: &str) -> bool {
        attribute == CODE || (attribute == MD5 && self.md5().is_none())
    }

    /// The body of an attribute that does not need the code; `None` if it is absent or empty.
    pub(super) fn attribute(&self, name: &str) -> Option<Template> {
        PACKAGE.iter().find(|attribute| attribute.name == name)?;
        attribute_template(&self.members.get(name)?.serialized())
    }

    /// Whether the package with this code matches `conditions`.
    pub(super) fn matches(&self, conditions: &Conditions, code: &[u8]) -> bool {
        conditions.matches(|name| {
            PACKAGE.iter().find(|attribute| attribute.name == name)?;
            match name {
                CODE => Some(decode(code)),
                MD5 if self.needs_code(MD5) => Some(Cow::Owned(md5_text(code))),
                _ => self.members.get(name).map(Value::serialized),
            }
        })
    }

    /// The body with this code.
    pub(super) fn body(&self, code: &[u8]) -> Result<String, TooLong> {
        let text = decode(code);
        let md5 = self.md5().map_or_else(|| md5_text(code), str::to_owned);
        let present = |name: &str| name == CODE || name == MD5 || self.members.contains_key(name);
        let mut out = BodyWriter::new(MAX_BODY)?;
        for attribute in in_order(PACKAGE, present) {
            match (attribute.name, self.members.get(attribute.name)) {
                (CODE, _) => out.attribute(CODE, &text)?,
                (MD5, _) => out.attribute(MD5, &md5)?,
                (name, Some(value)) => out.attribute(name, &value.serialized())?,
                (_, None) => (),
            }
        }
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_needs_a_class_name() {
        for (description, reason) in [
            ("{}", Incompatible::ClassName),
            ("{sourceCodeClassname:null}", Incompatible::ClassName),
            ("{sourceCodeClassname:[a,b]}", Incompatible::ClassName),
            ("{sourceCodeClassname:a,objectName:default}", Incompatible::Default),
            ("[]", Incompatible::PackageForm),
            ("", Incompatible::PackageForm),
        ] {
            let error = Description::parse(description.as_bytes()).err();
            assert_eq!(error, Some(reason), "{description}");
        }
        let listed = Description::parse(b"{sourceCodeClassname:[7]}").unwrap();
        assert_eq!((listed.class.as_str(), listed.name.as_str()), ("7", "[7]"));
    }
}
