//! The background process of a program: `levada show --keep`, a child of the command that starts
//! the program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use levada_home::Home;
use levada_services::desktop::show::{ControlConnection, ProgramSpec, supervise};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::attach::Signals;
use crate::failure::{Failure, Outcome};

/// Starts a background process for `spec`; returns the connection on which it sends the states.
/// Without `has_output` the program's output is discarded.
///
/// # Errors
/// [`Failure`] 120 if it cannot be started.
pub async fn spawn(spec: &ProgramSpec, has_output: bool) -> Result<ControlConnection, Failure> {
    let fail = |error: io::Error| {
        Failure::local(format_args!("cannot start a background process: {error}"))
    };
    let (near, far) = std::os::unix::net::UnixStream::pair().map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(fail)?);
    command.args(["show", "--keep"]).stdin(OwnedFd::from(far));
    if !has_output {
        // A reader of this command's output would otherwise wait for the end of the program.
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    // Not waited for: this command ends before the background process.
    drop(command.spawn().map_err(fail)?);
    drop(command);
    near.set_nonblocking(true).map_err(fail)?;
    let mut connection = ControlConnection::new(UnixStream::from_std(near).map_err(fail)?);
    connection.send(spec).await.map_err(fail)?;
    Ok(connection)
}

/// Runs the background process. Standard input is a socket, on which the [`ProgramSpec`] arrives.
pub async fn run() -> Outcome {
    // A session of its own: Ctrl-C and SIGHUP are for the command that started it.
    let _ = rustix::process::setsid();
    let (spec, connection) = receive_spec().await?;
    let mut signals = Signals::new()?;
    supervise(&Home::open()?, &spec, connection, signals.end()).await;
    Ok(0)
}

async fn receive_spec() -> Result<(ProgramSpec, ControlConnection), Failure> {
    let fail = |error: io::Error| {
        Failure::local(format_args!("cannot read the program from standard input: {error}"))
    };
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(fail)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true).map_err(fail)?;
    let mut connection = ControlConnection::new(UnixStream::from_std(stream).map_err(fail)?);
    Ok((connection.expect().await.map_err(fail)?, connection))
}
