//! What a program needs for fast sockets: the library, a running monitor, and the environment that
//! names both.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use levada_core::{Random, SystemRandom};
use levada_monitor::{Client, ClientError, SOCKET_VARIABLE, prepare_folder, socket_path};
use levada_ring::elf;
use rustix::fs::{Access, access};
use tokio::time::{Instant, sleep};

use crate::failure::{Failure, Outcome, USAGE};
use crate::output::note;

const LIBRARY: &str = "liblevada_preload.so";
const LIBRARY_VARIABLE: &str = "LEVADA_FAST_LIBRARY";
const RUN_VARIABLE: &str = "LEVADA_FAST_RUN";
const DIRECT_VARIABLE: &str = "LEVADA_FAST_DIRECT";
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// How long a monitor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);
/// The seconds after which a monitor that was started here ends, if no program needs it.
const IDLE: &str = "60";

/// What a program is started with.
pub struct Launch {
    /// The program with its arguments, and with the library if it has fast sockets.
    pub command: Command,
    /// The monitor, and a random number by which it tells the processes of this program from
    /// others. `None` if all connections stay on TCP.
    pub monitor: Option<(Client, u64)>,
}

impl Launch {
    /// Finds the library, and starts the monitor if none is running. The monitor does not end while
    /// the connection to it is open. Without a monitor that can be trusted, or with a program that
    /// the library cannot be loaded into, the program runs without the library, after a line that
    /// says why.
    pub async fn prepare(program: &[OsString], is_direct: bool) -> Result<Self, Failure> {
        let [name, arguments @ ..] = program else {
            return Err(Failure::new(USAGE, "PROGRAM is missing: `levada fast -- PROGRAM`"));
        };
        let mut command = Command::new(name);
        command.args(arguments);
        let library = library()?;
        let socket = socket_path().map_err(Failure::local)?;
        let misfit = find(name).and_then(|file| elf::misfit(&file));
        let connected = match misfit {
            Some(misfit) => Err(misfit.reason().to_owned()),
            None => connect(&socket).await.map_err(|failure| failure.text().to_owned()),
        };
        let monitor = match connected {
            Ok(monitor) => monitor,
            Err(reason) => {
                note(format_args!("levada: connections stay on TCP: {reason}"));
                return Ok(Self { command, monitor: None });
            }
        };
        let run = random()?;
        let preload = with_library(env::var_os(PRELOAD_VARIABLE), &library);
        command.env(PRELOAD_VARIABLE, preload).env(SOCKET_VARIABLE, &socket);
        command.env(RUN_VARIABLE, run.to_string());
        if is_direct {
            command.env(DIRECT_VARIABLE, "1");
        }
        Ok(Self { command, monitor: Some((monitor, run)) })
    }
}

/// The file of a program, as execvp(3) finds it.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = env::var_os("PATH")?;
    let is_program = |file: &PathBuf| access(file, Access::EXEC_OK).is_ok();
    env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
}

/// Connects to the monitor; starts it if none is running.
async fn connect(socket: &Path) -> Result<Client, Failure> {
    prepare_folder(socket).map_err(Failure::local)?;
    match Client::connect(socket) {
        Err(ClientError::NotRunning) => start_monitor(socket)?,
        other => return other.map_err(Failure::local),
    };
    let end = Instant::now() + START_TIMEOUT;
    loop {
        match Client::connect(socket) {
            Err(ClientError::NotRunning | ClientError::NoAnswer) if Instant::now() < end => {
                sleep(STEP).await;
            }
            other => {
                return other.map_err(|error| {
                    Failure::local(format_args!(
                        "cannot start the monitor: {error}; `levada monitor` shows why"
                    ))
                });
            }
        }
    }
}

/// Starts a monitor in the background. The program must not have it as a child, so that a process
/// between them ends at once.
fn start_monitor(socket: &Path) -> Outcome {
    let fail = |error: io::Error| Failure::local(format_args!("cannot start the monitor: {error}"));
    let mut command = Command::new(env::current_exe().map_err(fail)?);
    command.args(["monitor", "--background", "--idle", IDLE]).env(SOCKET_VARIABLE, socket);
    // In a program with fast sockets it would be one itself.
    command.env_remove(PRELOAD_VARIABLE).env_remove(RUN_VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map_err(fail)?;
    Ok(0)
}

fn random() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    SystemRandom.fill(&mut bytes).map_err(Failure::local)?;
    // 0 stands for all runs.
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// Where the library is: named by the environment, beside this binary, or where it is installed.
fn library() -> Result<PathBuf, Failure> {
    let named = env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let binary = env::current_exe().map_err(Failure::local)?;
    let candidates = match &named {
        Some(path) => vec![std::path::absolute(path).map_err(Failure::local)?],
        None => candidates(&binary),
    };
    let found = candidates.iter().find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        let places = places.join(" or ");
        Failure::local(format_args!(
            "the library is not at {places}; `cargo build -p levada-preload` makes it, and {LIBRARY_VARIABLE} names another place"
        ))
    })?;
    // The dynamic linker separates names by these characters, or replaces what follows (ld.so(8)).
    if found.as_os_str().as_bytes().iter().any(|byte| b" :$\n\t".contains(byte)) {
        return Err(Failure::local(format_args!(
            "the dynamic linker cannot load {}: its path has a space, `:` or `$`; name a copy of it by {LIBRARY_VARIABLE}",
            found.display()
        )));
    }
    Ok(found.clone())
}

fn candidates(binary: &Path) -> Vec<PathBuf> {
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let above = folder.parent().unwrap_or(folder);
    let mut candidates = vec![folder.join(LIBRARY), above.join("lib/levada").join(LIBRARY)];
    // Programs of tests.
    if folder.ends_with("deps") {
        candidates.push(above.join(LIBRARY));
    }
    candidates
}

/// The value of `LD_PRELOAD`, once with the library.
fn with_library(value: Option<OsString>, library: &Path) -> OsString {
    let library = library.as_os_str();
    let Some(mut value) = value.filter(|value| !value.is_empty()) else { return library.into() };
    let mut names = value.as_bytes().split(|byte| b": ".contains(byte));
    if !names.any(|name| name == library.as_bytes()) {
        value.push(":");
        value.push(library);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_binary_or_where_it_is_installed() {
        let installed = candidates(Path::new("/usr/bin/levada"));
        assert_eq!(installed[1], Path::new("/usr/lib/levada/liblevada_preload.so"));
        let built = candidates(Path::new("/t/debug/deps/cli-1"));
        assert!(built.contains(&"/t/debug/liblevada_preload.so".into()));
    }

    #[test]
    fn the_library_is_added_to_those_that_are_preloaded_already() {
        let library = Path::new("/l/a.so");
        for (before, after) in [
            (None, "/l/a.so"),
            (Some(""), "/l/a.so"),
            (Some("b.so"), "b.so:/l/a.so"),
            (Some("b.so:/l/a.so"), "b.so:/l/a.so"),
            (Some("/l/a.so c.so"), "/l/a.so c.so"),
            (Some("/l/a.so.1"), "/l/a.so.1:/l/a.so"),
        ] {
            assert_eq!(with_library(before.map(OsString::from), library), after);
        }
    }
}
