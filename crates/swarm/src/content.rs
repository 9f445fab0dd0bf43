//! Content on disk: the hash tree over its chunks, what a coordinator reads, and what a peer has received.

mod beside;
mod error;
mod folder;
mod manifest;
mod own_file;
mod partial;
mod sidecar;
mod source;
mod space;
mod syncer;
mod tree;
mod unpack;

pub use error::ContentError;
pub use manifest::{Entry, MAX_MANIFEST, Manifest, ManifestError, check_name, printable};
pub use own_file::open_own;
pub use partial::PartialFile;
pub use source::Source;
pub use tree::{BadChunk, ChunkHash, Tree, chunk_hash};
pub use unpack::finish;
