//! The metadata of a version, as the HTTP port sends it.

use levada_catalogue::model::{Key, Package, Published, parse_digest};
use levada_core::UnixTime;
use serde::Deserialize;

use crate::commands::catalogue::object::SignatureText;

/// The answer of `/v1/objects/…/meta`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    version: String,
    digest: String,
    package: Option<MetaPackage>,
    signatures: Vec<SignatureText>,
    publisher: Option<String>,
    published: u64,
    yanked: bool,
    revision: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaPackage {
    digest: String,
    length: u64,
    media_type: String,
}

impl Meta {
    /// The version, without its descriptor; `None` if it is malformed.
    pub(super) fn read(self, key: &Key) -> Option<Published> {
        let package = match self.package {
            None => None,
            Some(package) => Some(Package {
                digest: parse_digest(&package.digest).ok()?,
                length: package.length,
                media_type: package.media_type,
                description: b"{}".to_vec(),
            }),
        };
        let publisher = match self.publisher {
            None => None,
            Some(publisher) => Some(publisher.parse().ok()?),
        };
        Some(Published {
            key: key.clone(),
            version: self.version.parse().ok()?,
            descriptor: Vec::new(),
            digest: parse_digest(&self.digest).ok()?,
            package,
            signatures: self.signatures.iter().map(SignatureText::read).collect::<Option<_>>()?,
            publisher,
            published: UnixTime(self.published),
            yanked: self.yanked,
            revision: self.revision,
        })
    }
}
