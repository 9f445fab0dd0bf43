//! The programs of one subject at both ends of a testbed, and the X servers between which they
//! forward input or windows.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use levada_services::desktop::screen::Screen;
use levada_services::desktop::xpra::{Side as End, WindowOptions, Xpra, private_folder};
use levada_services::exec::program::find;
use tempfile::TempDir;

use super::server::{Observe, SIZE, Server};
use crate::binary;
use crate::channels::ends::block_on;
use crate::channels::peer::Peer;
use crate::program::{Program, Side, free_address, output, poll_until, quiet};
use crate::testbed::Testbed;

/// The required programs and their Debian packages.
const NEEDS: [(&str, &str); 5] = [
    ("xpra", "xpra"),
    ("Xvfb", "xvfb"),
    ("xterm", "xterm"),
    ("barriers", "barrier"),
    ("barrierc", "barrier"),
];
/// The time for barrier to notice that the pointer left the screen.
const STEP: Duration = Duration::from_millis(50);
/// The time limit for one key.
const LIMIT: Duration = Duration::from_secs(20);
/// The time limit for one key during setup.
const TRIAL: Duration = Duration::from_secs(1);
/// The pause between two keys on another screen.
const PAUSE: Duration = Duration::from_millis(10);
/// A picture is complete when nothing was drawn for this time.
const STILL: Duration = Duration::from_millis(150);
/// A terminal that echoes its input.
const TERMINAL: [&str; 3] = ["xterm", "-e", "cat"];

/// The measured programs.
pub struct Tools {
    levada: PathBuf,
    program: Xpra,
    screen: Xpra,
}

impl Tools {
    /// Finds all programs.
    pub fn find() -> anyhow::Result<Self> {
        let missing = NEEDS.into_iter().filter(|(program, _)| find(program).is_none());
        let mut packages: Vec<&str> = missing.map(|(_, package)| package).collect();
        packages.dedup();
        if !packages.is_empty() {
            let packages = packages.join(" ");
            bail!("programs are not installed; with Debian or Ubuntu: apt install {packages}");
        }
        let program = Xpra::find(End::Program)?;
        let screen = Xpra::find(End::Screen)?;
        block_on(async { Ok(program.check_modules().await?) })?;
        Ok(Self { levada: binary::levada()?, program, screen })
    }
}

/// One subject with its programs and X servers.
pub struct Setup {
    /// The first field, so that the programs end before their X servers.
    _programs: Vec<Program>,
    /// The node, and the home of the programs that use it.
    _peer: Option<Peer>,
    /// The X server on which keys are pressed.
    source: Rc<Server>,
    /// The X server whose events are observed.
    observed: Rc<Server>,
    /// Whether drawing is observed, not keys.
    echo: bool,
    /// The X server of the programs that are shown elsewhere.
    _hidden: Option<Server>,
    _folders: Vec<TempDir>,
}

impl Setup {
    /// Starts a subject, and waits until a key arrives.
    pub fn start(tools: &Tools, testbed: &Testbed, subject: &str) -> anyhow::Result<Self> {
        let setup = match subject {
            "levada/input" => input(tools, testbed),
            "barrier" => barrier(testbed),
            "levada/display" => display(tools, testbed),
            "xpra/tcp" => xpra(tools, testbed),
            other => bail!("there is no subject `{other}`"),
        };
        let setup = setup.with_context(|| format!("start {subject}"))?;
        setup.wait_until_ready().with_context(|| format!("type at {subject}"))?;
        Ok(setup)
    }

    /// The latency of each key in nanoseconds: until the other screen's window has it, or until its
    /// echo is drawn.
    pub fn type_keys(&self, count: u32) -> anyhow::Result<Histogram<u64>> {
        let mut latency = Histogram::<u64>::new(3)?;
        for _ in 0..count {
            if self.echo {
                self.observed.wait_until_idle(STILL)?;
                latency.record(self.timed(&[true, false])?)?;
            } else {
                for down in [true, false] {
                    self.observed.wait_until_idle(PAUSE)?;
                    latency.record(self.timed(&[down])?)?;
                }
            }
        }
        Ok(latency)
    }

    fn timed(&self, ways: &[bool]) -> anyhow::Result<u64> {
        let start = Instant::now();
        ways.iter().try_for_each(|down| self.source.key(*down))?;
        let arrived = self.observed.next_event(LIMIT).context("a key did not arrive in 20 s")?;
        Ok(u64::try_from(arrived.saturating_duration_since(start).as_nanos())?)
    }

    fn wait_until_ready(&self) -> anyhow::Result<()> {
        if self.echo {
            let window = poll_until("a window", || self.observed.window())?;
            self.observed.focus(window)?;
        }
        poll_until("a key", || {
            if !self.echo {
                // barrier forwards keys after the pointer has left over the right edge; Levada
                // ignores moves.
                let [width, height] = [SIZE.0, SIZE.1].map(u16::cast_signed);
                self.source.move_pointer(width / 2, height / 2)?;
                self.source.move_pointer(width - 1, height / 2)?;
                thread::sleep(STEP);
            }
            self.observed.wait_until_idle(STILL)?;
            self.source.key(true)?;
            self.source.key(false)?;
            Ok(self.observed.next_event(TRIAL))
        })?;
        self.observed.wait_until_idle(TRIAL)
    }
}

/// `levada input` from the near screen to the far one.
fn input(tools: &Tools, testbed: &Testbed) -> anyhow::Result<Setup> {
    let source = Rc::new(Server::start(testbed, Side::Near, Observe::Nothing)?);
    let observed = Rc::new(Server::start(testbed, Side::Far, Observe::Keys)?);
    let peer = peer(tools, testbed, "input", &observed.display)?;
    let mut command = peer.client(&["input", "screen/input", "--display", &source.display]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut taken = Program::start(testbed, Side::Near, command)?;
    taken.wait_for_output("now control the other screen")?;
    let _programs = vec![taken];
    let _peer = Some(peer);
    Ok(Setup { _programs, _peer, source, observed, echo: false, _hidden: None, _folders: vec![] })
}

/// An xterm that runs at the near end, shown at the far one by `levada show`.
fn display(tools: &Tools, testbed: &Testbed) -> anyhow::Result<Setup> {
    let observed = Rc::new(Server::start(testbed, Side::Far, Observe::Drawing)?);
    let peer = peer(tools, testbed, "display", &observed.display)?;
    let words = ["show", "screen/display", "--detach", "--name", "echo", "--"];
    // Created before the program is started, so that it is stopped also after an error.
    let shown = Program::detached(peer.client(&["show", "--stop", "echo"]));
    output(testbed, Side::Near, peer.client(&[&words[..], &TERMINAL].concat()))?;
    let _programs = vec![shown];
    let _peer = Some(peer);
    let source = observed.clone();
    Ok(Setup { _programs, _peer, source, observed, echo: true, _hidden: None, _folders: vec![] })
}

/// An xterm shown by xpra over TCP; both ends have the options that Levada gives them.
fn xpra(tools: &Tools, testbed: &Testbed) -> anyhow::Result<Setup> {
    let observed = Rc::new(Server::start(testbed, Side::Far, Observe::Drawing)?);
    let hidden = Server::start(testbed, Side::Near, Observe::Nothing)?;
    let near = private_folder()?;
    let far = private_folder()?;
    let address = free_address(testbed, Side::Near)?;
    let socket = near.path().join("xpra");
    let screen = Screen::new(hidden.display.clone(), None);
    let mut serve = tools.program.serve(&screen, &socket, near.path(), false);
    serve.arg(format!("--bind-tcp={address}"));
    let mut programs = vec![Program::start(testbed, Side::Near, quiet(serve.command()))?];
    poll_until("xpra", || Ok(UnixStream::connect(&socket).ok()))?;
    let mut terminal = Command::new(TERMINAL[0]);
    terminal.args(&TERMINAL[1..]).env("DISPLAY", &hidden.display).env_remove("XAUTHORITY");
    programs.push(Program::start(testbed, Side::Near, quiet(terminal))?);
    let screen = Screen::new(observed.display.clone(), None);
    let options = WindowOptions {
        encoding: "png".into(),
        title: "xpra: ".into(),
        ..WindowOptions::default()
    };
    let attach = tools.screen.attach(&screen, Path::new("/unused"), far.path(), &options).command();
    let attach = over_tcp(&attach, address, far.path());
    programs.push(Program::start(testbed, Side::Far, quiet(attach))?);
    // Programs are dropped in the reverse order of their start.
    programs.reverse();
    let source = observed.clone();
    let _folders = vec![near, far];
    let _programs = programs;
    let _hidden = Some(hidden);
    Ok(Setup { _programs, _peer: None, source, observed, echo: true, _hidden, _folders })
}

/// The same command, with a TCP address instead of a socket.
fn over_tcp(command: &Command, address: SocketAddr, folder: &Path) -> Command {
    let mut other = Command::new(command.get_program());
    other.env_clear().current_dir(folder);
    for argument in command.get_args() {
        if argument.as_encoded_bytes().starts_with(b"socket:") {
            other.arg(format!("tcp://{address}/"));
        } else {
            other.arg(argument);
        }
    }
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    other.envs(set);
    other
}

/// barrier's server at the near end, with the far screen on its right.
fn barrier(testbed: &Testbed) -> anyhow::Result<Setup> {
    let source = Rc::new(Server::start(testbed, Side::Near, Observe::Nothing)?);
    let observed = Rc::new(Server::start(testbed, Side::Far, Observe::Keys)?);
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("barrier.conf");
    let text =
        "section: screens\n a:\n b:\nend\nsection: links\n a:\n  right = b\n b:\n  left = a\nend\n";
    std::fs::write(&config, text)?;
    let address = free_address(testbed, Side::Near)?.to_string();
    let program = |name: &str, words: &[&str], display: &str| {
        let mut command = Command::new(name);
        command.args(["-f", "--disable-crypto", "--display", display]).args(words);
        command.env("HOME", folder.path()).env("DISPLAY", display).env_remove("XAUTHORITY");
        quiet(command)
    };
    let words = ["--no-restart", "--name", "a", "--address", address.as_str()];
    let mut server = program("barriers", &words, &source.display);
    server.arg("-c").arg(&config);
    let client = program("barrierc", &["--name", "b", address.as_str()], &observed.display);
    let server = Program::start(testbed, Side::Near, server)?;
    let client = Program::start(testbed, Side::Far, client)?;
    let _programs = vec![client, server];
    let _folders = vec![folder];
    Ok(Setup { _programs, _peer: None, source, observed, echo: false, _hidden: None, _folders })
}

/// A node with the service `kind` for `display`.
fn peer(tools: &Tools, testbed: &Testbed, kind: &str, display: &str) -> anyhow::Result<Peer> {
    let service = format!("name = '{kind}'\ntype = '{kind}'\ndisplay = '{display}'\n");
    Peer::start(&tools.levada, testbed, "screen", &[service])
}
