//! Compatibility with reTHINK's catalogue: the import of its folders, and its answers under
//! `/.well-known/`. Bodies equal the bodies of reTHINK's catalogue byte for byte.
//! `docs/catalogue-rethink.md` specifies the rules and the differences.
//!
//! A [`Catalogue`] is built from [`Entry`] values, which come from the store, and returns an
//! [`Answer`] for a path. [`Folder`] reads a folder object by object; nothing else here does I/O.

mod answer;
mod attributes;
mod catalogue;
mod conditions;
mod folder;
mod incompatible;
mod names;
mod object;
mod package;
mod parse;
mod template;
mod utf8;
mod value;
mod write;

pub use crate::host::Host;
pub use answer::{Answer, ConditionalPackage, MAX_CODE, PackagePart, PackageRequest};
pub use catalogue::{Candidate, Catalogue, Entry, PackageEntry, PathType, Prepared, UnknownType};
pub use conditions::{Conditions, InvalidConditions, MAX_CONDITIONS};
pub use folder::{Folder, FolderError, Found, MAX_FILE, Reason, Skipped};
pub use incompatible::Incompatible;
pub use parse::{MAX_DEPTH, MAX_VALUES, Malformed, parse};
pub use template::Template;
pub use value::{Members, Value};
pub use write::{compact, pretty};

/// The prefix of every path.
pub const PREFIX: &str = "/.well-known/";
/// The media type of every body except the texts of errors.
pub const MEDIA_TYPE: &str = "application/json";
