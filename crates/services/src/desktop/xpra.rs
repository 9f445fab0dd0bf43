//! xpra, which shows the windows of a program on another screen: finds the installed program and
//! its dependencies, and starts it with options that allow windows, keys and pointers only.
//!
//! Each end uses a Unix socket in a private folder. The callers connect the two sockets.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use thiserror::Error;
use tokio::process::Command;
use tokio::time::timeout;

use crate::desktop::screen::Screen;
use crate::exec::program::{Launch, find};

/// Arguments of both ends. They disable everything but windows, keys and pointers, because no
/// configuration of Levada allows more.
const COMMON: [&str; 18] = [
    "--mdns=no",
    "--notifications=no",
    "--pulseaudio=no",
    "--speaker=no",
    "--microphone=no",
    "--webcam=no",
    "--printing=no",
    "--file-transfer=no",
    "--open-files=no",
    "--open-url=no",
    "--opengl=no",
    // Two ends on one machine would exchange pixels through a file, which bypasses the session.
    "--mmap=no",
    "--bell=no",
    "--system-tray=no",
    "--xsettings=no",
    "--remote-logging=no",
    "--sharing=no",
    "--lock=no",
];
/// Seconds without an answer after which an end repeats its ping; after the same time again it
/// disconnects. The default of xpra detects a stalled connection after two minutes.
const PING_TIMEOUT: &str = "15";
/// How long the check for the Python modules may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of the path of a folder for sockets, in bytes: `sun_path` has 108 (unix(7)).
const MAX_FOLDER: usize = 80;
/// Maximum length of the first line of a script, in bytes.
const MAX_SHEBANG: u64 = 256;

/// Prints the packages whose modules are missing. Without the first, windows stay black; without
/// the second, there is no encoding for pictures.
const PROBE: &str = "
import importlib
missing = []
try:
    import gi
    gi.require_foreign('cairo')
except Exception:
    missing.append('python3-gi-cairo')
try:
    importlib.import_module('PIL.Image')
except Exception:
    missing.append('python3-pil')
print(' '.join(missing))
";
/// The packages that the probe can print.
const MODULES: [&str; 2] = ["python3-gi-cairo", "python3-pil"];

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that shows the windows.
    Screen,
    /// The end where the program runs.
    Program,
}

/// A program or module is not installed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{what} is not installed on this machine; with Debian or Ubuntu: apt install {packages}")]
pub struct MissingDependency {
    what: String,
    packages: &'static str,
}

/// An installed xpra.
#[derive(Clone, Debug)]
pub struct Xpra {
    program: PathBuf,
    side: Side,
}

/// Options of the windows of a session, for the end that shows them.
#[derive(Clone, Debug, Default)]
pub struct WindowOptions {
    /// Prefix of every title, which distinguishes these windows from those of this machine.
    pub title: String,
    /// A border inside every window: a color and a width in pixels, such as `red,4`.
    pub border: Option<String>,
    /// Whether the clipboard is shared.
    pub clipboard: bool,
    /// The encoding of pictures.
    pub encoding: String,
}

impl Side {
    fn packages(self) -> &'static str {
        match self {
            Self::Screen => "xpra python3-gi-cairo python3-pil python3-lz4",
            Self::Program => "xpra xvfb python3-gi-cairo python3-pil python3-lz4",
        }
    }
}

impl Xpra {
    /// Finds the programs that `side` needs in this process's PATH.
    ///
    /// # Errors
    /// [`MissingDependency`] names the packages of Debian.
    pub fn find(side: Side) -> Result<Self, MissingDependency> {
        let missing =
            |what: &str| MissingDependency { what: what.to_owned(), packages: side.packages() };
        let program = find("xpra").ok_or_else(|| missing("xpra"))?;
        if side == Side::Program {
            find("Xvfb").ok_or_else(|| missing("Xvfb"))?;
        }
        Ok(Self { program, side })
    }

    /// Checks for Python modules that xpra works badly without. If the check itself fails, they
    /// count as present.
    ///
    /// # Errors
    /// [`MissingDependency`] names the packages of Debian.
    pub async fn check_modules(&self) -> Result<(), MissingDependency> {
        let Some(python) = interpreter(&self.program) else { return Ok(()) };
        let mut command = Command::new(python);
        // -I: no modules from the working folder or the environment.
        command.args(["-I", "-c", PROBE]).stdin(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let Ok(Ok(output)) = timeout(PROBE_TIMEOUT, command.output()).await else { return Ok(()) };
        let printed = String::from_utf8_lossy(&output.stdout);
        let missing = printed.split_whitespace().filter(|name| MODULES.contains(name));
        let what = missing.collect::<Vec<_>>().join(", ");
        if what.is_empty() {
            return Ok(());
        }
        Err(MissingDependency { what, packages: self.side.packages() })
    }

    /// The end that shows windows on `screen`. It connects to `socket`, and has its files in
    /// `folder`.
    pub fn attach(
        &self,
        screen: &Screen,
        socket: &Path,
        folder: &Path,
        options: &WindowOptions,
    ) -> Launch {
        let mut launch = self.launch(folder);
        launch.arg("attach").arg(prefixed("socket:", socket)).args(COMMON);
        launch.arg(clipboard(options.clipboard));
        launch.args(["--tray=no", "--desktop-scaling=no", "--modal-windows=no"]);
        launch.arg(format!("--encoding={}", options.encoding));
        launch.arg(format!("--title={}@title@", options.title));
        if let Some(border) = &options.border {
            launch.arg(format!("--border={border}"));
        }
        launch.envs(screen.environment());
        launch
    }

    /// The end where programs open their windows, on the X server `screen`, which no other program
    /// may use. It listens on `socket`, and has its files in `folder`.
    pub fn serve(
        &self,
        screen: &Screen,
        socket: &Path,
        folder: &Path,
        share_clipboard: bool,
    ) -> Launch {
        let mut launch = self.launch(folder);
        launch.arg("start").arg(screen.display()).args(COMMON);
        launch.arg(clipboard(share_clipboard));
        launch.arg("--use-display=yes").arg(prefixed("--bind=", socket));
        launch.arg(prefixed("--socket-dir=", folder));
        launch.args([
            "--daemon=no",
            "--attach=no",
            "--systemd-run=no",
            "--html=no",
            "--dbus-proxy=no",
            "--dbus-launch=no",
            "--dbus-control=no",
            "--forward-xdg-open=no",
            "--start-new-commands=no",
            "--exit-with-children=no",
        ]);
        launch.envs(screen.environment());
        launch
    }

    /// Hides the user's settings and home folder from xpra.
    fn launch(&self, folder: &Path) -> Launch {
        let mut launch = Launch::new(&self.program);
        for name in ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "USER", "LOGNAME"] {
            if let Some(value) = env::var_os(name) {
                launch.env(name, value);
            }
        }
        for name in ["HOME", "XDG_RUNTIME_DIR"] {
            launch.env(name, folder);
        }
        for name in ["XPRA_SYSTEM_CONF_DIRS", "XPRA_USER_CONF_DIRS", "XPRA_DEFAULT_CONF_DIRS"] {
            launch.env(name, folder.join("no-settings"));
        }
        launch.envs([
            ("XPRA_PING_TIMEOUT", PING_TIMEOUT),
            // Otherwise an authority file in the user's home folder would replace ours.
            ("XPRA_PRIVATE_XAUTH", "1"),
            ("XPRA_UINPUT", "0"),
            ("XPRA_NO_ROOT_WARNING", "1"),
            ("NO_AT_BRIDGE", "1"),
            ("GDK_BACKEND", "x11"),
        ]);
        launch.current_dir(folder);
        launch
    }
}

fn clipboard(shared: bool) -> &'static str {
    if shared { "--clipboard=yes" } else { "--clipboard=no" }
}

fn prefixed(text: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(text);
    argument.push(path);
    argument
}

/// The interpreter of the script `program`, by its first line.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(program).ok()?.take(MAX_SHEBANG).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = str::from_utf8(line).ok()?.split_whitespace();
    let first = words.next()?;
    // `#!/usr/bin/env python3`
    if Path::new(first).file_name()? == "env" {
        return find(words.next()?);
    }
    Path::new(first).is_absolute().then(|| PathBuf::from(first))
}

/// Creates a folder for sockets that only this user can access. Dropping it deletes the folder.
///
/// Its path is short, and has no character that is special in an address of xpra.
///
/// # Errors
/// The system's error for the last parent folder that was tried.
pub fn private_folder() -> io::Result<TempDir> {
    let mut parents = Vec::new();
    parents.extend(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    parents.push(env::temp_dir());
    parents.push(PathBuf::from("/tmp"));
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for parent in parents.into_iter().filter(|parent| is_plain(parent)) {
        let private = Permissions::from_mode(0o700);
        match tempfile::Builder::new().prefix("levada-").permissions(private).tempdir_in(parent) {
            Ok(folder) => return Ok(folder),
            Err(refused) => error = refused,
        }
    }
    Err(error)
}

fn is_plain(path: &Path) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    path.is_absolute()
        && path.to_str().is_some_and(|text| text.len() <= MAX_FOLDER && text.chars().all(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(launch: &Launch) -> Vec<String> {
        launch.arguments().iter().map(|argument| argument.to_str().unwrap().to_owned()).collect()
    }

    fn installed() -> Xpra {
        Xpra { program: "/usr/bin/xpra".into(), side: Side::Screen }
    }

    #[test]
    fn both_ends_disable_everything_but_windows() {
        let screen = Screen::new(":0".into(), None);
        let folder = Path::new("/run/a");
        let options = WindowOptions {
            title: "lvabc: ".into(),
            encoding: "png".into(),
            ..WindowOptions::default()
        };
        let attach = installed().attach(&screen, Path::new("/run/a/socket"), folder, &options);
        let serve = installed().serve(&screen, Path::new("/run/a/socket"), folder, false);
        for launch in [&attach, &serve] {
            let arguments = arguments(launch);
            for off in ["clipboard", "mmap", "file-transfer", "printing", "open-url", "speaker"] {
                assert!(arguments.contains(&format!("--{off}=no")), "{off}: {arguments:?}");
            }
        }
        assert!(arguments(&attach).contains(&"--title=lvabc: @title@".to_owned()));
        assert!(arguments(&attach).contains(&"socket:/run/a/socket".to_owned()));
        let shared = WindowOptions { clipboard: true, ..options };
        let attach = installed().attach(&screen, Path::new("/s"), folder, &shared);
        assert!(arguments(&attach).contains(&"--clipboard=yes".to_owned()));
    }

    #[test]
    fn a_missing_dependency_names_its_packages() {
        let missing = MissingDependency { what: "Xvfb".into(), packages: Side::Program.packages() };
        let text = missing.to_string();
        for word in ["Xvfb", "apt install", "xpra", "xvfb", "python3-gi-cairo"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn reads_the_interpreter_from_the_first_line_of_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for (text, expected) in [
            ("#!/usr/bin/python3 -s\nimport os", Some("/usr/bin/python3")),
            ("#! /opt/python3\n", Some("/opt/python3")),
            ("#!python3\n", None),
            ("\u{7f}ELF", None),
            ("", None),
        ] {
            fs::write(&script, text).unwrap();
            assert_eq!(interpreter(&script), expected.map(PathBuf::from), "{text}");
        }
        fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        assert_eq!(interpreter(&script), find("sh"));
    }

    #[test]
    fn the_folder_for_sockets_is_private_and_its_path_is_short() {
        let folder = private_folder().unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(folder.path().as_os_str().len() < 100);
        for path in ["relative", "/a b", "/a:b", "/a@b", "/a$b", "/a,b"] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }
}
