//! Tests in network and mount namespaces of their own.

use std::path::Path;
use std::process::Command;

use crate::child;

/// Runs one test in a child, in a mount namespace where `folder` is a tmpfs of `size`. Needs root.
pub fn run_on_tmpfs(module: &str, function: &str, folder: &Path, size: &str) {
    let script = format!("mount -t tmpfs -o size={size} none \"$1\" && shift && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(folder);
    command.arg(std::env::current_exe().unwrap());
    child::configure(&mut command, module, function, folder);
    let output = command.output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    // A child that finds no test of this name succeeds, too.
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    eprint!("{stderr}");
}

/// Changes the size of the tmpfs `folder`, in the child.
pub fn resize_tmpfs(folder: &Path, size: &str) {
    let mut mount = Command::new("mount");
    mount.args(["-o", &format!("remount,size={size}")]).arg(folder);
    assert!(mount.status().unwrap().success());
}

/// Returns true if this process may make namespaces for networks and mounts.
pub fn can_isolate() -> bool {
    let mut command = Command::new("unshare");
    let made = command.args(["--net", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let can = made.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: this process may not make namespaces");
    }
    can
}
