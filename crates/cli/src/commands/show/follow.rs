//! Follows a program at the command line: prints its state, and waits for its end.

use std::time::Duration;

use levada_home::Home;
use levada_services::desktop::show::{ControlConnection, Registry, Request, State, Status};
use tokio::time::{Instant, sleep_until};

use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::output::{self, note, plain};

/// How long a program may take to end after Ctrl-C.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// A shell's exit code for SIGHUP, which a closed terminal sends.
const HUNG_UP: u8 = 129;

/// The relation of the command to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The command started the program: Ctrl-C ends it.
    Own,
    /// The command has attached to the program: Ctrl-C leaves it running.
    Attached,
    /// The command ends when the program is shown.
    Detach,
}

/// Follows one program.
pub struct Follow {
    supervisor: ControlConnection,
    mode: Mode,
    signals: Signals,
    /// Whether the connection was lost since the program was last shown.
    lost: bool,
}

impl Follow {
    /// `supervisor` is a connection on which the states are sent: of [`super::background::spawn`]
    /// or [`levada_services::desktop::show::Entry::watch`].
    ///
    /// # Errors
    /// [`Failure`] 120 if signals cannot be received.
    pub fn new(supervisor: ControlConnection, mode: Mode) -> Result<Self, Failure> {
        Ok(Self { supervisor, mode, signals: Signals::new()?, lost: false })
    }

    /// Runs until the program has ended, or this command need not wait for it; returns the exit
    /// code.
    pub async fn run(mut self) -> Outcome {
        let Status { name, state } = self.supervisor.expect().await.map_err(broken)?;
        let mut next = Some(state);
        let mut stopped: Option<(u8, Instant)> = None;
        loop {
            if let Some(state) = next.take()
                && let Some(outcome) = self.report(&name, state)
            {
                // After a signal the exit code is that of the signal, not the program's.
                return stopped.map_or(outcome, |(code, _)| Ok(code));
            }
            let deadline = stopped.map(|(_, end)| end);
            tokio::select! {
                state = self.supervisor.receive::<State>() => {
                    next = Some(state.map_err(broken)?.ok_or_else(gone)?);
                }
                code = self.signals.end() => match self.mode {
                    Mode::Own if code != HUNG_UP => {
                        stop(&name).await?;
                        stopped = stopped.or(Some((code, Instant::now() + STOP_TIMEOUT)));
                    }
                    _ => return Ok(code),
                },
                () = until(deadline) => {
                    let text = format!("`{name}` did not end; try `levada show --stop {name}`");
                    return Err(Failure::local(text));
                }
            }
        }
    }

    /// Prints a new state; returns the outcome if the command is done.
    fn report(&mut self, name: &str, state: State) -> Option<Outcome> {
        match state {
            State::Starting => {}
            State::Shown { .. } if self.mode == Mode::Detach => {
                return Some(output::data(name).map(|()| 0));
            }
            State::Shown { at } => {
                if std::mem::take(&mut self.lost) {
                    note(format_args!("`{name}` is shown again at {}", plain(&at)));
                }
            }
            State::Waiting { at, why } => {
                if !std::mem::replace(&mut self.lost, true) {
                    let at = plain(&at);
                    let why = plain(&why);
                    note(format_args!(
                        "the connection to {at} is lost ({why}); `{name}` keeps running, trying again"
                    ));
                }
            }
            State::Hidden { why: None, .. } => {
                note(format_args!(
                    "`{name}` keeps running, hidden; `levada show --attach {name}` shows it"
                ));
                return Some(Ok(0));
            }
            State::Hidden { why: Some(why), code } => {
                let text = format!(
                    "{why}; `{name}` keeps running, hidden: `levada show NODE/SERVICE --attach {name}` shows it"
                );
                return Some(Err(Failure::new(code, text)));
            }
            State::Ended { code, last_line } => {
                // In the other modes the output was already printed here.
                if self.mode == Mode::Detach && code != 0 && !last_line.is_empty() {
                    note(format_args!("{name}: {}", plain(&last_line)));
                }
                return Some(Ok(code));
            }
            State::Failed { why, code } => return Some(Err(Failure::new(code, why))),
        }
        None
    }
}

/// Asks the supervisor to end its program, on a new connection: the current one only carries
/// states.
async fn stop(name: &str) -> Result<(), Failure> {
    // Without an entry the program is ending already.
    if let Ok(entry) = Registry::open(&Home::open()?)?.find(name) {
        let _ = entry.call(&Request::Stop).await;
    }
    Ok(())
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn gone() -> Failure {
    Failure::local("the background process of the program ended unexpectedly")
}

fn broken(error: std::io::Error) -> Failure {
    Failure::local(format_args!("cannot reach the background process of the program: {error}"))
}
