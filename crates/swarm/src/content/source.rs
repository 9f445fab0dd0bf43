//! What a coordinator shares: a file, or a folder as one content.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::content::error::ContentError;
use crate::content::manifest::{Entry, Manifest};
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
}

struct SharedFile {
    path: PathBuf,
    /// Where its bytes begin in the content.
    start: u64,
    length: u64,
}

impl Source {
    /// Reads and hashes `paths` once: one file as it is; a folder, or several files and folders, as one folder. Symbolic links are not
    /// followed within folders, and left out. It blocks for as long as that takes.
    ///
    /// # Errors
    /// [`ContentError`], with the path.
    pub fn open(paths: &[PathBuf], chunk: ChunkSize) -> Result<Self, ContentError> {
        Self::reopen(paths, chunk, &[])
    }

    /// As [`Self::open`], but takes the values of the chunks from an earlier source of the same files ([`Self::chunk_hashes`]) instead of
    /// reading them, if their number fits. The caller compares the root; whether the files have changed shows when a chunk is read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn reopen(
        paths: &[PathBuf],
        chunk: ChunkSize,
        known: &[ChunkHash],
    ) -> Result<Self, ContentError> {
        let (prefix, files, is_folder) = match paths {
            [path] if metadata(path)?.is_file() => {
                let length = metadata(path)?.len();
                (Vec::new(), vec![SharedFile { path: path.clone(), start: 0, length }], false)
            }
            paths => {
                let (prefix, files) = list(paths)?;
                (prefix, files, true)
            }
        };
        Self::new((prefix, files, is_folder), None, chunk, known)
    }

    /// The content of an open file of `length` bytes, which errors call `name`; otherwise as [`Self::reopen`].
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
        let files = vec![SharedFile { path: name, start: 0, length }];
        Self::new((Vec::new(), files, false), Some((0, file)), chunk, known)
    }

    fn new(
        (prefix, files, is_folder): (Vec<u8>, Vec<SharedFile>, bool),
        open: Option<(usize, File)>,
        chunk: ChunkSize,
        known: &[ChunkHash],
    ) -> Result<Self, ContentError> {
        let end = files.last().map_or(prefix.len() as u64, |file| file.start + file.length);
        let geometry = Geometry::new(end, chunk)?;
        let tree = Tree::new(ContentId { root: [0; 32], geometry });
        let mut source = Self { tree, prefix, files, open: Mutex::new(open), is_folder };
        // The value of a single chunk is that of the whole content, which is not among those of nodes.
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

    /// Reads a chunk, with the siblings of `levels` levels, and checks that it is still what was shared.
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

    /// The siblings of `levels` levels of a chunk, without reading it; None if the content has no such chunk or level.
    pub fn siblings(&self, index: u32, levels: u8) -> Option<Vec<ChunkHash>> {
        self.tree.siblings(index, levels)
    }

    /// Whether chunk `index` has these bytes. It takes as long as hashing them.
    pub fn has(&self, index: u32, bytes: &[u8]) -> bool {
        let hash = chunk_hash(self.id().geometry, index, bytes);
        hash.is_some_and(|hash| self.tree.has(index, hash))
    }

    /// Hashes the content into its tree, without a second list of all values: that of a large file would stay in the allocator.
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

fn metadata(path: &Path) -> Result<fs::Metadata, ContentError> {
    let metadata = fs::metadata(path).map_err(ContentError::file(path))?;
    if metadata.is_file() || metadata.is_dir() {
        // Permission is checked now, not when the first peer asks.
        File::open(path)
            .and_then(
                |mut file| if metadata.is_file() { file.read(&mut [0]).map(drop) } else { Ok(()) },
            )
            .map_err(ContentError::file(path))?;
        return Ok(metadata);
    }
    Err(ContentError::Special(path.to_owned()))
}

/// The manifest of `paths`, and where each file is.
fn list(paths: &[PathBuf]) -> Result<(Vec<u8>, Vec<SharedFile>), ContentError> {
    let mut found: Vec<(Entry, PathBuf)> = Vec::new();
    for path in paths {
        let name = match paths {
            [_] => String::new(),
            _ => name_of(path)?,
        };
        walk(path, &name, &mut found)?;
    }
    found.sort_by(|one, other| one.0.path.cmp(&other.0.path));
    let manifest = Manifest::new(found.iter().map(|(entry, _)| entry.clone()).collect())?;
    let prefix = manifest.encode();
    let mut start = prefix.len() as u64;
    let place = |(entry, path): (Entry, PathBuf)| {
        let file = SharedFile { path, start, length: entry.length };
        start += entry.length;
        file
    };
    Ok((prefix, found.into_iter().map(place).collect()))
}

fn name_of(path: &Path) -> Result<String, ContentError> {
    let whole = fs::canonicalize(path).map_err(ContentError::file(path))?;
    let name = whole.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        crate::content::ManifestError::Path(path.to_string_lossy().into_owned()).into()
    })
}

fn walk(path: &Path, name: &str, found: &mut Vec<(Entry, PathBuf)>) -> Result<(), ContentError> {
    let metadata = metadata(path)?;
    if metadata.is_file() {
        let executable = metadata.mode() & 0o100 != 0;
        let entry = Entry { path: name.to_owned(), length: metadata.len(), executable };
        found.push((entry, path.to_owned()));
        return Ok(());
    }
    for child in fs::read_dir(path).map_err(ContentError::file(path))? {
        let child = child.map_err(ContentError::file(path))?;
        let kind = child.file_type().map_err(ContentError::file(&child.path()))?;
        if kind.is_symlink() {
            continue;
        }
        let own = child.file_name().into_string();
        let own = own.map_err(|name| {
            crate::content::ManifestError::Path(name.to_string_lossy().into_owned())
        })?;
        let name = if name.is_empty() { own } else { format!("{name}/{own}") };
        // The depth and length of each path are bounded here, so that a deep tree does not end the program.
        crate::content::manifest::check_path(&name)?;
        walk(&child.path(), &name, found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        fs::write(top.join("a/b/one"), vec![1; 3000]).unwrap();
        fs::write(top.join("a/empty"), b"").unwrap();
        fs::write(top.join("two"), vec![2; 100]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", top.join("link")).unwrap();
        let source = Source::open(std::slice::from_ref(&top), chunk()).unwrap();
        let bytes = read_all(&source);
        let length = u64::from_be_bytes(bytes[..8].try_into().unwrap()) as usize;
        let manifest = Manifest::decode(&bytes[8..8 + length]).unwrap();
        let paths: Vec<_> = manifest.entries().iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["a/b/one", "a/empty", "two"]);
        assert_eq!(bytes[8 + length..], [vec![1; 3000], vec![2; 100]].concat());
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
