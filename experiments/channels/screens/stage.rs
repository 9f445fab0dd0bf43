//! The programs of one subject, at both ends of a place, and the screens between which they pass things on.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use levada_services::desktop::screen::Screen;
use levada_services::desktop::xpra::{Look, Side as End, Xpra, private_folder};
use levada_services::exec::program::find;
use tempfile::TempDir;

use super::program::{Program, output, patiently, quiet};
use super::server::{SIZE, Server, Side, Watch};
use crate::channels::ends::block_on;
use crate::place::Place;

/// Programs that are needed, and the Debian packages that have them.
const NEEDS: [(&str, &str); 5] = [
    ("xpra", "xpra"),
    ("Xvfb", "xvfb"),
    ("xterm", "xterm"),
    ("barriers", "barrier"),
    ("barrierc", "barrier"),
];
/// What barrier may take to see the pointer leave.
const STEP: Duration = Duration::from_millis(50);
/// How long a key that was pressed may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The same while the way is only being made.
const TRIAL: Duration = Duration::from_secs(1);
/// Between two keys on another screen.
const PAUSE: Duration = Duration::from_millis(10);
/// A picture is complete when nothing was drawn for so long.
const STILL: Duration = Duration::from_millis(150);
/// A terminal that only shows what is typed into it.
const TERMINAL: [&str; 3] = ["xterm", "-e", "cat"];

/// What is measured.
pub struct Tools {
    levada: PathBuf,
    program: Xpra,
    screen: Xpra,
}

impl Tools {
    /// Looks for everything.
    pub fn find() -> anyhow::Result<Self> {
        let lacks = NEEDS.into_iter().filter(|(program, _)| find(program).is_none());
        let mut packages: Vec<&str> = lacks.map(|(_, package)| package).collect();
        packages.dedup();
        if !packages.is_empty() {
            let packages = packages.join(" ");
            bail!("something is not installed; with Debian or Ubuntu: apt install {packages}");
        }
        let (program, screen) = (Xpra::find(End::Program)?, Xpra::find(End::Screen)?);
        block_on(async { Ok(program.check_modules().await?) })?;
        Ok(Self { levada: levada()?, program, screen })
    }

    /// A command of the identity in `home`.
    fn levada(&self, home: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(&self.levada);
        command.args(words).env("LEVADA_HOME", home);
        command.env_remove("DISPLAY").env_remove("XAUTHORITY").stdin(Stdio::null());
        command
    }
}

/// The binary beside this one. What is measured is what the sources say now, not what was built some time ago.
fn levada() -> anyhow::Result<PathBuf> {
    if let Some(cargo) = env::var_os("CARGO") {
        let words = ["build", "--release", "--quiet", "--package", "levada-cli", "--bin", "levada"];
        let built = Command::new(cargo).args(words).status().context("run cargo")?;
        ensure!(built.success(), "the binary `levada` cannot be built");
    }
    let levada = env::current_exe()?.with_file_name("levada");
    ensure!(levada.is_file(), "there is no {}; cargo build --release", levada.display());
    Ok(levada)
}

/// One subject, ready to be typed at.
pub struct Stage {
    /// First, so that they end before their screens do.
    _programs: Vec<Program>,
    /// Where keys are pressed.
    hands: Rc<Server>,
    /// Where they are seen.
    eyes: Rc<Server>,
    /// What is seen is what was drawn.
    echo: bool,
    /// The screen on which nobody looks.
    _virtual: Option<Server>,
    _folders: Vec<TempDir>,
}

impl Stage {
    /// Starts a subject, and waits until a key has come through.
    pub fn start(tools: &Tools, place: &Place, subject: &str) -> anyhow::Result<Self> {
        let stage = match subject {
            "levada/input" => input(tools, place),
            "barrier" => barrier(place),
            "levada/display" => display(tools, place),
            "xpra/tcp" => xpra(tools, place),
            other => bail!("there is no subject `{other}`"),
        };
        let stage = stage.with_context(|| format!("start {subject}"))?;
        stage.ready().with_context(|| format!("type at {subject}"))?;
        Ok(stage)
    }

    /// How long each key took, in nanoseconds: until the other screen's window had it, or until its echo was drawn.
    pub fn type_keys(&self, count: u32) -> anyhow::Result<Histogram<u64>> {
        let mut latency = Histogram::<u64>::new(3)?;
        for _ in 0..count {
            if self.echo {
                self.eyes.still(STILL)?;
                latency.record(self.timed(&[true, false])?)?;
            } else {
                for down in [true, false] {
                    self.eyes.still(PAUSE)?;
                    latency.record(self.timed(&[down])?)?;
                }
            }
        }
        Ok(latency)
    }

    fn timed(&self, ways: &[bool]) -> anyhow::Result<u64> {
        let start = Instant::now();
        ways.iter().try_for_each(|down| self.hands.key(*down))?;
        let seen = self.eyes.seen(LIMIT).context("a key did not come through in 20 s")?;
        Ok(u64::try_from(seen.saturating_duration_since(start).as_nanos())?)
    }

    fn ready(&self) -> anyhow::Result<()> {
        if self.echo {
            let window = patiently("a window", || self.eyes.window())?;
            self.eyes.focus(window)?;
        }
        patiently("a key", || {
            if !self.echo {
                // barrier passes keys on once the pointer has left over the right edge; Levada minds no moves.
                let [width, height] = [SIZE.0, SIZE.1].map(u16::cast_signed);
                self.hands.point(width / 2, height / 2)?;
                self.hands.point(width - 1, height / 2)?;
                thread::sleep(STEP);
            }
            self.eyes.still(STILL)?;
            self.hands.key(true)?;
            self.hands.key(false)?;
            Ok(self.eyes.seen(TRIAL))
        })?;
        self.eyes.still(TRIAL)
    }
}

/// `levada input` from the near screen to the far one.
fn input(tools: &Tools, place: &Place) -> anyhow::Result<Stage> {
    let hands = Rc::new(Server::start(place, Side::Near, Watch::Nothing)?);
    let eyes = Rc::new(Server::start(place, Side::Far, Watch::Keys)?);
    let (folder, node) = node(tools, place, "input", &eyes.display)?;
    let words = ["input", "screen/input", "--display", hands.display.as_str()];
    let mut command = tools.levada(&folder.path().join("near"), &words);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut taken = Program::start(place, Side::Near, command)?;
    taken.says("lets go")?;
    let _programs = vec![taken, node];
    Ok(Stage { _programs, hands, eyes, echo: false, _virtual: None, _folders: vec![folder] })
}

/// An xterm that runs at the near end, shown at the far one by `levada show`.
fn display(tools: &Tools, place: &Place) -> anyhow::Result<Stage> {
    let eyes = Rc::new(Server::start(place, Side::Far, Watch::Pictures)?);
    let (folder, node) = node(tools, place, "display", &eyes.display)?;
    let near = folder.path().join("near");
    let words = ["show", "screen/display", "--detach", "--name", "echo", "--"];
    // In place before it is started: whatever becomes of it, nothing is left.
    let shown = Program::elsewhere(tools.levada(&near, &["show", "--stop", "echo"]));
    output(place, Side::Near, tools.levada(&near, &[&words[..], &TERMINAL].concat()))?;
    let (_programs, hands) = (vec![shown, node], eyes.clone());
    Ok(Stage { _programs, hands, eyes, echo: true, _virtual: None, _folders: vec![folder] })
}

/// The same by xpra alone, over TCP: both ends have the options that Levada gives them.
fn xpra(tools: &Tools, place: &Place) -> anyhow::Result<Stage> {
    let eyes = Rc::new(Server::start(place, Side::Far, Watch::Pictures)?);
    let hidden = Server::start(place, Side::Near, Watch::Nothing)?;
    let (near, far) = (private_folder()?, private_folder()?);
    let (address, socket) = (free(place)?, near.path().join("xpra"));
    let screen = Screen::new(hidden.display.clone(), None);
    let mut serve = tools.program.serve(&screen, &socket, near.path(), false);
    serve.arg(format!("--bind-tcp={address}"));
    let mut programs = vec![Program::start(place, Side::Near, quiet(serve.command()))?];
    patiently("xpra", || Ok(UnixStream::connect(&socket).ok()))?;
    let mut terminal = Command::new(TERMINAL[0]);
    terminal.args(&TERMINAL[1..]).env("DISPLAY", &hidden.display).env_remove("XAUTHORITY");
    programs.push(Program::start(place, Side::Near, quiet(terminal))?);
    let screen = Screen::new(eyes.display.clone(), None);
    let look = Look { encoding: "png".into(), title: "xpra: ".into(), ..Look::default() };
    let attach = tools.screen.attach(&screen, Path::new("/unused"), far.path(), &look).command();
    let attach = over_tcp(&attach, address, far.path());
    programs.push(Program::start(place, Side::Far, quiet(attach))?);
    // The last to come is the first to go.
    programs.reverse();
    let (hands, _folders) = (eyes.clone(), vec![near, far]);
    Ok(Stage { _programs: programs, hands, eyes, echo: true, _virtual: Some(hidden), _folders })
}

/// The same command, with an address in place of a socket.
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

/// barrier's server at the near end; the far screen is on the right of it.
fn barrier(place: &Place) -> anyhow::Result<Stage> {
    let hands = Rc::new(Server::start(place, Side::Near, Watch::Nothing)?);
    let eyes = Rc::new(Server::start(place, Side::Far, Watch::Keys)?);
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("barrier.conf");
    let text =
        "section: screens\n a:\n b:\nend\nsection: links\n a:\n  right = b\n b:\n  left = a\nend\n";
    std::fs::write(&config, text)?;
    let address = free(place)?.to_string();
    let program = |name: &str, words: &[&str], display: &str| {
        let mut command = Command::new(name);
        command.args(["-f", "--disable-crypto", "--display", display]).args(words);
        command.env("HOME", folder.path()).env("DISPLAY", display).env_remove("XAUTHORITY");
        quiet(command)
    };
    let words = ["--no-restart", "--name", "a", "--address", address.as_str()];
    let mut server = program("barriers", &words, &hands.display);
    server.arg("-c").arg(&config);
    let client = program("barrierc", &["--name", "b", address.as_str()], &eyes.display);
    let server = Program::start(place, Side::Near, server)?;
    let client = Program::start(place, Side::Far, client)?;
    let _programs = vec![client, server];
    Ok(Stage { _programs, hands, eyes, echo: false, _virtual: None, _folders: vec![folder] })
}

/// A node at the far end with the service `kind` for the screen `display`, known as `screen` to the home of the near end.
fn node(
    tools: &Tools,
    place: &Place,
    kind: &str,
    display: &str,
) -> anyhow::Result<(TempDir, Program)> {
    let folder = tempfile::tempdir()?;
    let (near, far) = (folder.path().join("near"), folder.path().join("far"));
    for home in [&near, &far] {
        std::fs::create_dir(home)?;
    }
    let service = folder.path().join("service.toml");
    let text = format!("name = '{kind}'\ntype = '{kind}'\ndisplay = '{display}'\n");
    std::fs::write(&service, text)?;
    let listen = SocketAddr::new(place.far_address(), 0).to_string();
    let words = ["up", "--name", "screen", "--listen", listen.as_str(), "--http", "127.0.0.1:0"];
    let mut up = tools.levada(&far, &words);
    up.args(["--no-announce", "--service"]).arg(&service);
    let stop = tools.levada(&far, &["stop"]);
    let node = Program::start(place, Side::Far, quiet(up))?.with_farewell(stop);
    patiently("the node", || {
        let status = tools.levada(&far, &["status"]);
        Ok(output(place, Side::Far, status).ok())
    })?;
    let invitation = output(place, Side::Far, tools.levada(&far, &["invite"]))?;
    let code = invitation.strip_prefix("levada join ").unwrap_or(&invitation);
    output(place, Side::Near, tools.levada(&near, &["join", code, "--as", "screen"]))?;
    Ok((folder, node))
}

/// An address of the near end on which nobody listens.
fn free(place: &Place) -> anyhow::Result<SocketAddr> {
    let address = SocketAddr::new(place.near_address(), 0);
    let listener = Side::Near.run(place, || TcpListener::bind(address))??;
    Ok(listener.local_addr()?)
}
