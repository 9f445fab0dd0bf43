//! A single object of a folder of reTHINK's catalogue.

use std::path::Path;

use levada_core::sha256;

use super::{Found, Reason, files};
use crate::model::{Draft, Key, Kind, MAX_LEVELS, Package, check_object, version};
use crate::rethink::names::published_name;
use crate::rethink::object::{Object, md5_text};
use crate::rethink::package::Description;
use crate::rethink::utf8::decode;
use crate::rethink::write::compact_members;
use crate::rethink::{Incompatible, Members, Value, parse};

const DESCRIPTION: &str = "description.json";
const PACKAGE: &str = "sourcePackage.json";
/// The prefix of the name of the file with the code, and the attribute that may have the code
/// instead.
const CODE: &str = "sourceCode";
const MD5: &str = "md5";

/// Reads the object in `folder` by the rules of reTHINK's loader.
pub(super) fn read(kind: Kind, folder: &Path) -> Result<Found, Reason> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name.to_lowercase() == "default" {
        return Err(Reason::DefaultFolder);
    }
    let text = files::read(folder, DESCRIPTION)?.ok_or(Reason::NoDescription)?;
    let mut members = members(&text, Incompatible::Descriptor, Incompatible::DescriptorForm)?;
    let embedded = members.shift_remove("sourcePackage");
    // A strictly valid descriptor is kept byte for byte; a lenient one is written as the JSON that
    // reTHINK's parser read.
    let kept = embedded.is_none() && check_object(&text, MAX_LEVELS).is_ok();
    let descriptor = if kept { text } else { compact_members(&members).into_bytes() };

    let about = match (files::read(folder, PACKAGE)?, embedded) {
        (Some(text), _) => self::members(&text, Incompatible::Package, Incompatible::PackageForm)?,
        (None, Some(Value::Object(members))) => members,
        (None, Some(_)) => return Err(Incompatible::PackageForm.into()),
        (None, None) => return Err(Incompatible::NoPackage.into()),
    };
    let Code { bytes, media_type, about } = Code::read(folder, about)?;
    let description = compact_members(&about).into_bytes();
    let attributes = Description::new(about)?;
    let object = Object::new(kind, members, &attributes.class)?;
    // Fails if the body would be too long.
    object.body()?;

    let package = Package {
        digest: sha256(&[&bytes]),
        length: bytes.len() as u64,
        media_type: media_type.to_owned(),
        description,
    };
    let draft = Draft {
        key: Key { kind, name: published_name(&object.name).map_err(Incompatible::Unpublishable)? },
        version: version::from_rethink(&object.version()),
        descriptor,
        package: Some(package),
        signatures: Vec::new(),
    };
    draft.check()?;
    Ok(Found { folder: folder.to_owned(), draft, code: bytes })
}

/// The members of the object in a file. Bytes that are not UTF-8 are replaced as by reTHINK's
/// catalogue.
fn members(
    bytes: &[u8],
    malformed: fn(crate::rethink::Malformed) -> Incompatible,
    other: Incompatible,
) -> Result<Members, Incompatible> {
    match parse(&decode(bytes)).map_err(malformed)? {
        Some(Value::Object(members)) => Ok(members),
        _ => Err(other),
    }
}

/// The code of a package, and the rest of its description.
struct Code {
    bytes: Vec<u8>,
    media_type: &'static str,
    about: Members,
}

impl Code {
    /// The code is the attribute or, without one, the file. Its MD5 is the MD5 of the file, if it
    /// exists; if the file is not the code, the MD5 is added to the description.
    fn read(folder: &Path, mut about: Members) -> Result<Self, Reason> {
        let inline = about.shift_remove(CODE);
        about.shift_remove(MD5);
        let file = files::first_file(folder, CODE)
            .map_err(|source| Reason::Io { file: CODE.to_owned(), source })?;
        let name = file.as_ref().and_then(|path| path.file_name()).unwrap_or_default();
        let name = name.to_string_lossy();
        let file = if file.is_some() { files::read(folder, &name)? } else { None };

        let (bytes, hashed, media_type) = match (inline, file) {
            (None, Some(file)) => {
                let media_type = media_type(&name);
                return Ok(Self { bytes: file, media_type, about });
            }
            (None, None) => return Err(Incompatible::NoCode.into()),
            (Some(value), Some(file)) => (serialized(&value), file, "text/plain;charset=utf-8"),
            (Some(value), None) => {
                let text = value.scalar().ok_or(Incompatible::NoCode)?;
                (serialized(&value), text.as_bytes().to_vec(), "text/plain;charset=utf-8")
            }
        };
        if bytes != hashed {
            about.insert(MD5.to_owned(), Value::Text(md5_text(&hashed)));
        }
        Ok(Self { bytes, media_type, about })
    }
}

fn serialized(value: &Value) -> Vec<u8> {
    value.serialized().into_owned().into_bytes()
}

/// The media type for the extension of a file name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js" | "mjs") => "text/javascript",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}
