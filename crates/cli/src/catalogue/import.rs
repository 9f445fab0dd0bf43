//! `levada catalogue import`: folders as the original's catalogue had them, and those that `export` wrote.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::Draft;
use levada_catalogue::original::{Folder, Found};
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{Caller, CallerError, Changed, MAX_TOGETHER, MAX_TOGETHER_BYTES};

use super::exported::{Contents, Ready};
use super::link::At;
use super::progress::Progress;
use crate::failure::{Failure, Outcome};
use crate::output::{self, plain};

/// Publish the objects of a folder: one that `export` wrote, or one as the original catalogue had it
///
/// In the latter, TYPE/ANY/{description.json, sourcePackage.json, sourceCode…} is one object. What cannot be taken is
/// left out and reported on standard error; the exit code is 0 all the same. What is published already is no change.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue import /srv/rethink/catalogue_objects")]
pub struct Import {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    #[command(flatten)]
    at: At,
}

/// How an import went.
#[derive(Default)]
struct Count {
    published: u64,
    there: u64,
    skipped: u64,
}

impl Count {
    /// Counts one that is published, or not if it alone is to blame.
    fn add(&mut self, folder: &Path, outcome: Result<Changed, CallerError>) -> Result<(), Failure> {
        match outcome {
            Ok(Changed { is_new: true, .. }) => self.published += 1,
            Ok(Changed { is_new: false, .. }) => self.there += 1,
            Err(CallerError::Failed { cause: Cause::Conflict | Cause::Invalid, text }) => {
                self.skip(&format!("{}: {text}", folder.display()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn skip(&mut self, text: &str) {
        self.skipped += 1;
        output::note(format_args!("skipped {}", plain(text)));
    }
}

/// What is read.
enum Input {
    Exported(Contents),
    Original(Folder),
}

pub async fn import(arguments: Import) -> Outcome {
    let input = match Contents::open(&arguments.folder)? {
        Some(contents) => Input::Exported(contents),
        None => Input::Original(Folder::open(&arguments.folder).map_err(Failure::local)?),
    };
    let mut link = arguments.at.open().await?;
    let counted = match input {
        Input::Exported(contents) => import_exported(&mut link.caller, &contents).await,
        Input::Original(folder) => import_original(&mut link.caller, folder).await,
    };
    link.close().await;
    let Count { published, there, skipped } = counted?;
    output::note(format_args!("published {published}, there already {there}, skipped {skipped}"));
    Ok(0)
}

async fn import_original(caller: &mut Caller, mut folder: Folder) -> Result<Count, Failure> {
    let all = folder.remaining() as u64;
    let bar = Progress::of_things("import", all);
    let (mut count, mut batch) = (Count::default(), Batch::default());
    while let Some(found) = folder.next() {
        match found {
            Ok(Found { folder, draft, code }) => {
                let item = Item { place: folder, draft, code, yanked: false };
                batch.add(item, caller, &mut count).await?;
            }
            Err(skipped) => count.skip(&skipped.to_string()),
        }
        bar.set(all.saturating_sub(folder.remaining() as u64));
    }
    batch.publish(caller, &mut count).await?;
    Ok(count)
}

async fn import_exported(caller: &mut Caller, contents: &Contents) -> Result<Count, Failure> {
    let bar = Progress::of_things("import", contents.count() as u64);
    let (mut count, mut batch) = (Count::default(), Batch::default());
    contents.skipped.iter().for_each(|text| count.skip(text));
    for (done, read) in (1..).zip(contents.read()) {
        match read {
            Ok(Ready { draft, yanked, package: Some(path) }) if is_long(&draft) => {
                batch.publish(caller, &mut count).await?;
                let mut file = File::open(&path).map_err(Failure::file("open", &path))?;
                let outcome = caller.publish(&draft, &mut file, |_| {}).await;
                settle(caller, &mut count, &named(&draft), (&draft, yanked), outcome).await?;
            }
            Ok(ready) => batch.add(Item::read(ready)?, caller, &mut count).await?,
            Err(text) => count.skip(&text),
        }
        bar.set(done);
    }
    batch.publish(caller, &mut count).await?;
    Ok(count)
}

/// What a version is called where something is said of it.
fn named(draft: &Draft) -> PathBuf {
    PathBuf::from(format!("{} {}", draft.key, draft.version))
}

/// Whether its package is too long to be kept in memory.
fn is_long(draft: &Draft) -> bool {
    draft.package.as_ref().is_some_and(|package| package.length > MAX_TOGETHER_BYTES as u64)
}

/// A version that was read whole.
struct Item {
    /// Where it is from.
    place: PathBuf,
    draft: Draft,
    /// Its package.
    code: Vec<u8>,
    /// It is taken back when it is published.
    yanked: bool,
}

impl Item {
    fn read(Ready { draft, yanked, package }: Ready) -> Result<Self, Failure> {
        let code = match package {
            Some(path) => fs::read(&path).map_err(Failure::file("read", &path))?,
            None => Vec::new(),
        };
        Ok(Self { place: named(&draft), draft, code, yanked })
    }

    /// How many bytes of a call and of packages it takes.
    fn bytes(&self) -> usize {
        let about = self.draft.package.as_ref().map_or(0, |package| package.description.len());
        self.draft.descriptor.len() + about + self.code.len()
    }
}

/// What is published in one go: the disk takes as long for all of it as for one.
#[derive(Default)]
struct Batch {
    /// Where they are from, and whether they are taken back.
    places: Vec<(PathBuf, bool)>,
    /// With their packages.
    drafts: Vec<(Draft, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    /// Adds one, and publishes what was there if there is no room. One that is taken back is the last of its batch: it is
    /// shown for a moment only, and nothing is published between the two that was not when it was exported.
    async fn add(
        &mut self,
        item: Item,
        caller: &mut Caller,
        count: &mut Count,
    ) -> Result<(), Failure> {
        let bytes = item.bytes();
        if self.drafts.len() >= MAX_TOGETHER || self.bytes + bytes > MAX_TOGETHER_BYTES {
            self.publish(caller, count).await?;
        }
        self.bytes += bytes;
        self.places.push((item.place, item.yanked));
        self.drafts.push((item.draft, item.code));
        if item.yanked { self.publish(caller, count).await } else { Ok(()) }
    }

    /// Publishes all that is in it, and empties it.
    async fn publish(&mut self, caller: &mut Caller, count: &mut Count) -> Result<(), Failure> {
        let Self { places, drafts, bytes } = std::mem::take(self);
        let outcomes = match &drafts[..] {
            [] => return Ok(()),
            // Too long for the company of others.
            [(draft, code)] if bytes > MAX_TOGETHER_BYTES => {
                vec![caller.publish(draft, &mut Cursor::new(code), |_| {}).await]
            }
            drafts => caller.publish_all(drafts).await?,
        };
        // All of them were tried: what went wrong with one is said when the others are done with.
        let mut all = Ok(());
        for (((place, yanked), (draft, _)), outcome) in places.iter().zip(&drafts).zip(outcomes) {
            let settled = settle(caller, count, place, (draft, *yanked), outcome).await;
            all = all.and(settled);
        }
        all
    }
}

/// Counts a version, and takes it back if it was.
async fn settle(
    caller: &mut Caller,
    count: &mut Count,
    place: &Path,
    (draft, yanked): (&Draft, bool),
    outcome: Result<Changed, CallerError>,
) -> Result<(), Failure> {
    let is_there = outcome.is_ok();
    count.add(place, outcome)?;
    if yanked && is_there {
        caller.yank(&draft.key, &draft.version, true).await?;
    }
    Ok(())
}
