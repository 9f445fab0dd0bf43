//! The import of a folder of the reTHINK catalogue.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use levada_catalogue::model::{Key, Version};
use levada_catalogue::rethink::{Found, Incompatible, Reason, Skipped};
use levada_services::catalogue::CatalogueClient;

use super::batch::{Batch, Item, Then};
use super::compare::compare;
use super::replace;
use super::report::Report;
use crate::failure::{Failure, NO, USAGE};
use crate::output;
use crate::progress::Progress;

pub use levada_catalogue::rethink::Folder;

/// The examples in the help.
pub const EXAMPLES: &str = "Examples:
  levada catalogue import /srv/export
  levada catalogue import /var/lib/levada/catalogue/restored
  levada catalogue import /srv/rethink/catalogue_objects
  levada catalogue import /srv/rethink/catalogue_objects --replace --dry-run";

/// The options for a folder of the reTHINK catalogue.
#[derive(Debug, Args)]
pub struct Options {
    /// Make the catalogue match the folder: publish changed content as VERSION+N, and yank newer
    /// versions, and all objects (except services) that the folder does not have
    #[arg(long)]
    replace: bool,
}

impl Options {
    /// Refuses the options for a folder of another kind.
    ///
    /// # Errors
    /// [`Failure`] 2 if one is given.
    pub fn refuse(&self) -> Result<(), Failure> {
        if self.replace {
            let text = "--replace is for a folder of the reTHINK catalogue: this one was \
                        exported, or is a catalogue, and its signatures are bound to its versions";
            return Err(Failure::new(USAGE, text));
        }
        Ok(())
    }
}

/// Opens a folder of the reTHINK catalogue.
///
/// # Errors
/// [`Failure`] 120 if it cannot be read.
pub fn open(folder: &Path) -> Result<Folder, Failure> {
    Folder::open(folder).map_err(Failure::local)
}

/// Imports a folder of the reTHINK catalogue. With `--replace`, the catalogue afterwards shows the
/// folder's objects only.
///
/// # Errors
/// [`Failure`] if the catalogue cannot be read or written.
pub async fn import(
    caller: &mut CatalogueClient,
    mut folder: Folder,
    Options { replace: replacing }: Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let all = folder.remaining() as u64;
    let bar = Progress::of_items("import", all);
    let mut batch = Batch::default();
    let mut newer: Vec<(Key, Vec<Version>)> = Vec::new();
    while let Some(found) = folder.next() {
        match found {
            Ok(found) if replacing => {
                let key = found.draft.key.clone();
                newer.push((key, replace_one(caller, found, &mut batch, report).await?));
            }
            Ok(found) if report.dry_run => {
                compare(caller, &found.folder, &found.draft, report).await?;
            }
            Ok(Found { folder, draft, code }) => {
                let item = Item { source: folder, draft, code, then: Then::Shown };
                batch.add(item, caller, report).await?;
            }
            Err(skipped) => skip(&skipped, report),
        }
        bar.set(all.saturating_sub(folder.remaining() as u64));
    }
    batch.publish(caller, report).await?;
    if replacing { yank_others(caller, newer, report).await } else { Ok(()) }
}

/// Yanks the `newer` versions of each object of the folder, and all objects that the folder does
/// not have.
async fn yank_others(
    caller: &mut CatalogueClient,
    newer: Vec<(Key, Vec<Version>)>,
    report: &mut Report,
) -> Result<(), Failure> {
    if newer.is_empty() {
        return Err(Failure::new(NO, "there is no object in the folder: nothing is yanked"));
    }
    if report.is_unsure() {
        output::note("note: nothing is yanked, because something could not be read or published");
        return Ok(());
    }
    let kept: BTreeSet<Key> = newer.iter().map(|(key, _)| key.clone()).collect();
    for (key, versions) in newer {
        replace::yank(caller, &key, &versions, report).await?;
    }
    replace::yank_gone(caller, &kept, report).await
}

/// Publishes the folder's version of an object, or reverts its yank; returns the versions that are
/// newer.
async fn replace_one(
    caller: &mut CatalogueClient,
    Found { folder, mut draft, code }: Found,
    batch: &mut Batch,
    report: &mut Report,
) -> Result<Vec<Version>, Failure> {
    let versions = replace::versions(caller, &draft.key).await?;
    let plan = match replace::plan(&draft, &versions) {
        Ok(plan) => plan,
        Err(error) => {
            report.fail(&format!("{}: {error}", folder.display()));
            return Ok(Vec::new());
        }
    };
    match (plan.publish, plan.restore) {
        (Some(version), _) => {
            let then = if version == draft.version { Then::Shown } else { Then::Replaces };
            draft.version = version;
            if report.dry_run {
                report.would_publish();
                if then == Then::Replaces {
                    report.replace(format!("{}@{}", draft.key, draft.version));
                }
            } else {
                batch.add(Item { source: folder, draft, code, then }, caller, report).await?;
            }
        }
        (None, Some(version)) => {
            if !report.dry_run {
                caller.yank(&draft.key, &version, false).await?;
            }
            report.replace(format!("{}@{version}", draft.key));
        }
        (None, None) => report.unchanged(),
    }
    Ok(plan.yank)
}

/// Reports an object that cannot be imported. The reTHINK catalogue ignored most of these too; but
/// a missing package is an error in the folder, and an unreadable file leaves its object unknown.
fn skip(skipped: &Skipped, report: &mut Report) {
    let text = skipped.to_string();
    match &skipped.reason {
        Reason::Incompatible(Incompatible::NoPackage | Incompatible::NoCode) => {
            report.missing(&text)
        }
        Reason::Io { .. } | Reason::TooLong(_) => report.fail(&text),
        _ => report.skip(&text),
    }
}
