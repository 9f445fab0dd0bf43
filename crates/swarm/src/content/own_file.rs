//! Files that a download may write to.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::content::error::ContentError;

/// Opens or makes a file to write to. It must be a regular file of this user, with one name:
/// another user of the folder must not direct the bytes elsewhere by a link.
///
/// # Errors
/// [`ContentError::Foreign`] for any other file; [`ContentError::File`].
pub fn open_own(path: &Path) -> Result<File, ContentError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // A FIFO without a reader would block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(ContentError::Foreign(path.to_owned()));
        }
        opened => opened.map_err(ContentError::file(path))?,
    };
    let metadata = file.metadata().map_err(ContentError::file(path))?;
    let is_own = metadata.is_file() && metadata.nlink() == 1;
    if !is_own || metadata.uid() != geteuid().as_raw() {
        return Err(ContentError::Foreign(path.to_owned()));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_regular_file_of_this_user_with_one_name_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(open_own(&path("new")).is_ok());
        fs::write(path("own"), "bytes").unwrap();
        assert!(open_own(&path("own")).is_ok());
        assert_eq!(fs::read(path("own")).unwrap(), b"bytes");

        symlink(path("own"), path("link")).unwrap();
        symlink(path("missing"), path("dangling")).unwrap();
        fs::write(path("first"), "bytes").unwrap();
        fs::hard_link(path("first"), path("second")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(fifo.success());
        for name in ["link", "dangling", "first", "second", "fifo"] {
            assert!(matches!(open_own(&path(name)), Err(ContentError::Foreign(_))), "{name}");
        }
        assert!(!path("missing").exists());
        if geteuid().is_root() {
            fs::write(path("other"), "").unwrap();
            std::os::unix::fs::chown(path("other"), Some(65534), None).unwrap();
            assert!(matches!(open_own(&path("other")), Err(ContentError::Foreign(_))));
        }
    }
}
