//! `levada catalogue get`: fetches the descriptor, and the package unless the local file has its
//! digest.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use levada_catalogue::model::{Package, Published, digest_text};
use levada_core::{Hasher, Identity};
use levada_home::Home;
use levada_services::catalogue::CatalogueClient;
use levada_swarm::content::open_own;
use serde_json::Value;

use super::at::At;
use super::connection::CatalogueConnection;
use super::files::{check_target, digest, partial_name};
use super::object::{Wanted, describe};
use super::swarm::{self, Peers, Transfer};
use super::web::{self, WebCatalogue};
use crate::failure::{Failure, LOCAL, NO, Outcome, PROTOCOL};
use crate::identity::{IdentityOrName, identities};
use crate::output::{self, plain};
use crate::progress::Progress;

/// Print an object's descriptor, and fetch its package if it has changed
///
/// Every signature on it is verified. An interrupted download is resumed. A package of 1 MiB or
/// more comes from nodes that provide it, if there are any. Of several nodes of a catalogue (--at
/// a/catalogue,b/catalogue) one is read, and the next one if it fails or does not have the version.
/// Exit codes: 1 if there is no such version, 121 if a signature is missing or invalid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue get hyperty/Connector
  levada catalogue get hyperty/Connector@^1.2 --package connector.js --at hub/catalogue
  levada catalogue get hyperty/Connector@1.2.0 --at hub1/catalogue,hub2/catalogue,hub3/catalogue
  levada catalogue get runtime/Browser --from https://catalogue.example --package browser.js
  levada catalogue get runtime/Browser --from http://192.0.2.7:5383
  levada catalogue get runtime/Browser --signed-by lv… --json")]
pub struct Get {
    /// The object, optionally with a version or a range such as ^1.2; the newest version if not
    /// given
    #[arg(value_name = "TYPE/NAME[@VERSION]")]
    object: Wanted,

    /// The file for the package; left unchanged if it already has this content
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,

    /// An identity that must have signed it, or its name here
    #[arg(long, value_name = "IDENTITY")]
    signed_by: Vec<IdentityOrName>,

    /// Print one JSON object with the descriptor and its record in the catalogue
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    web: web::Options,

    #[command(flatten)]
    at: At,
}

/// The catalogue that versions and packages are fetched from.
pub enum Origin<'a> {
    /// A connection of the catalogue's protocol.
    Client(&'a mut CatalogueClient),
    /// HTTP.
    Web(&'a WebCatalogue),
}

pub async fn get(arguments: Get) -> Outcome {
    if let Some(path) = &arguments.package {
        check_target(path)?;
    }
    let (found, transfer) = match arguments.web.open()? {
        Some(web) => find(&arguments, &mut Origin::Web(&web), None).await?,
        None => {
            let find = async |connection: &mut CatalogueConnection| {
                let peers = match connection.remote() {
                    Some((client, node)) => {
                        let provide = swarm::provides(&Home::open()?)?;
                        Some(Peers { client, node, provide })
                    }
                    None => None,
                };
                let mut origin = Origin::Client(&mut connection.caller);
                find(&arguments, &mut origin, peers.as_ref()).await
            };
            arguments.at.run(find).await?
        }
    };
    if found.yanked {
        output::note("note: this version is yanked");
    }
    if !arguments.json {
        return output::document(&found.descriptor);
    }
    let mut shown = describe(&found);
    if let Some(transfer) = transfer {
        shown["transfer"] = transfer.to_json();
    }
    // It is a JSON object: the descriptor was checked against the model.
    shown["descriptor"] = serde_json::from_slice(&found.descriptor).unwrap_or(Value::Null);
    output::json(shown)?;
    Ok(0)
}

impl Origin<'_> {
    /// The version, and whether its package is offered through the swarm.
    async fn get(&mut self, wanted: &Wanted) -> Result<(Published, bool), Failure> {
        match self {
            Self::Client(caller) => Ok(caller.find(&wanted.key, &wanted.version).await?),
            Self::Web(web) => Ok((web.get(wanted)?, false)),
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
            Self::Client(caller) => Ok(caller.fetch(found, offset, target, progress).await?),
            Self::Web(web) => web.fetch(package, offset, target, &mut progress),
        }
    }
}

async fn find(
    arguments: &Get,
    origin: &mut Origin<'_>,
    peers: Option<&Peers>,
) -> Result<(Published, Option<Transfer>), Failure> {
    let home = Home::open()?;
    let signers = identities(&home, &arguments.signed_by).await?;
    let (found, is_offered) = origin.get(&arguments.object).await?;
    if !arguments.object.allows(&found.version) {
        let text = format!("protocol: the catalogue answered with version {}", found.version);
        return Err(Failure::new(PROTOCOL, text));
    }
    check_signatures(&found, &signers)?;
    let Some(path) = &arguments.package else { return Ok((found, None)) };
    let peers = peers.filter(|_| is_offered);
    let transfer = fetch_from_any(origin, peers, &found, path).await?;
    if transfer.is_none() {
        output::note(format_args!("{} has not changed", path.display()));
    }
    if let (Some(true), Some(at), Some(package)) =
        (peers.map(|peers| peers.provide), arguments.at.services(), &found.package)
    {
        swarm::hand_over(&home, &at, (&found, package), path).await;
    }
    Ok((found, transfer))
}

/// Writes the package of `found` to `path`: from nodes that provide it if there are any, otherwise
/// from the catalogue itself. `None` if the file already has this content.
async fn fetch_from_any(
    origin: &mut Origin<'_>,
    peers: Option<&Peers>,
    found: &Published,
    path: &Path,
) -> Result<Option<Transfer>, Failure> {
    if let (Some(peers), Origin::Client(caller), Some(package)) = (peers, &mut *origin, &found.package)
        && !has_content(path, package)?
        // A download from the catalogue that was interrupted goes on.
        && !partial_path(path, package).exists()
        && let Some(transfer) = swarm::fetch(peers, caller, (found, package), path).await
    {
        return Ok(Some(transfer));
    }
    let is_new = fetch(origin, found, path).await?;
    let package = found.package.as_ref().filter(|_| is_new);
    Ok(package.map(|package| {
        swarm::discard(path, package);
        Transfer::of_catalogue(package.length)
    }))
}

/// Verifies every signature, and that each of `signers` has signed.
pub fn check_signatures(found: &Published, signers: &[Identity]) -> Result<(), Failure> {
    let digest = found.signed_digest();
    for one in &found.signatures {
        if one.verify(&digest).is_err() {
            let text = format!("denied: the signature of {} is invalid", one.identity);
            return Err(Failure::denied(text));
        }
    }
    let missing =
        signers.iter().find(|signer| !found.signatures.iter().any(|one| one.identity == **signer));
    match missing {
        Some(signer) => Err(Failure::denied(format!("denied: {signer} has not signed it"))),
        None => Ok(()),
    }
}

/// Writes the package of `found` to `path`; false if the file already has this content.
pub async fn fetch(
    origin: &mut Origin<'_>,
    found: &Published,
    path: &Path,
) -> Result<bool, Failure> {
    let Some(package) = &found.package else {
        let object = plain(&found.key.to_string());
        let version = &found.version;
        return Err(Failure::new(NO, format!("{object} {version} has no package")));
    };
    if has_content(path, package)? {
        return Ok(false);
    }
    let part = partial_path(path, package);
    let mut target = Target::open(&part, package.length)?;
    {
        let bar = Progress::of_bytes(found.key.name.as_str(), package.length);
        origin.fetch(found, package, &mut target, |at| bar.set(at)).await?;
    }
    let digest = target.finish().map_err(Failure::file("write", &part))?;
    if digest != package.digest {
        // The next download must not resume this one.
        let _ = fs::remove_file(&part);
        let text =
            format!("protocol: the received package has the digest {}", digest_text(&digest));
        // The package of another node is verified in the same way.
        return Err(Failure::new(PROTOCOL, text).of_node());
    }
    fs::rename(&part, path).map_err(Failure::file("write", path))?;
    Ok(true)
}

fn has_content(path: &Path, package: &Package) -> Result<bool, Failure> {
    check_target(path)?;
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

/// The file of an incomplete download.
fn partial_path(path: &Path, package: &Package) -> PathBuf {
    let mut name = partial_name(path, package);
    name.push(".part");
    name.into()
}

/// A file that is being written, and the digest of its content.
struct Target {
    file: File,
    hasher: Hasher,
    length: u64,
}

impl Target {
    /// Opens `path` to append to its content; starts again if that is longer than `max` bytes.
    fn open(path: &Path, max: u64) -> Result<Self, Failure> {
        let file =
            open_own(path).map_err(|error| Failure::new(LOCAL, plain(&error.to_string())))?;
        Self::resume(file, max).map_err(Failure::file("write", path))
    }

    fn resume(mut file: File, max: u64) -> io::Result<Self> {
        if file.metadata()?.len() > max {
            file.set_len(0)?;
        }
        let mut hasher = Hasher::default();
        let mut length = 0;
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
