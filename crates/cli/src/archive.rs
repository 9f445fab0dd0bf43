//! A backup as one file: an `age` file under a passphrase (age-encryption.org/v1, scrypt), which holds
//! a tar archive. `age -d FILE | tar x` opens it without Levada.

use age::secrecy::SecretString;
use age::{DecryptError, Decryptor, Encryptor, scrypt};
use levada_core::UnixTime;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use tempfile::TempDir;

use crate::failure::Failure;
use levada_catalogue::store::embedded::{BLOBS, DATABASE};
use levada_node::adopt::{CATALOGUE, CONFIG, KEY, KNOWN_DB, NODE_DB};

/// The newest format that this build writes and reads. The first had no catalogue.
const FORMAT: u32 = 2;
const MANIFEST: &str = "manifest.json";
/// The files behind the manifest, and the most bytes that each may have. All but [`CONFIG`] are needed. The catalogue
/// may follow: its database, and its packages.
const FILES: [(&str, u64); 4] =
    [(KEY, 256), (CONFIG, 1024 * 1024), (NODE_DB, u64::MAX), (KNOWN_DB, u64::MAX)];
const MAX_MANIFEST: u64 = 64 * 1024;
/// scrypt with N = 2^18, r = 8: what `age` itself uses. Not measured on this machine, because the file
/// may be opened on another.
const WORK: u8 = 18;
const MAX_WORK: u8 = 22;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format.
    pub format: u32,
    /// The release that wrote it.
    pub levada: String,
    /// When, in seconds since 1970.
    pub created: u64,
    /// Whose backup it is.
    pub identity: String,
}

impl Manifest {
    /// For a backup of `identity` made `now`.
    pub fn new(identity: &impl Display, now: UnixTime) -> Self {
        Self {
            format: FORMAT,
            levada: env!("CARGO_PKG_VERSION").into(),
            created: now.0,
            identity: identity.to_string(),
        }
    }
}

/// Writes the files of `folder` to `output`, and the copy of the catalogue if there is one; [`CONFIG`] may be missing.
///
/// # Errors
/// [`Failure`] 120 if a file cannot be read or `output` written.
pub fn pack<W: Write>(
    folder: &Path,
    catalogue: Option<&Path>,
    manifest: &Manifest,
    passphrase: SecretString,
    output: W,
) -> Result<W, Failure> {
    let mut recipient = scrypt::Recipient::new(passphrase);
    recipient.set_work_factor(WORK);
    let recipients = std::iter::once(&recipient as &dyn age::Recipient);
    let encryptor = Encryptor::with_recipients(recipients).map_err(Failure::local)?;
    let mut tar = tar::Builder::new(encryptor.wrap_output(output).map_err(write)?);
    let text = serde_json::to_vec(manifest).map_err(Failure::local)?;
    append(&mut tar, MANIFEST, text.len() as u64, manifest.created, &*text).map_err(write)?;
    for (name, _) in FILES {
        let path = folder.join(name);
        if name != CONFIG || path.exists() {
            append_file(&mut tar, name, &path, manifest.created)?;
        }
    }
    if let Some(catalogue) = catalogue {
        append_catalogue(&mut tar, catalogue, manifest.created)?;
    }
    tar.into_inner().and_then(|encrypted| encrypted.finish()).map_err(write)
}

/// A temporary folder in `above`, which must be on a file system that the node can write, too.
///
/// # Errors
/// [`Failure`] 120 if it cannot be made.
pub fn working_folder(above: &Path, prefix: &str) -> Result<TempDir, Failure> {
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(above)
        .map_err(Failure::file("make a folder in", above))
}

fn write(error: io::Error) -> Failure {
    Failure::local(format!("cannot write the backup: {error}"))
}

fn append_catalogue(
    tar: &mut tar::Builder<impl Write>,
    folder: &Path,
    time: u64,
) -> Result<(), Failure> {
    append_file(tar, &format!("{CATALOGUE}/{DATABASE}"), &folder.join(DATABASE), time)?;
    let blobs = folder.join(BLOBS);
    for shard in names(&blobs)? {
        let shard_folder = blobs.join(&shard);
        for name in names(&shard_folder)? {
            let inside = format!("{CATALOGUE}/{BLOBS}/{shard}/{name}");
            append_file(tar, &inside, &shard_folder.join(name), time)?;
        }
    }
    Ok(())
}

/// What is in a folder, sorted; nothing if there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Failure::file("read", folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        // Digits; what is not is refused by `unpack`.
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    let names = entries.map(name).collect::<io::Result<Vec<String>>>();
    let mut names = names.map_err(Failure::file("read", folder))?;
    names.sort();
    Ok(names)
}

fn append_file(
    tar: &mut tar::Builder<impl Write>,
    name: &str,
    path: &Path,
    time: u64,
) -> Result<(), Failure> {
    let file = File::open(path).map_err(Failure::file("read", path))?;
    let length = file.metadata().map_err(Failure::file("read", path))?.len();
    append(tar, name, length, time, file).map_err(write)
}

fn append(
    tar: &mut tar::Builder<impl Write>,
    name: &str,
    length: u64,
    time: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(length);
    header.set_mode(0o600);
    header.set_mtime(time);
    tar.append_data(&mut header, name, content.take(length))
}

/// Writes the files of a backup into the empty `folder`.
///
/// # Errors
/// [`Failure`] 120 if the passphrase is wrong, or it is no backup that this build can read.
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
    // The last chunk of an age file says that nothing was cut off.
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
        DecryptError::UnknownFormat => not_a_backup("it is of a format that is not known"),
        DecryptError::ExcessiveWork { .. } => not_a_backup("opening it would take too long"),
        _ => not_a_backup("it is no age file"),
    }
}

fn not_a_backup(reason: impl Display) -> Failure {
    Failure::local(format!("not a backup of Levada: {reason}"))
}

fn damaged(reason: impl Display) -> Failure {
    Failure::local(format!("the backup is damaged: {reason}"))
}

/// Reads the archive: the manifest first, then known names only, each once.
fn read_tar<W: Write>(
    input: impl Read,
    create: impl Fn(&str) -> io::Result<W>,
) -> Result<Manifest, Failure> {
    let mut archive = tar::Archive::new(input);
    // Raw: this archive has no long names and no extensions, and nothing shall interpret them.
    let mut entries = archive.entries().map_err(damaged)?.raw(true);
    let first = entries.next().ok_or_else(|| not_a_backup("it is empty"))?;
    let manifest = read_manifest(first.map_err(damaged)?)?;
    let mut missing: Vec<(&str, u64)> = FILES.to_vec();
    for entry in entries {
        let mut entry = entry.map_err(damaged)?;
        let (name, most) = expected(&entry.path_bytes(), &mut missing)
            .filter(|_| entry.header().entry_type().is_file())
            .ok_or_else(|| not_a_backup("it holds something unknown"))?;
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

/// The name of an entry, and the most bytes that it may have.
fn expected(path: &[u8], missing: &mut Vec<(&str, u64)>) -> Option<(String, u64)> {
    let path = std::str::from_utf8(path).ok()?;
    if let Some(at) = missing.iter().position(|(name, _)| *name == path) {
        let (name, most) = missing.swap_remove(at);
        return Some((name.to_owned(), most));
    }
    is_of_catalogue(path).then(|| (path.to_owned(), u64::MAX))
}

/// Its database, or a package: named by 2 digits, a `/`, and 62 more.
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
    // Newer formats may have other fields: the version is read before anything else.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest::new(&"lvtest", UnixTime(7))
    }

    fn passphrase(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in entries {
            append(&mut tar, name, content.len() as u64, 0, *content).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn read(tar: &[u8]) -> Result<Manifest, String> {
        read_tar(tar, |_| Ok(io::sink())).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn a_backup_opens_with_its_passphrase_only_and_in_full_only() {
        let [from, to, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for name in [KEY, NODE_DB, KNOWN_DB] {
            fs::write(from.path().join(name), name.repeat(9)).unwrap();
        }
        let shelf = from.path().join("copy");
        let blob = format!("{BLOBS}/ab/{}", "c".repeat(62));
        fs::create_dir_all(shelf.join(BLOBS).join("ab")).unwrap();
        fs::write(shelf.join(DATABASE), "rows").unwrap();
        fs::write(shelf.join(&blob), "code").unwrap();
        let pack = |catalogue| {
            pack(from.path(), catalogue, &manifest(), passphrase("right"), Vec::new()).unwrap()
        };
        let file = pack(Some(&*shelf));
        let found = unpack(&*file, passphrase("right"), to.path()).unwrap();
        assert_eq!(found, manifest());
        assert_eq!(fs::read_to_string(to.path().join(KEY)).unwrap(), KEY.repeat(9));
        assert!(!to.path().join(CONFIG).exists());
        let back = |name: &str| fs::read_to_string(to.path().join(CATALOGUE).join(name)).unwrap();
        assert_eq!((back(DATABASE), back(&blob)), ("rows".into(), "code".into()));
        let without = tempfile::tempdir().unwrap();
        unpack(&*pack(None), passphrase("right"), without.path()).unwrap();
        assert!(!without.path().join(CATALOGUE).exists());
        assert!(unpack(&*file, passphrase("wrong"), other.path()).is_err());
        assert!(unpack(&file[..file.len() - 1], passphrase("right"), other.path()).is_err());
    }

    #[test]
    fn other_archives_are_refused() {
        let text = serde_json::to_vec(&manifest()).unwrap();
        let all = [(MANIFEST, &*text), (KEY, b"k"), (NODE_DB, b"n"), (KNOWN_DB, b"p")];
        assert_eq!(read(&tar(&all)), Ok(manifest()));
        assert!(read(&tar(&all[1..])).unwrap_err().contains("manifest"));
        assert!(read(&tar(&all[..3])).unwrap_err().contains("known.db is missing"));
        assert!(read(&tar(&[&all[..], &[(KEY, b"k")]].concat())).unwrap_err().contains("unknown"));
        let strange = [&all[..], &[("../key", &b"k"[..])]].concat();
        // The library that writes archives refuses such a name; a hostile one does not.
        let strange = std::panic::catch_unwind(|| tar(&strange));
        assert!(strange.is_err() || read(&strange.unwrap()).is_err());
        let blob = format!("catalogue/blobs/0f/{}", "a".repeat(62));
        for name in ["catalogue/catalogue.db", blob.as_str()] {
            assert_eq!(read(&tar(&[&all[..], &[(name, b"c")]].concat())), Ok(manifest()));
        }
        let long = format!("{blob}a");
        let outside = format!("catalogue/blobs/0F/{}", "a".repeat(62));
        let deeper = format!("{blob}/a");
        for name in
            ["catalogue", "catalogue/other.db", "catalogue/blobs/0f", &long, &outside, &deeper]
        {
            let found = read(&tar(&[&all[..], &[(name, b"c")]].concat()));
            assert!(found.unwrap_err().contains("unknown"), "{name}");
        }
        let newer = [(MANIFEST, &br#"{"format":3,"new":[]}"#[..])];
        assert!(read(&tar(&newer)).unwrap_err().contains("newer Levada"));
        assert!(read(b"").is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let text = serde_json::to_vec(&manifest()).unwrap();
        let good = tar(&[(MANIFEST, &*text), (KEY, b"k"), (NODE_DB, b"n"), (KNOWN_DB, b"p")]);
        bolero::check!().with_type::<(Vec<u8>, Vec<(u16, u8)>)>().for_each(|(bytes, changes)| {
            let _ = read(bytes);
            let mut changed = good.clone();
            for (at, byte) in changes {
                let at = usize::from(*at) % changed.len();
                changed[at] = *byte;
            }
            let _ = read(&changed);
        });
    }

    #[test]
    fn what_is_no_age_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], b"age-encryption.org/v1\n", b"PK\x03\x04 something else\n"] {
            assert!(unpack(bytes, passphrase("x"), folder.path()).is_err());
        }
    }
}
