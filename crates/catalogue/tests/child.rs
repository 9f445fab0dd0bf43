//! Tests that run a part of themselves in a child process.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder that the child works in; set only in a child.
const FOLDER: &str = "LEVADA_TEST_CHILD_FOLDER";

/// The folder of the child, if this process is one.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Arguments and variables that make this binary, or a command that ends with it, run one test
/// alone in `folder`. `module` is the test's `module_path!()`, `function` its name.
pub fn configure(command: &mut Command, module: &str, function: &str, folder: &Path) {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    command.args(["--exact", &format!("{module}::{function}"), "--nocapture"]).env(FOLDER, folder);
}

/// Runs one test in a child, in a mount namespace where `folder` is a tmpfs of `size`. Needs root.
pub fn run_on_tmpfs(module: &str, function: &str, folder: &Path, size: &str) {
    let script = format!("mount -t tmpfs -o size={size} none \"$1\" && shift && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(folder);
    command.arg(std::env::current_exe().unwrap());
    configure(&mut command, module, function, folder);
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

/// Whether this process may make namespaces for networks and mounts.
pub fn can_isolate() -> bool {
    let mut command = Command::new("unshare");
    let made = command.args(["--net", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let can = made.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: this process may not make namespaces");
    }
    can
}
