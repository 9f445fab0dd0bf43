//! `levada fast top`: the connections of all programs with fast sockets.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use levada_monitor::{Client, ClientError, Process, socket_path};
use rustix::termios::tcgetwinsize;
use tokio::time::sleep;

use super::report;
use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Screen, Wide, cut, note};

const REFRESH: Duration = Duration::from_secs(1);
/// Moves the cursor to the first cell of a terminal, and deletes what follows it (ECMA-48: CUP,
/// ED).
const CLEAR: &[u8] = b"\x1b[H\x1b[J";
/// Lines of the screen that are not rows: the heading, the summary, and how many rows are left out.
const OTHER_LINES: usize = 5;

/// Show the connections of all programs with fast sockets
///
/// On a terminal, the table is refreshed every second until Ctrl-C. The mode is `tcp` until the
/// connection is offered to the monitor, `offered` until it answers, `ring`, or `kernel` for one
/// that stays on TCP to its end, for the reason in the last column.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada fast top --json")]
pub struct Top {
    /// Print one JSON object, once
    #[arg(long)]
    json: bool,
}

pub async fn run(top: Top) -> Outcome {
    let path = socket_path().map_err(Failure::local)?;
    if top.json {
        output::json(report::json(&processes(&path)?))?;
        return Ok(0);
    }
    if !io::stdout().is_terminal() {
        let processes = processes(&path)?;
        output::columns(report::HEADING, &report::rows(&processes), Wide::default())?;
        note(report::summary(&processes));
        return Ok(0);
    }
    let mut signals = Signals::new()?;
    loop {
        show(&processes(&path)?)?;
        tokio::select! {
            () = sleep(REFRESH) => {}
            _ = signals.end() => return Ok(0),
        }
    }
}

/// The processes that run, without any if there is no monitor.
fn processes(path: &Path) -> Result<Vec<Process>, Failure> {
    let listed = Client::connect(path).and_then(|monitor| monitor.list(0));
    let mut processes = match listed {
        Err(ClientError::NotRunning) => Vec::new(),
        other => other.map_err(Failure::local)?,
    };
    processes.retain(|process| process.alive);
    Ok(processes)
}

/// Shows as many connections as the screen has lines.
fn show(processes: &[Process]) -> Result<(), Failure> {
    let height = tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row));
    let mut rows = report::rows(processes);
    let left_out = rows.len().saturating_sub(height.saturating_sub(OTHER_LINES).max(1));
    rows.truncate(rows.len() - left_out);
    output::bytes(CLEAR)?;
    // Cut: a line that the terminal wraps would take two of the lines that are counted here.
    let screen = Screen { columns: None, is_colored: false };
    let width = Screen::output().columns.unwrap_or(usize::MAX);
    let lines = output::lines(report::HEADING, &rows, Wide::default(), screen);
    lines.iter().try_for_each(|line| output::data(cut(line, width)))?;
    if left_out > 0 {
        output::data(format_args!("and {left_out} more"))?;
    }
    output::data(report::summary(processes))
}
