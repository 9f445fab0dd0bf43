//! `levada restore`: restores a home from a backup; the node may be running.

use crate::archive::{self, working_folder};
use crate::failure::{Failure, NO, Outcome};
use crate::{output, passphrase, waiting};
use clap::Args;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_catalogue::store::{Finding, Store as _};
use levada_client::control::{self, ControlError, Request};
use levada_config::Config;
use levada_core::{Identity, UnixTime};
use levada_home::backup::{CATALOGUE, CONFIG, KEY, KNOWN_DB, NODE_DB};
use levada_home::known::Known;
use levada_home::{Home, read_key_file};
use levada_node::catalogue;
use levada_node::restore;
use levada_node::store::Store;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Restore identity, configuration, pins, log and catalogue from a backup
///
/// Works while the node runs, which then restarts. Sessions are restored as terminated, because
/// uses and revocations since the backup are unknown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada restore home.age
  levada restore home.age --force --passphrase-file /root/passphrase")]
pub struct Arguments {
    /// The file that `levada backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Replace another identity without asking
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    passphrase: passphrase::Source,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let Arguments { file, force, passphrase } = arguments;
    let home = Home::open()?;
    let input = File::open(&file).map_err(Failure::file("read", &file))?;
    let folder = working_folder(home.state_folder(), ".restore-")?;
    let manifest = archive::unpack(BufReader::new(input), passphrase.read()?, folder.path())?;
    let identity = check(folder.path(), &manifest)?;
    if !may_replace(&home, &identity, force)? {
        return Ok(NO);
    }
    let shared = shared_catalogue(&home, folder.path())?;
    take_over(&home, folder.path(), &identity).await?;
    let created = output::time(UnixTime(manifest.created));
    output::note(format_args!("{identity} is restored from the backup of {created}"));
    if let Some(path) = shared {
        let path = path.display();
        output::note(format_args!(
            "note: several nodes share the catalogue, which is not changed: `levada catalogue import {path}` publishes what it lacks"
        ));
    }
    Ok(0)
}

/// Checks the whole backup before the home is changed.
fn check(folder: &Path, manifest: &archive::Manifest) -> Result<Identity, Failure> {
    let refuse = |reason| Failure::local(format!("not a backup of Levada: {reason}"));
    let key = read_key_file(&folder.join(KEY))?.ok_or_else(|| refuse("it has no key"))?;
    if key.identity().to_string() != manifest.identity {
        return Err(refuse("its key is not that of its manifest"));
    }
    Config::load(&folder.join(CONFIG))?;
    Store::open(&folder.join(NODE_DB))?.integrity_check()?;
    Known::open(&folder.join(KNOWN_DB))?.integrity_check()?;
    if restore::has_catalogue(folder) {
        check_catalogue(&folder.join(CATALOGUE))?;
    }
    Ok(key.identity())
}

/// The folder where the catalogue of the backup will be, if several nodes share the one of the
/// home.
fn shared_catalogue(home: &Home, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let config = Config::load(&folder.join(CONFIG))?;
    let is_shared = config.catalogue.engine.is_some() && restore::has_catalogue(folder);
    Ok(is_shared.then(|| catalogue::restored_folder(home, &config)))
}

/// Fails if the database is damaged. Packages that are missing or damaged only cause a note: they
/// were so when the backup was made, and can be uploaded again.
fn check_catalogue(folder: &Path) -> Result<(), Failure> {
    let store = EmbeddedStore::open(folder).map_err(Failure::local)?;
    let mut damage = None;
    let mut report = |finding: Finding| {
        let text = output::plain(&finding.to_string());
        match finding {
            Finding::Database(_) => damage = Some(text),
            _ => output::note(format_args!("note: in its catalogue, {text}")),
        }
    };
    store.verify(&mut report).map_err(Failure::local)?;
    match damage {
        Some(text) => Err(Failure::local(format!("the backup is damaged: its catalogue: {text}"))),
        None => Ok(()),
    }
}

fn may_replace(home: &Home, new: &Identity, force: bool) -> Result<bool, Failure> {
    // With --force an unreadable key may be replaced, too.
    let old = if force { None } else { home.existing_key()?.map(|key| key.identity()) };
    let Some(old) = old.filter(|old| old != new) else { return Ok(true) };
    output::note(format_args!("This home is {old}; the backup is of {new}."));
    output::ask("Replace the identity of this home? Its key will be lost.").ok_or_else(|| {
        Failure::local("this home has another identity; --force replaces it (back it up first)")
    })
}

async fn take_over(home: &Home, folder: &Path, identity: &Identity) -> Result<(), Failure> {
    match control::call(home, &Request::Restore { from: folder.to_owned() }).await {
        Ok(_) => {
            waiting::until_taken(home, folder).await?;
            waiting::until_ready(home, &identity.to_string()).await
        }
        Err(ControlError::NotRunning) => {
            let _lock = waiting::until_free(home, Duration::from_secs(2)).await?;
            restore::restore(home, folder).map_err(Failure::local)
        }
        Err(error) => Err(error.into()),
    }
}
