//! The registry of programs that run here: one file per program, by its name.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use levada_core::check_name;
use levada_home::{Home, write_private};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::ShowError;
use super::protocol::{ControlConnection, Request, Status, TIMEOUT};

/// The folder of the files, in the home's runtime folder.
const FOLDER: &str = "shows";
const EXTENSION: &str = "json";
/// The longest file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Maximum number of names that are tried for one program.
const MAX_TRIES: u32 = 1000;
/// Maximum number of characters of the program's name in a generated name.
const MAX_STEM: usize = 32;
/// How long a program may take to end before [`Registry::stop`] fails.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(20);

/// The folder of the entries.
#[derive(Clone, Debug)]
pub struct Registry(PathBuf);

/// A program that runs, or whose supervisor was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name here.
    pub name: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The supervisor's process id.
    pub process: u32,
    /// The supervisor's socket.
    pub socket: PathBuf,
}

/// A name that this process owns. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Claim {
    registry: Registry,
    entry: Entry,
}

impl Registry {
    /// The registry of `home`.
    ///
    /// # Errors
    /// [`ShowError::Local`] if its folder cannot be created.
    pub fn open(home: &Home) -> Result<Self, ShowError> {
        let folder = home.runtime_folder().join(FOLDER);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(ShowError::file("make the folder", &folder)(error))
            }
            _ => Ok(Self(folder)),
        }
    }

    /// Claims the name of `entry`; if it is empty, the first free name made from the program's.
    ///
    /// # Errors
    /// [`ShowError::Taken`]; [`ShowError::Home`] if its file cannot be written.
    pub(super) fn claim(&self, mut entry: Entry) -> Result<Claim, ShowError> {
        if !entry.name.is_empty() {
            return self.try_claim(&entry)?.ok_or(ShowError::Taken(entry.name));
        }
        let stem = stem(entry.program.first().map_or("", String::as_str));
        for number in 1..=MAX_TRIES {
            entry.name = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            if let Some(claim) = self.try_claim(&entry)? {
                return Ok(claim);
            }
        }
        Err(ShowError::local(
            "all names made from the program's are in use; choose one with --name",
        ))
    }

    fn try_claim(&self, entry: &Entry) -> Result<Option<Claim>, ShowError> {
        let written = write_private(&self.file(&entry.name), &encode(entry)?, false)?;
        let claim = || Claim { registry: self.clone(), entry: entry.clone() };
        Ok(written.then(claim))
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// [`ShowError::Unknown`] if there is none.
    pub fn find(&self, name: &str) -> Result<Entry, ShowError> {
        let none = || ShowError::Unknown(name.to_owned());
        check_name(name).map_err(|_| none())?;
        read(&self.file(name)).ok_or_else(none)
    }

    /// As [`Self::find`], for a program whose background process answers.
    ///
    /// # Errors
    /// [`ShowError::Unknown`] if there is no such entry, [`ShowError::Killed`] if its supervisor
    /// does not answer.
    pub async fn alive(&self, name: &str) -> Result<Entry, ShowError> {
        let entry = self.find(name)?;
        match entry.is_alive().await {
            true => Ok(entry),
            false => Err(ShowError::Killed(name.to_owned())),
        }
    }

    /// Ends the program called `name`, and waits for its end.
    ///
    /// # Errors
    /// [`ShowError::Unknown`] if there is no such entry, [`ShowError::Local`] if the program does
    /// not end in time.
    pub async fn stop(&self, name: &str) -> Result<(), ShowError> {
        let entry = self.find(name)?;
        if !entry.is_alive().await {
            // Its supervisor was killed, and the program with it: see `crate::exec::program`.
            self.remove(&entry);
            return Ok(());
        }
        entry.call(&Request::Stop).await?;
        let end = Instant::now() + STOP_TIMEOUT;
        while self.contains(&entry) {
            if Instant::now() > end {
                let seconds = STOP_TIMEOUT.as_secs();
                return Err(ShowError::Local(format!("`{name}` did not end within {seconds} s")));
            }
            sleep(STEP).await;
        }
        Ok(())
    }

    /// All entries, by name.
    ///
    /// # Errors
    /// [`ShowError::Local`] if the folder cannot be read.
    pub fn all(&self) -> Result<Vec<Entry>, ShowError> {
        let files = fs::read_dir(&self.0).map_err(ShowError::file("read", &self.0))?;
        let paths = files.flatten().map(|file| file.path());
        let paths = paths.filter(|path| path.extension().is_some_and(|end| end == EXTENSION));
        let mut entries: Vec<Entry> = paths.filter_map(|path| read(&path)).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Whether this entry still exists: with the same name and process.
    fn contains(&self, entry: &Entry) -> bool {
        read(&self.file(&entry.name)).is_some_and(|found| found.process == entry.process)
    }

    /// Removes the file of an entry.
    fn remove(&self, entry: &Entry) {
        let _ = fs::remove_file(self.file(&entry.name));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.{EXTENSION}"))
    }
}

impl Claim {
    /// The claimed name.
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.remove(&self.entry);
    }
}

impl Entry {
    async fn is_alive(&self) -> bool {
        self.status().await.is_ok()
    }

    /// Requests the status.
    ///
    /// # Errors
    /// [`ShowError::Local`] if its supervisor does not answer.
    pub async fn status(&self) -> Result<Status, ShowError> {
        self.call(&Request::Status).await
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// [`ShowError::Local`] if its supervisor does not answer.
    pub async fn call(&self, request: &Request) -> Result<Status, ShowError> {
        let mut connection = self.send(request).await?;
        connection.expect().await.map_err(|error| self.no_answer(&error))
    }

    /// A connection on which the supervisor sends every new state.
    ///
    /// # Errors
    /// [`ShowError::Local`] if its supervisor does not answer.
    pub async fn watch(&self) -> Result<ControlConnection, ShowError> {
        self.send(&Request::Watch).await
    }

    async fn send(&self, request: &Request) -> Result<ControlConnection, ShowError> {
        let connected = timeout(TIMEOUT, UnixStream::connect(&self.socket)).await;
        let stream = connected.map_err(|error| self.no_answer(&error))?;
        let mut connection =
            ControlConnection::new(stream.map_err(|error| self.no_answer(&error))?);
        connection.send(request).await.map_err(|error| self.no_answer(&error))?;
        Ok(connection)
    }

    fn no_answer(&self, error: &dyn std::fmt::Display) -> ShowError {
        let name = &self.name;
        ShowError::local(format_args!(
            "the background process of `{name}` does not answer: {error}"
        ))
    }
}

fn encode(entry: &Entry) -> Result<Vec<u8>, ShowError> {
    serde_json::to_vec(entry).map_err(ShowError::local)
}

fn read(path: &Path) -> Option<Entry> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// A name made from a program's path.
fn stem(program: &str) -> String {
    let last = program.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let stem: String = last.chars().filter(|c| plain(*c)).take(MAX_STEM).collect();
    let stem = stem.trim_start_matches(['-', '.']);
    if stem.is_empty() { "program".to_owned() } else { stem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, program: &str) -> Entry {
        Entry {
            name: name.into(),
            program: vec![program.into()],
            process: std::process::id(),
            socket: "/nowhere/supervisor".into(),
        }
    }

    #[test]
    fn claims_a_unique_name_for_each_program() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::open(&Home::at(folder.path()).unwrap()).unwrap();
        let first = registry.claim(entry("", "/usr/bin/xterm")).unwrap();
        let second = registry.claim(entry("", "xterm")).unwrap();
        let named = registry.claim(entry("notes", "xterm")).unwrap();
        assert_eq!((first.name(), second.name()), ("xterm", "xterm-2"));
        assert!(registry.claim(entry("notes", "vi")).is_err());
        let names: Vec<String> =
            registry.all().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["notes", "xterm", "xterm-2"]);
        drop(named);
        assert!(registry.find("notes").is_err());
        assert!(registry.contains(&registry.find("xterm").unwrap()));
        for wrong in ["../xterm", "", "xterm/", "-x"] {
            assert!(registry.find(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn makes_a_valid_name_of_any_program() {
        for (program, name) in [
            ("/usr/bin/xterm", "xterm"),
            ("./my prog.sh", "myprog.sh"),
            ("--", "program"),
            ("", "program"),
            ("日本", "program"),
            (".hidden", "hidden"),
        ] {
            assert_eq!(stem(program), name, "{program}");
            assert!(check_name(&stem(program)).is_ok());
        }
    }

    #[tokio::test]
    async fn an_entry_without_a_supervisor_is_not_alive() {
        assert!(!entry("a", "b").is_alive().await);
    }
}
