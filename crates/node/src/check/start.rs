//! Checks what a start needs besides its configuration: the home with its key and databases, and
//! the ports.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::{fs, io};

use levada_catalogue::store::StoreError as CatalogueError;
use levada_catalogue::store::embedded::Examined as ExaminedCatalogue;
use levada_database::file;
use levada_home::{Held, Home};

use crate::error::UpError;
use crate::overrides::Overrides;
use crate::ports::{Port, overlap, repeated, wanted};
use crate::store::{Examined, Store, StoreError};
use crate::{catalogue as node_catalogue, restore, rotate};
use levada_config::Config;

use super::configuration::{Problems, check, check_groups};

/// The state of the node of a home.
#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    /// One runs, and listens at these addresses, which the next start may use. Its files are in use
    /// and are not checked.
    Runs(&'a [SocketAddr]),
    /// None runs.
    Absent,
}

/// Checks a start of the node of `home`, in the order in which a start needs each part. Changes
/// nothing on disk. Returns notes about what does not prevent the start. Must be called in a tokio
/// runtime.
///
/// # Errors
/// The [`UpError`] with which the start would end.
pub fn start(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    state: State<'_>,
) -> Result<Vec<String>, UpError> {
    home.check_folders().map_err(UpError::of)?;
    let State::Absent = state else { return configured(home, config, overrides, state) };
    let _held = lock(home)?;
    if restore::is_interrupted(home) {
        restore::check_interrupted(home).map_err(UpError::of)?;
        let text = "the start completes an interrupted restore first; only the files of the backup are checked";
        return Ok(vec![text.to_owned()]);
    }
    let mut notes = Vec::new();
    if rotation(home)? {
        notes.push("the start completes an interrupted rotation of the key".to_owned());
    }
    notes.extend(configured(home, config, overrides, state)?);
    Ok(notes)
}

fn configured(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    state: State<'_>,
) -> Result<Vec<String>, UpError> {
    let Problems { missing, rules } = check(home, config, overrides)?;
    let mut notes: Vec<String> = missing.iter().map(ToString::to_string).collect();
    notes.extend(rules);
    if let State::Absent = state {
        if home.existing_key().map_err(UpError::of)?.is_none() {
            check_creation(&home.key_file(), "write")?;
        }
        let database = database(home).map_err(UpError::of)?;
        let groups = database.as_ref().map(Examined::local_groups).unwrap_or_default();
        check_groups(home, config, overrides, groups)?;
        catalogue(home, config, overrides).map_err(UpError::of)?;
        socket(home)?;
    }
    notes.extend(ports(&wanted(config, overrides), state)?);
    Ok(notes)
}

/// Takes the lock of `home` without a change of its file; `None` if no node has ever run.
///
/// # Errors
/// [`UpError`] as for a start, also if another process has it.
pub fn lock(home: &Home) -> Result<Option<Held>, UpError> {
    let held = home.hold().map_err(UpError::of)?;
    if held.is_none() {
        check_creation(&home.lock_file(), "open")?;
    }
    Ok(held)
}

/// Whether a start completes an interrupted rotation of the key.
///
/// # Errors
/// [`UpError`] if one of the keys prevents that.
pub fn rotation(home: &Home) -> Result<bool, UpError> {
    Ok(rotate::interrupted(home)?.is_some())
}

/// Opens the node's database to read it; `None` if there is none yet.
///
/// # Errors
/// [`StoreError`] as for a start.
pub fn database(home: &Home) -> Result<Option<Examined>, StoreError> {
    let file = home.node_db();
    match fs::exists(&file) {
        Ok(false) => Ok(None),
        _ => Store::examine(&file).map(Some),
    }
}

/// Opens the database of the catalogue to read it; `None` if there is none yet, or the node has no
/// catalogue.
///
/// # Errors
/// [`CatalogueError`] as for a start; the engine of a catalogue on several nodes is not contacted.
pub fn catalogue(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
) -> Result<Option<ExaminedCatalogue>, CatalogueError> {
    match node_catalogue::is_needed(home, config, overrides) {
        true => node_catalogue::examine(home, config),
        false => Ok(None),
    }
}

/// Checks that the control socket can be made.
///
/// # Errors
/// [`UpError`] as for a start.
pub fn socket(home: &Home) -> Result<(), UpError> {
    let path = home.control_socket();
    let error = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => rustix::io::Errno::ISDIR.into(),
        Ok(found) if found.file_type().is_socket() => return Ok(()),
        _ => match file::check_creation(&path) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
    };
    Err(UpError(format!("{}: {error}", path.display())))
}

/// Binds all ports at the same time, as a start does. A port of a forward gives a note: the node
/// starts without it.
fn ports(ports: &[Port], state: State<'_>) -> Result<Vec<String>, UpError> {
    let own = match state {
        State::Runs(own) => own,
        State::Absent => &[],
    };
    let again: Vec<&Port> = repeated(ports).map(|(port, _)| port).collect();
    let mut notes: Vec<String> = repeated(ports).map(|(_, error)| error.to_string()).collect();
    let mut bound = Vec::new();
    for port in ports {
        let is_own = own.iter().any(|own| overlap(*own, port.address));
        if is_own || port.is_replaceable || again.contains(&port) {
            continue;
        }
        match port.bind() {
            Ok(one) => bound.push(one),
            Err(error) if port.is_of_forward() => {
                notes.push(format!("{}; the node tries again while it runs", port.failed(error)));
            }
            Err(error) => return Err(port.failed(error)),
        }
    }
    Ok(notes)
}

fn check_creation(path: &std::path::Path, action: &str) -> Result<(), UpError> {
    let failed = |error: io::Error| UpError(format!("cannot {action} {}: {error}", path.display()));
    file::check_creation(path).map_err(failed)
}
