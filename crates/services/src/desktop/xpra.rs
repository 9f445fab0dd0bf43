//! xpra, which brings the windows of a program to another screen: where it is, what it needs, and the
//! options under which it does that and nothing else.
//!
//! Each end speaks over a Unix socket in a private folder; what is between the two sockets is for others
//! to carry.

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

/// What every end is told. Whatever is not about windows, keys and pointers is off: what the two
/// programs could do beyond that, no configuration has allowed.
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
    // Two ends on one machine would pass pixels by a file, past the session.
    "--mmap=no",
    "--bell=no",
    "--system-tray=no",
    "--xsettings=no",
    "--remote-logging=no",
    "--sharing=no",
    "--lock=no",
];
/// Seconds without an answer after which an end asks again, and gives up after as long once more. By
/// itself it would wait for two minutes before a stalled link.
const PING_TIMEOUT: &str = "15";
/// How long the look for the Python modules may take.
const PROBING: Duration = Duration::from_secs(20);
/// The longest path of a folder for sockets: `sun_path` has 108 bytes (unix(7)).
const MAX_FOLDER: usize = 80;
/// The first line of a script is not longer.
const MAX_SHEBANG: u64 = 256;

/// Prints the packages whose modules are missing. Without the first windows stay black, without the
/// second there is no encoding for pictures.
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
/// What the probe may say.
const MODULES: [&str; 2] = ["python3-gi-cairo", "python3-pil"];

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where windows are seen.
    Screen,
    /// Where the program runs.
    Program,
}

/// Something that is not installed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{what} is not installed on this machine; with Debian or Ubuntu: apt install {packages}")]
pub struct Missing {
    what: String,
    packages: &'static str,
}

/// An xpra that is installed here.
#[derive(Clone, Debug)]
pub struct Xpra {
    program: PathBuf,
    side: Side,
}

/// How the windows of one session look and what they may do, at the side of the screen.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Stands before every title, so that nobody takes a window for one of this machine's own.
    pub title: String,
    /// A border inside every window: a color and a width in pixels.
    pub border: Option<String>,
    /// The clipboard is shared.
    pub clipboard: bool,
    /// How pictures are compressed.
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
    /// Looks for the programs that `side` needs, in this process's PATH.
    ///
    /// # Errors
    /// [`Missing`] names Debian's packages.
    pub fn find(side: Side) -> Result<Self, Missing> {
        let missing = |what: &str| Missing { what: what.to_owned(), packages: side.packages() };
        let program = find("xpra").ok_or_else(|| missing("xpra"))?;
        if side == Side::Program {
            find("Xvfb").ok_or_else(|| missing("Xvfb"))?;
        }
        Ok(Self { program, side })
    }

    /// Looks for the Python modules that xpra does without, and not well. If that cannot be found out,
    /// nothing is missing.
    ///
    /// # Errors
    /// [`Missing`] names Debian's packages.
    pub async fn check_modules(&self) -> Result<(), Missing> {
        let Some(python) = interpreter(&self.program) else { return Ok(()) };
        let mut command = Command::new(python);
        // Isolated: neither the working folder nor the environment may slip modules in.
        command.args(["-I", "-c", PROBE]).stdin(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let Ok(Ok(output)) = timeout(PROBING, command.output()).await else { return Ok(()) };
        let said = String::from_utf8_lossy(&output.stdout);
        let missing = said.split_whitespace().filter(|name| MODULES.contains(name));
        let what = missing.collect::<Vec<_>>().join(", ");
        if what.is_empty() {
            return Ok(());
        }
        Err(Missing { what, packages: self.side.packages() })
    }

    /// The end that shows windows on `screen`; it connects to `socket`, and keeps its files in `folder`.
    pub fn attach(&self, screen: &Screen, socket: &Path, folder: &Path, look: &Look) -> Launch {
        let mut launch = self.launch(folder);
        launch.arg("attach").arg(in_front("socket:", socket)).args(COMMON);
        launch.arg(clipboard(look.clipboard));
        launch.args(["--tray=no", "--desktop-scaling=no", "--modal-windows=no"]);
        launch.arg(format!("--encoding={}", look.encoding));
        launch.arg(format!("--title={}@title@", look.title));
        if let Some(border) = &look.border {
            launch.arg(format!("--border={border}"));
        }
        launch.envs(screen.environment());
        launch
    }

    /// The end at which programs open their windows, on the X server `screen`, which is its own alone.
    /// It listens on `socket`, and keeps its files in `folder`.
    pub fn serve(&self, screen: &Screen, socket: &Path, folder: &Path, clip: bool) -> Launch {
        let mut launch = self.launch(folder);
        launch.arg("start").arg(screen.display()).args(COMMON);
        launch.arg(clipboard(clip));
        launch.arg("--use-display=yes").arg(in_front("--bind=", socket));
        launch.arg(in_front("--socket-dir=", folder));
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

    /// Nothing of the user's own settings reaches it, and it leaves nothing in the home folder.
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
            // Otherwise a key file in the user's home folder would take the place of ours.
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

fn in_front(text: &str, path: &Path) -> OsString {
    let mut whole = OsString::from(text);
    whole.push(path);
    whole
}

/// What runs the script `program`: the first word of its first line.
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

/// A new folder for sockets that only this user can reach. It goes when it is dropped.
///
/// Its path is short, and has no character that xpra would take for a part of an address.
///
/// # Errors
/// What the system says about the last place that was tried.
pub fn private_folder() -> io::Result<TempDir> {
    let mut places = Vec::new();
    places.extend(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    places.push(env::temp_dir());
    places.push(PathBuf::from("/tmp"));
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for place in places.into_iter().filter(|place| is_plain(place)) {
        let private = Permissions::from_mode(0o700);
        match tempfile::Builder::new().prefix("levada-").permissions(private).tempdir_in(place) {
            Ok(folder) => return Ok(folder),
            Err(refused) => error = refused,
        }
    }
    Err(error)
}

fn is_plain(place: &Path) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    place.is_absolute()
        && place.to_str().is_some_and(|text| text.len() <= MAX_FOLDER && text.chars().all(harmless))
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
    fn nothing_but_windows_is_allowed_at_either_end() {
        let screen = Screen::new(":0".into(), None);
        let folder = Path::new("/run/a");
        let look = Look { title: "lvabc: ".into(), encoding: "png".into(), ..Look::default() };
        let attach = installed().attach(&screen, Path::new("/run/a/socket"), folder, &look);
        let serve = installed().serve(&screen, Path::new("/run/a/socket"), folder, false);
        for launch in [&attach, &serve] {
            let arguments = arguments(launch);
            for off in ["clipboard", "mmap", "file-transfer", "printing", "open-url", "speaker"] {
                assert!(arguments.contains(&format!("--{off}=no")), "{off}: {arguments:?}");
            }
        }
        assert!(arguments(&attach).contains(&"--title=lvabc: @title@".to_owned()));
        assert!(arguments(&attach).contains(&"socket:/run/a/socket".to_owned()));
        let shared = Look { clipboard: true, ..look };
        let attach = installed().attach(&screen, Path::new("/s"), folder, &shared);
        assert!(arguments(&attach).contains(&"--clipboard=yes".to_owned()));
    }

    #[test]
    fn what_is_missing_is_named_with_its_packages() {
        let missing = Missing { what: "Xvfb".into(), packages: Side::Program.packages() };
        let text = missing.to_string();
        for word in ["Xvfb", "apt install", "xpra", "xvfb", "python3-gi-cairo"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn the_interpreter_of_a_script_is_in_its_first_line() {
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
    fn a_folder_for_sockets_is_private_and_its_path_is_short() {
        let folder = private_folder().unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(folder.path().as_os_str().len() < 100);
        for place in ["relative", "/a b", "/a:b", "/a@b", "/a$b", "/a,b"] {
            assert!(!is_plain(Path::new(place)), "{place}");
        }
    }
}
