//! `levada catalogue publish` and `yank`.

#[cfg_attr(not(feature = "rethink"), path = "publish/without_rethink.rs")]
mod rethink;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{
    Draft, Key, MAX_DESCRIPTOR, MAX_PACKAGE_DESCRIPTION, ModelError, Package, digest_text,
};
use levada_home::Home;
use levada_services::catalogue::{ChangeOutcome, Source};
use serde_json::{Value, json};

use super::at::At;
use super::connection::CatalogueConnection;
use super::files::{digest, read};
use super::import::is_published;
use super::object::Exact;
use super::own_store::Missing;
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output::{self, plain};
use crate::progress::Progress;

/// Publish a version of an object, signed with the key of this home
///
/// Versions are immutable: publishing identical content again succeeds, and other content under the
/// same version is refused. An interrupted upload to a running node is resumed if it is repeated
/// within ten minutes. A version of a type of reTHINK (all but `package` and `service`) that cannot
/// be shown as a whole to its clients under /.well-known/ is published with a warning. If a node of several (--at) fails, it is published at
/// the next one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue publish package/backup@1.2.0 backup.json --package backup.tar.gz
  levada catalogue publish hyperty/Connector@1.2.0 connector.json --package connector.js
  levada catalogue publish dataschema/Chat@1.0.0 chat.json --at hub/catalogue --dry-run")]
pub struct Publish {
    /// The object, and its version (Semantic Versioning)
    #[arg(value_name = "TYPE/NAME@VERSION")]
    object: Exact,

    /// The file with the descriptor, a JSON object; `-` for standard input
    #[arg(value_name = "DESCRIPTOR")]
    descriptor: PathBuf,

    /// The file with the code behind it
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,

    /// The media type of the package; guessed from the file's extension if not given
    #[arg(long, value_name = "TYPE/SUBTYPE", requires = "package")]
    media_type: Option<String>,

    /// A file with the description of the package, a JSON object; if not given, only the object's
    /// name as its class name
    #[arg(long, value_name = "FILE", requires = "package")]
    about: Option<PathBuf>,

    /// Do not sign it
    #[arg(long)]
    unsigned: bool,

    /// Change nothing, and print what would change. Exit code 1 if the version is published with
    /// other content
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn publish(arguments: Publish) -> Outcome {
    let (draft, mut file) = draft(&arguments)?;
    let warning = rethink::problem(&draft);
    if let Some(warning) = &warning {
        output::note(format_args!(
            "warning: /.well-known/ will not show all of it: {}",
            plain(warning)
        ));
    }
    if arguments.dry_run {
        let find = async |connection: &mut CatalogueConnection| {
            is_published(&mut connection.caller, &draft).await
        };
        let found = arguments.at.nodes().await?.with_missing(Missing::Substitute).run(find).await?;
        return print_dry_run(&draft, found, warning, arguments.json);
    }
    let length = draft.package.as_ref().map_or(0, |package| package.length);
    // Safe to repeat at another node: a version is published once.
    let publish = async |connection: &mut CatalogueConnection| {
        let bar = file.is_some().then(|| Progress::of_bytes(draft.key.name.as_str(), length));
        let progress = |at| bar.iter().for_each(|bar| bar.set(at));
        let mut nothing = io::empty();
        let source: &mut dyn Source = match &mut file {
            Some(file) => file,
            None => &mut nothing,
        };
        Ok(connection.caller.publish(&draft, source, progress).await?)
    };
    let ChangeOutcome { is_new, revision } =
        arguments.at.nodes().await?.with_missing(Missing::Create).run(publish).await?;
    let object = plain(&draft.key.to_string());
    let version = &draft.version;
    match is_new {
        true => output::note(format_args!("published {object}@{version}, revision {revision}")),
        false => output::note(format_args!(
            "{object}@{version} is already published, with identical content"
        )),
    }
    if arguments.json {
        let mut shown = describe_draft(&draft, warning);
        shown["changed"] = is_new.into();
        shown["revision"] = revision.into();
        output::json(shown)?;
    }
    Ok(0)
}

/// Prints what would change. `found` says whether the version exists, and whether its content is
/// identical.
fn print_dry_run(
    draft: &Draft,
    found: Option<bool>,
    warning: Option<String>,
    is_json: bool,
) -> Outcome {
    let object = plain(&draft.key.to_string());
    let version = &draft.version;
    output::note(match found {
        None => format!("would publish {object}@{version}"),
        Some(true) => format!("{object}@{version} is already published, with identical content"),
        Some(false) => format!("{object}@{version} is already published, with other content"),
    });
    if is_json {
        let mut shown = describe_draft(draft, warning);
        shown["dry_run"] = true.into();
        shown["changed"] = found.is_none().into();
        shown["conflict"] = (found == Some(false)).into();
        output::json(shown)?;
    }
    Ok(if found == Some(false) { NO } else { 0 })
}

fn describe_draft(draft: &Draft, warning: Option<String>) -> Value {
    let package = draft.package.as_ref().map(super::object::describe_package);
    let signers = draft.signatures.iter().map(|one| one.identity.to_string());
    json!({
        "object": draft.key.to_string(),
        "version": draft.version.to_string(),
        "digest": digest_text(&draft.digest()),
        "package": package,
        "signed_by": signers.collect::<Vec<_>>(),
        "dry_run": false,
        "warnings": warning.into_iter().collect::<Vec<_>>(),
    })
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
    draft.check().map_err(|error| invalid(&arguments.descriptor, &error))?;
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

/// The default description of a package, with the class name that reTHINK clients need.
fn about(key: &Key) -> Vec<u8> {
    match key.kind.is_rethink() {
        true => json!({ "sourceCodeClassname": key.name.as_str() }).to_string().into_bytes(),
        false => b"{}".to_vec(),
    }
}

fn invalid(path: &Path, error: &ModelError) -> Failure {
    Failure::new(USAGE, format!("{}: {error}", path.display()))
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

/// Yank a version: it is no longer found as the newest, or by a range
///
/// It can still be fetched by its exact version. --undo reverts it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue yank hyperty/Connector@1.2.0")]
pub struct Yank {
    /// The object and its version
    #[arg(value_name = "TYPE/NAME@VERSION")]
    object: Exact,

    /// Revert an earlier yank
    #[arg(long)]
    undo: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn yank(arguments: Yank) -> Outcome {
    let Exact { key, version } = &arguments.object;
    let mut connection = arguments.at.open().await?;
    let changed = connection.caller.yank(key, version, !arguments.undo).await;
    connection.close().await;
    let ChangeOutcome { is_new, revision } = changed?;
    let object = plain(&key.to_string());
    match (is_new, arguments.undo) {
        (true, false) => output::note(format_args!("yanked {object}@{version}")),
        (true, true) => output::note(format_args!("restored {object}@{version}")),
        (false, false) => output::note(format_args!("{object}@{version} is already yanked")),
        (false, true) => output::note(format_args!("{object}@{version} is not yanked")),
    }
    if arguments.json {
        output::json(json!({
            "object": key.to_string(),
            "version": version.to_string(),
            "yanked": !arguments.undo,
            "changed": is_new,
            "revision": revision,
        }))?;
    }
    Ok(0)
}
