//! The file of `catalogue get --package`: nothing but a regular file is read, replaced or removed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::publish;
use crate::support::{Home, Ran, Watchdog};

/// Makes a node in the file system; false if this user may not.
fn made(program: &str, path: &Path, more: &[&str]) -> bool {
    Command::new(program).arg(path).args(more).stderr(Stdio::null()).status().unwrap().success()
}

/// Fetches the package to `path`. A verb that blocks is killed, and then fails.
fn get(home: &Home, path: &Path) -> Ran {
    let words = ["catalogue", "get", "hyperty/A", "--package", path.to_str().unwrap()];
    let mut command = home.command(words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let watchdog = Watchdog::over(child.id());
    let ran = child.wait_with_output().unwrap();
    drop(watchdog);
    ran.into()
}

#[test]
fn a_package_replaces_no_device_link_or_folder() {
    let home = Home::new();
    publish(&home, "hyperty/A@1.0.0", &[]).ok();
    let path = |name: &str| home.path().join(name);
    assert!(made("mkfifo", &path("fifo"), &[]));
    get(&home, &path("fifo")).fails(120, "fifo is not a regular file: name another file");
    assert!(fs::symlink_metadata(path("fifo")).unwrap().file_type().is_fifo());

    fs::write(path("behind"), "kept").unwrap();
    symlink(path("behind"), path("link")).unwrap();
    symlink(path("missing"), path("dangling")).unwrap();
    for name in ["link", "dangling"] {
        get(&home, &path(name)).fails(120, "is a symbolic link: remove it, or name the file");
        assert!(path(name).is_symlink(), "{name}");
    }
    assert_eq!(fs::read(path("behind")).unwrap(), b"kept");
    fs::create_dir(path("folder")).unwrap();
    get(&home, &path("folder")).fails(120, "is a folder: name a file in it");

    // The numbers of /dev/null and /dev/full (null(4), full(4)).
    for (name, minor) in [("null", "3"), ("full", "7")] {
        if made("mknod", &path(name), &["c", "1", minor]) {
            get(&home, &path(name)).fails(120, "is not a regular file: name another file");
            let kind = fs::symlink_metadata(path(name)).unwrap().file_type();
            assert!(kind.is_char_device(), "{name}");
        }
    }
    let left = fs::read_dir(home.path()).unwrap().flatten();
    let left = left.filter(|one| one.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(left.count(), 0);
    get(&home, &path("behind")).ok();
    assert_eq!(fs::read(path("behind")).unwrap(), b"code of hyperty/A@1.0.0");
}
