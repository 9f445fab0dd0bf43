//! The folder that `export` writes and `import` reads: every version, with its record in the
//! catalogue.
//!
//! TYPE/NAME/VERSION has `descriptor.json`, `version.json` and, with a package, its description
//! `about.json`. The packages are in `packages`, each once, named by their digests.
//! `catalogue.json` is written last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use levada_catalogue::model::{
    Draft, Kind, MAX_DESCRIPTOR, MAX_PACKAGE_DESCRIPTION, Package, Published, digest_text,
    parse_digest,
};
use levada_core::Digest;
use serde::{Deserialize, Serialize};

use super::files::read;
use super::object::SignatureText;
use crate::failure::Failure;

/// The newest format that this build writes and reads.
const FORMAT: u32 = 1;
const MARK: &str = "catalogue.json";
const VERSION: &str = "version.json";
const DESCRIPTOR: &str = "descriptor.json";
const ABOUT: &str = "about.json";
const PACKAGES: &str = "packages";
/// The longest `catalogue.json` or `version.json`, in bytes.
const MAX_RECORD: usize = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Mark {
    format: u32,
    levada: String,
}

/// `version.json`.
#[derive(Serialize, Deserialize)]
struct Record {
    object: String,
    version: String,
    digest: String,
    package: Option<PackageRecord>,
    signatures: Vec<SignatureText>,
    publisher: Option<String>,
    published: u64,
    yanked: bool,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct PackageRecord {
    digest: String,
    length: u64,
    media_type: String,
}

/// A version that was read and checked.
pub struct Ready {
    /// The version to publish.
    pub draft: Draft,
    /// Whether it was yanked.
    pub yanked: bool,
    /// The file with its package, which has the right length.
    pub package: Option<PathBuf>,
}

/// The contents of an exported folder.
pub struct Contents {
    folder: PathBuf,
    /// Time, revision and folder of each version, in the order of publication.
    versions: Vec<(u64, u64, PathBuf)>,
    /// Versions that cannot be read, and why.
    pub skipped: Vec<String>,
}

/// The path of a package.
pub fn package_path(folder: &Path, digest: &Digest) -> PathBuf {
    folder.join(PACKAGES).join(HEXLOWER.encode(digest))
}

/// Creates the folder for packages.
pub fn begin(folder: &Path) -> Result<(), Failure> {
    let packages = folder.join(PACKAGES);
    fs::create_dir(&packages).map_err(Failure::file("make", &packages))
}

/// Writes a version; its package has been written.
pub fn write(folder: &Path, found: &Published) -> Result<(), Failure> {
    let path = folder.join(found.key.kind.as_str()).join(found.key.name.as_str());
    // No type, name or version contains a `/`, and none is `.` or `..`.
    let path = path.join(found.version.to_string());
    fs::create_dir_all(&path).map_err(Failure::file("make", &path))?;
    write_file(&path.join(DESCRIPTOR), &found.descriptor)?;
    if let Some(package) = &found.package {
        write_file(&path.join(ABOUT), &package.description)?;
    }
    write_json(&path.join(VERSION), &Record::new(found))
}

/// Marks the folder as complete.
pub fn finish(folder: &Path) -> Result<(), Failure> {
    let mark = Mark { format: FORMAT, levada: env!("CARGO_PKG_VERSION").to_owned() };
    write_json(&folder.join(MARK), &mark)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value).map_err(Failure::local)?;
    text.push(b'\n');
    write_file(path, &text)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(Failure::file("write", path))
}

impl Contents {
    /// Lists the versions in an exported folder; `None` if `export` did not write this folder
    /// completely.
    ///
    /// # Errors
    /// [`Failure`] if the folder cannot be read, or has a newer format.
    pub fn open(folder: &Path) -> Result<Option<Self>, Failure> {
        let mark = folder.join(MARK);
        if !mark.is_file() {
            return Ok(None);
        }
        let wrong = |text: &str| Failure::local(format!("{}: {text}", mark.display()));
        let found: Mark = serde_json::from_slice(&read(&mark, MAX_RECORD)?)
            .map_err(|_| wrong("it was not written by `levada catalogue export`"))?;
        if found.format > FORMAT {
            return Err(wrong("it was written by a newer Levada: install that release first"));
        }
        let folder = folder.to_owned();
        let versions = Vec::new();
        let skipped = Vec::new();
        let mut contents = Self { folder, versions, skipped };
        for kind in Kind::ALL {
            contents.list(&contents.folder.join(kind.as_str()))?;
        }
        contents.versions.sort();
        Ok(Some(contents))
    }

    fn list(&mut self, kind: &Path) -> Result<(), Failure> {
        for object in folders(kind)? {
            for path in folders(&object)? {
                match Record::read(&path) {
                    Ok(record) => self.versions.push((record.published, record.revision, path)),
                    Err(text) => self.skipped.push(format!("{}: {text}", path.display())),
                }
            }
        }
        Ok(())
    }

    /// The number of versions.
    pub fn count(&self) -> usize {
        self.versions.len()
    }

    /// Reads each version; an error names its folder and the reason.
    pub fn read(&self) -> impl Iterator<Item = Result<Ready, String>> {
        self.versions.iter().map(|(_, _, path)| {
            let ready = Record::read(path).and_then(|record| self.ready(path, record));
            ready.map_err(|text| format!("{}: {text}", path.display()))
        })
    }

    fn ready(&self, folder: &Path, record: Record) -> Result<Ready, String> {
        let bounded = |name: &str, max: usize| {
            read(&folder.join(name), max).map_err(|failure| failure.text().to_owned())
        };
        let (package, path) = match record.package {
            None => (None, None),
            Some(found) => {
                let digest = parse_digest(&found.digest).map_err(text)?;
                let path = package_path(&self.folder, &digest);
                if !fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() == found.length) {
                    return Err(format!("its package {} is missing or truncated", found.digest));
                }
                let description = bounded(ABOUT, MAX_PACKAGE_DESCRIPTION)?;
                let PackageRecord { length, media_type, .. } = found;
                (Some(Package { digest, length, media_type, description }), Some(path))
            }
        };
        let signatures = record.signatures.iter().map(SignatureText::read).collect::<Option<_>>();
        let draft = Draft {
            key: record.object.parse().map_err(text)?,
            version: record.version.parse().map_err(text)?,
            descriptor: bounded(DESCRIPTOR, MAX_DESCRIPTOR)?,
            package,
            signatures: signatures.ok_or("a signature in it is malformed")?,
        };
        if digest_text(&draft.digest()) != record.digest {
            return Err("the descriptor is not the one that was exported".to_owned());
        }
        draft.check().map_err(text)?;
        draft.check_signatures().map_err(text)?;
        Ok(Ready { draft, yanked: record.yanked, package: path })
    }
}

impl Record {
    fn new(found: &Published) -> Self {
        let package = found.package.as_ref().map(|package| PackageRecord {
            digest: digest_text(&package.digest),
            length: package.length,
            media_type: package.media_type.clone(),
        });
        Self {
            object: found.key.to_string(),
            version: found.version.to_string(),
            digest: digest_text(&found.digest),
            package,
            signatures: found.signatures.iter().map(SignatureText::new).collect(),
            publisher: found.publisher.map(|by| by.to_string()),
            published: found.published.0,
            yanked: found.yanked,
            revision: found.revision,
        }
    }

    fn read(folder: &Path) -> Result<Self, String> {
        let bytes = read(&folder.join(VERSION), MAX_RECORD);
        let bytes = bytes.map_err(|failure| failure.text().to_owned())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{VERSION}: {error}"))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The folders in a folder; none if it does not exist.
fn folders(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Failure::file("read", path))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    let mut paths = paths.map_err(Failure::file("read", path))?;
    paths.retain(|path| path.is_dir());
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_catalogue::model::Version;
    use levada_core::{SecretKey, SystemRandom, UnixTime, sha256};

    fn published(key: &str, code: Option<&[u8]>, revision: u64) -> Published {
        let package = code.map(|code| Package {
            digest: sha256(&[code]),
            length: code.len() as u64,
            media_type: "text/javascript".into(),
            description: b"{ \"sourceCodeClassname\": \"A\" }".to_vec(),
        });
        let mut draft = Draft {
            key: key.parse().unwrap(),
            version: Version::parse("1.0.0-x+y").unwrap(),
            descriptor: b"{\"a\" : 1.10}".to_vec(),
            package,
            signatures: Vec::new(),
        };
        draft.sign(&SecretKey::generate(&SystemRandom).unwrap());
        Published::new(&draft, None, UnixTime(7), revision)
    }

    fn draft(of: &Published) -> Draft {
        let Published { key, version, descriptor, package, signatures, .. } = of.clone();
        Draft { key, version, descriptor, package, signatures }
    }

    #[test]
    fn reads_what_was_written_in_the_order_of_publication() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(Contents::open(folder).unwrap().is_none());
        begin(folder).unwrap();
        let long = format!("service/{}", "x".repeat(255));
        let mut first = published(&long, None, 8);
        first.yanked = true;
        let second = published("dataschema/a b", Some(b"code"), 9);
        fs::write(package_path(folder, &sha256(&[b"code"])), b"code").unwrap();
        for one in [&second, &first] {
            write(folder, one).unwrap();
        }
        assert!(Contents::open(folder).unwrap().is_none(), "it is not complete yet");
        finish(folder).unwrap();
        let contents = Contents::open(folder).unwrap().unwrap();
        let read: Vec<Ready> = contents.read().map(Result::unwrap).collect();
        assert_eq!((contents.count(), contents.skipped.len()), (2, 0));
        assert!(read[0].draft == draft(&first) && read[0].yanked && read[0].package.is_none());
        assert!(read[1].draft == draft(&second) && !read[1].yanked && read[1].package.is_some());
    }

    #[test]
    fn reports_damaged_versions_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        begin(folder).unwrap();
        finish(folder).unwrap();
        write(folder, &published("hyperty/package", Some(b"gone"), 1)).unwrap();
        for name in ["descriptor", "name", "record"] {
            write(folder, &published(&format!("hyperty/{name}"), None, 1)).unwrap();
        }
        let path = |name: &str| folder.join("hyperty").join(name).join("1.0.0-x+y");
        fs::write(path("descriptor").join(DESCRIPTOR), "{}").unwrap();
        fs::write(path("record").join(VERSION), "{").unwrap();
        let other = fs::read_to_string(path("name").join(VERSION)).unwrap();
        let other = other.replace("hyperty/name", "hyperty/../other");
        fs::write(path("name").join(VERSION), other).unwrap();
        let contents = Contents::open(folder).unwrap().unwrap();
        assert!(contents.skipped.len() == 1 && contents.skipped[0].contains("record"));
        let reasons: Vec<String> = contents.read().map(|one| one.err().unwrap()).collect();
        for reason in ["missing or truncated", "not the one that was exported", "an object's name"]
        {
            assert!(reasons.iter().any(|one| one.contains(reason)), "{reason}: {reasons:?}");
        }
        fs::write(folder.join(MARK), "{\"format\":2,\"levada\":\"9\"}").unwrap();
        assert!(Contents::open(folder).err().unwrap().text().contains("newer Levada"));
    }
}
