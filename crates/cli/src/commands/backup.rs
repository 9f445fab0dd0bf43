//! `levada backup`: writes the whole home to one encrypted file; the node may be running.

use crate::archive::{self, Manifest, working_folder};
use crate::failure::{Failure, Outcome};
use crate::{output, passphrase, waiting};
use clap::Args;
use levada_catalogue::model::digest_text;
use levada_catalogue::store::embedded::DATABASE;
use levada_client::control::{self, ControlError, Request};
use levada_config::Config;
use levada_core::{Clock, SystemClock};
use levada_home::backup::{CONFIG, KEY, KNOWN_DB, NODE_DB};
use levada_home::known::Known;
use levada_home::{Home, HomeError, write_private};
use levada_node::catalogue;
use levada_node::store::Store;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::{NamedTempFile, TempDir};

/// The prefix of temporary folders.
const PREFIX: &str = ".backup-";

/// Write key, configuration, pins, sessions, log and catalogue to one file, encrypted under a
/// passphrase
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
        Failure::local("this home has no identity yet, so there is nothing to back up")
    })?;
    let passphrase = passphrase.choose()?;
    let folder = working_folder(home.state_folder(), PREFIX)?;
    collect(&home, folder.path()).await?;
    let catalogue = copy_catalogue(&home).await?;
    let manifest = Manifest::new(&key.identity(), SystemClock.now());
    let written = new_file_beside(&file)?;
    let buffered = BufWriter::with_capacity(256 * 1024, written);
    let copy = catalogue.as_ref().map(TempDir::path);
    let buffered = archive::pack(folder.path(), copy, &manifest, passphrase, buffered)?;
    let written = buffered.into_inner().map_err(|error| Failure::local(error.error()))?;
    persist(written, &file, force)?;
    output::note(format_args!("backup of {} written to {}", key.identity(), file.display()));
    Ok(0)
}

/// Copies everything but the catalogue consistently into `folder`.
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

async fn snapshot(home: &Home, to: &Path) -> Result<(), Failure> {
    let request = Request::Snapshot { to: to.to_owned() };
    let alone = || -> Result<Value, Failure> {
        Store::open(&home.node_db())?.snapshot(to)?;
        Ok(Value::Null)
    };
    node_or(home, &request, alone).await.map(drop)
}

/// A copy of the catalogue, if there is one. The copy lies in the catalogue's folder, where
/// packages can be hard links, which take no space.
async fn copy_catalogue(home: &Home) -> Result<Option<TempDir>, Failure> {
    let config = Config::load(&home.config_file()).unwrap_or_else(|error| {
        output::note(format_args!("note: the catalogue is read from its default folder: {error}"));
        Config::default()
    });
    if !catalogue::exists(home, &config) {
        return Ok(None);
    }
    let folder = catalogue::folder(home, &config);
    if config.catalogue.engine.is_some() && folder.join(DATABASE).exists() {
        let folder = folder.display();
        output::note(format_args!(
            "note: the catalogue is the shared one; the one that this node had for itself, in {folder}, is left out"
        ));
    }
    let copy = working_folder(&folder, PREFIX)?;
    let alone = || snapshot_catalogue(home, &config, copy.path());
    let request = Request::BackUpCatalogue { to: copy.path().to_owned() };
    let mut answer = node_or(home, &request, alone).await?;
    if answer["kept"] == false {
        // The node runs without a catalogue, so no process has this one open.
        answer = alone()?;
    }
    for digest in answer["missing"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output::note(format_args!("note: {digest} is missing in the catalogue, and in the backup"));
    }
    Ok(Some(copy))
}

/// Writes a snapshot of the catalogue, which no process has open.
fn snapshot_catalogue(home: &Home, config: &Config, to: &Path) -> Result<Value, Failure> {
    let work = || {
        let handle = catalogue::open(home, config, Arc::new(SystemClock))?;
        handle.store().back_up(to)
    };
    // A store that is shared waits for its engine, which is forbidden on a thread of the runtime.
    let done = thread::scope(|scope| scope.spawn(work).join());
    let missing = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let missing = missing.map_err(Failure::local)?;
    Ok(json!({ "missing": missing.iter().map(digest_text).collect::<Vec<_>>() }))
}

/// Sends `request` to the running node, which has the databases open; without a node, takes its
/// lock and calls `alone`.
async fn node_or(
    home: &Home,
    request: &Request,
    alone: impl FnOnce() -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    match control::call(home, request).await {
        Err(ControlError::NotRunning) => {}
        answer => return Ok(answer?),
    }
    match waiting::until_free(home, Duration::from_secs(2)).await {
        Ok(_lock) => alone(),
        // A node was starting at this moment.
        Err(HomeError::Locked { .. }) => Ok(control::call(home, request).await?),
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
    // `NamedTempFile` creates it with mode 0600.
    NamedTempFile::new_in(folder_of(file)).map_err(Failure::file("write", file))
}

/// Syncs the finished file and renames it to `file`, so that `file` is never incomplete.
fn persist(written: NamedTempFile, file: &Path, force: bool) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::file("write", file)(error);
    written.as_file().sync_all().map_err(fail)?;
    if force {
        written.persist(file).map_err(|error| fail(error.error))?;
    } else {
        written.persist_noclobber(file).map_err(|error| fail(error.error))?;
    }
    File::open(folder_of(file)).and_then(|folder| folder.sync_all()).map_err(fail)
}
