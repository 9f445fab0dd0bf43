//! `levada catalogue import`: folders as the original's catalogue had them, and those that `export` wrote.

use std::fs::File;
use std::io::{self, Cursor};
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
    let mut count = Count::default();
    let mut batch = Batch::default();
    while let Some(found) = folder.next() {
        match found {
            Ok(found) => {
                if !batch.has_room(&found) {
                    batch.publish(caller, &mut count).await?;
                }
                batch.add(found);
            }
            Err(skipped) => count.skip(&skipped.to_string()),
        }
        bar.set(all.saturating_sub(folder.remaining() as u64));
    }
    batch.publish(caller, &mut count).await?;
    Ok(count)
}

/// What is published in one go.
#[derive(Default)]
struct Batch {
    folders: Vec<PathBuf>,
    /// With the code.
    drafts: Vec<(Draft, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    fn has_room(&self, found: &Found) -> bool {
        self.drafts.len() < MAX_TOGETHER && self.bytes + bytes(found) <= MAX_TOGETHER_BYTES
    }

    fn add(&mut self, found: Found) {
        self.bytes += bytes(&found);
        let Found { folder, draft, code } = found;
        self.folders.push(folder);
        self.drafts.push((draft, code));
    }

    /// Publishes all that is in it, and empties it.
    async fn publish(&mut self, caller: &mut Caller, count: &mut Count) -> Result<(), Failure> {
        let Self { folders, drafts, bytes } = std::mem::take(self);
        let outcomes = match &drafts[..] {
            [] => return Ok(()),
            // Too long for the company of others.
            [(draft, code)] if bytes > MAX_TOGETHER_BYTES => {
                vec![caller.publish(draft, &mut Cursor::new(code), |_| {}).await]
            }
            drafts => caller.publish_all(drafts).await?,
        };
        folders.iter().zip(outcomes).try_for_each(|(folder, outcome)| count.add(folder, outcome))
    }
}

/// How many bytes of a call and of packages an object takes.
fn bytes(found: &Found) -> usize {
    let about = found.draft.package.as_ref().map_or(0, |package| package.description.len());
    found.draft.descriptor.len() + about + found.code.len()
}

async fn import_exported(caller: &mut Caller, contents: &Contents) -> Result<Count, Failure> {
    let bar = Progress::of_things("import", contents.count() as u64);
    let mut count = Count::default();
    contents.skipped.iter().for_each(|text| count.skip(text));
    for (done, read) in (1..).zip(contents.read()) {
        match read {
            Ok(ready) => restore(caller, ready, &mut count).await?,
            Err(text) => count.skip(&text),
        }
        bar.set(done);
    }
    Ok(count)
}

/// Publishes a version, and takes it back if it was.
async fn restore(caller: &mut Caller, ready: Ready, count: &mut Count) -> Result<(), Failure> {
    let Ready { draft, yanked, package } = ready;
    let place = PathBuf::from(format!("{} {}", draft.key, draft.version));
    let outcome = match package {
        Some(path) => {
            let mut file = File::open(&path).map_err(Failure::file("open", &path))?;
            caller.publish(&draft, &mut file, |_| {}).await
        }
        None => caller.publish(&draft, &mut io::empty(), |_| {}).await,
    };
    let is_there = outcome.is_ok();
    count.add(&place, outcome)?;
    if yanked && is_there {
        caller.yank(&draft.key, &draft.version, true).await?;
    }
    Ok(())
}
