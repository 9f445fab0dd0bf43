//! `levada catalogue publish` and `yank`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{
    Draft, Key, Kind, MAX_DESCRIPTOR, MAX_PACKAGE_DESCRIPTION, ModelError, Package,
};
use levada_core::{Digest, Hasher};
use levada_node::home::Home;
use levada_services::catalogue::{Changed, Source};
use serde_json::json;

use super::link::At;
use super::object::Exact;
use super::progress::Progress;
use crate::failure::{Failure, Outcome, USAGE};
use crate::output::{self, plain};

/// How much of a file is read at a time, in bytes.
const PART: usize = 64 * 1024;

/// Publish a version of an object, signed with the key of this home
///
/// A version never changes: publishing the same again is no error, and another under its number is refused. An upload
/// to a running node that was cut off goes on where it stopped, if it is tried again within ten minutes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue publish hyperty/Connector@1.2.0 connector.json --package connector.js
  levada catalogue publish dataschema/Chat@1.0.0 chat.json --at hub/catalogue")]
pub struct Publish {
    /// Which object, and which version of it (Semantic Versioning)
    #[arg(value_name = "TYPE/NAME@VERSION")]
    object: Exact,

    /// The file with the descriptor, a JSON object; `-` for standard input
    #[arg(value_name = "DESCRIPTOR")]
    descriptor: PathBuf,

    /// The file with the code behind it
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,

    /// What the package is; guessed by the end of its name if not given
    #[arg(long, value_name = "TYPE/SUBTYPE", requires = "package")]
    media_type: Option<String>,

    /// A file with what is said of the package, a JSON object; if not given, its class name is the object's name
    #[arg(long, value_name = "FILE", requires = "package")]
    about: Option<PathBuf>,

    /// Do not sign it
    #[arg(long)]
    unsigned: bool,

    #[command(flatten)]
    at: At,
}

pub async fn publish(arguments: Publish) -> Outcome {
    let (draft, mut file) = draft(&arguments)?;
    let mut link = arguments.at.open().await?;
    let length = draft.package.as_ref().map_or(0, |package| package.length);
    let changed = {
        let bar = file.is_some().then(|| Progress::of_bytes(draft.key.name.as_str(), length));
        let progress = |at| bar.iter().for_each(|bar| bar.set(at));
        let mut nothing = io::empty();
        let source: &mut dyn Source = match &mut file {
            Some(file) => file,
            None => &mut nothing,
        };
        link.caller.publish(&draft, source, progress).await
    };
    link.close().await;
    let Changed { is_new, revision } = changed?;
    let (object, version) = (plain(&draft.key.to_string()), &draft.version);
    match is_new {
        true => output::note(format_args!("published {object}@{version}, revision {revision}")),
        false => {
            output::note(format_args!("{object}@{version} is published already, the very same"))
        }
    }
    Ok(0)
}

fn draft(arguments: &Publish) -> Result<(Draft, Option<File>), Failure> {
    let Exact { key, version } = arguments.object.clone();
    let descriptor = read(&arguments.descriptor, MAX_DESCRIPTOR)?;
    let (package, file) = match &arguments.package {
        Some(path) => {
            let (package, file) = package(arguments, &key, path)?;
            (Some(package), Some(file))
        }
        None => (None, None),
    };
    let mut draft = Draft { key, version, descriptor, package, signatures: Vec::new() };
    draft.check().map_err(|error| wrong(&arguments.descriptor, &error))?;
    if !arguments.unsigned {
        draft.sign(&Home::open()?.key()?);
    }
    Ok((draft, file))
}

fn package(arguments: &Publish, key: &Key, path: &Path) -> Result<(Package, File), Failure> {
    let mut file = File::open(path).map_err(Failure::file("open", path))?;
    let (digest, length) = digest(&mut file).map_err(Failure::file("read", path))?;
    let description = match &arguments.about {
        Some(about) => read(about, MAX_PACKAGE_DESCRIPTION)?,
        None => about(key),
    };
    let media_type = arguments.media_type.clone();
    let media_type = media_type.unwrap_or_else(|| media_type_of(path).to_owned());
    Ok((Package { digest, length, media_type, description }, file))
}

/// What the compatibility layer needs of a package.
fn about(key: &Key) -> Vec<u8> {
    match key.kind {
        Kind::Service => b"{}".to_vec(),
        _ => json!({ "sourceCodeClassname": key.name.as_str() }).to_string().into_bytes(),
    }
}

fn wrong(path: &Path, error: &ModelError) -> Failure {
    Failure::new(USAGE, format!("{}: {error}", path.display()))
}

/// The whole of a file that has at most `max` bytes.
pub fn read(path: &Path, max: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is more.
    let bound = max as u64 + 1;
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(bound).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(bound).read_to_end(&mut bytes)),
    };
    read.map_err(Failure::file("read", path))?;
    if bytes.len() > max {
        let text = format!("{}: it has more than {max} bytes", path.display());
        return Err(Failure::new(USAGE, text));
    }
    Ok(bytes)
}

/// SHA-256 and length of all that can be read.
pub fn digest(from: &mut impl Read) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut length, mut part) = (Hasher::default(), 0, vec![0; PART]);
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok((hasher.finish(), length)),
            Ok(read) => {
                hasher.update(&part[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn media_type_of(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()) {
        Some("js" | "mjs") => "text/javascript",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        Some("html" | "htm") => "text/html",
        Some("css") => "text/css",
        Some("svg") => "image/svg+xml",
        Some("xml") => "application/xml",
        Some("txt") => "text/plain",
        Some("md") => "text/markdown",
        Some("csv") => "text/csv",
        _ => "application/octet-stream",
    }
}

/// Take a published version back, so that nobody is pointed to it any more
///
/// It can still be fetched by its number, and given back by --undo.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue yank hyperty/Connector@1.2.0")]
pub struct Yank {
    /// Which version of which object
    #[arg(value_name = "TYPE/NAME@VERSION")]
    object: Exact,

    /// Give it back
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    at: At,
}

pub async fn yank(arguments: Yank) -> Outcome {
    let Exact { key, version } = &arguments.object;
    let mut link = arguments.at.open().await?;
    let changed = link.caller.yank(key, version, !arguments.undo).await;
    link.close().await;
    let object = plain(&key.to_string());
    match (changed?.is_new, arguments.undo) {
        (true, false) => output::note(format_args!("took {object}@{version} back")),
        (true, true) => output::note(format_args!("gave {object}@{version} back")),
        (false, _) => output::note(format_args!("{object}@{version} was so already")),
    }
    Ok(0)
}
