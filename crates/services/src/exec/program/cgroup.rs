//! A control group (cgroups(7), version 2) for one run: a process cannot leave it by `setsid` or by losing its
//! parents, and all of it is killed by one write, forks under way included.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// The processes of a group. Writing `0` moves the process that writes.
const PROCESSES: &str = "cgroup.procs";
/// A group is called so, with the number of its supervisor behind.
const PREFIX: &str = "levada-";
/// Since Linux 5.14.
const KILL: &str = "cgroup.kill";
/// A killed process is in the group until it is gone; a group is looked at so often, and so many times.
const STEP: Duration = Duration::from_millis(10);
const STEPS: usize = 500;

/// A group below that of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Makes a group below that of this process, and moves this process there. `None` if that is not possible: there
    /// is no version 2, or this user may not.
    pub(super) fn enter() -> Option<Self> {
        let parent = own_group()?;
        remove_empty(&parent);
        let group = Self(parent.join(format!("{PREFIX}{}", std::process::id())));
        if let Err(error) = fs::create_dir(&group.0) {
            // Of a process that had this number before, and was killed together with its node.
            let left = error.kind() == io::ErrorKind::AlreadyExists;
            if !left || group.kill().is_err() {
                return None;
            }
        }
        let entered = group.0.join(KILL).exists() && move_to(&group.0).is_ok();
        if !entered {
            let _ = fs::remove_dir(&group.0);
        }
        entered.then_some(group)
    }

    /// The group whose folder another process has told.
    pub(super) fn at(path: &[u8]) -> Option<Self> {
        (!path.is_empty()).then(|| Self(OsStr::from_bytes(path).into()))
    }

    /// Its folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Moves this process, the last one in it, back to where it was, and removes the group.
    pub(super) fn leave(&self) {
        if let Some(parent) = self.0.parent() {
            let _ = move_to(parent);
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// Kills every process in it, this one, too, if it is.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join(KILL), "1")
    }

    /// Kills what is in it until nothing is, and removes it.
    pub(super) async fn end(&self) {
        for _ in 0..STEPS {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            let _ = self.kill();
            sleep(STEP).await;
        }
    }
}

/// Removes the groups of supervisors that are gone: a node that is stopped does not wait until it can remove them.
/// A group with processes in it cannot be removed.
fn remove_empty(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn move_to(group: &Path) -> io::Result<()> {
    fs::write(group.join(PROCESSES), "0")
}

/// The folder of this process's group.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read("/proc/self/cgroup").ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    find(&groups, &mounts)
}

/// `0::PATH` of `groups` (cgroups(7)), below the mount of version 2 (proc_pid_mountinfo(5)): it may be beside
/// version 1, and may show a part of the hierarchy only.
fn find(groups: &[u8], mounts: &[u8]) -> Option<PathBuf> {
    let path = lines(groups).find_map(|line| line.strip_prefix(b"0::"))?;
    let path = Path::new(OsStr::from_bytes(path));
    lines(mounts).find_map(|line| {
        let dash = line.windows(3).position(|part| part == b" - ")?;
        if !line[dash + 3..].starts_with(b"cgroup2 ") {
            return None;
        }
        let mut fields = line[..dash].split(|byte| *byte == b' ').skip(3);
        let (root, mount) = (unescape(fields.next()?), unescape(fields.next()?));
        let below = path.strip_prefix(root).ok()?;
        let outside = below.components().any(|part| part.as_os_str() == "..");
        (!outside).then(|| mount.join(below))
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Four characters stand as `\` and three octal digits: space, tabulator, newline and the backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn the_group_is_found_where_version_2_is_mounted() {
        let found = |groups: &str, mounts: &str| find(groups.as_bytes(), mounts.as_bytes());
        let unified = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let unit = "/system.slice/levada.service";
        let cases = [
            ("1:cpu:/x\n0::/\n", HYBRID, Some("/sys/fs/cgroup/unified")),
            (
                "0::/system.slice/levada.service\n",
                unified,
                Some("/sys/fs/cgroup/system.slice/levada.service"),
            ),
            ("1:cpu:/x\n", HYBRID, None),
            ("0::/../other\n", unified, None),
            ("0::/\n", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", None),
            ("", "", None),
        ];
        for (groups, mounts, expected) in cases {
            assert_eq!(found(groups, mounts), expected.map(PathBuf::from), "{groups}");
        }
        let part = "30 23 0:27 /system.slice /mnt/a\\040b rw - cgroup2 none rw\n";
        assert_eq!(found(&format!("0::{unit}"), part), Some("/mnt/a b/levada.service".into()));
        assert_eq!(found("0::/user.slice", part), None);
    }

    #[test]
    fn groups_of_supervisors_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        // No process has such a number (PID_MAX_LIMIT).
        let names =
            ["levada-4194305", "levada-x", "other", &format!("levada-{}", std::process::id())];
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        remove_empty(folder.path());
        assert!(!folder.path().join(names[0]).exists());
        assert!(names[1..].iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn arbitrary_files_never_panic() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(groups, mounts)| {
            find(groups, mounts);
        });
    }
}
