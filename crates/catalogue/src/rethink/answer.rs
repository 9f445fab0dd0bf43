//! Answers: a body, the text of an error, or what they depend on: the code of a package.

use bytes::Bytes;
use levada_core::Digest;

use super::Conditions;
use super::object::md5_text;
use super::package::{Description, MD5};
use super::template::{Template, attribute_template};
use super::utf8::decode;
use crate::model::Kind;

/// The maximum length of code that is served under `/.well-known/`, in bytes: the limit of
/// reTHINK's catalogue.
pub const MAX_CODE: u64 = 16 * 1024 * 1024;

/// The text for an attribute that is absent or empty. reTHINK's catalogue sent no text, or no
/// response.
pub(super) const EMPTY: &str = "the attribute is absent or empty";

/// The answer to a path.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status 200, [`super::MEDIA_TYPE`].
    Body(Template),
    /// A body that needs the code of a package.
    Package(PackageRequest),
    /// An answer that depends on whether the code of a package matches conditions.
    ConditionalPackage(Box<ConditionalPackage>),
    /// The list of the objects of this kind that match the conditions: see
    /// [`super::Catalogue::candidates`].
    FilteredList(Kind),
    /// Status 404 with this text, which does not parse as JSON.
    Missing(String),
}

/// The requested part of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackagePart {
    /// The object with all attributes.
    Whole,
    /// The attribute `sourceCode`.
    Code,
    /// The attribute `md5`.
    Md5,
}

impl PackagePart {
    /// The part for an attribute that needs the code.
    pub(super) fn attribute(name: &str) -> Self {
        if name == MD5 { Self::Md5 } else { Self::Code }
    }
}

/// A request for a package whose answer needs the code. The body depends only on `description`,
/// `digest` and `part`, not on the host, so it can be cached under them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackageRequest {
    /// The description of the package.
    pub description: Bytes,
    /// SHA-256 of the code.
    pub digest: Digest,
    /// The length of the code in bytes, at most [`MAX_CODE`].
    pub length: u64,
    /// The requested part.
    pub part: PackagePart,
}

impl PackageRequest {
    /// The answer. `code` is the content with the digest `digest`.
    pub fn complete(&self, code: &[u8]) -> Answer {
        let Ok(description) = Description::parse(&self.description) else { return empty() };
        let body = match self.part {
            PackagePart::Whole => description.body(code).ok().map(Template::constant),
            PackagePart::Code => attribute_template(&decode(code)),
            PackagePart::Md5 => attribute_template(&md5_text(code)),
        };
        body.map_or_else(empty, Answer::Body)
    }
}

fn empty() -> Answer {
    Answer::Missing(EMPTY.to_owned())
}

/// An answer that depends on whether a package with its code matches conditions.
#[derive(Clone, Debug)]
pub struct ConditionalPackage {
    package: PackageRequest,
    conditions: Conditions,
    answer: Box<Answer>,
    no_match: String,
}

impl ConditionalPackage {
    /// `answer` is given if `package` matches `conditions`, and otherwise the text `no_match`.
    pub(super) fn new(
        package: PackageRequest,
        conditions: &Conditions,
        answer: Answer,
        no_match: String,
    ) -> Self {
        Self { package, conditions: conditions.clone(), answer: Box::new(answer), no_match }
    }

    /// SHA-256 of the code, which has at most [`MAX_CODE`] bytes.
    pub fn digest(&self) -> &Digest {
        &self.package.digest
    }

    /// The answer. `code` is the content with the digest [`Self::digest`]. The answer is never
    /// conditional.
    pub fn evaluate(self, code: &[u8]) -> Answer {
        match Description::parse(&self.package.description) {
            Ok(description) if description.matches(&self.conditions, code) => *self.answer,
            _ => Answer::Missing(self.no_match),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rethink::Host;

    fn complete(description: &str, code: &[u8], part: PackagePart) -> String {
        let description = Bytes::copy_from_slice(description.as_bytes());
        let length = code.len() as u64;
        let request = PackageRequest { description, digest: [0; 32], length, part };
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
    fn a_package_has_its_attributes_code_and_md5() {
        let text =
            complete("{'encoding':'UTF-8',x:1,sourceCodeClassname:A}", b"AAA", PackagePart::Whole);
        let expected = concat!(
            "{\n  \"encoding\": \"UTF-8\",\n  \"sourceCodeClassname\": \"A\",\n  \"sourceCode\": \"AAA\",\n",
            "  \"md5\": \"e1faffb3e614e6c2fba74296962386b7\"\n}"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn md5_comes_first_without_encoding_and_signature() {
        let text =
            complete("{sourceCodeClassname:A,sourceCode:ignored}", b"[1,]", PackagePart::Whole);
        let md5 = md5_text(b"[1,]");
        let rest = "\"sourceCodeClassname\": \"A\",\n  \"sourceCode\": [\n    1,\n    null\n  ]\n}";
        assert_eq!(text, format!("{{\n  \"md5\": \"{md5}\",\n  {rest}"));
    }

    #[test]
    fn an_md5_in_the_description_is_used_if_valid() {
        let stated = "0123456789abcdef0123456789abcdef";
        let description = format!("{{sourceCodeClassname:A,encoding:e,md5:'{stated}'}}");
        assert!(complete(&description, b"x", PackagePart::Whole).contains(stated));
        for other in ["", "x", &stated.to_uppercase()] {
            let description = description.replace(stated, other);
            assert!(complete(&description, b"x", PackagePart::Whole).contains(&md5_text(b"x")));
        }
        let description = Description::parse(description.as_bytes()).unwrap();
        assert!(!description.needs_code("md5") && description.needs_code("sourceCode"));
    }

    #[test]
    fn code_is_parsed_the_second_time_and_absent_if_empty() {
        let description = "{sourceCodeClassname:A}";
        assert_eq!(complete(description, b"/*c*/ x ", PackagePart::Code), "x");
        assert_eq!(complete(description, b"a\xffb", PackagePart::Code), "a\u{fffd}b");
        assert_eq!(complete(description, b"// only a comment", PackagePart::Code), EMPTY);
        assert_eq!(
            complete(description, b"AAA", PackagePart::Md5),
            "e1faffb3e614e6c2fba74296962386b7"
        );
        assert!(!complete(description, b"# comment", PackagePart::Whole).contains("sourceCode\""));
    }
}
