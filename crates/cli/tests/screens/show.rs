//! `levada show`.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use super::picture::Picture;
use super::proxy::Proxy;
use super::xserver::{XServer, content};
use super::{Ends, code, hall, signal};
use crate::support::{Home, STEP_TIMEOUT, comes, eventually, exclusive};

/// Debian's own, which has the modules that xpra needs.
const PYTHON: &str = "/usr/bin/python3";
const PICTURE_WINDOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/screens/picture.py");

fn service(screen: &XServer, more: &str) -> String {
    format!("name = 'display'\ntype = 'display'\ndisplay = '{}'\n{more}", screen.display)
}

/// Starts `levada show` with these arguments.
fn show(home: &Home, words: &[&str]) -> Ends {
    let mut command = home.command([&["show"], words].concat());
    command.env_remove("DISPLAY").stdout(Stdio::piped()).stderr(Stdio::piped());
    Ends(command.spawn().unwrap())
}

/// The state of the program called `name`; empty if it is not kept.
fn state(home: &Home, name: &str) -> String {
    let shows = home.json("show --list");
    let shows = shows["shows"].as_array().unwrap().clone();
    let found = shows.iter().find(|show| show["name"] == name);
    found.map_or(String::new(), |show| show["state"].as_str().unwrap().to_owned())
}

/// Stops the program of this name when dropped.
struct Stopped<'a>(&'a Home, &'a str);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = self.0.args(["show", "--stop", self.1]);
    }
}

fn runs(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Whether a process handles SIGTERM. A command that follows a program installs this handler last;
/// before that, any signal ends it without cleanup.
fn catches_sigterm(child: &Child) -> bool {
    const SIGTERM: u32 = 15;
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (SIGTERM - 1)) != 0
}

fn stderr(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stream = child.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    text
}

#[test]
fn windows_are_shown_pixel_by_pixel() {
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen, ""));
    let pictures = [Picture::known(160, 120, 0), Picture::known(200, 100, 0x5a)];
    let mut shows = Vec::new();
    for (index, picture) in pictures.iter().enumerate() {
        let file = guest.path().join(format!("picture-{index}.ppm"));
        picture.write(&file);
        let file = file.to_str().unwrap();
        let x = (40 + 400 * index).to_string();
        // GTK opens the window at its final size; a program that resizes its window at the start
        // may race with xpra.
        let program = ["hall/display", "--", PYTHON, PICTURE_WINDOW, file, &x, "40"];
        shows.push(show(&guest, &program));
    }
    let seen = comes(|| {
        let seen = screen.picture();
        pictures.iter().all(|picture| seen.contains(picture))
    });
    if !seen {
        let missing = pictures.each_ref().map(|picture| !screen.picture().contains(picture));
        panic!("missing: {missing:?} of {:?}\n{}", screen.described(), node.log());
    }
    // Titles begin with the identity of the owner.
    let whose = format!("{}: ", &guest.identity()[..10]);
    assert!(screen.windows().iter().any(|(_, title)| title.starts_with(&whose)));
    // Ctrl-C ends the program and closes its window.
    for show in &mut shows {
        signal(show.0.id(), "INT");
        assert_eq!(code(&mut show.0), 130);
    }
    screen.no_window(&whose);
    assert_eq!(guest.json("show --list")["shows"].as_array().unwrap().len(), 0);
    eventually("no session runs", || home.json("status")["running_sessions"] == 0);
}

#[test]
fn keys_typed_at_the_screen_reach_the_program() {
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    let ready = guest.path().join("ready");
    let file = guest.path().join("typed");
    // An empty line shows that keys arrive; the next line is compared.
    let script = format!(
        "read line; touch {}; while [ -z \"$line\" ]; do read -r line; done; echo \"$line\" > {}",
        ready.display(),
        file.display()
    );
    let mut program =
        show(&guest, &["hall/display", "--", "xterm", "-T", "types", "-e", "sh", "-c", &script]);
    let window = screen.window("types");
    eventually("keys arrive", || {
        screen.focus(window);
        screen.xdotool("key Return");
        ready.exists()
    });
    screen.types("Hello, World! (1 + 2) @ #7");
    screen.xdotool("key Return");
    let typed = content(&file, |text| text.ends_with('\n'));
    assert_eq!(typed, "Hello, World! (1 + 2) @ #7\n");
    // When the program ends, its window and the client end.
    assert_eq!(code(&mut program.0), 0);
    screen.no_window("types");
}

#[test]
fn output_and_exit_code_are_those_of_the_program() {
    let screen = XServer::start(640, 480);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    let words = ["show", "hall/display", "--", "sh", "-c", "echo $DISPLAY; sleep 1; exit 7"];
    let ran = guest.args(words);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stdout.starts_with(':') && ran.stdout.trim() != screen.display);
}

#[test]
fn a_program_survives_a_lost_connection() {
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen, ""));
    let proxy = Proxy::to(&node.address());
    let place = format!("{}@{}/display", home.identity(), proxy.address);
    let file = guest.path().join("process");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let mut program = show(
        &guest,
        &[&place, "--name", "kept", "--", "xterm", "-T", "survives", "-e", "sh", "-c", &script],
    );
    screen.window("survives");
    let process = content(&file, |text| text.ends_with('\n'));
    for _ in 0..2 {
        proxy.cut();
        screen.no_window("survives");
        screen.window("survives");
        assert!(runs(process.trim()));
    }
    assert_eq!(state(&guest, "kept"), "shown");
    signal(program.0.id(), "TERM");
    assert_eq!(code(&mut program.0), 143);
    eventually("the program has ended", || !runs(process.trim()));
    let errors = stderr(&mut program.0);
    assert!(errors.contains("is lost") && errors.contains("shown again"), "{errors}");
}

/// xpra detects the stall at both ends, before the timeout of the connection.
#[test]
fn a_stalled_connection_is_replaced() {
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen, ""));
    let proxy = Proxy::to(&node.address());
    let place = format!("{}@{}/display", home.identity(), proxy.address);
    let mut program = show(&guest, &[&place, "--", "xterm", "-T", "stalls", "-e", "sleep", "1000"]);
    screen.window("stalls");
    proxy.stall();
    let start = std::time::Instant::now();
    while state(&guest, "xterm") != "waiting" {
        assert!(start.elapsed() < 4 * STEP_TIMEOUT);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    eventually("the window is shown again", || state(&guest, "xterm") == "shown");
    screen.window("stalls");
    signal(program.0.id(), "INT");
    assert_eq!(code(&mut program.0), 130);
    let errors = stderr(&mut program.0);
    // Reported by the tunnel to xpra, or by the connection.
    let stalled = ["stopped responding", "timed out"].iter().any(|text| errors.contains(text));
    assert!(stalled && errors.contains("shown again"), "{errors}");
}

#[test]
fn a_detached_program_moves_between_screens() {
    let screen = XServer::start(800, 600);
    let other = XServer::start(800, 600);
    let home = Home::new();
    let attic = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    let file = attic.path().join("service.toml");
    fs::write(&file, service(&other, "")).unwrap();
    let second = attic.up(&format!("--name attic --service {}", file.display()));
    second.welcome(&guest, "attic");

    let _stopped = Stopped(&guest, "notes");
    let words = "show hall/display --detach --name notes -- xterm -T notes -e sleep 1000";
    assert_eq!(guest.run(words).ok(), "notes");
    screen.window("notes");
    let shows = guest.json("show --list");
    assert_eq!(shows["shows"][0]["where"], "hall/display");
    guest.run(words).fails(120, "already called `notes`");

    guest.run("show --hide notes").ok();
    screen.no_window("notes");
    assert_eq!(state(&guest, "notes"), "hidden");
    assert_eq!(guest.run("show --attach notes --detach").ok(), "notes");
    screen.window("notes");

    // A client attaches and is ended; the program stays shown.
    for (name, left) in [("INT", 130), ("HUP", 129), ("KILL", -1)] {
        let mut visitor = show(&guest, &["--attach", "notes"]);
        eventually("it handles signals", || catches_sigterm(&visitor.0));
        signal(visitor.0.id(), name);
        assert_eq!(code(&mut visitor.0), left);
        assert_eq!(state(&guest, "notes"), "shown");
    }

    guest.run("show attic/display --attach notes --detach").ok();
    other.window("notes");
    screen.no_window("notes");
    assert_eq!(guest.json("show --list")["shows"][0]["where"], "attic/display");

    guest.run("show --stop notes").ok();
    other.no_window("notes");
    assert_eq!(state(&guest, "notes"), "");
    guest.run("show --stop notes").fails(1, "no program `notes` runs here");
}

#[test]
fn revoking_the_right_hides_the_window_and_keeps_the_program() {
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    let _stopped = Stopped(&guest, "kept");
    let file = guest.path().join("process");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let mut program = show(
        &guest,
        &["hall/display", "--name", "kept", "--", "xterm", "-T", "goes", "-e", "sh", "-c", &script],
    );
    screen.window("goes");
    let process = content(&file, |text| text.ends_with('\n'));
    home.args(["revoke", &guest.identity()]).ok();
    let session = home.json("sessions")["sessions"][0]["session"].as_str().unwrap().to_owned();
    home.args(["revoke", &session]).ok();
    screen.no_window("goes");
    assert_eq!(code(&mut program.0), 121);
    let errors = stderr(&mut program.0);
    assert!(errors.contains("keeps running, hidden") && errors.contains("kept"), "{errors}");
    assert!(runs(process.trim()));
    assert_eq!(state(&guest, "kept"), "hidden");
}

#[test]
fn a_single_use_capability_shows_once() {
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let other = Home::new();
    let node = hall(&home, &guest, &service(&screen, ""));
    let place = format!("{}/display", node.at());
    let started = guest.path().join("started");
    let touch = started.to_str().unwrap();
    other.args(["show", &place, "--", "touch", touch]).denied("may not request");
    assert!(!started.exists());
    let capability = guest.args(["request", "hall/display", "--for", &other.identity()]).ok();
    let file = other.path().join("cap");
    fs::write(&file, capability).unwrap();
    let at = format!("@{}", file.display());
    assert_eq!(other.args(["show", &at, "--", "sh", "-c", "sleep 1"]).code, 0);
    other.args(["show", &at, "--", "touch", touch]).denied("used up");
    assert!(!started.exists());
}

#[test]
fn missing_programs_are_named_with_their_packages() {
    let screen = XServer::start(640, 480);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen, ""));
    let without = |home: &Home, words: &[&str]| -> crate::support::Ran {
        home.command(words).env("PATH", "/nonexistent").output().unwrap().into()
    };
    let words = ["show", "hall/display", "--", "/bin/true"];
    let ran = without(&guest, &words);
    for word in ["xpra", "apt install", "xvfb", "python3-gi-cairo"] {
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    ran.fails(120, "not installed");
    guest.run("show hall/display -- no-such-program").fails(120, "no-such-program");
    drop(node);
    let file = home.path().join("service.toml");
    let up = ["up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--service"];
    let ran = without(&home, &[&up[..], &[file.to_str().unwrap()]].concat());
    ran.fails(120, "python3-gi-cairo");
    fs::write(&file, "name = 'display'\ntype = 'display'\n").unwrap();
    let mut command = home.command([&up[..], &[file.to_str().unwrap()]].concat());
    let ran: crate::support::Ran = command.env_remove("DISPLAY").output().unwrap().into();
    ran.fails(120, "no screen");
}

#[test]
fn a_missing_screen_is_an_error_and_ends_the_program() {
    // Another test would otherwise start an X server with the number of the one that ends here.
    let _alone = exclusive();
    let screen = XServer::start(640, 480);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    drop(screen);
    let file = guest.path().join("process");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let ran = guest.args(["show", "hall/display", "--", "sh", "-c", &script]);
    ran.fails(120, "cannot use this node's screen");
    let process = fs::read_to_string(&file).unwrap_or_default();
    eventually("the program has ended", || !runs(process.trim()));
}

/// The supervisors of its programs detect the end of the background process.
#[test]
fn killing_the_background_process_ends_its_program() {
    let screen = XServer::start(640, 480);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen, ""));
    let file = guest.path().join("process");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let words = ["show", "hall/display", "-d", "--name", "left", "--"];
    let xterm = ["xterm", "-T", "left", "-e", "sh", "-c", &script];
    guest.args([&words[..], &xterm].concat()).ok();
    let process = content(&file, |text| text.ends_with('\n'));
    let background = guest.json("show --list")["shows"][0]["process"].to_string();
    // The background process of this home.
    assert!(Path::new("/proc").join(&background).exists());
    let killed = std::process::Command::new("kill").args(["-9", &background]).status().unwrap();
    assert!(killed.success());
    eventually("the program is lost", || state(&guest, "left") == "lost");
    screen.no_window("left");
    eventually("the program has ended", || !runs(process.trim()));
    guest.run("show --attach left").fails(1, "--stop left");
    guest.run("show --stop left").ok();
    assert_eq!(state(&guest, "left"), "");
}
