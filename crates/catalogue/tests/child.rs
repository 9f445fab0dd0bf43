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
