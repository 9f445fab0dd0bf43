//! `levada catalogue import`: publishes folders of the reTHINK catalogue, those that `export`
//! wrote, and catalogues of one node.

mod batch;
mod compare;
#[cfg(feature = "rethink")]
mod replace;
mod report;
#[cfg_attr(not(feature = "rethink"), path = "import/without_rethink.rs")]
mod rethink;

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_services::catalogue::CatalogueClient;

use super::at::At;
use super::exported::{Contents, Ready};
use super::own_store::Missing;
use super::stored::Stored;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use batch::{Batch, Item, is_long, label, settle, then};
use compare::compare;
use report::Report;

pub use compare::is_published;

/// Publish the objects of a folder: one that `export` wrote, the folder of a catalogue, or one of
/// the reTHINK catalogue
///
/// The folder of a catalogue is one that no node uses: a node's own from the time before it shared
/// one with others, or from a backup. In a folder of the reTHINK catalogue,
/// TYPE/ANY/{description.json, sourcePackage.json, sourceCode…} is one object; objects that the
/// reTHINK catalogue ignored are skipped, and reported on standard error. Versions that are already
/// published stay unchanged, but for those that are yanked in the folder. Exit code 1 if a version
/// was not published: it exists with other content, or its package is missing.
#[derive(Debug, Args)]
#[command(after_help = rethink::EXAMPLES)]
pub struct Import {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    #[command(flatten)]
    rethink: rethink::Options,

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
    Rethink(rethink::Folder),
}

impl Input {
    fn open(folder: &Path, options: &rethink::Options) -> Result<Self, Failure> {
        let input = match (Contents::open(folder)?, Stored::open(folder)?) {
            (Some(contents), _) => Self::Exported(contents),
            (None, Some(stored)) => Self::Stored(stored),
            (None, None) => return rethink::open(folder).map(Self::Rethink),
        };
        options.refuse()?;
        Ok(input)
    }
}

pub async fn import(arguments: Import) -> Outcome {
    let input = Input::open(&arguments.folder, &arguments.rethink)?;
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
            rethink::import(caller, folder, arguments.rethink, &mut report).await
        }
    };
    connection.close().await;
    imported?;
    report.end(arguments.json)
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
