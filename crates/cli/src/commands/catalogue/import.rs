//! `levada catalogue import`: publishes folders of the reTHINK catalogue, those that `export` wrote, and catalogues of one node.

mod batch;
mod replace;
mod report;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{Draft, Key, Version};
use levada_catalogue::rethink::{Folder, Found, Incompatible, Reason, Skipped};
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{CatalogueClient, CatalogueError};

use super::at::At;
use super::own_store::Missing;
use super::exported::{Contents, Ready};
use super::stored::Stored;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output;
use crate::progress::Progress;
use batch::{Batch, Item, Then, is_long, label, settle, then};
use report::Report;

/// Publish the objects of a folder: one that `export` wrote, the folder of a catalogue, or one of the reTHINK catalogue
///
/// The folder of a catalogue is one that no node uses: a node's own from the time before it shared one with others, or
/// from a backup. In a folder of the reTHINK catalogue, TYPE/ANY/{description.json, sourcePackage.json, sourceCode…} is
/// one object; objects that the reTHINK catalogue ignored are skipped, and reported on standard error.
/// Versions that are already published stay unchanged, but for those that are yanked in the folder.
/// Exit code 1 if a version was not published: it exists with other content, or its package is missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue import /srv/export
  levada catalogue import /var/lib/levada/catalogue/restored
  levada catalogue import /srv/rethink/catalogue_objects
  levada catalogue import /srv/rethink/catalogue_objects --replace --dry-run")]
pub struct Import {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Make the catalogue match the folder: publish changed content as VERSION+N, and yank newer versions, and all
    /// objects (except services) that the folder does not have
    #[arg(long)]
    replace: bool,

    /// Change nothing, and print what would change
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

/// The kind of folder.
enum Input {
    Exported(Contents),
    Stored(Stored),
    Rethink(Folder),
}

impl Input {
    fn open(folder: &Path, replace: bool) -> Result<Self, Failure> {
        let input = match (Contents::open(folder)?, Stored::open(folder)?) {
            (Some(contents), _) => Self::Exported(contents),
            (None, Some(stored)) => Self::Stored(stored),
            (None, None) => {
                return Folder::open(folder).map(Self::Rethink).map_err(Failure::local);
            }
        };
        if replace {
            let text = "--replace is for a folder of the reTHINK catalogue: this one was exported, or is \
                        a catalogue, and its signatures are bound to its versions";
            return Err(Failure::new(USAGE, text));
        }
        Ok(input)
    }
}

pub async fn import(arguments: Import) -> Outcome {
    let input = Input::open(&arguments.folder, arguments.replace)?;
    let missing = if arguments.dry_run { Missing::Substitute } else { Missing::Create };
    let mut connection = arguments.at.nodes().await?.with_missing(missing).open().await?;
    let mut report = Report::new(arguments.dry_run);
    let caller = &mut connection.caller;
    let imported = match input {
        Input::Exported(contents) => {
            // `export` wrote every version, so an unreadable one is damaged.
            contents.skipped.iter().for_each(|text| report.missing(text));
            import_versions(caller, contents.count(), contents.read(), &mut report).await
        }
        Input::Stored(stored) => {
            import_versions(caller, stored.count(), stored.read(), &mut report).await
        }
        Input::Rethink(folder) => {
            import_rethink(caller, folder, arguments.replace, &mut report).await
        }
    };
    connection.close().await;
    imported?;
    report.end(arguments.json)
}

/// Imports a folder of the reTHINK catalogue. With `replacing`, the catalogue afterwards shows the folder's objects only.
async fn import_rethink(
    caller: &mut CatalogueClient,
    mut folder: Folder,
    replacing: bool,
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

/// Yanks the `newer` versions of each object of the folder, and all objects that the folder does not have.
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

/// Publishes the folder's version of an object, or reverts its yank; returns the versions that are newer.
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

/// Imports versions as they were in another catalogue.
async fn import_versions(
    caller: &mut CatalogueClient,
    count: usize,
    versions: impl Iterator<Item = Result<Ready, String>>,
    report: &mut Report,
) -> Result<(), Failure> {
    let bar = Progress::of_items("import", count as u64);
    let mut batch = Batch::default();
    for (done, read) in (1..).zip(versions) {
        match read {
            Ok(ready) if report.dry_run => {
                compare(caller, &label(&ready.draft), &ready.draft, report).await?;
            }
            Ok(Ready { draft, yanked, package: Some(path) }) if is_long(&draft) => {
                batch.publish(caller, report).await?;
                let mut file = File::open(&path).map_err(Failure::file("open", &path))?;
                let outcome = caller.publish(&draft, &mut file, |_| {}).await;
                settle(caller, report, &label(&draft), (&draft, then(yanked)), outcome).await?;
            }
            Ok(ready) => batch.add(Item::read(ready)?, caller, report).await?,
            Err(text) => report.missing(&text),
        }
        bar.set(done);
    }
    batch.publish(caller, report).await
}

/// Reports what publishing `draft` would do.
async fn compare(
    caller: &mut CatalogueClient,
    source: &Path,
    draft: &Draft,
    report: &mut Report,
) -> Result<(), Failure> {
    match is_published(caller, draft).await? {
        None => report.would_publish(),
        Some(true) => report.unchanged(),
        Some(false) => {
            report.conflict(source, draft, "that version is published with other content")
        }
    }
    Ok(())
}

/// Whether the published version equals `draft`; `None` if the version does not exist.
///
/// # Errors
/// [`Failure`] if the catalogue cannot be read.
pub async fn is_published(
    caller: &mut CatalogueClient,
    draft: &Draft,
) -> Result<Option<bool>, Failure> {
    let found = match caller.get(&draft.key, &draft.version.to_string()).await {
        Err(CatalogueError::Failed { cause: Cause::Unknown, .. }) => return Ok(None),
        found => found?,
    };
    Ok(Some(
        found.descriptor == draft.descriptor
            && found.package == draft.package
            && found.signatures == draft.signatures,
    ))
}

/// Reports an object that cannot be imported. The reTHINK catalogue ignored most of these too; but a missing package is an
/// error in the folder, and an unreadable file leaves its object unknown.
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
