//! A virtual screen for one program: an X server without a picture, and the xpra that brings its windows
//! to where they are seen.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levada_core::{Random, SystemRandom};
use levada_services::desktop::screen::{Screen, for_every_display};
use levada_services::desktop::xpra::{Side, Xpra};
use levada_services::exec::program::{Group, Launch, Tail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// How long the X server, and then xpra, may take to be ready.
const XVFB: Duration = Duration::from_secs(15);
const XPRA: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);
/// How long xpra may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(5);
/// More than the number of a display.
const MAX_NUMBER: u64 = 16;
/// Windows cannot be larger than this, in pixels and bits.
const SIZE: &str = "3840x2160x24+32";
/// Variables of the screen that this command was started on: a program that followed them would open its
/// windows there.
const ELSEWHERE: [&str; 5] = [
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SESSION_MANAGER",
    "XDG_SESSION_TYPE",
    "WINDOWID",
];

/// The two programs. Dropping it ends them.
pub struct VirtualScreen {
    /// First, so that it ends before its screen does.
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
    /// [`Failure`] 120 names Debian's packages if something is not installed.
    pub async fn start(folder: TempDir, clipboard: bool) -> Result<Self, Failure> {
        let xpra = Xpra::find(Side::Program).map_err(Failure::local)?;
        xpra.check_modules().await.map_err(Failure::local)?;
        let place = folder.path().to_owned();
        let authority = place.join("Xauthority");
        write_authority(&authority).map_err(Failure::file("write", &authority))?;
        let tail = Tail::default();
        let (mut xvfb, number) = start_xvfb(&authority, &tail).await?;
        xvfb.keep(folder);
        let screen = Screen::new(format!(":{number}"), Some(authority));
        let socket = place.join("xpra");
        let launch = xpra.serve(&screen, &socket, &place, clipboard);
        let mut xpra = Group::start(&launch).await.map_err(Failure::local)?;
        follow(&mut xpra, &tail);
        let mut ready = Self { xpra, xvfb, screen, socket, tail };
        ready.wait().await?;
        Ok(ready)
    }

    /// Where xpra listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A program that opens its windows here.
    pub fn launch(&self, program: &OsStr) -> Launch {
        let mut launch = Launch::new(program);
        launch.inherit_environment();
        ELSEWHERE.iter().for_each(|name| {
            launch.env_remove(name);
        });
        launch.envs(self.screen.environment());
        launch.env("GDK_BACKEND", "x11").env("QT_QPA_PLATFORM", "xcb");
        launch
    }

    /// Waits until one of the two has ended, which they do not do by themselves: what was said last.
    pub async fn failed(&mut self) -> String {
        let which = tokio::select! {
            _ = self.xpra.code() => "xpra",
            _ = self.xvfb.code() => "Xvfb",
        };
        format!("{which} has ended: {}", self.tail.last_line())
    }

    /// Lets xpra say goodbye to whoever is connected.
    pub async fn stop(&mut self) {
        self.xpra.terminate();
        let _ = timeout(FAREWELL, self.xpra.code()).await;
    }

    async fn wait(&mut self) -> Result<(), Failure> {
        let socket = self.socket.clone();
        let answers = async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(STEP).await;
            }
        };
        let why = tokio::select! {
            answered = timeout(XPRA, answers) => match answered {
                Ok(()) => return Ok(()),
                Err(_) => format!("xpra is not ready: {}", self.tail.last_line()),
            },
            why = self.failed() => why,
        };
        Err(Failure::local(why))
    }
}

/// The X server's secret is new, and in no other file.
fn write_authority(path: &Path) -> io::Result<()> {
    let mut secret = Zeroizing::new([0; 16]);
    SystemRandom.fill(secret.as_mut()).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&for_every_display(&secret))
}

/// Starts an X server on a display that is free: which, it says itself.
async fn start_xvfb(authority: &Path, tail: &Tail) -> Result<(Group, u32), Failure> {
    let mut launch = Launch::new("Xvfb");
    launch.inherit_environment();
    launch.args(["-displayfd", "1", "-screen", "0", SIZE, "-nolisten", "tcp", "-noreset"]);
    launch.args(["+extension", "Composite", "+extension", "RANDR", "-auth"]).arg(authority);
    let mut xvfb = Group::start(&launch).await.map_err(Failure::local)?;
    let output = xvfb.take_output();
    follow(&mut xvfb, tail);
    let number = match output {
        Some(output) => timeout(XVFB, number(output)).await.ok().flatten(),
        None => None,
    };
    let failed = || Failure::local(format_args!("Xvfb does not start: {}", tail.last_line()));
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
    async fn a_display_is_a_number_on_a_line() {
        for (said, expected) in [
            (&b"12\n"[..], Some(12)),
            (b"0\nmore", Some(0)),
            (b"", None),
            (b"x\n", None),
            (b"11111111111111111111111\n", None),
        ] {
            assert_eq!(number(said).await, expected);
        }
    }
}
