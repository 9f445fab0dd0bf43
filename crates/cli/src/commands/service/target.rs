//! The file of the unit, the program and the home that it names, and the user that it runs as.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use levada_home::{HOME_VARIABLE, Home};

use crate::failure::{Failure, USAGE};

/// The name of the unit.
pub const NAME: &str = "levada.service";
/// The user of the machine's node.
const USER: &str = "levada";
/// The home of the machine's node.
const HOME: &str = "/var/lib/levada";
/// The unit of the package.
const PACKAGED: &str = "/usr/lib/systemd/system/levada.service";
/// The unit that the machine's administrator writes (systemd.unit(5)).
const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// Folders that the restrictions of the machine's unit hide from its program.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
/// The variables that name the folders of a home instead of [`HOME_VARIABLE`].
const XDG_VARIABLES: [&str; 2] = ["XDG_CONFIG_HOME", "XDG_STATE_HOME"];

/// The parts of a unit that depend on the machine and the user.
pub struct Target {
    /// True for the machine's systemd, false for the user's.
    pub is_system: bool,
    /// The file of the unit.
    pub unit_file: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// The variables that lead to this home, with absolute paths.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Target {
    /// The unit of this user, for the home of this process.
    pub fn of_user() -> Result<Self, Failure> {
        // An empty LEVADA_HOME is refused.
        Home::find()?;
        let unit_file = configuration()?.join("systemd/user").join(NAME);
        Ok(Self { is_system: false, unit_file, program: program()?, variables: variables()? })
    }

    /// The unit of the machine.
    ///
    /// # Errors
    /// [`Failure`] 120 if this user is not root, or the program is in a folder that the unit hides;
    /// 2 if `LEVADA_HOME` does not name the home of the machine's node.
    pub fn of_machine() -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::local("a unit of the machine needs root: use sudo"));
        }
        if variable(HOME_VARIABLE).is_some_and(|home| home != Path::new(HOME)) {
            return Err(Failure::new(
                USAGE,
                format_args!("the machine's node is in {HOME}: unset LEVADA_HOME, or use --user"),
            ));
        }
        let program = program()?;
        if HIDDEN.iter().any(|folder| program.starts_with(folder)) {
            return Err(Failure::local(format_args!(
                "the user `{USER}` cannot use {}: install it first, for example in /usr/local/bin",
                program.display()
            )));
        }
        let unit_file = Path::new(SYSTEM_UNITS).join(NAME);
        Ok(Self { is_system: true, unit_file, program, variables: Vec::new() })
    }

    /// Refuses a machine that has the unit of the package.
    pub fn check_packaged(&self) -> Result<(), Failure> {
        if self.is_system && Path::new(PACKAGED).exists() {
            return Err(Failure::local(format_args!(
                "the package has installed {PACKAGED}: systemctl enable --now {NAME}"
            )));
        }
        Ok(())
    }

    /// Makes the user of the machine's node. Returns false if it exists, or the unit needs none.
    pub fn make_user(&self) -> Result<bool, Failure> {
        if !self.is_system || run("id", &["-u", USER]).is_ok() {
            return Ok(false);
        }
        let shell = ["--shell", "/usr/sbin/nologin"];
        let options = ["--system", "--user-group", "--home-dir", HOME];
        run("useradd", &[&options[..], &shell, &[USER]].concat())?;
        Ok(true)
    }

    /// Removes the user of the machine's node, unless the node has data.
    pub fn remove_user(&self) -> Result<(), Failure> {
        if Path::new(HOME).exists() {
            return Ok(());
        }
        run("userdel", &[USER])
    }

    /// The time at which systemd starts the node, for the user.
    pub fn starts_at(&self) -> &'static str {
        if self.is_system {
            "at boot"
        } else {
            "at login; `loginctl enable-linger` makes it at boot"
        }
    }
}

/// The variables that lead to the home of this process.
fn variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let names = match variable(HOME_VARIABLE) {
        Some(_) => &[HOME_VARIABLE][..],
        None => &XDG_VARIABLES,
    };
    let set = names.iter().filter_map(|name| Some((*name, variable(name)?)));
    set.map(|(name, path)| {
        let absolute = std::path::absolute(&path).map_err(Failure::file("find", &path))?;
        Ok((name, absolute))
    })
    .collect()
}

/// The folder of this user's configuration.
fn configuration() -> Result<PathBuf, Failure> {
    if let Some(folder) = variable("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute()) {
        return Ok(folder);
    }
    let home = variable("HOME").ok_or_else(|| Failure::local("HOME is not set"))?;
    Ok(home.join(".config"))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn program() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| Failure::local(format_args!("cannot find levada: {error}")))
}

fn run(program: &str, words: &[&str]) -> Result<(), Failure> {
    let failed = |reason: String| {
        Failure::local(format_args!("`{program} {}` failed: {reason}", words.join(" ")))
    };
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(())
}
