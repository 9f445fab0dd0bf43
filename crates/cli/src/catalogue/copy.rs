//! `levada catalogue import` and `export`: folders as the original's catalogue had them.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{Draft, Key, Package, Published};
use levada_catalogue::original::{Folder, Found};
use levada_core::wire::catalogue::{Cause, Detail};
use levada_services::catalogue::{
    Caller, CallerError, Changed, Item, MAX_TOGETHER, MAX_TOGETHER_BYTES,
};

use super::get::{Shelf, fetch};
use super::link::{At, Link};
use super::progress::Progress;
use crate::failure::{Failure, Outcome};
use crate::output::{self, plain};

/// The media type of code that stood in `sourceCode` itself.
const INLINE: &str = "text/plain;charset=utf-8";

/// Publish the objects of a folder, as the original catalogue had it
///
/// TYPE/ANY/{description.json, sourcePackage.json, sourceCode…} is one object. What cannot be taken is left out and
/// reported on standard error; the exit code is 0 all the same. What is published already is no change.
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

pub async fn import(arguments: Import) -> Outcome {
    let folder = Folder::open(&arguments.folder).map_err(Failure::local)?;
    let mut link = arguments.at.open().await?;
    let counted = import_all(&mut link.caller, folder).await;
    link.close().await;
    let Count { published, there, skipped } = counted?;
    output::note(format_args!("published {published}, there already {there}, skipped {skipped}"));
    Ok(0)
}

async fn import_all(caller: &mut Caller, mut folder: Folder) -> Result<Count, Failure> {
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

/// Write the newest versions with their packages to a folder, as the original catalogue had it
///
/// `import` reads it again. Older versions and signatures are not in it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue export /srv/export")]
pub struct Export {
    /// The folder, which must be empty or not exist yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    #[command(flatten)]
    at: At,
}

pub async fn export(arguments: Export) -> Outcome {
    make_empty(&arguments.folder)?;
    let mut link = arguments.at.open().await?;
    let written = export_all(&mut link, &arguments.folder).await;
    link.close().await;
    output::note(format_args!("wrote {} objects", written?));
    Ok(0)
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

async fn export_all(link: &mut Link, folder: &Path) -> Result<u64, Failure> {
    let mut keys: Vec<Key> = Vec::new();
    let each = |item: Item| {
        keys.extend(item.newest.map(|_| item.key));
        Ok::<_, Failure>(())
    };
    link.caller.list(None, "", 0, Detail::Newest, each).await?;
    let bar = Progress::of_things("export", keys.len() as u64);
    let mut written = 0;
    for key in keys {
        match link.caller.get(&key, "").await {
            Ok(found) => write(&mut link.caller, &found, folder).await?,
            // Taken back meanwhile.
            Err(CallerError::Failed { cause: Cause::Unknown, .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        written += 1;
        bar.set(written);
    }
    Ok(written)
}

async fn write(caller: &mut Caller, found: &Published, folder: &Path) -> Result<(), Failure> {
    let place = folder.join(found.key.kind.as_str()).join(found.key.name.as_str());
    fs::create_dir_all(&place).map_err(Failure::file("make", &place))?;
    write_file(&place.join("description.json"), &found.descriptor)?;
    let Some(package) = &found.package else { return Ok(()) };
    let about = place.join("sourcePackage.json");
    let code = place.join(format!("sourceCode{}", ending(&package.media_type)));
    fetch(&mut Shelf::Caller(caller), found, &code).await?;
    if package.media_type == INLINE {
        // It stood in the description, and goes there again.
        let bytes = fs::read(&code).map_err(Failure::file("read", &code))?;
        if let Ok(text) = String::from_utf8(bytes) {
            write_file(&about, &with_code(package, &text))?;
            return fs::remove_file(&code).map_err(Failure::file("remove", &code));
        }
    }
    write_file(&about, &package.description)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(Failure::file("write", path))
}

/// The description with the code in it. It is written behind what is there, so that nothing of that changes.
fn with_code(package: &Package, code: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(&package.description);
    let inside = text.trim().trim_start_matches('{').trim_end();
    let inside = inside.strip_suffix('}').unwrap_or(inside).trim_end();
    let comma = if inside.trim().is_empty() { "" } else { "," };
    let code = serde_json::Value::from(code);
    format!("{{{inside}{comma}\"sourceCode\":{code}}}").into_bytes()
}

/// The end of the file's name, from which an import guesses the media type.
fn ending(media_type: &str) -> &'static str {
    match media_type {
        "text/javascript" => ".js",
        "application/json" => ".json",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_goes_behind_what_is_said_of_it() {
        let with = |description: &[u8]| {
            let package = Package {
                digest: [0; 32],
                length: 1,
                media_type: INLINE.into(),
                description: description.to_vec(),
            };
            String::from_utf8(with_code(&package, "a\"b\n")).unwrap()
        };
        assert_eq!(with(b"{}"), r#"{"sourceCode":"a\"b\n"}"#);
        assert_eq!(with(br#"{"v":1.10,"o":{}}"#), r#"{"v":1.10,"o":{},"sourceCode":"a\"b\n"}"#);
    }
}
