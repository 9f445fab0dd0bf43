//! The names of files and folders in a backup of a home.

/// The key in an unpacked backup.
pub const KEY: &str = "identity.key";
/// The configuration in an unpacked backup; may be missing.
pub const CONFIG: &str = "config.toml";
/// The node's database in an unpacked backup.
pub const NODE_DB: &str = "node.db";
/// The database of pins in an unpacked backup.
pub const KNOWN_DB: &str = "known.db";
/// The folder of the catalogue in an unpacked backup; may be missing.
pub const CATALOGUE: &str = "catalogue";
