//! The bytes of a manifest.
//!
//! The content of a folder is 8 bytes, of which the first is the layout (0 or 2) and the others are
//! the length of the manifest (big-endian); the manifest; and the bytes of the files in its order.
//! All numbers are big-endian.
//!
//! In the first layout, the manifest is for each file: the length of its path (2 bytes), the path
//! with `/` between components, the length of the file (8), and 1 if it is executable, otherwise 0
//! (1).
//!
//! In the second one, it is for each entry: its kind (1 byte: 0 a file, 1 a folder, 2 a link); the
//! length of its path (2) and the path; its permissions (2 bytes: the lowest nine bits of the mode;
//! or 0x8000 for those of a new file, 0x8001 with execution); when it was changed (8 bytes of
//! seconds since 1970, 4 of nanoseconds; or 0xff in all 12 if that is not kept); and for a file its
//! length (8), for a link the length of its target (2) and the target.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{
    Entry, Kind, Layout, MAX_ENTRIES, MAX_MANIFEST, Manifest, ManifestError, Modified, Permissions,
};

/// The first byte of a content whose manifest has the second layout.
const SECOND: u64 = 2 << 56;
const DEFAULT: u16 = 0x8000;
const EXECUTABLE: u16 = 0x8001;
const NO_TIME: [u8; 12] = [0xff; 12];

impl Manifest {
    /// The beginning of the content: layout and length, and the manifest itself.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        for entry in &self.entries {
            match self.layout {
                Layout::First => encode_first(entry, &mut out),
                Layout::Second => encode_second(entry, &mut out),
            }
        }
        let layout = if self.layout == Layout::Second { SECOND } else { 0 };
        let length = (out.len() - 8) as u64 | layout;
        out[..8].copy_from_slice(&length.to_be_bytes());
        out
    }

    /// The layout and the length of the manifest that the first bytes of a content say.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode_length(first: [u8; 8]) -> Result<(Layout, u64), ManifestError> {
        let number = u64::from_be_bytes(first);
        let (layout, length) = match number & 0xff << 56 {
            0 => (Layout::First, number),
            SECOND => (Layout::Second, number ^ SECOND),
            _ => return Err(ManifestError::Malformed),
        };
        if length > MAX_MANIFEST { Err(ManifestError::TooLong) } else { Ok((layout, length)) }
    }

    /// Decodes a manifest without its length.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode(layout: Layout, bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() as u64 > MAX_MANIFEST {
            return Err(ManifestError::TooLong);
        }
        let mut reader = Reader(bytes);
        let mut entries = Vec::new();
        while !reader.0.is_empty() {
            if entries.len() == MAX_ENTRIES {
                return Err(ManifestError::TooLong);
            }
            entries.push(match layout {
                Layout::First => reader.first()?,
                Layout::Second => reader.second()?,
            });
        }
        Self::new(layout, entries)
    }
}

fn encode_first(entry: &Entry, out: &mut Vec<u8>) {
    put_path(&entry.path, out);
    out.extend_from_slice(&entry.length().to_be_bytes());
    out.push(u8::from(entry.permissions == Permissions::Executable));
}

fn encode_second(entry: &Entry, out: &mut Vec<u8>) {
    out.push(match entry.kind {
        Kind::File(_) => 0,
        Kind::Folder => 1,
        Kind::Link(_) => 2,
    });
    put_path(&entry.path, out);
    let permissions = match entry.permissions {
        Permissions::Default => DEFAULT,
        Permissions::Executable => EXECUTABLE,
        Permissions::Exact(mode) => mode & 0o777,
    };
    out.extend_from_slice(&permissions.to_be_bytes());
    match entry.modified {
        None => out.extend_from_slice(&NO_TIME),
        Some(Modified { seconds, nanoseconds }) => {
            out.extend_from_slice(&seconds.to_be_bytes());
            out.extend_from_slice(&nanoseconds.to_be_bytes());
        }
    }
    match &entry.kind {
        Kind::File(length) => out.extend_from_slice(&length.to_be_bytes()),
        Kind::Folder => {}
        Kind::Link(target) => put_path(target, out),
    }
}

/// Paths were checked to be short.
fn put_path(path: &Path, out: &mut Vec<u8>) {
    let bytes = path.as_os_str().as_bytes();
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn first(&mut self) -> Result<Entry, ManifestError> {
        let path = self.path()?;
        let utf_8 = path.to_str().is_some();
        let kind = Kind::File(u64::from_be_bytes(self.array()?));
        let permissions = match self.array()? {
            [0] if utf_8 => Permissions::Default,
            [1] if utf_8 => Permissions::Executable,
            _ => return Err(ManifestError::Malformed),
        };
        Ok(Entry { path, kind, permissions, modified: None })
    }

    fn second(&mut self) -> Result<Entry, ManifestError> {
        let [kind] = self.array()?;
        let path = self.path()?;
        let permissions = match u16::from_be_bytes(self.array()?) {
            DEFAULT => Permissions::Default,
            EXECUTABLE => Permissions::Executable,
            mode @ 0..=0o777 => Permissions::Exact(mode),
            _ => return Err(ManifestError::Malformed),
        };
        let modified = self.time()?;
        let kind = match kind {
            0 => Kind::File(u64::from_be_bytes(self.array()?)),
            1 => Kind::Folder,
            2 => Kind::Link(self.path()?),
            _ => return Err(ManifestError::Malformed),
        };
        Ok(Entry { path, kind, permissions, modified })
    }

    fn time(&mut self) -> Result<Option<Modified>, ManifestError> {
        if self.0.starts_with(&NO_TIME) {
            self.take(NO_TIME.len())?;
            return Ok(None);
        }
        let seconds = i64::from_be_bytes(self.array()?);
        let nanoseconds = u32::from_be_bytes(self.array()?);
        let is_time = nanoseconds < 1_000_000_000;
        is_time.then_some(Some(Modified { seconds, nanoseconds })).ok_or(ManifestError::Malformed)
    }

    fn path(&mut self) -> Result<PathBuf, ManifestError> {
        let length = u16::from_be_bytes(self.array()?);
        Ok(OsStr::from_bytes(self.take(length.into())?).into())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ManifestError> {
        self.take(N)?.try_into().map_err(|_| ManifestError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ManifestError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ManifestError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}
