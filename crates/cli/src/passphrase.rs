//! The passphrase of a backup: from a file, the environment, or the terminal.

use crate::failure::Failure;
use age::secrecy::SecretString;
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const VARIABLE: &str = "LEVADA_PASSPHRASE";
const MAX_LENGTH: u64 = 4096;

/// Where the passphrase comes from.
#[derive(Debug, Args)]
pub struct Source {
    /// A file whose first line is the passphrase; else LEVADA_PASSPHRASE, else the terminal
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Source {
    /// The passphrase that opens a backup.
    ///
    /// # Errors
    /// [`Failure`] 120 if there is none.
    pub fn read(&self) -> Result<SecretString, Failure> {
        match self.given()? {
            Some(passphrase) => Ok(passphrase),
            None => typed("Passphrase of the backup: ").and_then(checked),
        }
    }

    /// A passphrase for a new backup; typed twice on a terminal.
    ///
    /// # Errors
    /// [`Failure`] 120 if there is none, or the two differ.
    pub fn choose(&self) -> Result<SecretString, Failure> {
        if let Some(passphrase) = self.given()? {
            return Ok(passphrase);
        }
        let first = typed("Passphrase for the backup: ")?;
        if typed("The same again: ")? != first {
            return Err(Failure::local("the two passphrases differ; nothing was written"));
        }
        checked(first)
    }

    fn given(&self) -> Result<Option<SecretString>, Failure> {
        if let Some(file) = &self.passphrase_file {
            return first_line(file).and_then(checked).map(Some);
        }
        match std::env::var(VARIABLE) {
            Ok(text) => checked(Zeroizing::new(text)).map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn first_line(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let mut line = Zeroizing::new(String::new());
    File::open(path)
        .and_then(|file| BufReader::new(file.take(MAX_LENGTH)).read_line(&mut line))
        .map_err(Failure::file("read the passphrase from", path))?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(line)
}

fn typed(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::local(format!(
            "no passphrase: give --passphrase-file FILE or {VARIABLE}, or use a terminal"
        )));
    }
    rpassword::prompt_password(prompt)
        .map(Zeroizing::new)
        .map_err(|error| Failure::local(format!("cannot read a passphrase: {error}")))
}

fn checked(text: Zeroizing<String>) -> Result<SecretString, Failure> {
    if text.is_empty() {
        return Err(Failure::local("the passphrase is empty"));
    }
    Ok(SecretString::from(text.to_string()))
}
