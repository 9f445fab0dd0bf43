//! `levada catalogue import`: folders as the original's catalogue had them, and those that `export` wrote.

use std::fs::File;
use std::io::{self, Cursor};
use std::path::PathBuf;

use clap::Args;
use levada_catalogue::model::Draft;
use levada_catalogue::original::{Folder, Found};
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{Caller, CallerError, Source};

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
    while let Some(found) = folder.next() {
        bar.set(all.saturating_sub(folder.remaining() as u64));
        match found {
            Ok(Found { folder, draft, code }) => {
                let mut code = Cursor::new(code);
                if let Some(text) = publish(caller, &draft, &mut code, &mut count).await? {
                    count.skip(&format!("{}: {text}", folder.display()));
                }
            }
            Err(skipped) => count.skip(&skipped.to_string()),
        }
    }
    Ok(count)
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
    let refused = match package {
        Some(path) => {
            let mut file = File::open(&path).map_err(Failure::file("open", &path))?;
            publish(caller, &draft, &mut file, count).await?
        }
        None => publish(caller, &draft, &mut io::empty(), count).await?,
    };
    match refused {
        Some(text) => count.skip(&format!("{} {}: {text}", draft.key, draft.version)),
        None if yanked => {
            caller.yank(&draft.key, &draft.version, true).await?;
        }
        None => {}
    }
    Ok(())
}

/// Publishes one version; why not, if it alone is to blame.
async fn publish(
    caller: &mut Caller,
    draft: &Draft,
    source: &mut dyn Source,
    count: &mut Count,
) -> Result<Option<String>, Failure> {
    match caller.publish(draft, source, |_| {}).await {
        Ok(changed) => {
            count.published += u64::from(changed.is_new);
            count.there += u64::from(!changed.is_new);
            Ok(None)
        }
        Err(CallerError::Failed { cause: Cause::Conflict | Cause::Invalid, text }) => {
            Ok(Some(text))
        }
        Err(error) => Err(error.into()),
    }
}
