//! `levada backup`: the whole home as one encrypted file, while the node runs or not.

use crate::archive::{self, Manifest};
use crate::failure::{Failure, Outcome};
use crate::{output, passphrase, waiting};
use clap::Args;
use levada_core::{Clock, SystemClock};
use levada_node::adopt::{CONFIG, KEY, KNOWN_DB, NODE_DB};
use levada_node::control::{self, ControlError, Request};
use levada_node::home::{Home, HomeError, write_private};
use levada_node::known::Known;
use levada_node::store::Store;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::{NamedTempFile, TempDir};

/// Write key, configuration, pins, sessions and log to one file, encrypted under a passphrase
///
/// Works while the node runs. The file is a standard age file (age-encryption.org) with a tar
/// archive inside.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada backup home.age
  levada backup /mnt/levada.age --force --passphrase-file /root/passphrase")]
pub struct Arguments {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    passphrase: passphrase::Source,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let Arguments { file, force, passphrase } = arguments;
    let home = Home::open()?;
    refuse_existing(&file, force)?;
    let key = home.existing_key()?.ok_or_else(|| {
        Failure::local("this home has no identity yet, and so nothing to back up")
    })?;
    let passphrase = passphrase.choose()?;
    let folder = working_folder(&home, ".backup-")?;
    collect(&home, folder.path()).await?;
    let manifest = Manifest::new(&key.identity(), SystemClock.now());
    let written = new_file_beside(&file)?;
    let buffered = BufWriter::with_capacity(256 * 1024, written);
    let buffered = archive::pack(folder.path(), &manifest, passphrase, buffered)?;
    let written = buffered.into_inner().map_err(|error| Failure::local(error.error()))?;
    place(written, &file, force)?;
    output::note(format_args!("backup of {} written to {}", key.identity(), file.display()));
    Ok(0)
}

/// A folder of ours on the file system of the state, where the node can reach it too.
pub fn working_folder(home: &Home, prefix: &str) -> Result<TempDir, Failure> {
    let state = home.state_folder();
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(state)
        .map_err(Failure::file("make a folder in", state))
}

/// Puts a consistent copy of everything into `folder`.
async fn collect(home: &Home, folder: &Path) -> Result<(), Failure> {
    snapshot(home, &folder.join(NODE_DB)).await?;
    Known::open(&home.known_db())?.snapshot(&folder.join(KNOWN_DB))?;
    copy(&home.key_file(), &folder.join(KEY))?;
    if home.config_file().exists() {
        copy(&home.config_file(), &folder.join(CONFIG))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let content = zeroize::Zeroizing::new(fs::read(from).map_err(Failure::file("read", from))?);
    write_private(to, &content, false)?;
    Ok(())
}

/// The running node copies its database itself; without one we take its lock.
async fn snapshot(home: &Home, to: &Path) -> Result<(), Failure> {
    let request = Request::Snapshot { to: to.to_owned() };
    match control::call(home, &request).await {
        Err(ControlError::NotRunning) => {}
        answer => return Ok(answer.map(drop)?),
    }
    match waiting::until_free(home, Duration::from_secs(2)).await {
        Ok(_lock) => Ok(Store::open(&home.node_db())?.snapshot(to)?),
        // It was starting just now.
        Err(HomeError::Locked { .. }) => Ok(control::call(home, &request).await.map(drop)?),
        Err(error) => Err(error.into()),
    }
}

fn refuse_existing(file: &Path, force: bool) -> Result<(), Failure> {
    if !force && fs::symlink_metadata(file).is_ok() {
        let file = file.display();
        return Err(Failure::local(format!("{file} exists; --force replaces it")));
    }
    Ok(())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn new_file_beside(file: &Path) -> Result<NamedTempFile, Failure> {
    // Its mode is 0600 from the start.
    NamedTempFile::new_in(folder_of(file)).map_err(Failure::file("write", file))
}

/// Gives the finished file its name: whole and on disk, or not at all.
fn place(written: NamedTempFile, file: &Path, force: bool) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::file("write", file)(error);
    written.as_file().sync_all().map_err(fail)?;
    if force {
        written.persist(file).map_err(|error| fail(error.error))?;
    } else {
        written.persist_noclobber(file).map_err(|error| fail(error.error))?;
    }
    File::open(folder_of(file)).and_then(|folder| folder.sync_all()).map_err(fail)
}
