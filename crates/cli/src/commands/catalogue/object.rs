//! Objects and versions: how they are parsed and printed.

use std::str::FromStr;

use data_encoding::BASE64;
use levada_catalogue::model::{
    DescriptorSignature, Key, Package, Published, Version, VersionReq, digest_text,
};
use levada_core::format_size;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::output::{self, Cell};

/// `TYPE/NAME@VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The object.
    pub key: Key,
    /// Its version.
    pub version: Version,
}

impl FromStr for Exact {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, version) = text.rsplit_once('@').ok_or("expected TYPE/NAME@VERSION")?;
        Ok(Self {
            key: key.parse::<Key>().map_err(|error| error.to_string())?,
            version: full_version(version).ok_or_else(|| {
                format!("{version:?} is not a version; a version is such as 1.2.0 or 1.2.0-beta.1")
            })?,
        })
    }
}

/// Parses a version; `1` and `1.2` are 1.0.0 and 1.2.0.
fn full_version(text: &str) -> Option<Version> {
    let padded = match text.split('.').count() {
        1 => format!("{text}.0.0"),
        2 => format!("{text}.0"),
        _ => text.to_owned(),
    };
    Version::parse(text).or_else(|_| Version::parse(&padded)).ok()
}

/// `TYPE/NAME`, `TYPE/NAME@VERSION` or `TYPE/NAME@RANGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The object.
    pub key: Key,
    /// A version, a range, or empty for the newest.
    pub version: String,
}

impl FromStr for Wanted {
    type Err = String;

    /// What follows the last `@` belongs to the name if it is neither a version nor a range.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_version = |text: &str| text == "latest" || VersionReq::parse(text).is_ok();
        let (key, version) = match text.rsplit_once('@') {
            Some((key, version)) if is_version(version) || Version::parse(version).is_ok() => {
                (key, version)
            }
            _ => (text, ""),
        };
        let key = key.parse::<Key>().map_err(|error| error.to_string())?;
        Ok(Self { key, version: version.to_owned() })
    }
}

impl Wanted {
    /// Whether `version` matches the request: the answer of a catalogue is not trusted.
    pub fn allows(&self, version: &Version) -> bool {
        if let Ok(exact) = Version::parse(&self.version) {
            return exact == *version;
        }
        match VersionReq::parse(&self.version) {
            Ok(range) => range.matches(version),
            // Empty or `latest`.
            Err(_) => true,
        }
    }
}

/// A signature in JSON.
#[derive(Serialize, Deserialize)]
pub struct SignatureText {
    identity: String,
    signature: String,
}

impl SignatureText {
    pub fn new(one: &DescriptorSignature) -> Self {
        Self { identity: one.identity.to_string(), signature: BASE64.encode(&one.signature) }
    }

    /// Decodes it; `None` if it is malformed.
    pub fn read(&self) -> Option<DescriptorSignature> {
        let signature = BASE64.decode(self.signature.as_bytes()).ok()?.try_into().ok()?;
        Some(DescriptorSignature { identity: self.identity.parse().ok()?, signature })
    }
}

/// The JSON of a version for `--json`, without its descriptor.
pub fn describe(one: &Published) -> Value {
    let signers = one.signatures.iter().map(|one| one.identity.to_string());
    json!({
        "object": one.key.to_string(),
        "version": one.version.to_string(),
        "digest": digest_text(&one.digest),
        "package": one.package.as_ref().map(describe_package),
        "signed_by": signers.collect::<Vec<_>>(),
        "publisher": one.publisher.map(|by| by.to_string()),
        "published": one.published.0,
        "yanked": one.yanked,
        "revision": one.revision,
    })
}

/// The JSON of a package for `--json`.
pub fn describe_package(package: &Package) -> Value {
    json!({
        "digest": digest_text(&package.digest),
        "length": package.length,
        "media_type": package.media_type,
    })
}

/// A version as a row of a table.
pub fn row(one: &Published) -> Vec<Cell> {
    let size = |one: &Package| Cell::whole(format_size(one.length));
    vec![
        output::plain(&one.key.to_string()).into(),
        one.version.to_string().into(),
        Cell::state(if one.yanked { "yanked" } else { "-" }),
        one.package.as_ref().map_or_else(|| "-".into(), size),
        Cell::Time(one.published),
        one.publisher.as_ref().map_or_else(|| "owner".into(), Cell::short_identity),
    ]
}

/// The heading over [`row`].
pub const HEADING: &[&str] = &["object", "version", "state", "package", "published", "by"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_an_object_with_a_version_or_a_range() {
        for (text, key, version) in [
            ("hyperty/a", "hyperty/a", ""),
            ("hyperty/a@1.2.3", "hyperty/a", "1.2.3"),
            ("hyperty/a@^1, <1.5", "hyperty/a", "^1, <1.5"),
            ("hyperty/a@latest", "hyperty/a", "latest"),
            ("idp-proxy/you@example.com", "idp-proxy/you@example.com", ""),
            ("idp-proxy/you@example.com@1.0.0", "idp-proxy/you@example.com", "1.0.0"),
        ] {
            let read: Wanted = text.parse().unwrap();
            assert_eq!((read.key.to_string().as_str(), read.version.as_str()), (key, version));
        }
        let allows = |wanted: &str, version: &str| {
            wanted.parse::<Wanted>().unwrap().allows(&version.parse().unwrap())
        };
        assert!(allows("hyperty/a", "9.0.0-x") && allows("hyperty/a@latest", "1.0.0"));
        assert!(allows("hyperty/a@1.2.3", "1.2.3") && !allows("hyperty/a@1.2.3", "1.2.4"));
        assert!(allows("hyperty/a@^1", "1.9.0") && !allows("hyperty/a@^1", "2.0.0"));
        assert!("a".parse::<Wanted>().is_err() && "hyperty/@1.0.0".parse::<Wanted>().is_err());
        let exact = |text: &str| text.parse::<Exact>().map(|exact| exact.version.to_string());
        for (text, version) in
            [("1", "1.0.0"), ("1.2", "1.2.0"), ("1.2.3", "1.2.3"), ("1.2.3-a.1", "1.2.3-a.1")]
        {
            assert_eq!(exact(&format!("package/a@{text}")).unwrap(), version);
        }
        for wrong in ["a", "a@", "a@b", "a@1.2.3.4", "a@^1.2", "a@1.x"] {
            assert!(exact(&format!("package/{wrong}")).is_err(), "{wrong}");
        }
    }
}
