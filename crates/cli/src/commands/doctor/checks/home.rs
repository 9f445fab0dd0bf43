//! Checks of the home: its folder, its disk and its key.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use levada_core::shell_word;
use levada_home::{Home, HomeError};
use levada_node::store::DiskState;
use levada_node::{check, restore};

use super::permission;
use crate::commands::doctor::report::Check;
use crate::output;

/// Maximum number of files of a home that are checked; a home has fewer.
const MOST_FILES: usize = 1000;

/// The home's folder exists, belongs to this user, and is not writable by others.
pub fn home(home: &Home) -> Check {
    let folder = home.state_folder();
    let shown = folder.display();
    let quoted = shell_word(&folder.display().to_string()).into_owned();
    if let Err(error) = home.check_folders() {
        let remedy = match &error {
            HomeError::Io { path, .. } => format!(
                "{} must be a folder of this user, or one that they can create; or set LEVADA_HOME to another folder",
                output::plain(&path.display().to_string())
            ),
            // The text has the remedy.
            _ => String::new(),
        };
        return Check::wrong("home", error, remedy);
    }
    let found = match std::fs::metadata(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::fine(
                "home",
                format!("{shown} does not exist yet; it is made on first use"),
            );
        }
        Err(error) => {
            let remedy = "set LEVADA_HOME to a folder that this user can read";
            return Check::wrong("home", format!("{shown}: {error}"), remedy);
        }
    };
    // The folder's owner is the user that the node runs as, so the remedy gives files to that user,
    // not to the caller.
    if let Some(name) = owned_by_another(folder, found.uid()) {
        let text = format!("{shown} belongs to another user than {name} in it");
        let remedy = format!("sudo chown -R --reference={quoted} {quoted}");
        return Check::wrong("home", text, remedy);
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        let user = user_name(found.uid());
        let remedy = format!(
            "run verbs as the home's user: `sudo -u {user} LEVADA_HOME={quoted} levada doctor`; or set LEVADA_HOME to \
             a folder of yours"
        );
        return Check::note("home", format!("{shown} belongs to another user"), remedy);
    }
    if found.permissions().mode() & 0o022 != 0 {
        let remedy = format!("chmod 700 {quoted}");
        return Check::wrong("home", format!("others may write to {shown}"), remedy);
    }
    Check::fine("home", shown)
}

/// The first file of the home that belongs to another user than the folder: it was created by a
/// verb of that user.
fn owned_by_another(folder: &Path, owner: u32) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?.take(MOST_FILES).flatten();
    let mut others = entries.filter(|entry| entry.metadata().is_ok_and(|it| it.uid() != owner));
    others.next().map(|entry| output::plain(&entry.file_name().to_string_lossy()))
}

/// The name of a user for sudo; `#UID` if it is not in /etc/passwd.
fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(uid)).then(|| shell_word(name).into_owned())
    };
    users.lines().find_map(entry).unwrap_or_else(|| format!("'#{uid}'"))
}

/// The disk is writable.
pub fn disk(home: &Home) -> Check {
    match DiskState::of(home.state_folder()) {
        DiskState::Writable => Check::fine("disk", "writable"),
        DiskState::Full => {
            let remedy = "free space; `levada catalogue gc` deletes packages that no version needs";
            Check::wrong("disk", "full: nothing new is stored, and requests are refused", remedy)
        }
        DiskState::ReadOnly => {
            let folder = home.state_folder().display().to_string();
            let remedy = format!(
                "`findmnt -T {}` shows the mount; the kernel's log says why, if it was writable before",
                shell_word(&folder)
            );
            Check::wrong("disk", "read-only", remedy)
        }
    }
}

/// The key is readable, and only by this user.
pub fn key(home: &Home) -> Check {
    match home.existing_key() {
        Ok(Some(key)) => Check::fine("key", key.identity()),
        Ok(None) => Check::fine("key", "none yet; it is generated on first use"),
        // The text of an exposed or malformed key has its own remedy.
        Err(error) => match permission::to_read(&home.key_file()) {
            Some(missing) => Check::wrong("key", missing.text, missing.remedy),
            None => Check::wrong("key", &error, remedy(&error)),
        },
    }
}

/// The remedy for an error whose text has none.
fn remedy(error: &HomeError) -> &'static str {
    match error {
        HomeError::Io { .. } => "make it a regular file that this user can read",
        _ => "",
    }
}

/// A rotation or a restore that was interrupted can be completed. `None` if there is neither.
pub fn interrupted(home: &Home) -> Option<Check> {
    if restore::is_interrupted(home) {
        let name = "restore";
        let remedy = "`levada up` completes it; it replaces the identity, the configuration and the databases";
        return Some(match restore::check_interrupted(home) {
            Ok(()) => Check::note(name, "an interrupted restore", remedy),
            Err(error) => {
                let folder = home.state_folder().join("restore.pending").display().to_string();
                let folder = shell_word(&folder).into_owned();
                let remedy = format!(
                    "correct that; or `mv {folder} {folder}.other`, and restore the backup again"
                );
                Check::wrong(name, format!("an interrupted restore: {error}"), remedy)
            }
        });
    }
    let name = "rotation";
    match check::rotation(home) {
        Ok(false) => None,
        Ok(true) => {
            let text = "an interrupted rotation of the key";
            let remedy = "`levada up` or `levada id rotate` completes it";
            Some(Check::note(name, text, remedy))
        }
        Err(error) => match permission::to_read(&home.staged_key_file()) {
            Some(missing) => Some(Check::wrong(name, missing.text, missing.remedy)),
            // The text has its remedy.
            None => Some(Check::wrong(name, error, "")),
        },
    }
}
