//! The programs that experiments run: the `levada` binary, and those of others.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

/// The `levada` binary beside this one, built from the current sources.
pub fn levada() -> anyhow::Result<PathBuf> {
    if let Some(cargo) = env::var_os("CARGO") {
        let what = ["--quiet", "--package", "levada-cli", "--bin", "levada"];
        let built = Command::new(cargo)
            .args(["build", "--profile", "dist"])
            .args(what)
            .status()
            .context("run cargo")?;
        ensure!(built.success(), "the binary `levada` cannot be built");
    }
    let levada = env::current_exe()?.with_file_name("levada");
    ensure!(levada.is_file(), "there is no {}; cargo build --profile dist", levada.display());
    Ok(levada)
}

/// A program of the folders of PATH, or else of `more`.
pub fn find(name: &str, more: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(more);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
