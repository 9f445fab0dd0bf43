//! `levada monitor`: runs the monitor of fast sockets.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use levada_core::parse_size;
use levada_monitor::{ListenError, Monitor, Options, detach, socket_path};

use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::output::note;

/// Run the monitor of fast sockets until Ctrl-C
///
/// It introduces the two ends of a connection to each other, so that they can leave TCP. There is
/// one for each user; `levada fast` starts it when it is needed. Established connections do not
/// depend on it. LEVADA_FAST_SOCKET is the path of its socket, in a folder that only this user can
/// use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada monitor
  levada monitor --idle 60          end when no program with fast sockets was there for a minute")]
pub struct Arguments {
    /// End when no program with fast sockets was there for this long
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,

    /// The memory that the rings of all programs may take together: connections beyond it stay on
    /// TCP
    ///
    /// Such as 512M. Without it, a quarter of the machine's.
    #[arg(long, value_name = "SIZE", env = "LEVADA_FAST_MEMORY", value_parser = parse_size)]
    memory: Option<u64>,

    /// Run it in the background, and return
    #[arg(long, hide = true)]
    background: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    if arguments.background {
        return start(arguments.idle);
    }
    let path = socket_path().map_err(Failure::local)?;
    let mut options =
        Options { idle: arguments.idle.map(Duration::from_secs), ..Options::default() };
    options.memory = arguments.memory.unwrap_or(options.memory);
    let monitor = match Monitor::bind(&path, options) {
        Ok(monitor) => monitor,
        Err(ListenError::Running) => {
            note(format_args!("a monitor is running already at {}", path.display()));
            return Ok(0);
        }
        Err(error) => return Err(Failure::local(error)),
    };
    let mut signals = Signals::new()?;
    let stop = monitor.stop();
    note(format_args!("listening at {}; Ctrl-C ends it", path.display()));
    let mut serving = tokio::task::spawn_blocking(move || monitor.run());
    let served = tokio::select! {
        served = &mut serving => served,
        _ = signals.end() => {
            stop.stop();
            serving.await
        }
    };
    let served = served.map_err(Failure::local)?;
    served.map(|()| 0).map_err(|error| Failure::local(format_args!("the monitor failed: {error}")))
}

/// Starts the monitor as a process that is no child of the command that wants it: that command
/// becomes another program, which expects no children but its own.
fn start(idle: Option<u64>) -> Outcome {
    let fail = |error: std::io::Error| {
        Failure::local(format_args!("cannot start a background process: {error}"))
    };
    detach().map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(fail)?);
    command.arg("monitor");
    if let Some(idle) = idle {
        command.args(["--idle", &idle.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    // Not waited for: this process ends first.
    drop(command.spawn().map_err(fail)?);
    Ok(0)
}
