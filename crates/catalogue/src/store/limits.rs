//! Limits of the calls of a store.

/// The maximum number of items that one call returns; a larger limit is reduced to this.
pub const MAX_PAGE: u32 = 1000;
/// The maximum length of a search query, in bytes.
pub const MAX_QUERY: usize = 1024;
/// The maximum number of words of a search query, which is enough for any query of 255 characters.
pub const MAX_WORDS: usize = 128;
