//! Decrypts and unpacks a backup. Its content is not trusted: names and lengths are checked.

use std::fmt::Display;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use age::secrecy::SecretString;
use age::{DecryptError, Decryptor, scrypt};
use levada_catalogue::store::embedded::{BLOBS, DATABASE};
use levada_home::backup::{CATALOGUE, CONFIG};
use serde::Deserialize;

use super::{FILES, FORMAT, MANIFEST, Manifest};
use crate::failure::Failure;

const MAX_MANIFEST: u64 = 64 * 1024;
/// The largest scrypt work factor that is accepted: it bounds the time of opening a file.
const MAX_WORK: u8 = 22;

/// Writes the files of a backup into the empty `folder`.
///
/// # Errors
/// [`Failure`] 120 if the passphrase is wrong, or `input` is no backup that this build can read.
pub fn unpack(
    input: impl BufRead,
    passphrase: SecretString,
    folder: &Path,
) -> Result<Manifest, Failure> {
    let mut identity = scrypt::Identity::new(passphrase);
    identity.set_max_work_factor(MAX_WORK);
    let decryptor = Decryptor::new_buffered(input).map_err(|error| refuse(&error))?;
    if !decryptor.is_scrypt() {
        return Err(not_a_backup("it is not encrypted under a passphrase"));
    }
    let identities = std::iter::once(&identity as &dyn age::Identity);
    let mut plain = decryptor.decrypt(identities).map_err(|error| refuse(&error))?;
    let manifest = read_tar(&mut plain, |name| {
        let path = folder.join(name);
        let above = path.parent().unwrap_or(folder);
        DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        File::options().write(true).create_new(true).mode(0o600).open(path)
    })?;
    // The last chunk of an age file authenticates its end: a truncated file fails here.
    io::copy(&mut plain, &mut io::sink()).map_err(damaged)?;
    Ok(manifest)
}

fn refuse(error: &DecryptError) -> Failure {
    match error {
        DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => {
            Failure::local("the passphrase is wrong, or the backup is damaged")
        }
        DecryptError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Failure::local(format!("cannot read the backup: {error}"))
        }
        DecryptError::InvalidMac => damaged("its header was changed"),
        DecryptError::UnknownFormat => not_a_backup("its encryption format is unknown"),
        DecryptError::ExcessiveWork { .. } => not_a_backup("opening it would take too long"),
        _ => not_a_backup("it is not an age file"),
    }
}

fn not_a_backup(reason: impl Display) -> Failure {
    Failure::local(format!("not a backup of Levada: {reason}"))
}

fn damaged(reason: impl Display) -> Failure {
    Failure::local(format!("the backup is damaged: {reason}"))
}

/// Reads the archive: the manifest first, then only known names, each once.
pub(super) fn read_tar<W: Write>(
    input: impl Read,
    create: impl Fn(&str) -> io::Result<W>,
) -> Result<Manifest, Failure> {
    let mut archive = tar::Archive::new(input);
    // Raw: this archive has no long names and no extensions, and they must not be interpreted.
    let mut entries = archive.entries().map_err(damaged)?.raw(true);
    let first = entries.next().ok_or_else(|| not_a_backup("it is empty"))?;
    let manifest = read_manifest(first.map_err(damaged)?)?;
    let mut missing: Vec<(&str, u64)> = FILES.to_vec();
    for entry in entries {
        let mut entry = entry.map_err(damaged)?;
        let (name, most) = expected(&entry.path_bytes(), &mut missing)
            .filter(|_| entry.header().entry_type().is_file())
            .ok_or_else(|| not_a_backup("it contains an unknown entry"))?;
        if entry.size() > most {
            return Err(not_a_backup(format!("{name} in it is too long")));
        }
        let mut file = create(&name)
            .map_err(|error| Failure::local(format!("cannot unpack {name}: {error}")))?;
        io::copy(&mut entry, &mut file).map_err(damaged)?;
        file.flush().map_err(damaged)?;
    }
    match missing.iter().find(|(name, _)| *name != CONFIG) {
        Some((name, _)) => Err(not_a_backup(format!("{name} is missing in it"))),
        None => Ok(manifest),
    }
}

/// The name of an entry, and its maximum length in bytes.
fn expected(path: &[u8], missing: &mut Vec<(&str, u64)>) -> Option<(String, u64)> {
    let path = std::str::from_utf8(path).ok()?;
    if let Some(at) = missing.iter().position(|(name, _)| *name == path) {
        let (name, most) = missing.swap_remove(at);
        return Some((name.to_owned(), most));
    }
    is_of_catalogue(path).then(|| (path.to_owned(), u64::MAX))
}

/// The database of the catalogue, or a package: 2 hexadecimal digits, `/`, and 62 more.
fn is_of_catalogue(path: &str) -> bool {
    let Some(inside) = below(CATALOGUE, path) else { return false };
    let digits = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let blob = below(BLOBS, inside).and_then(|blob| blob.split_once('/'));
    inside == DATABASE || blob.is_some_and(|(shard, name)| digits(shard, 2) && digits(name, 62))
}

fn below<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn read_manifest(entry: tar::Entry<'_, impl Read>) -> Result<Manifest, Failure> {
    if entry.path_bytes() != MANIFEST.as_bytes() || !entry.header().entry_type().is_file() {
        return Err(not_a_backup("it does not begin with a manifest"));
    }
    let mut text = Vec::new();
    entry.take(MAX_MANIFEST).read_to_end(&mut text).map_err(damaged)?;
    // Newer formats may have other fields, so the version is read first.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(&text).map_err(not_a_backup)?;
    if format > FORMAT {
        return Err(Failure::local(format!(
            "the backup was made by a newer Levada (format {format}; this one reads up to {FORMAT}): \
             install that release first"
        )));
    }
    serde_json::from_slice(&text).map_err(not_a_backup)
}
