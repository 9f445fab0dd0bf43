//! The code behind a descriptor as the original showed it.

use std::borrow::Cow;

use bytes::Bytes;
use levada_core::Digest;

use super::answer::{Answer, Template, attribute_body};
use super::attributes::{PACKAGE, in_order};
use super::object::{Body, md5_text};
use super::utf8::decode;
use super::write::TooLong;
use super::{Conditions, Members, Unfit, Value, parse};

/// The longest code that is answered under `/.well-known/`, in bytes: the original could carry no more.
pub const MAX_CODE: u64 = 16 * 1024 * 1024;

/// The longest body: each byte of the code may have to be escaped.
const MAX_BODY: usize = 128 * 1024 * 1024;

const CODE: &str = "sourceCode";
const MD5: &str = "md5";
/// The text of an attribute that is not there or has nothing in it; the original answered no text, or never.
pub(super) const EMPTY: &str = "there is no such attribute, or nothing in it";

/// The description of a package: everything but the code.
#[derive(Debug)]
pub(super) struct Head {
    members: Members,
    /// The class name as it stands in the URL of the package.
    pub(super) class: String,
    /// The class name under which the package is listed and asked for.
    pub(super) name: String,
}

impl Head {
    pub(super) fn read(description: &[u8]) -> Result<Self, Unfit> {
        let text = decode(description);
        match parse(&text).map_err(Unfit::Package)? {
            Some(Value::Object(members)) => Self::new(members),
            _ => Err(Unfit::PackageForm),
        }
    }

    pub(super) fn new(members: Members) -> Result<Self, Unfit> {
        let class = members.get("sourceCodeClassname").ok_or(Unfit::ClassName)?;
        let name = class.carried().into_owned();
        let class = class.single().ok_or(Unfit::ClassName)?.into_owned();
        if members.get("objectName").and_then(Value::single).is_some_and(|name| name == "default") {
            return Err(Unfit::Default);
        }
        Ok(Self { members, class, name })
    }

    /// The MD5 that it states, if that is one. The loader leaves one there only where it is not that of the code.
    fn md5(&self) -> Option<&str> {
        let Some(Value::Text(md5)) = self.members.get(MD5) else { return None };
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (md5.len() == 32 && md5.bytes().all(digits)).then_some(md5)
    }

    /// Whether an attribute cannot be answered without the code.
    pub(super) fn needs_code(&self, attribute: &str) -> bool {
        attribute == CODE || (attribute == MD5 && self.md5().is_none())
    }

    /// The body of an attribute that needs no code; `None` if it has none or an empty one.
    pub(super) fn attribute(&self, name: &str) -> Option<Template> {
        PACKAGE.iter().find(|attribute| attribute.name == name)?;
        attribute_body(&self.members.get(name)?.carried())
    }

    /// Whether the package with this code meets `conditions`.
    fn meets(&self, conditions: &Conditions, code: &[u8]) -> bool {
        conditions.are_met(|name| {
            PACKAGE.iter().find(|attribute| attribute.name == name)?;
            match name {
                CODE => Some(decode(code)),
                MD5 if self.needs_code(MD5) => Some(Cow::Owned(md5_text(code))),
                _ => self.members.get(name).map(Value::carried),
            }
        })
    }

    fn body(&self, code: &[u8]) -> Result<String, TooLong> {
        let text = decode(code);
        let md5 = self.md5().map_or_else(|| md5_text(code), str::to_owned);
        let present = |name: &str| name == CODE || name == MD5 || self.members.contains_key(name);
        let mut out = Body::new(MAX_BODY)?;
        for attribute in in_order(PACKAGE, present) {
            match (attribute.name, self.members.get(attribute.name)) {
                (CODE, _) => out.attribute(CODE, &text)?,
                (MD5, _) => out.attribute(MD5, &md5)?,
                (name, Some(value)) => out.attribute(name, &value.carried())?,
                (_, None) => (),
            }
        }
        out.end()
    }
}

/// What of a package is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// All of it.
    Whole,
    /// The attribute `sourceCode`.
    Code,
    /// The attribute `md5`.
    Md5,
}

impl Wanted {
    /// Which of them an attribute is.
    pub(super) fn attribute(name: &str) -> Self {
        if name == MD5 { Self::Md5 } else { Self::Code }
    }
}

/// A package's answer before its code is there. The same request with the same code gives the same body, whatever the
/// host: so it can be kept under `description`, `digest` and `wanted`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackageRequest {
    /// What is known of the package.
    pub description: Bytes,
    /// SHA-256 of the code.
    pub digest: Digest,
    /// How many bytes the code has: at most [`MAX_CODE`].
    pub length: u64,
    /// What is asked for.
    pub wanted: Wanted,
}

impl PackageRequest {
    /// The answer, with the code that `digest` names.
    pub fn complete(&self, code: &[u8]) -> Answer {
        let Ok(head) = Head::read(&self.description) else { return nothing() };
        let body = match self.wanted {
            Wanted::Whole => head.body(code).ok().map(Template::whole),
            Wanted::Code => attribute_body(&decode(code)),
            Wanted::Md5 => attribute_body(&md5_text(code)),
        };
        body.map_or_else(nothing, Answer::Body)
    }
}

fn nothing() -> Answer {
    Answer::Missing(EMPTY.to_owned())
}

/// What is answered if the code of a package meets conditions.
#[derive(Clone, Debug)]
pub struct PackageIf {
    package: PackageRequest,
    conditions: Conditions,
    met: Box<Answer>,
    unmet: String,
}

impl PackageIf {
    /// The answer is `met` if the code of `package` meets `conditions`, and otherwise the text `unmet`.
    pub(super) fn new(
        package: PackageRequest,
        conditions: &Conditions,
        met: Answer,
        unmet: String,
    ) -> Self {
        Self { package, conditions: conditions.clone(), met: Box::new(met), unmet }
    }

    /// SHA-256 of the code that is needed; it has at most [`MAX_CODE`] bytes.
    pub fn digest(&self) -> &Digest {
        &self.package.digest
    }

    /// The answer, with the code that the digest names. It is none of this kind.
    pub fn decide(self, code: &[u8]) -> Answer {
        match Head::read(&self.package.description) {
            Ok(head) if head.meets(&self.conditions, code) => *self.met,
            _ => Answer::Missing(self.unmet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rethink::Host;

    fn complete(description: &str, code: &[u8], wanted: Wanted) -> String {
        let description = Bytes::copy_from_slice(description.as_bytes());
        let length = code.len() as u64;
        let request = PackageRequest { description, digest: [0; 32], length, wanted };
        match request.complete(code) {
            Answer::Body(body) => {
                let body = body.fill(Host::new(b"h").unwrap());
                String::from_utf8(body.to_vec()).unwrap()
            }
            Answer::Missing(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_package_has_its_attributes_its_code_and_its_md5() {
        let text =
            complete("{'encoding':'UTF-8',x:1,sourceCodeClassname:A}", b"AAA", Wanted::Whole);
        let expected = concat!(
            "{\n  \"encoding\": \"UTF-8\",\n  \"sourceCodeClassname\": \"A\",\n  \"sourceCode\": \"AAA\",\n",
            "  \"md5\": \"e1faffb3e614e6c2fba74296962386b7\"\n}"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn without_encoding_and_signature_the_md5_comes_first() {
        let text = complete("{sourceCodeClassname:A,sourceCode:ignored}", b"[1,]", Wanted::Whole);
        let md5 = md5_text(b"[1,]");
        let rest = "\"sourceCodeClassname\": \"A\",\n  \"sourceCode\": [\n    1,\n    null\n  ]\n}";
        assert_eq!(text, format!("{{\n  \"md5\": \"{md5}\",\n  {rest}"));
    }

    #[test]
    fn a_stated_md5_counts_if_it_is_one() {
        let stated = "0123456789abcdef0123456789abcdef";
        let description = format!("{{sourceCodeClassname:A,encoding:e,md5:'{stated}'}}");
        assert!(complete(&description, b"x", Wanted::Whole).contains(stated));
        for other in ["", "x", &stated.to_uppercase()] {
            let description = description.replace(stated, other);
            assert!(complete(&description, b"x", Wanted::Whole).contains(&md5_text(b"x")));
        }
        let head = Head::read(description.as_bytes()).unwrap();
        assert!(!head.needs_code("md5") && head.needs_code("sourceCode"));
    }

    #[test]
    fn attributes_of_the_code_are_read_anew_and_what_is_empty_is_not_there() {
        let description = "{sourceCodeClassname:A}";
        assert_eq!(complete(description, b"/*c*/ x ", Wanted::Code), "x");
        assert_eq!(complete(description, b"a\xffb", Wanted::Code), "a\u{fffd}b");
        assert_eq!(complete(description, b"// only a comment", Wanted::Code), EMPTY);
        assert_eq!(complete(description, b"AAA", Wanted::Md5), "e1faffb3e614e6c2fba74296962386b7");
        assert!(!complete(description, b"# comment", Wanted::Whole).contains("sourceCode\""));
    }

    #[test]
    fn a_package_needs_a_class_name() {
        for (description, unfit) in [
            ("{}", Unfit::ClassName),
            ("{sourceCodeClassname:null}", Unfit::ClassName),
            ("{sourceCodeClassname:[a,b]}", Unfit::ClassName),
            ("{sourceCodeClassname:a,objectName:default}", Unfit::Default),
            ("[]", Unfit::PackageForm),
            ("", Unfit::PackageForm),
        ] {
            assert_eq!(Head::read(description.as_bytes()).err(), Some(unfit), "{description}");
        }
        let head = Head::read(b"{sourceCodeClassname:[7]}").unwrap();
        assert_eq!((head.class.as_str(), head.name.as_str()), ("7", "[7]"));
    }
}
