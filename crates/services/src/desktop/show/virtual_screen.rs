//! A virtual screen for one program: an X server without a display (Xvfb), and an xpra server that
//! forwards its windows.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levada_core::{Random, SystemRandom};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::ShowError;
use crate::desktop::screen::{Screen, wildcard_authority};
use crate::desktop::xpra::{Side, Xpra};
use crate::exec::program::{Group, Launch, Tail};

/// How long the X server, and then xpra, may take to be ready.
const XVFB_TIMEOUT: Duration = Duration::from_secs(15);
const XPRA_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);
/// How long xpra may take to disconnect its client and end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// More bytes than the line with a display number has.
const MAX_NUMBER: u64 = 16;
/// The maximum size of windows, in pixels and bits.
const SIZE: &str = "3840x2160x24+32";
/// Variables of the screen that this command was started on. They are removed, because a program
/// that uses them would open its windows there.
const REMOVED_VARIABLES: [&str; 5] = [
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SESSION_MANAGER",
    "XDG_SESSION_TYPE",
    "WINDOWID",
];

/// Xvfb and xpra. Dropping it ends them.
pub(super) struct VirtualScreen {
    /// First, so that it is dropped before the X server.
    xpra: Group,
    xvfb: Group,
    screen: Screen,
    socket: PathBuf,
    tail: Tail,
}

impl VirtualScreen {
    /// Starts both, with their files in `folder`.
    ///
    /// # Errors
    /// [`ShowError::Local`]; if something is not installed, it names Debian's packages.
    pub(super) async fn start(folder: TempDir, clipboard: bool) -> Result<Self, ShowError> {
        let xpra = Xpra::find(Side::Program).map_err(ShowError::local)?;
        xpra.check_modules().await.map_err(ShowError::local)?;
        let path = folder.path().to_owned();
        let authority = path.join("Xauthority");
        write_authority(&authority).map_err(ShowError::file("write", &authority))?;
        let tail = Tail::default();
        let (mut xvfb, number) = start_xvfb(&authority, &tail).await?;
        xvfb.keep(folder);
        let screen = Screen::new(format!(":{number}"), Some(authority));
        let socket = path.join("xpra");
        let launch = xpra.serve(&screen, &socket, &path, clipboard);
        let mut xpra = Group::start(&launch).await.map_err(ShowError::local)?;
        follow(&mut xpra, &tail);
        let mut ready = Self { xpra, xvfb, screen, socket, tail };
        ready.wait().await?;
        Ok(ready)
    }

    /// The socket on which xpra listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The launch of a program that opens its windows on this screen.
    pub(super) fn launch(&self, program: &OsStr) -> Launch {
        let mut launch = Launch::new(program);
        launch.inherit_environment();
        REMOVED_VARIABLES.iter().for_each(|name| {
            launch.env_remove(name);
        });
        launch.envs(self.screen.environment());
        launch.env("GDK_BACKEND", "x11").env("QT_QPA_PLATFORM", "xcb");
        launch
    }

    /// Waits until one of the two ends, which is an error; returns its last line of output.
    pub(super) async fn failed(&mut self) -> String {
        let which = tokio::select! {
            _ = self.xpra.code() => "xpra",
            _ = self.xvfb.code() => "Xvfb",
        };
        format!("{which} has ended: {}", self.tail.last_line())
    }

    /// Ends xpra, which disconnects its client.
    pub(super) async fn stop(&mut self) {
        self.xpra.terminate();
        let _ = timeout(STOP_TIMEOUT, self.xpra.code()).await;
    }

    async fn wait(&mut self) -> Result<(), ShowError> {
        let socket = self.socket.clone();
        let answers = async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(STEP).await;
            }
        };
        let why = tokio::select! {
            answered = timeout(XPRA_TIMEOUT, answers) => match answered {
                Ok(()) => return Ok(()),
                Err(_) => format!("xpra is not ready: {}", self.tail.last_line()),
            },
            why = self.failed() => why,
        };
        Err(ShowError::local(why))
    }
}

/// Writes a new secret for the X server to `path`.
fn write_authority(path: &Path) -> io::Result<()> {
    let mut secret = Zeroizing::new([0; 16]);
    SystemRandom.fill(secret.as_mut()).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&wildcard_authority(&secret))
}

/// Starts an X server on a free display; the server chooses and prints its number.
async fn start_xvfb(authority: &Path, tail: &Tail) -> Result<(Group, u32), ShowError> {
    let mut launch = Launch::new("Xvfb");
    launch.inherit_environment();
    launch.args(["-displayfd", "1", "-screen", "0", SIZE, "-nolisten", "tcp", "-noreset"]);
    launch.args(["+extension", "Composite", "+extension", "RANDR", "-auth"]).arg(authority);
    let mut xvfb = Group::start(&launch).await.map_err(ShowError::local)?;
    let output = xvfb.take_output();
    follow(&mut xvfb, tail);
    let number = match output {
        Some(output) => timeout(XVFB_TIMEOUT, number(output)).await.ok().flatten(),
        None => None,
    };
    let failed = || ShowError::local(format_args!("cannot start Xvfb: {}", tail.last_line()));
    Ok((xvfb, number.ok_or_else(failed)?))
}

async fn number(output: impl AsyncRead + Unpin) -> Option<u32> {
    let mut line = String::new();
    BufReader::new(output.take(MAX_NUMBER)).read_line(&mut line).await.ok()?;
    line.trim_end().parse().ok()
}

fn follow(group: &mut Group, tail: &Tail) {
    if let Some(output) = group.take_output() {
        tail.follow(output);
    }
    if let Some(error) = group.take_error() {
        tail.follow(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_the_display_number_from_a_line() {
        for (printed, expected) in [
            (&b"12\n"[..], Some(12)),
            (b"0\nmore", Some(0)),
            (b"", None),
            (b"x\n", None),
            (b"11111111111111111111111\n", None),
        ] {
            assert_eq!(number(printed).await, expected);
        }
    }
}
