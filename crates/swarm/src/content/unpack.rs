//! Unpacks the content of a folder.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::content::error::ContentError;
use crate::content::manifest::{MAX_MANIFEST, Manifest, ManifestError};
use crate::content::partial::with;

/// Writes the files of the content at `from` into the new folder `target`, and returns the number of paths with
/// replaced characters ([`Manifest::with_printable_paths`]). The folder gets its name when all is written, so that
/// a crash leaves none with a part.
///
/// # Errors
/// [`ContentError::Exists`], [`ContentError::Manifest`], [`ContentError::File`].
pub fn unpack(from: &Path, target: &Path) -> Result<usize, ContentError> {
    if fs::symlink_metadata(target).is_ok() {
        return Err(ContentError::Exists(target.to_owned()));
    }
    let mut content = File::open(from).map_err(ContentError::file(from))?;
    let manifest = read_manifest(&mut content).map_err(ContentError::file(from))?;
    let (manifest, changed) = Manifest::decode(&manifest)?.with_printable_paths()?;
    let length = content.metadata().map_err(ContentError::file(from))?.len();
    let files: u64 = manifest.entries().iter().map(|entry| entry.length).sum();
    let start = content.stream_position().map_err(ContentError::file(from))?;
    if start.checked_add(files) != Some(length) {
        return Err(ManifestError::Malformed.into());
    }
    let unfinished = with(target, ".unpacking");
    // The sharer chooses the name: what has it already is not of this content, and stays.
    if fs::symlink_metadata(&unfinished).is_ok() {
        return Err(ContentError::Exists(unfinished));
    }
    // A new folder has no symbolic links, so that checked paths stay in it.
    fs::create_dir(&unfinished).map_err(ContentError::file(&unfinished))?;
    let written = write_all(&mut content, &manifest, &unfinished)
        .and_then(|()| fs::rename(&unfinished, target).map_err(ContentError::file(target)));
    if written.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    written.map(|()| changed)
}

fn write_all(content: &mut File, manifest: &Manifest, folder: &Path) -> Result<(), ContentError> {
    manifest.entries().iter().try_for_each(|entry| {
        let path = folder.join(&entry.path);
        write_file(content, &path, entry.length, entry.executable)
            .map_err(ContentError::file(&path))
    })
}

fn read_manifest(content: &mut File) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    content.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    if length > MAX_MANIFEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the list of files is too long"));
    }
    let mut manifest = Vec::new();
    content.take(length).read_to_end(&mut manifest)?;
    Ok(manifest)
}

fn write_file(content: &mut File, path: &Path, length: u64, executable: bool) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::options().write(true).create_new(true).open(path)?;
    if io::copy(&mut content.take(length), &mut file)? != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if executable {
        let mode = file.metadata()?.permissions().mode();
        // Execution for those who may read.
        file.set_permissions(fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::manifest::Entry;

    #[test]
    fn a_folder_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let entry =
            |path: &str, length, executable| Entry { path: path.into(), length, executable };
        let entries = vec![entry("a/b", 3, true), entry("a/c", 0, false), entry("d", 2, false)];
        let mut content = Manifest::new(entries).unwrap().encode();
        content.extend_from_slice(b"onedd");
        let (from, target) = (folder.path().join("content"), folder.path().join("out"));
        fs::write(&from, &content).unwrap();
        assert_eq!(unpack(&from, &target).unwrap(), 0);
        assert_eq!(fs::read(target.join("a/b")).unwrap(), b"one");
        assert_eq!(fs::read(target.join("d")).unwrap(), b"dd");
        assert!(fs::metadata(target.join("a/b")).unwrap().permissions().mode() & 0o100 != 0);
        assert!(matches!(unpack(&from, &target), Err(ContentError::Exists(_))));
        // A folder with the name of an unfinished one may be of another program.
        let (other, foreign) = (folder.path().join("new"), folder.path().join("new.unpacking"));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("thesis"), "only copy").unwrap();
        assert!(matches!(unpack(&from, &other), Err(ContentError::Exists(_))));
        assert_eq!(fs::read(foreign.join("thesis")).unwrap(), b"only copy");
        for wrong in [&content[..content.len() - 1], &content[..5], &[0xff; 20]] {
            fs::write(&from, wrong).unwrap();
            assert!(unpack(&from, &folder.path().join("other")).is_err());
        }
    }
}
