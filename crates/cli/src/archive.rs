//! A backup is one file: an `age` file under a passphrase (age-encryption.org/v1, scrypt) that
//! contains a tar archive. `age -d FILE | tar x` opens it without Levada.

mod unpack;

pub use unpack::unpack;

use age::secrecy::SecretString;
use age::{Encryptor, scrypt};
use levada_core::UnixTime;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use tempfile::TempDir;

use crate::failure::Failure;
use levada_catalogue::store::embedded::{BLOBS, DATABASE};
use levada_home::backup::{CATALOGUE, CONFIG, KEY, KNOWN_DB, NODE_DB};

/// The format that this build writes, and the newest that it reads. Format 1 had no catalogue.
const FORMAT: u32 = 2;
const MANIFEST: &str = "manifest.json";
/// The files after the manifest, and the maximum length of each in bytes. All but [`CONFIG`] are
/// required. The catalogue may follow: its database and its packages.
const FILES: [(&str, u64); 4] =
    [(KEY, 256), (CONFIG, 1024 * 1024), (NODE_DB, u64::MAX), (KNOWN_DB, u64::MAX)];
/// scrypt with N = 2^18, r = 8, as in `age` itself. Not calibrated to this machine, because the
/// file may be opened on another.
const WORK: u8 = 18;

/// The first entry of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format.
    pub format: u32,
    /// The release that wrote it.
    pub levada: String,
    /// When it was written, in seconds since 1970.
    pub created: u64,
    /// The identity that it belongs to.
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

/// Writes the files of `folder` to `output`, and the copy of the catalogue if there is one;
/// [`CONFIG`] may be missing.
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

/// The names in a folder, sorted; empty if the folder does not exist.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Failure::file("read", folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        // Hexadecimal digits; `unpack` rejects other names.
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

#[cfg(test)]
mod tests {
    use super::unpack::read_tar;
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
    fn unpacks_a_whole_backup_with_its_passphrase_only() {
        let [from, to, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for name in [KEY, NODE_DB, KNOWN_DB] {
            fs::write(from.path().join(name), name.repeat(9)).unwrap();
        }
        let copy = from.path().join("copy");
        let blob = format!("{BLOBS}/ab/{}", "c".repeat(62));
        fs::create_dir_all(copy.join(BLOBS).join("ab")).unwrap();
        fs::write(copy.join(DATABASE), "rows").unwrap();
        fs::write(copy.join(&blob), "code").unwrap();
        let pack = |catalogue| {
            pack(from.path(), catalogue, &manifest(), passphrase("right"), Vec::new()).unwrap()
        };
        let file = pack(Some(&*copy));
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
    fn rejects_other_archives() {
        let text = serde_json::to_vec(&manifest()).unwrap();
        let all = [(MANIFEST, &*text), (KEY, b"k"), (NODE_DB, b"n"), (KNOWN_DB, b"p")];
        assert_eq!(read(&tar(&all)), Ok(manifest()));
        assert!(read(&tar(&all[1..])).unwrap_err().contains("manifest"));
        assert!(read(&tar(&all[..3])).unwrap_err().contains("known.db is missing"));
        assert!(read(&tar(&[&all[..], &[(KEY, b"k")]].concat())).unwrap_err().contains("unknown"));
        let strange = [&all[..], &[("../key", &b"k"[..])]].concat();
        // The tar library refuses to write such a name; an attacker's would not.
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
    fn rejects_input_that_is_not_an_age_file() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], b"age-encryption.org/v1\n", b"PK\x03\x04 something else\n"] {
            assert!(unpack(bytes, passphrase("x"), folder.path()).is_err());
        }
    }
}
