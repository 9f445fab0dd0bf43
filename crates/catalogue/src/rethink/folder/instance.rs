//! One object of the original's folder.

use std::path::Path;

use levada_core::sha256;

use super::{Found, Reason, files};
use crate::model::{Draft, Key, Kind, MAX_LEVELS, Package, check_object, version};
use crate::rethink::object::{Object, md5_text};
use crate::rethink::package::Head;
use crate::rethink::utf8::decode;
use crate::rethink::write::compact_members;
use crate::rethink::{Members, Unfit, Value, name_of, parse};

const DESCRIPTION: &str = "description.json";
const PACKAGE: &str = "sourcePackage.json";
/// What the name of the file with the code begins with, and the attribute that may have the code instead.
const CODE: &str = "sourceCode";
const MD5: &str = "md5";

/// Reads the object in `folder` as the original's loader did.
pub(super) fn read(kind: Kind, folder: &Path) -> Result<Found, Reason> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name.to_lowercase() == "default" {
        return Err(Reason::DefaultFolder);
    }
    let text = files::read(folder, DESCRIPTION)?.ok_or(Reason::NoDescription)?;
    let mut members = members(&text, Unfit::Descriptor, Unfit::DescriptorForm)?;
    let embedded = members.shift_remove("sourcePackage");
    // Kept as it is if everybody reads it alike; otherwise what the original read is written anew.
    let kept = embedded.is_none() && check_object(&text, MAX_LEVELS).is_ok();
    let descriptor = if kept { text } else { compact_members(&members).into_bytes() };

    let about = match (files::read(folder, PACKAGE)?, embedded) {
        (Some(text), _) => self::members(&text, Unfit::Package, Unfit::PackageForm)?,
        (None, Some(Value::Object(members))) => members,
        (None, Some(_)) => return Err(Unfit::PackageForm.into()),
        (None, None) => return Err(Unfit::NoPackage.into()),
    };
    let Code { bytes, media_type, about } = Code::read(folder, about)?;
    let description = compact_members(&about).into_bytes();
    let head = Head::new(about)?;
    let object = Object::new(kind, members, &head.class)?;
    // Its body is built to see that it can be.
    object.body()?;

    let package = Package {
        digest: sha256(&[&bytes]),
        length: bytes.len() as u64,
        media_type: media_type.to_owned(),
        description,
    };
    let draft = Draft {
        key: Key { kind, name: name_of(&object.name).map_err(Unfit::Unpublishable)? },
        version: version::from_rethink(&object.version()),
        descriptor,
        package: Some(package),
        signatures: Vec::new(),
    };
    draft.check()?;
    Ok(Found { folder: folder.to_owned(), draft, code: bytes })
}

/// The members of a file. The original read files as UTF-8, with a mark for what is not.
fn members(
    bytes: &[u8],
    malformed: fn(crate::rethink::Malformed) -> Unfit,
    other: Unfit,
) -> Result<Members, Unfit> {
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
    /// The code is what the attribute says, and otherwise what is in the file. Its MD5 is that of the file if there
    /// is one: where that is not the code, the description has to say it.
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
            (None, None) => return Err(Unfit::NoCode.into()),
            (Some(value), Some(file)) => (carried(&value), file, "text/plain;charset=utf-8"),
            (Some(value), None) => {
                let text = value.single().ok_or(Unfit::NoCode)?;
                (carried(&value), text.as_bytes().to_vec(), "text/plain;charset=utf-8")
            }
        };
        if bytes != hashed {
            about.insert(MD5.to_owned(), Value::Text(md5_text(&hashed)));
        }
        Ok(Self { bytes, media_type, about })
    }
}

fn carried(value: &Value) -> Vec<u8> {
    value.carried().into_owned().into_bytes()
}

/// What a file is, by the end of its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("js" | "mjs") => "text/javascript",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}
