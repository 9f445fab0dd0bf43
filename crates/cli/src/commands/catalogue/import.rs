//! `levada catalogue import`: folders as the original's catalogue had them, and those that `export` wrote.

mod batch;
mod replace;
mod report;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use levada_catalogue::model::{Draft, Key, Version};
use levada_catalogue::rethink::{Folder, Found, Reason, Skipped, Unfit};
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{Caller, CallerError};

use super::connection::At;
use super::exported::{Contents, Ready};
use super::progress::Progress;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output;
use batch::{Batch, Item, Then, is_long, named, settle, then};
use report::Report;

/// Publish the objects of a folder: one that `export` wrote, or one as the original catalogue had it
///
/// In the latter, TYPE/ANY/{description.json, sourcePackage.json, sourceCode…} is one object; what the original left out
/// is left out, and reported on standard error. What is published already is no change. Exit code 1 if something that
/// was to be published is not: its version is published with other content, or its package is missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue import /srv/rethink/catalogue_objects
  levada catalogue import /srv/rethink/catalogue_objects --replace --dry-run")]
pub struct Import {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Make the catalogue show what the folder has and nothing else: publish what has changed as VERSION+N, and take
    /// back newer versions, and objects (but services) that the folder does not have
    #[arg(long)]
    replace: bool,

    /// Change nothing; say what would be
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

/// What is read.
enum Input {
    Exported(Contents),
    Rethink(Folder),
}

pub async fn import(arguments: Import) -> Outcome {
    let input = match Contents::open(&arguments.folder)? {
        Some(_) if arguments.replace => {
            let text = "--replace is for a folder as the original had it: this one was exported, and \
                        its signatures are over the versions that it names";
            return Err(Failure::new(USAGE, text));
        }
        Some(contents) => Input::Exported(contents),
        None => Input::Rethink(Folder::open(&arguments.folder).map_err(Failure::local)?),
    };
    let mut link = arguments.at.open().await?;
    let mut report = Report::new(arguments.dry_run);
    let caller = &mut link.caller;
    let imported = match input {
        Input::Exported(contents) => import_exported(caller, &contents, &mut report).await,
        Input::Rethink(folder) if arguments.replace => {
            import_replacing(caller, folder, &mut report).await
        }
        Input::Rethink(folder) => import_rethink(caller, folder, &mut report).await,
    };
    link.close().await;
    imported?;
    report.end(arguments.json)
}

async fn import_rethink(
    caller: &mut Caller,
    mut folder: Folder,
    report: &mut Report,
) -> Result<(), Failure> {
    let all = folder.remaining() as u64;
    let bar = Progress::of_things("import", all);
    let mut batch = Batch::default();
    while let Some(found) = folder.next() {
        match found {
            Ok(found) if report.dry_run => {
                compare(caller, &found.folder, &found.draft, report).await?;
            }
            Ok(Found { folder, draft, code }) => {
                let item = Item { place: folder, draft, code, then: Then::Shown };
                batch.add(item, caller, report).await?;
            }
            Err(skipped) => skip(&skipped, report),
        }
        bar.set(all.saturating_sub(folder.remaining() as u64));
    }
    batch.publish(caller, report).await
}

/// As [`import_rethink`], and what is shown afterwards is what the folder has.
async fn import_replacing(
    caller: &mut Caller,
    mut folder: Folder,
    report: &mut Report,
) -> Result<(), Failure> {
    let all = folder.remaining() as u64;
    let bar = Progress::of_things("import", all);
    let (mut batch, mut kept) = (Batch::default(), BTreeSet::new());
    let mut newer: Vec<(Key, Vec<Version>)> = Vec::new();
    while let Some(found) = folder.next() {
        match found {
            Ok(found) => {
                let key = found.draft.key.clone();
                let yank = replace_one(caller, found, &mut batch, report).await?;
                kept.insert(key.clone());
                newer.push((key, yank));
            }
            Err(skipped) => skip(&skipped, report),
        }
        bar.set(all.saturating_sub(folder.remaining() as u64));
    }
    batch.publish(caller, report).await?;
    if kept.is_empty() {
        return Err(Failure::new(NO, "there is no object in the folder: nothing is taken back"));
    }
    if report.is_unsure() {
        output::note(
            "note: nothing is taken back, because something could not be read or published",
        );
        return Ok(());
    }
    for (key, versions) in newer {
        replace::yank(caller, &key, &versions, report).await?;
    }
    replace::yank_gone(caller, &kept, report).await
}

/// Publishes what the folder has, or gives it back; returns the versions that are newer.
async fn replace_one(
    caller: &mut Caller,
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
    match (plan.publish, plan.give_back) {
        (Some(version), _) => {
            let then = if version == draft.version { Then::Shown } else { Then::Replaces };
            draft.version = version;
            if report.dry_run {
                report.would_publish();
                if then == Then::Replaces {
                    report.replace(format!("{}@{}", draft.key, draft.version));
                }
            } else {
                batch.add(Item { place: folder, draft, code, then }, caller, report).await?;
            }
        }
        (None, Some(version)) => {
            if !report.dry_run {
                caller.yank(&draft.key, &version, false).await?;
            }
            report.replace(format!("{}@{version}", draft.key));
        }
        (None, None) => report.there(),
    }
    Ok(plan.yank)
}

async fn import_exported(
    caller: &mut Caller,
    contents: &Contents,
    report: &mut Report,
) -> Result<(), Failure> {
    let bar = Progress::of_things("import", contents.count() as u64);
    let mut batch = Batch::default();
    // `export` wrote all of it: what cannot be read is damaged.
    contents.skipped.iter().for_each(|text| report.lack(text));
    for (done, read) in (1..).zip(contents.read()) {
        match read {
            Ok(ready) if report.dry_run => {
                compare(caller, &named(&ready.draft), &ready.draft, report).await?;
            }
            Ok(Ready { draft, yanked, package: Some(path) }) if is_long(&draft) => {
                batch.publish(caller, report).await?;
                let mut file = File::open(&path).map_err(Failure::file("open", &path))?;
                let outcome = caller.publish(&draft, &mut file, |_| {}).await;
                settle(caller, report, &named(&draft), (&draft, then(yanked)), outcome).await?;
            }
            Ok(ready) => batch.add(Item::read(ready)?, caller, report).await?,
            Err(text) => report.lack(&text),
        }
        bar.set(done);
    }
    batch.publish(caller, report).await
}

/// Says what publishing `draft` would do.
async fn compare(
    caller: &mut Caller,
    place: &std::path::Path,
    draft: &Draft,
    report: &mut Report,
) -> Result<(), Failure> {
    match is_published(caller, draft).await? {
        None => report.would_publish(),
        Some(true) => report.there(),
        Some(false) => {
            report.conflict(place, draft, "that version is published with other content")
        }
    }
    Ok(())
}

/// Whether the version of `draft` is published, and as what `draft` is; `None` if there is none.
///
/// # Errors
/// [`Failure`] if the catalogue does not say.
pub async fn is_published(caller: &mut Caller, draft: &Draft) -> Result<Option<bool>, Failure> {
    let found = match caller.get(&draft.key, &draft.version.to_string()).await {
        Err(CallerError::Failed { cause: Cause::Unknown, .. }) => return Ok(None),
        found => found?,
    };
    Ok(Some(
        found.descriptor == draft.descriptor
            && found.package == draft.package
            && found.signatures == draft.signatures,
    ))
}

/// The original left it out, too. But a package that is missing is a fault of the folder, and a file that cannot be read
/// says nothing of what the original had.
fn skip(skipped: &Skipped, report: &mut Report) {
    let text = skipped.to_string();
    match &skipped.reason {
        Reason::Unfit(Unfit::NoPackage | Unfit::NoCode) => report.lack(&text),
        Reason::Io { .. } | Reason::TooLong(_) => report.fail(&text),
        _ => report.skip(&text),
    }
}
