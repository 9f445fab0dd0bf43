//! The systemd that runs the unit, through systemctl(1).

use std::process::Command;

use super::target::{NAME, Target};
use crate::failure::Failure;

/// A systemd: the one of this user, or the one of the machine.
pub struct Manager {
    is_system: bool,
}

impl Manager {
    /// The one for the unit in `target`.
    pub fn of(target: &Target) -> Self {
        Self { is_system: target.is_system }
    }

    /// Makes it read all units again.
    ///
    /// # Errors
    /// The reason why it cannot be reached, in one line.
    pub fn reload(&self) -> Result<(), String> {
        self.run(&["daemon-reload"])
    }

    /// Makes the unit start at each boot or login.
    pub fn enable(&self) -> Result<(), Failure> {
        self.must(&["enable", "--quiet", NAME])
    }

    /// Starts the unit. A running one is restarted if `is_changed`.
    pub fn start(&self, is_changed: bool) -> Result<(), Failure> {
        let verb = if is_changed { "restart" } else { "start" };
        self.must(&[verb, NAME]).map_err(|failure| {
            let journal = if self.is_system { "journalctl" } else { "journalctl --user" };
            Failure::local(format_args!("{}; `{journal} -u {NAME}` shows why", failure.text()))
        })
    }

    /// Stops the unit, and makes it start no longer.
    pub fn disable(&self) -> Result<(), Failure> {
        self.must(&["disable", "--quiet", "--now", NAME])
    }

    /// Returns true if the unit runs.
    pub fn is_active(&self) -> bool {
        self.run(&["is-active", "--quiet", NAME]).is_ok()
    }

    /// The command line for what [`Self::reload`], [`Self::enable`] and [`Self::start`] do.
    pub fn commands_to_start(&self) -> String {
        let systemctl = self.words().join(" ");
        format!("{systemctl} daemon-reload && {systemctl} enable --now {NAME}")
    }

    fn words(&self) -> &'static [&'static str] {
        if self.is_system { &["systemctl"] } else { &["systemctl", "--user"] }
    }

    fn must(&self, words: &[&str]) -> Result<(), Failure> {
        self.run(words).map_err(|reason| {
            let line = [self.words(), words].concat().join(" ");
            Failure::local(format_args!("`{line}` failed: {reason}"))
        })
    }

    fn run(&self, words: &[&str]) -> Result<(), String> {
        let [program, options @ ..] = self.words() else { return Ok(()) };
        let output = Command::new(program).args(options).args(words).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let status = output.status.to_string();
        Err(if lines.is_empty() { status } else { lines.join(" ") })
    }
}
