//! The JSON of `/v1`.

use data_encoding::BASE64;
use levada_core::Digest;
use serde::Serialize;
use serde_json::json;

use crate::index::{Object, VersionEntry};
use crate::model::{Key, Published, digest_text};
use crate::store::Change;

/// Serializes `value`. This cannot fail for the types of this API, whose map keys are all strings.
pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A reference to a package.
#[derive(Serialize)]
struct PackageJson {
    digest: String,
    length: u64,
}

fn package(package: Option<&(Digest, u64)>) -> Option<PackageJson> {
    package.map(|(digest, length)| PackageJson { digest: digest_text(digest), length: *length })
}

#[derive(Serialize)]
struct VersionJson {
    version: String,
    digest: String,
    package: Option<PackageJson>,
    published: u64,
    yanked: bool,
    revision: u64,
}

impl VersionJson {
    fn new(entry: &VersionEntry) -> Self {
        Self {
            version: entry.version.to_string(),
            digest: digest_text(&entry.digest),
            package: package(entry.package.as_ref()),
            published: entry.published.0,
            yanked: entry.yanked,
            revision: entry.revision,
        }
    }
}

/// An object with all its versions, ascending.
#[derive(Serialize)]
pub(super) struct ObjectJson<'a> {
    kind: &'static str,
    name: &'a str,
    newest: Option<String>,
    versions: Vec<VersionJson>,
}

impl<'a> ObjectJson<'a> {
    pub fn new(object: &'a Object) -> Self {
        Self {
            kind: object.key.kind.as_str(),
            name: object.key.name.as_str(),
            newest: object.newest().map(|(entry, _)| entry.version.to_string()),
            versions: object.versions.iter().map(VersionJson::new).collect(),
        }
    }
}

/// An object in a list.
#[derive(Serialize)]
pub(super) struct ItemJson {
    kind: &'static str,
    name: String,
    newest: Option<String>,
    digest: Option<String>,
    versions: usize,
}

impl ItemJson {
    /// `object` is `None` if it was just published and the index does not have it yet.
    pub fn new(key: &Key, object: Option<&Object>) -> Self {
        let newest = object.and_then(Object::newest).map(|(entry, _)| entry);
        Self {
            kind: key.kind.as_str(),
            name: key.name.as_str().to_owned(),
            newest: newest.map(|entry| entry.version.to_string()),
            digest: newest.map(|entry| digest_text(&entry.digest)),
            versions: object.map_or(0, |object| object.versions.len()),
        }
    }
}

/// A page of a list.
#[derive(Serialize)]
pub(super) struct Page<T> {
    pub items: Vec<T>,
    /// The cursor to the next page; `None` on the last one.
    pub next: Option<String>,
}

/// A hit of a search.
#[derive(Serialize)]
pub(super) struct HitJson {
    pub kind: &'static str,
    pub name: String,
    pub version: String,
}

/// Everything about a version but its descriptor. The description of the package is inserted byte
/// for byte as it was published.
pub(super) fn meta(published: &Published) -> String {
    let signatures: Vec<_> = published
        .signatures
        .iter()
        .map(|one| json!({"identity": one.identity.to_string(), "signature": BASE64.encode(&one.signature)}))
        .collect();
    let package = published.package.as_ref().map_or_else(
        || "null".to_owned(),
        |package| {
            format!(
                r#"{{"digest":"{}","length":{},"mediaType":{},"description":{}}}"#,
                digest_text(&package.digest),
                package.length,
                text(&package.media_type),
                String::from_utf8_lossy(&package.description),
            )
        },
    );
    format!(
        r#"{{"kind":"{}","name":{},"version":"{}","digest":"{}","package":{package},"signatures":{},"publisher":{},"published":{},"yanked":{},"revision":{}}}"#,
        published.key.kind,
        text(&published.key.name.as_str()),
        published.version,
        digest_text(&published.digest),
        text(&signatures),
        text(&published.publisher.map(|identity| identity.to_string())),
        published.published.0,
        published.yanked,
        published.revision,
    )
}

/// A change.
pub(super) fn change(change: &Change) -> String {
    text(&json!({
        "revision": change.revision,
        "kind": change.key.kind.as_str(),
        "name": change.key.name.as_str(),
        "version": change.version.to_string(),
        "event": change.event.as_str(),
    }))
}
