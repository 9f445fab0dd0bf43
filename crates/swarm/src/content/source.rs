//! What a coordinator shares: a file, or a folder as one content.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::content::error::ContentError;
use crate::content::listing::{Found, Listing, metadata};
use crate::content::manifest::{Entry, Kind, Manifest};
use crate::content::tree::{ChunkHash, Tree, chunk_hash};
use crate::{ChunkSize, ContentId, Geometry};

/// Shared files, which are only read.
pub struct Source {
    tree: Tree,
    /// The length and the manifest of a folder; empty for a file.
    prefix: Vec<u8>,
    files: Vec<SharedFile>,
    /// The file that was read last.
    open: Mutex<Option<(usize, File)>>,
    is_folder: bool,
    left_out: Vec<PathBuf>,
}

/// What is shared.
struct Listed {
    prefix: Vec<u8>,
    files: Vec<SharedFile>,
    is_folder: bool,
    left_out: Vec<PathBuf>,
}

impl Listed {
    /// A single file.
    fn file(path: PathBuf, length: u64) -> Self {
        let files = vec![SharedFile { path, start: 0, length }];
        Self { prefix: Vec::new(), files, is_folder: false, left_out: Vec::new() }
    }
}

struct SharedFile {
    path: PathBuf,
    /// Where its bytes begin in the content.
    start: u64,
    length: u64,
}

impl Source {
    /// Reads and hashes `paths` once: one file as it is; a folder, or several files and folders, as
    /// one folder. Symbolic links within folders are not followed; those that lead outside are left
    /// out. It blocks for as long as that takes.
    ///
    /// # Errors
    /// [`ContentError`], with the path.
    pub fn open(paths: &[PathBuf], chunk: ChunkSize) -> Result<Self, ContentError> {
        Self::reopen(paths, Listing::default(), chunk, &[])
    }

    /// As [`Self::open`], but takes the values of the chunks from an earlier source of the same
    /// files ([`Self::chunk_hashes`]) instead of reading them, if their number fits, and lists
    /// folders as `listing` says. The caller compares the root; whether the files have changed
    /// shows when a chunk is read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn reopen(
        paths: &[PathBuf],
        listing: Listing,
        chunk: ChunkSize,
        known: &[ChunkHash],
    ) -> Result<Self, ContentError> {
        let listed = match paths {
            [path] if metadata(path)?.is_file() => {
                Listed::file(path.clone(), metadata(path)?.len())
            }
            paths => list(paths, listing)?,
        };
        Self::new(listed, None, chunk, known)
    }

    /// The content of an open file of `length` bytes, which errors call `name`; otherwise as
    /// [`Self::reopen`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of_file(
        file: File,
        length: u64,
        name: PathBuf,
        chunk: ChunkSize,
        known: &[ChunkHash],
    ) -> Result<Self, ContentError> {
        Self::new(Listed::file(name, length), Some((0, file)), chunk, known)
    }

    fn new(
        listed: Listed,
        open: Option<(usize, File)>,
        chunk: ChunkSize,
        known: &[ChunkHash],
    ) -> Result<Self, ContentError> {
        let Listed { prefix, files, is_folder, left_out } = listed;
        let end = files.last().map_or(prefix.len() as u64, |file| file.start + file.length);
        let geometry = Geometry::new(end, chunk)?;
        let tree = Tree::new(ContentId { root: [0; 32], geometry });
        let mut source = Self { tree, prefix, files, open: Mutex::new(open), is_folder, left_out };
        // The value of a single chunk is that of the whole content, which is not among those of
        // nodes.
        let is_known = geometry.chunks() > 1 && known.len() == geometry.chunks() as usize;
        source.tree = match is_known {
            true => Tree::build(geometry, known.iter().copied()),
            false => source.hash_all(geometry)?,
        };
        Ok(source)
    }

    /// The values of the chunks, in order; none if there is only one.
    pub fn chunk_hashes(&self) -> &[ChunkHash] {
        let chunks = self.id().geometry.chunks() as usize;
        if chunks > 1 { self.tree.nodes().get(..chunks).unwrap_or_default() } else { &[] }
    }

    /// The content.
    pub fn id(&self) -> ContentId {
        self.tree.id()
    }

    /// Whether the content begins with a manifest.
    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// The symbolic links that lead out of the folder, and are not shared.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }

    /// Reads a chunk, with the siblings of `levels` levels, and checks that it is still what was
    /// shared.
    ///
    /// # Errors
    /// [`ContentError::Changed`], [`ContentError::Missing`], [`ContentError::File`].
    pub fn read(&self, index: u32, levels: u8) -> Result<(Vec<ChunkHash>, Vec<u8>), ContentError> {
        let siblings = self.tree.siblings(index, levels).ok_or(ContentError::Missing(index))?;
        let geometry = self.id().geometry;
        let range = geometry.range(index);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let changed = || {
            let at = self.files.partition_point(|file| file.start + file.length <= range.start);
            let file = self.files.get(at).or(self.files.last());
            ContentError::Changed(file.map(|file| file.path.clone()).unwrap_or_default())
        };
        match self.fill(range.start, &mut bytes) {
            Err(ContentError::File { error, .. })
                if error.kind() == io::ErrorKind::UnexpectedEof =>
            {
                return Err(changed());
            }
            other => other?,
        }
        if !self.has(index, &bytes) {
            return Err(changed());
        }
        Ok((siblings, bytes))
    }

    /// The siblings of `levels` levels of a chunk, without reading it; None if the content has no
    /// such chunk or level.
    pub fn siblings(&self, index: u32, levels: u8) -> Option<Vec<ChunkHash>> {
        self.tree.siblings(index, levels)
    }

    /// Whether chunk `index` has these bytes. It takes as long as hashing them.
    pub fn has(&self, index: u32, bytes: &[u8]) -> bool {
        let hash = chunk_hash(self.id().geometry, index, bytes);
        hash.is_some_and(|hash| self.tree.has(index, hash))
    }

    /// Hashes the content into its tree, without a second list of all values: that of a large file
    /// would stay in the allocator.
    fn hash_all(&self, geometry: Geometry) -> Result<Tree, ContentError> {
        let mut buffer = vec![0; geometry.chunk_size().bytes() as usize];
        let mut hash = |index| {
            let range = geometry.range(index);
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            self.fill(range.start, bytes)?;
            chunk_hash(geometry, index, bytes).ok_or(ContentError::Missing(index))
        };
        let mut failed = None;
        let hashes = (0..geometry.chunks())
            .map_while(|index| hash(index).map_err(|e| failed = Some(e)).ok());
        let tree = Tree::build(geometry, hashes);
        failed.map_or(Ok(tree), Err)
    }

    /// Reads the content from `start` on.
    fn fill(&self, start: u64, mut bytes: &mut [u8]) -> Result<(), ContentError> {
        let mut at = start;
        if let Some(rest) = usize::try_from(at).ok().and_then(|at| self.prefix.get(at..)) {
            let length = rest.len().min(bytes.len());
            bytes[..length].copy_from_slice(&rest[..length]);
            bytes = &mut bytes[length..];
            at += length as u64;
        }
        while !bytes.is_empty() {
            let number = self.files.partition_point(|file| file.start + file.length <= at);
            let Some(file) = self.files.get(number) else {
                return Err(ContentError::Missing(u32::MAX));
            };
            let length = (file.start + file.length - at).min(bytes.len() as u64) as usize;
            let (part, rest) = bytes.split_at_mut(length);
            self.read_file(number, at - file.start, part)?;
            (bytes, at) = (rest, at + length as u64);
        }
        Ok(())
    }

    fn read_file(&self, number: usize, offset: u64, bytes: &mut [u8]) -> Result<(), ContentError> {
        let path = &self.files[number].path;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match open.as_mut() {
            Some((at, file)) if *at == number => file,
            _ => &mut open.insert((number, File::open(path).map_err(ContentError::file(path))?)).1,
        };
        file.read_exact_at(bytes, offset).map_err(ContentError::file(path))
    }
}

/// The manifest of `paths`, where each file is, and the links that were left out.
fn list(paths: &[PathBuf], listing: Listing) -> Result<Listed, ContentError> {
    let found = Found::of(paths, listing)?;
    let entries = found.entries.iter().map(|(entry, _)| entry.clone()).collect();
    let prefix = Manifest::new(listing.layout, entries)?.encode();
    let mut start = prefix.len() as u64;
    let place = |(entry, path): (Entry, PathBuf)| {
        let file = SharedFile { path, start, length: entry.length() };
        start += entry.length();
        matches!(entry.kind, Kind::File(_)).then_some(file)
    };
    let files = found.entries.into_iter().filter_map(place).collect();
    Ok(Listed { prefix, files, is_folder: true, left_out: found.left_out })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn chunk() -> ChunkSize {
        ChunkSize::new(1024).unwrap()
    }

    fn read_all(source: &Source) -> Vec<u8> {
        (0..source.id().geometry.chunks()).flat_map(|at| source.read(at, 0).unwrap().1).collect()
    }

    #[test]
    fn a_file_is_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, 1024, 10_000] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            fs::write(&path, &bytes).unwrap();
            let source = Source::open(std::slice::from_ref(&path), chunk()).unwrap();
            assert_eq!(source.id().root, *blake3::hash(&bytes).as_bytes());
            assert_eq!((read_all(&source), source.is_folder()), (bytes, false));
            assert!(matches!(source.read(10, 0), Err(ContentError::Missing(10))));
        }
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 5000]).unwrap();
        let source = Source::open(std::slice::from_ref(&path), chunk()).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"x", 2000).unwrap();
        assert!(source.read(0, 0).is_ok());
        assert!(
            matches!(source.read(1, 0), Err(ContentError::Changed(changed)) if changed == path)
        );
        file.set_len(3000).unwrap();
        assert!(
            matches!(source.read(4, 0), Err(ContentError::Changed(changed)) if changed == path)
        );
    }

    #[test]
    fn a_folder_is_one_content() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(top.join("empty")).unwrap();
        fs::write(top.join("a/b/one"), vec![1; 3000]).unwrap();
        fs::write(top.join("a/nothing"), b"").unwrap();
        fs::write(top.join("two"), vec![2; 100]).unwrap();
        symlink("/etc/passwd", top.join("outside")).unwrap();
        symlink("../two", top.join("a/inside")).unwrap();
        let paths = std::slice::from_ref(&top);
        let listed = |listing: Listing| {
            let source = Source::reopen(paths, listing, chunk(), &[]).unwrap();
            let bytes = read_all(&source);
            let (layout, length) = Manifest::decode_length(bytes[..8].try_into().unwrap()).unwrap();
            assert_eq!(layout, listing.layout);
            let end = 8 + length as usize;
            assert_eq!(bytes[end..], [vec![1; 3000], vec![2; 100]].concat());
            (source, Manifest::decode(layout, &bytes[8..end]).unwrap())
        };
        let names = |manifest: &Manifest| -> Vec<String> {
            let names = manifest.entries().iter().map(|entry| entry.path.to_str().unwrap().into());
            names.collect()
        };
        let (source, manifest) = listed(Listing::default());
        let all = ["", "a", "a/b", "a/b/one", "a/inside", "a/nothing", "empty", "two"];
        assert_eq!(names(&manifest), all);
        assert_eq!(manifest.entries()[4].kind, Kind::Link("../two".into()));
        assert_eq!(source.left_out(), [top.join("outside")]);
        let is_kept = |one: &Entry| one.modified.is_some();
        assert!(manifest.entries().iter().all(is_kept));
        let (source, manifest) = listed(Listing::FIRST);
        assert_eq!(names(&manifest), ["a/b/one", "a/nothing", "two"]);
        assert_eq!(source.left_out().len(), 2);
        let without = Listing { times: false, modes: false, ..Listing::default() };
        let (source, manifest) = listed(without);
        assert!(!manifest.entries().iter().any(is_kept));
        // Without them, the content is the same when they change.
        fs::set_permissions(top.join("two"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(listed(without).0.id(), source.id());
        let twice = Source::open(&[top.join("two"), top.join("a/../two")], chunk());
        assert!(matches!(twice, Err(ContentError::Manifest(_))));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let refused = |path: &str| Source::open(&[path.into()], chunk()).err().unwrap().to_string();
        assert!(refused("/dev/null").contains("neither a file nor a folder"));
        assert!(refused("/no/such/file").contains("/no/such/file"));
    }
}
