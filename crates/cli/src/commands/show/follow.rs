//! What is seen of a program at the command line: how it is, and its end.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::registry::Registry;
use super::session::{Line, Request, State, Status};
use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::output::{self, note, plain};

/// How long a program may take to end after Ctrl-C.
const ENDING: Duration = Duration::from_secs(15);
/// A shell's exit code for SIGHUP: the terminal is gone.
const HUNG_UP: u8 = 129;

/// How the command was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The program is the command's own: Ctrl-C ends it.
    Own,
    /// The command came later: Ctrl-C leaves the program alone.
    Visitor,
    /// The command ends when the program is seen.
    Detach,
}

/// Follows one program.
pub struct Follow {
    keeper: Line,
    mode: Mode,
    signals: Signals,
    /// The connection was lost since it was shown last.
    lost: bool,
}

impl Follow {
    /// `keeper` is asked for nothing yet but to be watched.
    ///
    /// # Errors
    /// [`Failure`] 120 if signals cannot be received.
    pub fn new(keeper: Line, mode: Mode) -> Result<Self, Failure> {
        Ok(Self { keeper, mode, signals: Signals::new()?, lost: false })
    }

    /// Until the program has ended, or this command need not wait for it: gives the exit code.
    pub async fn run(mut self) -> Outcome {
        let Status { name, state } = self.keeper.expect().await.map_err(broken)?;
        let mut next = Some(state);
        let mut stopped: Option<(u8, Instant)> = None;
        loop {
            if let Some(state) = next.take()
                && let Some(outcome) = self.news(&name, state)
            {
                // The signal is the reason, whatever the program made of it.
                return stopped.map_or(outcome, |(code, _)| Ok(code));
            }
            let late = stopped.map(|(_, end)| end);
            tokio::select! {
                state = self.keeper.hear::<State>() => {
                    next = Some(state.map_err(broken)?.ok_or_else(gone)?);
                }
                code = self.signals.end() => match self.mode {
                    Mode::Own if code != HUNG_UP => {
                        stop(&name).await?;
                        stopped = stopped.or(Some((code, Instant::now() + ENDING)));
                    }
                    _ => return Ok(code),
                },
                () = until(late) => {
                    let text = format!("`{name}` does not end; `levada show --stop {name}`");
                    return Err(Failure::local(text));
                }
            }
        }
    }

    /// Tells what is new; gives the outcome if there is nothing more to wait for.
    fn news(&mut self, name: &str, state: State) -> Option<Outcome> {
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
                    let (at, why) = (plain(&at), plain(&why));
                    note(format_args!("{at} is lost ({why}); `{name}` goes on, trying again"));
                }
            }
            State::Hidden { why: None, .. } => {
                note(format_args!("`{name}` goes on unseen; `levada show --attach {name}`"));
                return Some(Ok(0));
            }
            State::Hidden { why: Some(why), code } => {
                let text = format!(
                    "{why}; `{name}` goes on unseen: `levada show NODE/SERVICE --attach {name}`"
                );
                return Some(Err(Failure::new(code, text)));
            }
            State::Ended { code, said } => {
                // Otherwise it was printed here already.
                if self.mode == Mode::Detach && code != 0 && !said.is_empty() {
                    note(format_args!("{name}: {}", plain(&said)));
                }
                return Some(Ok(code));
            }
            State::Failed { why, code } => return Some(Err(Failure::new(code, why))),
        }
        None
    }
}

/// Asks the keeper to end its program: over another line, this one only tells.
async fn stop(name: &str) -> Result<(), Failure> {
    let home = levada_node::home::Home::open()?;
    // If it cannot be found it is ending already.
    if let Ok(entry) = Registry::open(&home)?.find(name) {
        let _ = entry.ask(&Request::Stop).await;
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
    Failure::local("the process that keeps the program has ended without a word")
}

fn broken(error: std::io::Error) -> Failure {
    Failure::local(format_args!("the process that keeps the program: {error}"))
}
