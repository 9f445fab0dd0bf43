//! Content on disk: the hash tree over its chunks, what a coordinator reads, and what a peer has
//! received.

mod attributes;
mod beside;
mod data_file;
mod error;
mod folder;
mod journal;
mod listing;
mod manifest;
mod naming;
mod own_file;
mod partial;
mod paths;
mod sidecar;
mod source;
mod space;
mod syncer;
mod tree;
mod unpack;

pub use error::ContentError;
pub use listing::Listing;
pub use manifest::{
    Entry, Kind, Layout, MAX_MANIFEST, Manifest, ManifestError, Modified, Permissions,
};
pub use own_file::open_own;
pub use partial::PartialFile;
pub use paths::{check_name, printable};
pub use source::Source;
pub use tree::{BadChunk, ChunkHash, Tree, chunk_hash};
pub use unpack::finish;
