//! The programs that experiments run: the `levada` binary, and those of others.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

/// The `levada` binary beside this one, built from the current sources.
pub fn levada() -> anyhow::Result<PathBuf> {
    build(&["--package", "levada-cli", "--bin", "levada"])?;
    let levada = env::current_exe()?.with_file_name("levada");
    ensure!(levada.is_file(), "there is no {}; cargo build --profile dist", levada.display());
    Ok(levada)
}

/// Builds `what` of the current sources, as packages are built, if cargo runs this program.
pub fn build(what: &[&str]) -> anyhow::Result<()> {
    let Some(cargo) = env::var_os("CARGO") else { return Ok(()) };
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "dist", "--quiet"]).args(what);
    let built = command.status().context("run cargo")?;
    ensure!(built.success(), "cargo cannot build {}", what.join(" "));
    Ok(())
}

/// A program of the folders of PATH, or else of `more`.
pub fn find(name: &str, more: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(more);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
