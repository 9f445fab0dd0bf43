//! The limits of objects, versions and packages.

/// The maximum length of a descriptor, in bytes.
pub const MAX_DESCRIPTOR: usize = 1024 * 1024;
/// The maximum length of the description of a package, in bytes.
pub const MAX_PACKAGE_DESCRIPTION: usize = 64 * 1024;
/// The maximum nesting depth of objects and arrays in a descriptor or the description of a package,
/// with the outermost object counted.
pub const MAX_LEVELS: usize = 64;
/// The maximum number of signatures of one version.
pub const MAX_SIGNATURES: usize = 8;
/// The maximum length of a media type, in bytes.
pub const MAX_MEDIA_TYPE: usize = 255;
/// The maximum length of a name, in bytes.
pub const MAX_NAME: usize = 255;
/// The maximum length of a version's text, in bytes.
pub const MAX_VERSION: usize = 255;
