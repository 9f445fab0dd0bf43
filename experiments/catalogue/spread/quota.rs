//! A fixed share of a processor for a process, by a control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// Where the hierarchy of version 1 is, and that of version 2.
const V1: &str = "/sys/fs/cgroup/cpu";
const V2: &str = "/sys/fs/cgroup";
/// The period, in µs. A process that has used up its share waits for the next one.
const PERIOD: u32 = 100_000;

/// A control group, removed when dropped: the process must have ended.
pub struct Quota(PathBuf);

impl Quota {
    /// Limits a process and its threads to `share` of a processor.
    ///
    /// # Errors
    /// The kernel does not permit it: it needs root, and the controller `cpu`.
    pub fn limit(process: u32, share: f64) -> anyhow::Result<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("levada-xp-{}-{number}", std::process::id());
        let quota = (share * f64::from(PERIOD)).round();
        let v1 = Path::new(V1).join("cpu.cfs_quota_us").exists();
        let group = Path::new(if v1 { V1 } else { V2 }).join(name);
        if !v1 {
            // Fails if it is enabled already, which the next step shows.
            let _ = fs::write(Path::new(V2).join("cgroup.subtree_control"), "+cpu");
        }
        let create = || {
            fs::create_dir(&group)?;
            if v1 {
                fs::write(group.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())?;
            } else {
                fs::write(group.join("cpu.max"), format!("{quota} {PERIOD}"))?;
            }
            fs::write(group.join("cgroup.procs"), process.to_string())
        };
        create().with_context(|| format!("limit a process by {}", group.display()))?;
        Ok(Self(group))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel removes ended processes some milliseconds later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
