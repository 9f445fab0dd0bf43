//! `levada catalogue export`: writes a catalogue to a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{Key, Published, Version};
use levada_core::wire::catalogue::Detail;
use levada_services::catalogue::{CatalogueClient, Item};
use serde_json::json;

use super::at::At;
use super::exported;
use super::get::{Origin, fetch};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::progress::Progress;

/// Write every version, with its package and signatures, to a folder that `import` reads
///
/// Yanked versions are included, and stay yanked when they are imported. The export names the
/// publisher of each version; after an import the publisher is the importing identity. Signatures
/// are kept.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue export /srv/export")]
pub struct Export {
    /// The folder, which must be empty or not exist yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn export(arguments: Export) -> Outcome {
    let folder = &arguments.folder;
    let mut connection = arguments.at.open().await?;
    let written = match make_empty(folder) {
        Ok(()) => export_all(&mut connection.caller, folder).await,
        Err(failure) => Err(failure),
    };
    connection.close().await;
    let Written { objects, versions, packages } = written?;
    exported::finish(folder)?;
    output::note(format_args!("versions written: {versions}"));
    if arguments.json {
        output::json(json!({ "objects": objects, "versions": versions, "packages": packages }))?;
    }
    Ok(0)
}

/// The number of items that were written.
struct Written {
    objects: u64,
    versions: u64,
    packages: usize,
}

fn make_empty(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(Failure::file("make", folder))?;
    let mut entries = fs::read_dir(folder).map_err(Failure::file("read", folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => {
            let text = format!("{} is not empty: name a new folder", folder.display());
            Err(Failure::local(text))
        }
    }
}

async fn export_all(caller: &mut CatalogueClient, folder: &Path) -> Result<Written, Failure> {
    exported::begin(folder)?;
    let mut keys: Vec<Key> = Vec::new();
    let each = |item: Item| {
        keys.push(item.key);
        Ok::<_, Failure>(())
    };
    caller.list(None, "", 0, Detail::Keys, each).await?;
    let bar = Progress::of_items("export", keys.len() as u64);
    let mut written = 0;
    let mut packages = BTreeSet::new();
    for (done, key) in (1..).zip(&keys) {
        for version in versions(caller, key).await? {
            let found = caller.get(key, &version.to_string()).await?;
            if let Some(package) = &found.package
                && packages.insert(package.digest)
            {
                let path = exported::package_path(folder, &package.digest);
                fetch(&mut Origin::Client(&mut *caller), &found, &path).await?;
            }
            exported::write(folder, &found)?;
            written += 1;
        }
        bar.set(done);
    }
    Ok(Written { objects: keys.len() as u64, versions: written, packages: packages.len() })
}

async fn versions(caller: &mut CatalogueClient, key: &Key) -> Result<Vec<Version>, Failure> {
    let mut found = Vec::new();
    let each = |one: Published| {
        found.push(one.version);
        Ok::<_, Failure>(())
    };
    caller.versions(key, each).await?;
    Ok(found)
}
