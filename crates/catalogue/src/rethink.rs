//! The rules of the catalogue that this one is compatible with: what it made of a folder of objects, and what it
//! answered under `/.well-known/`. Bodies are those of the original, byte for byte; `docs/catalogue-rethink.md` has
//! the rules in prose, and where this one differs.
//!
//! A [`Catalogue`] is filled with [`Entry`]s, which are what the store holds, and gives an [`Answer`] for a path.
//! [`Folder`] reads the original's folder, object by object. No I/O but that.

mod answer;
mod attributes;
mod catalogue;
mod conditions;
mod folder;
mod host;
mod names;
mod object;
mod package;
mod parse;
mod unfit;
mod utf8;
mod value;
mod write;

pub use answer::{Answer, Template};
pub use catalogue::{Candidate, Catalogue, Entry, PackageEntry, PathType, Prepared, UnknownType};
pub use conditions::{Conditions, MAX_CONDITIONS, NoConditions};
pub use folder::{Folder, FolderError, Found, MAX_FILE, Reason, Skipped};
pub use host::{Host, HostError};
pub use names::name_of;
pub use package::{MAX_CODE, PackageIf, PackageRequest, Wanted};
pub use parse::{MAX_DEPTH, MAX_VALUES, Malformed, parse};
pub use unfit::Unfit;
pub use value::{Members, Value};
pub use write::{compact, pretty};

/// Where every path begins.
pub const PREFIX: &str = "/.well-known/";
/// The media type of every body that is not the text of an error.
pub const MEDIA_TYPE: &str = "application/json";
