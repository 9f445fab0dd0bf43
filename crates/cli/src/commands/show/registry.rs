//! Which programs are kept here: a file for each, by its name.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use levada_node::config::check_name;
use levada_node::home::{Home, write_private};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::session::{Line, PROMPT, Request, Status};
use crate::failure::{Failure, NO};

/// The folder of the files, below that of the home's runtime files.
const FOLDER: &str = "shows";
const EXTENSION: &str = "json";
/// No file is longer, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Names made from one program's that are tried.
const MAX_TRIES: u32 = 1000;
/// The longest part of a program's name that goes into a name.
const MAX_STEM: usize = 32;

/// The files.
#[derive(Clone, Debug)]
pub struct Registry(PathBuf);

/// A program that is kept, or was when its keeper was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The keeper's process number.
    pub process: u32,
    /// Where the keeper listens.
    pub socket: PathBuf,
}

/// A name that is ours. The file goes when it is dropped.
#[derive(Debug)]
pub struct Claim {
    registry: Registry,
    entry: Entry,
}

impl Registry {
    /// The files of `home`.
    ///
    /// # Errors
    /// [`Failure`] 120 if their folder cannot be made.
    pub fn open(home: &Home) -> Result<Self, Failure> {
        let folder = home.runtime_folder().join(FOLDER);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Failure::file("make the folder", &folder)(error))
            }
            _ => Ok(Self(folder)),
        }
    }

    /// Takes a name: the one that `entry` has, or if it is empty the first free one made from the
    /// program's.
    ///
    /// # Errors
    /// [`Failure`] 120 if the name is taken.
    pub fn claim(&self, mut entry: Entry) -> Result<Claim, Failure> {
        if !entry.name.is_empty() {
            return self.try_claim(&entry)?.ok_or_else(|| {
                let name = &entry.name;
                Failure::local(format_args!(
                    "a program is already called `{name}`: choose another --name, or end it with \
                     `levada show --stop {name}`"
                ))
            });
        }
        let stem = stem(entry.program.first().map_or("", String::as_str));
        for number in 1..=MAX_TRIES {
            entry.name = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            if let Some(claim) = self.try_claim(&entry)? {
                return Ok(claim);
            }
        }
        Err(Failure::local("no name is free; give one with --name"))
    }

    fn try_claim(&self, entry: &Entry) -> Result<Option<Claim>, Failure> {
        let written = write_private(&self.file(&entry.name), &encode(entry)?, false)?;
        let claim = || Claim { registry: self.clone(), entry: entry.clone() };
        Ok(written.then(claim))
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// [`Failure`] 1 if there is none.
    pub fn find(&self, name: &str) -> Result<Entry, Failure> {
        let none = || {
            let text = format!("no program is kept here as `{name}`; see `levada show --list`");
            Failure::new(NO, text)
        };
        check_name(name).map_err(|_| none())?;
        read(&self.file(name)).ok_or_else(none)
    }

    /// All entries, by name.
    ///
    /// # Errors
    /// [`Failure`] 120 if the folder cannot be read.
    pub fn all(&self) -> Result<Vec<Entry>, Failure> {
        let files = fs::read_dir(&self.0).map_err(Failure::file("read", &self.0))?;
        let paths = files.flatten().map(|file| file.path());
        let paths = paths.filter(|path| path.extension().is_some_and(|end| end == EXTENSION));
        let mut entries: Vec<Entry> = paths.filter_map(|path| read(&path)).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Whether that very entry is still there.
    pub fn is_there(&self, entry: &Entry) -> bool {
        read(&self.file(&entry.name)).is_some_and(|found| found.process == entry.process)
    }

    /// Removes the file of an entry.
    pub fn remove(&self, entry: &Entry) {
        let _ = fs::remove_file(self.file(&entry.name));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.{EXTENSION}"))
    }
}

impl Claim {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.entry.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.remove(&self.entry);
    }
}

impl Entry {
    /// Whether its keeper answers.
    pub async fn is_alive(&self) -> bool {
        self.status().await.is_ok()
    }

    /// Asks how it is.
    ///
    /// # Errors
    /// [`Failure`] 120 if its keeper does not answer.
    pub async fn status(&self) -> Result<Status, Failure> {
        let mut line = self.say(&Request::Status).await?;
        line.expect().await.map_err(|error| self.silent(&error))
    }

    /// Asks for something to be done, and waits until it was heard.
    ///
    /// # Errors
    /// [`Failure`] 120 if its keeper does not answer.
    pub async fn ask(&self, request: &Request) -> Result<Status, Failure> {
        let mut line = self.say(request).await?;
        line.expect().await.map_err(|error| self.silent(&error))
    }

    /// Asks to be told of every new state.
    ///
    /// # Errors
    /// [`Failure`] 120 if its keeper does not answer.
    pub async fn watch(&self) -> Result<Line, Failure> {
        self.say(&Request::Watch).await
    }

    async fn say(&self, request: &Request) -> Result<Line, Failure> {
        let connected = timeout(PROMPT, UnixStream::connect(&self.socket)).await;
        let stream = connected.map_err(|error| self.silent(&error))?;
        let mut line = Line::new(stream.map_err(|error| self.silent(&error))?);
        line.say(request).await.map_err(|error| self.silent(&error))?;
        Ok(line)
    }

    fn silent(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::local(format_args!("the keeper of `{}` does not answer: {error}", self.name))
    }
}

fn encode(entry: &Entry) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(entry).map_err(Failure::local)
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
            socket: "/nowhere/keeper".into(),
        }
    }

    #[test]
    fn each_program_has_a_name_of_its_own() {
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
        assert!(registry.is_there(&registry.find("xterm").unwrap()));
        for wrong in ["../xterm", "", "xterm/", "-x"] {
            assert!(registry.find(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_program_makes_a_name() {
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
    async fn a_keeper_that_is_gone_does_not_answer() {
        assert!(!entry("a", "b").is_alive().await);
    }
}
