//! `levada catalogue get`: the descriptor first, and the package only if it is another than the one that is here.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{Package, Published, digest_text};
use levada_core::{Hasher, Identity};
use levada_node::home::Home;
use levada_services::catalogue::Caller;
use serde_json::Value;

use super::connection::At;
use super::object::{Wanted, describe};
use super::progress::Progress;
use super::publish::digest;
use super::web::{self, WebCatalogue};
use crate::failure::{Failure, NO, Outcome, PROTOCOL};
use crate::identity::{IdentityOrName, identities};
use crate::output::{self, plain};

/// How many digits of a digest tell apart the beginnings of packages.
const DIGITS: usize = 16;

/// Print an object's descriptor, and fetch its package if it has changed
///
/// Every signature on it is checked. A download that was cut off goes on where it stopped. Exit codes: 1 if there is
/// no such version, 121 if a signature is missing or wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue get hyperty/Connector
  levada catalogue get hyperty/Connector@^1.2 --package connector.js --at hub/catalogue
  levada catalogue get runtime/Browser --from https://catalogue.example --package browser.js
  levada catalogue get runtime/Browser --from http://192.0.2.7:5383
  levada catalogue get runtime/Browser --signed-by lv… --json")]
pub struct Get {
    /// Which object; behind an @ a version, or a range such as ^1.2; the newest if there is none
    #[arg(value_name = "TYPE/NAME[@VERSION]")]
    object: Wanted,

    /// Where the package goes; a file that has it already is left as it is
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,

    /// Who must have signed it: an identity, or a name that is known here
    #[arg(long, value_name = "IDENTITY")]
    signed_by: Vec<IdentityOrName>,

    /// Print one JSON object with the descriptor and what the catalogue says of it
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    web: web::Options,

    #[command(flatten)]
    at: At,
}

/// Where versions and packages come from.
pub enum Shelf<'a> {
    /// A conversation.
    Caller(&'a mut Caller),
    /// HTTP.
    Web(&'a WebCatalogue),
}

pub async fn get(arguments: Get) -> Outcome {
    let found = match arguments.web.open()? {
        Some(web) => find(&arguments, &mut Shelf::Web(&web)).await?,
        None => {
            let mut link = arguments.at.open().await?;
            let found = find(&arguments, &mut Shelf::Caller(&mut link.caller)).await;
            link.close().await;
            found?
        }
    };
    if found.yanked {
        output::note("note: this version was taken back");
    }
    if !arguments.json {
        return output::document(&found.descriptor);
    }
    let mut shown = describe(&found);
    // It is a JSON object: what came was held against the model.
    shown["descriptor"] = serde_json::from_slice(&found.descriptor).unwrap_or(Value::Null);
    output::json(shown)?;
    Ok(0)
}

impl Shelf<'_> {
    async fn get(&mut self, wanted: &Wanted) -> Result<Published, Failure> {
        match self {
            Self::Caller(caller) => Ok(caller.get(&wanted.key, &wanted.version).await?),
            Self::Web(web) => web.get(wanted),
        }
    }

    async fn fetch(
        &mut self,
        found: &Published,
        package: &Package,
        target: &mut Target,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<(), Failure> {
        let offset = target.length;
        match self {
            Self::Caller(caller) => Ok(caller.fetch(found, offset, target, progress).await?),
            Self::Web(web) => web.fetch(package, offset, target, &mut progress),
        }
    }
}

async fn find(arguments: &Get, shelf: &mut Shelf<'_>) -> Result<Published, Failure> {
    let signers = identities(&Home::open()?, &arguments.signed_by)?;
    let found = shelf.get(&arguments.object).await?;
    if !arguments.object.allows(&found.version) {
        let text = format!("protocol: the catalogue answered with version {}", found.version);
        return Err(Failure::new(PROTOCOL, text));
    }
    check_signatures(&found, &signers)?;
    if let Some(path) = &arguments.package
        && !fetch(shelf, &found, path).await?
    {
        output::note(format_args!("{} has not changed", path.display()));
    }
    Ok(found)
}

/// Every signature holds, and nobody's is missing.
pub fn check_signatures(found: &Published, signers: &[Identity]) -> Result<(), Failure> {
    let digest = found.signed_digest();
    for one in &found.signatures {
        if one.verify(&digest).is_err() {
            let text = format!("denied: the signature of {} does not hold", one.identity);
            return Err(Failure::denied(text));
        }
    }
    let missing =
        signers.iter().find(|who| !found.signatures.iter().any(|one| one.identity == **who));
    match missing {
        Some(who) => Err(Failure::denied(format!("denied: {who} has not signed it"))),
        None => Ok(()),
    }
}

/// Puts the package of `found` to `path`; false if it is there already.
pub async fn fetch(shelf: &mut Shelf<'_>, found: &Published, path: &Path) -> Result<bool, Failure> {
    let Some(package) = &found.package else {
        let (object, version) = (plain(&found.key.to_string()), &found.version);
        return Err(Failure::new(NO, format!("{object} {version} has no package")));
    };
    if is_there(path, package)? {
        return Ok(false);
    }
    let part = beginning(path, package);
    let mut target = Target::open(&part, package.length).map_err(Failure::file("write", &part))?;
    {
        let bar = Progress::of_bytes(found.key.name.as_str(), package.length);
        shelf.fetch(found, package, &mut target, |at| bar.set(at)).await?;
    }
    let digest = target.finish().map_err(Failure::file("write", &part))?;
    if digest != package.digest {
        // The next one begins anew.
        let _ = fs::remove_file(&part);
        let text = format!("protocol: what came has the digest {}", digest_text(&digest));
        return Err(Failure::new(PROTOCOL, text));
    }
    fs::rename(&part, path).map_err(Failure::file("write", path))?;
    Ok(true)
}

fn is_there(path: &Path, package: &Package) -> Result<bool, Failure> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Failure::file("read", path)(error)),
    };
    let length = file.metadata().map_err(Failure::file("read", path))?.len();
    if length != package.length {
        return Ok(false);
    }
    Ok(digest(&mut file).map_err(Failure::file("read", path))?.0 == package.digest)
}

/// Where a download goes before it is whole. Its name says of which package it is, so that no other goes on there.
fn beginning(path: &Path, package: &Package) -> PathBuf {
    let text = digest_text(&package.digest);
    let digits = text.rsplit(':').next().and_then(|text| text.get(..DIGITS)).unwrap_or_default();
    let mut name = OsString::from(path);
    name.push(format!(".{digits}.part"));
    name.into()
}

/// A file that is being written, with the digest of what is in it.
struct Target {
    file: File,
    hasher: Hasher,
    length: u64,
}

impl Target {
    /// Goes on behind what is there already, if that is no more than `max` bytes.
    fn open(path: &Path, max: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() > max {
            file.set_len(0)?;
        }
        let (mut hasher, mut length) = (Hasher::default(), 0);
        let mut part = vec![0; 64 * 1024];
        loop {
            let read = io::Read::read(&mut file, &mut part)?;
            if read == 0 {
                break;
            }
            hasher.update(&part[..read]);
            length += read as u64;
        }
        file.seek(SeekFrom::Start(length))?;
        Ok(Self { file, hasher, length })
    }

    fn finish(self) -> io::Result<levada_core::Digest> {
        self.file.sync_all()?;
        Ok(self.hasher.finish())
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
