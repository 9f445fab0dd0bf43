//! Programs at one end of a place, and waiting for what they do.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::server::Side;
use crate::place::Place;

/// How long anything may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// A program that was started. It ends when it is dropped.
pub struct Program {
    child: Option<Child>,
    farewell: Option<Command>,
}

impl Program {
    /// Starts it.
    pub fn start(place: &Place, side: Side, mut command: Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = side.run(place, move || command.spawn())?;
        let child = child.with_context(|| format!("start {name}"))?;
        Ok(Self { child: Some(child), farewell: None })
    }

    /// One that goes on by itself, and ends when `farewell` asks it to.
    pub fn elsewhere(farewell: Command) -> Self {
        Self { child: None, farewell: Some(quiet(farewell)) }
    }

    /// Asks it to end by this command, before it is killed.
    pub fn with_farewell(mut self, farewell: Command) -> Self {
        self.farewell = Some(quiet(farewell));
        self
    }

    /// Waits until it has said `text` on its standard error, which is a pipe.
    pub fn says(&mut self, text: &str) -> anyhow::Result<()> {
        let child = self.child.as_mut().context("no program")?;
        let mut error = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            ensure!(error.read_line(&mut line)? > 0, "it has ended");
        }
        // Open for what it may still say.
        child.stderr = Some(error.into_inner());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(farewell) = &mut self.farewell {
            let _ = farewell.status();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The same, with nothing to read and nowhere to print to.
pub fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What a command prints, if it ends well.
pub fn output(place: &Place, side: Side, mut command: Command) -> anyhow::Result<String> {
    let output = side.run(place, move || command.output())??;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Looks again and again, until there is something.
pub fn patiently<T>(
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(start.elapsed() < PATIENCE, "{what} did not come in {} s", PATIENCE.as_secs());
        thread::sleep(STEP);
    }
}
