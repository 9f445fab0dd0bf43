//! A control group (cgroups(7), version 2) for one run: a process cannot leave it by `setsid` or by
//! a double fork, and one write kills all its processes, including those that are being forked.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// The processes of a group. Writing `0` moves the process that writes.
const PROCESSES: &str = "cgroup.procs";
/// The name of a group is this prefix and the process id of its supervisor.
const PREFIX: &str = "levada-";
/// Kills all processes of a group; since Linux 5.14.
const KILL: &str = "cgroup.kill";
/// A killed process stays in the group until it has exited: the interval and the number of attempts
/// to remove the group.
const REMOVE_INTERVAL: Duration = Duration::from_millis(10);
const REMOVE_ATTEMPTS: usize = 500;

/// A control group below that of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates a group below that of this process, and moves this process there. `None` if that is
    /// not possible: there is no version 2, or this user lacks the permission.
    pub(super) fn enter() -> Option<Self> {
        let parent = own_group()?;
        remove_empty(&parent);
        let group = Self(parent.join(format!("{PREFIX}{}", std::process::id())));
        if let Err(error) = fs::create_dir(&group.0) {
            // A stale group: of an earlier process with this id, which was killed together with its
            // node.
            let stale = error.kind() == io::ErrorKind::AlreadyExists;
            if !stale || group.kill().is_err() {
                return None;
            }
        }
        let entered = group.0.join(KILL).exists() && move_to(&group.0).is_ok();
        if !entered {
            let _ = fs::remove_dir(&group.0);
        }
        entered.then_some(group)
    }

    /// The group at `path`, which another process has created.
    pub(super) fn at(path: &[u8]) -> Option<Self> {
        (!path.is_empty()).then(|| Self(OsStr::from_bytes(path).into()))
    }

    /// Its directory.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Moves this process, the last one of the group, back to the parent group, and removes the
    /// group.
    pub(super) fn leave(&self) {
        if let Some(parent) = self.0.parent() {
            let _ = move_to(parent);
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// Kills all its processes, this one included if it is one of them.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join(KILL), "1")
    }

    /// Kills its processes until none is left, and removes it.
    pub(super) async fn end(&self) {
        for _ in 0..REMOVE_ATTEMPTS {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            let _ = self.kill();
            sleep(REMOVE_INTERVAL).await;
        }
    }
}

/// Removes the groups of supervisors that have exited: a node that stops does not wait until it can
/// remove them. A group with processes cannot be removed.
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

/// The directory of this process's group.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read("/proc/self/cgroup").ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    find(&groups, &mounts)
}

/// The path in `0::PATH` of `groups` (cgroups(7)), below the mount point of version 2
/// (proc_pid_mountinfo(5)). Version 1 may be mounted, too, and the mount may show only a part of
/// the hierarchy.
fn find(groups: &[u8], mounts: &[u8]) -> Option<PathBuf> {
    let path = lines(groups).find_map(|line| line.strip_prefix(b"0::"))?;
    let path = Path::new(OsStr::from_bytes(path));
    lines(mounts).find_map(|line| {
        let dash = line.windows(3).position(|part| part == b" - ")?;
        if !line[dash + 3..].starts_with(b"cgroup2 ") {
            return None;
        }
        let mut fields = line[..dash].split(|byte| *byte == b' ').skip(3);
        let root = unescape(fields.next()?);
        let mount = unescape(fields.next()?);
        let below = path.strip_prefix(root).ok()?;
        let outside = below.components().any(|part| part.as_os_str() == "..");
        (!outside).then(|| mount.join(below))
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Decodes `\` and three octal digits, which stand for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
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
    fn groups_of_exited_supervisors_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        // No process has such an id (PID_MAX_LIMIT).
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
