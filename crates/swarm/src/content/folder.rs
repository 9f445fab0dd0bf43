//! A folder that the content of a download is moved into: which of its bytes are where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use crate::content::error::ContentError;
use crate::content::manifest::{Entry, Layout, Manifest, ManifestError};

pub(super) struct Folder {
    /// It stays the same when it gets its name.
    handle: File,
    /// The length of the manifest and the manifest itself, as they are in the content.
    prefix: Vec<u8>,
    entries: Vec<Entry>,
    /// Where the bytes of each entry begin in the content.
    starts: Vec<u64>,
    changed: usize,
}

impl Folder {
    /// The folder at `path`, whose files are those of a content of `length` bytes.
    ///
    /// # Errors
    /// [`ContentError::Manifest`] if it is not that of a folder, [`ContentError::File`].
    pub(super) fn open(
        path: &Path,
        content: &File,
        content_path: &Path,
        length: u64,
    ) -> Result<Self, ContentError> {
        let handle = File::open(path).map_err(ContentError::file(path))?;
        let (layout, prefix) = read_prefix(content, content_path, length)?;
        let manifest = prefix.get(8..).ok_or(ManifestError::Malformed)?;
        let (manifest, changed) = Manifest::decode(layout, manifest)?.with_printable_paths()?;
        let entries = manifest.into_entries();
        let mut end = prefix.len() as u64;
        let place = |entry: &Entry| {
            let start = end;
            end += entry.length();
            start
        };
        let starts = entries.iter().map(place).collect();
        if end != length {
            return Err(ManifestError::Malformed.into());
        }
        Ok(Self { handle, prefix, entries, starts, changed })
    }

    pub(super) fn handle(&self) -> &File {
        &self.handle
    }

    /// Where the bytes of the first file begin.
    pub(super) fn start(&self) -> u64 {
        self.prefix.len() as u64
    }

    /// How many paths are not those of the sharer.
    pub(super) fn changed(&self) -> usize {
        self.changed
    }

    /// All entries.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries that do not end before `position`, and where the bytes of each begin.
    pub(super) fn entries_from(&self, position: u64) -> impl Iterator<Item = (&Entry, u64)> {
        let all = self.entries.iter().zip(self.starts.iter().copied());
        all.skip_while(move |(entry, start)| start + entry.length() < position)
    }

    /// Reads bytes of the content that were moved.
    pub(super) fn read(&self, mut position: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        if let Some(rest) = usize::try_from(position).ok().and_then(|at| self.prefix.get(at..)) {
            let (part, behind) = bytes.split_at_mut(rest.len().min(bytes.len()));
            part.copy_from_slice(&rest[..part.len()]);
            position += part.len() as u64;
            bytes = behind;
        }
        while !bytes.is_empty() {
            let behind = self.starts.partition_point(|start| *start <= position);
            let number = behind.checked_sub(1).ok_or(io::ErrorKind::UnexpectedEof)?;
            let entry = &self.entries[number];
            let start = self.starts[number];
            let left = (start + entry.length()).saturating_sub(position);
            let length = left.min(bytes.len() as u64) as usize;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (part, rest) = bytes.split_at_mut(length);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(openat(&self.handle, &entry.path, flags, Mode::empty())?);
            file.read_exact_at(part, position - start)?;
            (bytes, position) = (rest, position + length as u64);
        }
        Ok(())
    }
}

/// The beginning of a content of `length` bytes: the length of the manifest, and the manifest.
fn read_prefix(
    content: &File,
    path: &Path,
    length: u64,
) -> Result<(Layout, Vec<u8>), ContentError> {
    let read = |bytes: &mut [u8]| {
        content.read_exact_at(bytes, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ManifestError::Malformed.into(),
            _ => ContentError::file(path)(error),
        })
    };
    let mut first = [0; 8];
    read(&mut first)?;
    let (layout, manifest) = Manifest::decode_length(first)?;
    if manifest > length {
        return Err(ManifestError::Malformed.into());
    }
    let mut prefix = vec![0; 8 + manifest as usize];
    read(&mut prefix)?;
    Ok((layout, prefix))
}
