//! Starts a program, its virtual screen, and the session that will show it.

use std::ffi::OsStr;
use std::path::Path;

use levada_client::{Client, Running};

use crate::desktop::show::ShowError;
use crate::desktop::show::protocol::ProgramSpec;
use crate::desktop::show::tunnel::start;
use crate::desktop::show::virtual_screen::VirtualScreen;
use crate::desktop::xpra::private_folder;
use crate::exec::program::{Group, find};

/// A program that has just been started, its screen, and the session that will show it.
pub(super) struct Prepared {
    /// First, so that it is dropped before its screen.
    pub(super) program: Group,
    pub(super) screen: VirtualScreen,
    pub(super) running: Running,
}

pub(super) async fn prepare(spec: &ProgramSpec, client: &Client) -> Result<Prepared, ShowError> {
    let (program, arguments) =
        spec.program.split_first().ok_or_else(|| ShowError::local("no program is named"))?;
    let is_path = program.contains('/');
    let exists = if is_path { Path::new(program).is_file() } else { find(program).is_some() };
    if !exists {
        return Err(ShowError::Local(format!("there is no program `{program}` here")));
    }
    // Requested first: a refusal must come before anything is started.
    let capability = spec.right.capability(client).await?;
    let folder = private_folder().map_err(ShowError::local)?;
    let screen = VirtualScreen::start(folder, spec.clipboard).await?;
    let running = start(client, &capability).await?;
    let mut launch = screen.launch(OsStr::new(program));
    let program = Group::start(launch.args(arguments))
        .await
        .map_err(|error| ShowError::Local(format!("cannot start `{program}`: {error}")))?;
    Ok(Prepared { program, screen, running })
}
