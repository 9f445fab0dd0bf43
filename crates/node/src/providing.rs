//! Provides packages of catalogues to others, which this home has fetched: with
//! `[swarm] provide = true`.
//!
//! The folder `provided` of the home has a copy of each package, named by its digest, and a record
//! beside it. A package is provided as long as the catalogue admits this node, at most for
//! [`KEPT`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_catalogue::model::{digest_text, parse_digest};
use levada_client::control::ProvideRequest;
use levada_core::{Digest, Hasher, UnixTime};
use levada_home::Home;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

/// The most packages. Another one replaces the one that was fetched first.
const MOST: usize = 16;
/// For how long a package is provided after it was fetched.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The end of the name of a record.
const RECORD: &str = "json";

/// What is stored of a package beside its copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) at: String,
    pub(crate) object: String,
    pub(crate) version: String,
    pub(crate) length: u64,
    /// When it is no longer provided.
    until: u64,
}

/// A package that is provided.
#[derive(Clone)]
pub(crate) struct Package {
    pub(crate) record: Record,
    /// Whether the catalogue has admitted this node.
    pub(crate) connected: Arc<AtomicBool>,
}

/// The packages that the node provides.
pub(crate) struct Providing {
    pub(crate) folder: PathBuf,
    pub(crate) is_enabled: bool,
    /// By the file name of the copy: the hexadecimal digits of the digest.
    packages: Mutex<BTreeMap<String, Package>>,
    /// A package was added.
    pub(crate) changed: Notify,
}

impl Providing {
    pub(crate) fn new(home: &Home, is_enabled: bool) -> Self {
        let folder = home.state_folder().join("provided");
        Self { folder, is_enabled, packages: Mutex::default(), changed: Notify::new() }
    }

    /// For `levada swarm ls`.
    pub(crate) fn describe(&self) -> Vec<Value> {
        let packages = self.lock();
        let rows = packages.iter().map(|(name, package)| {
            let Package { record, connected } = package;
            json!({
                "object": record.object,
                "version": record.version,
                "catalogue": record.at,
                "digest": format!("sha256:{name}"),
                "length": record.length,
                "until": record.until,
                "connected": connected.load(Ordering::Relaxed),
            })
        });
        rows.collect()
    }

    /// Reads the stored records; files without one are removed.
    pub(crate) fn load(&self) -> io::Result<()> {
        let mut packages = self.lock();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let record = fs::read(path.with_extension(RECORD)).ok();
            let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
            let name = path.file_stem().and_then(|name| name.to_str());
            match (record, name) {
                (Some(record), Some(name)) if parse_digest(&format!("sha256:{name}")).is_ok() => {
                    packages.insert(name.to_owned(), Package { record, connected: Arc::default() });
                }
                _ => fs::remove_file(path)?,
            }
        }
        Ok(())
    }

    /// Removes what is too old or too much, and returns the others.
    pub(crate) fn current(&self, now: UnixTime) -> BTreeMap<String, Package> {
        let mut packages = self.lock();
        let mut ends: Vec<(u64, String)> =
            packages.iter().map(|(name, one)| (one.record.until, name.clone())).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        let fresh = ends.iter().take(MOST).take_while(|(until, _)| *until > now.0).count();
        for (_, name) in ends.split_off(fresh) {
            packages.remove(&name);
            let path = self.folder.join(name);
            // What is left is removed at the next start.
            let _ = fs::remove_file(path.with_extension(RECORD)).and(fs::remove_file(path));
        }
        packages.clone()
    }

    /// Provides the package in a file from now on. False if the configuration does not allow that.
    ///
    /// # Errors
    /// The file cannot be copied, or is not that package.
    pub(crate) async fn add(&self, request: ProvideRequest, now: UnixTime) -> io::Result<bool> {
        if !self.is_enabled {
            return Ok(false);
        }
        let digest = parse_digest(&request.digest).map_err(io::Error::other)?;
        let name = digest_text(&digest).replace("sha256:", "");
        let copy = self.folder.join(&name);
        let until = now.after(KEPT).0;
        let same = |one: &&Package| {
            let Record { at, object, version, .. } = &one.record;
            (at, object, version) == (&request.at, &request.object, &request.version)
        };
        let known = self.lock().get(&name).filter(same).cloned();
        let length = known.as_ref().map(|known| known.record.length);
        let work = move || {
            let length = match length {
                Some(length) => length,
                None => copy_checked(&request.path, &copy, &digest)?,
            };
            let ProvideRequest { at, object, version, .. } = request;
            let record = Record { at, object, version, length, until };
            fs::write(copy.with_extension(RECORD), serde_json::to_vec(&record)?)?;
            Ok::<_, io::Error>(record)
        };
        let record = spawn_blocking(work).await.map_err(io::Error::other)??;
        // A package that is provided already goes on.
        let connected = known.map(|known| known.connected).unwrap_or_default();
        self.lock().insert(name, Package { record, connected });
        self.changed.notify_one();
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Package>> {
        self.packages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies a file with this digest, and returns its length. The user may change the first one later.
fn copy_checked(from: &Path, to: &Path, digest: &Digest) -> io::Result<u64> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    let new = to.with_extension("new");
    let mut source = File::open(from)?;
    let mut target = File::create(&new)?;
    let mut hasher = Hasher::default();
    let mut length = 0;
    let mut part = vec![0; 128 * 1024];
    loop {
        let read = source.read(&mut part)?;
        if read == 0 {
            break;
        }
        hasher.update(&part[..read]);
        target.write_all(&part[..read])?;
        length += read as u64;
    }
    if hasher.finish() != *digest {
        fs::remove_file(&new)?;
        let text = format!("{} has changed since it was fetched", from.display());
        return Err(io::Error::other(text));
    }
    fs::rename(new, to)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::sha256;
    use tempfile::TempDir;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn providing(home: &TempDir) -> Providing {
        Providing::new(&Home::at(home.path()).unwrap(), true)
    }

    /// Fetches a package with this content, and adds it.
    async fn add(home: &TempDir, to: &Providing, content: &str, now: UnixTime) -> io::Result<bool> {
        let path = home.path().join("fetched");
        fs::write(&path, content).unwrap();
        to.add(request(content, path), now).await
    }

    fn request(content: &str, path: PathBuf) -> ProvideRequest {
        ProvideRequest {
            at: "hub/catalogue".into(),
            object: "hyperty/a".into(),
            version: "1.0.0".into(),
            digest: digest_text(&sha256(&[content.as_bytes()])),
            path,
        }
    }

    fn files(of: &Providing) -> usize {
        fs::read_dir(&of.folder).unwrap().count()
    }

    #[tokio::test]
    async fn the_last_packages_are_kept_for_a_while() {
        let home = tempfile::tempdir().unwrap();
        let to = providing(&home);
        for number in 0..MOST as u64 + 2 {
            let now = UnixTime(NOW.0 + number);
            assert!(add(&home, &to, &format!("content {number}"), now).await.unwrap());
        }
        let current = to.current(NOW);
        assert_eq!((current.len(), files(&to)), (MOST, 2 * MOST));
        // The first two are gone.
        assert!(current.values().all(|one| one.record.until >= NOW.after(KEPT).0 + 2));
        // Fetched again, the oldest is provided for longer.
        let later = UnixTime(NOW.0 + 1000);
        add(&home, &to, "content 2", later).await.unwrap();
        assert_eq!(to.current(later.after(KEPT - Duration::from_secs(1))).len(), 1);
        assert_eq!(to.current(later.after(KEPT)).len(), 0);
        assert_eq!(files(&to), 0);
    }

    #[tokio::test]
    async fn copies_are_found_after_a_restart_and_other_files_removed() {
        let home = tempfile::tempdir().unwrap();
        let to = providing(&home);
        add(&home, &to, "content", NOW).await.unwrap();
        let name = to.current(NOW).into_keys().next().unwrap();
        for other in ["other", "0123.json", "interrupted.new"] {
            fs::write(to.folder.join(other), "{}").unwrap();
        }
        let again = providing(&home);
        again.load().unwrap();
        let found = again.current(NOW);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&name]);
        assert_eq!(found[&name].record.length, 7);
        assert_eq!(fs::read(again.folder.join(&name)).unwrap(), b"content");
        assert_eq!(files(&again), 2);
    }

    #[tokio::test]
    async fn a_file_that_has_changed_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let to = providing(&home);
        let path = home.path().join("fetched");
        fs::write(&path, "other").unwrap();
        let error = to.add(request("content", path.clone()), NOW).await.unwrap_err();
        assert!(error.to_string().contains("has changed"), "{error}");
        assert_eq!((to.current(NOW).len(), files(&to)), (0, 0));
        let disabled = Providing::new(&Home::at(home.path()).unwrap(), false);
        assert!(!disabled.add(request("other", path), NOW).await.unwrap());
    }
}
