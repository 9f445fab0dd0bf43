//! `levada input`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};

use super::proxy::Proxy;
use super::xserver::{XServer, content};
use super::{Ends, code, hall, signal};
use crate::support::{Home, eventually};

fn service(screen: &XServer) -> String {
    format!("name = 'input'\ntype = 'input'\ndisplay = '{}'\n", screen.display)
}

/// A terminal that writes what is typed to a file, line by line.
fn writer(screen: &XServer, folder: &Path) -> (Ends, PathBuf) {
    let file = folder.join("typed");
    let script = format!("exec cat > {}", file.display());
    let mut command = screen.command("xterm");
    command.env("LC_ALL", "C.UTF-8").args(["-u8", "-T", "writer", "-e", "sh", "-c", &script]);
    let terminal = Ends(command.stderr(Stdio::null()).spawn().unwrap());
    screen.focus(screen.window("writer"));
    eventually("the terminal reads", || file.exists());
    (terminal, file)
}

/// Starts `levada input` with these arguments, and waits until it has grabbed keyboard and pointer
/// of `local`.
fn start(home: &Home, local: &XServer, words: &[&str]) -> (Ends, BufReader<ChildStderr>) {
    let mut command = home.command([&["input"], words].concat());
    command.env("DISPLAY", &local.display).env_remove("XAUTHORITY").stderr(Stdio::piped());
    let mut child = Ends(command.spawn().unwrap());
    let mut errors = BufReader::new(child.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("releases them"), "{line}");
    (child, errors)
}

#[test]
fn typed_text_arrives_across_keyboard_layouts() {
    let local = XServer::start(800, 600);
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    // The layouts differ: characters are transmitted, not key codes.
    local.layout("us");
    screen.layout("de");
    let (mut input, _errors) = start(&guest, &local, &["hall/input"]);
    let text = "Hello, World! /@[]{}|\\~ yz YZ \"'`";
    local.types(text);
    local.xdotool("key Return");
    assert_eq!(content(&file, |typed| typed.ends_with('\n')).trim_end_matches('\n'), text);
    // The layouts change during use, and the remote one lacks these characters.
    local.layout("es");
    screen.layout("us");
    local.types("ñ¿ç");
    local.xdotool("key Return");
    let typed = content(&file, |typed| typed.matches('\n').count() == 2);
    assert!(typed.ends_with("ñ¿ç\n"), "{typed}");
    local.xdotool("key ctrl+alt+Escape");
    assert_eq!(code(&mut input.0), 0);
    assert!(!screen.keys_are_down());
    // The local keyboard is released.
    let (_own, own) = writer(&local, guest.path());
    local.types("mine");
    local.xdotool("key Return");
    assert_eq!(content(&own, |typed| typed.ends_with('\n')), "mine\n");
}

#[test]
fn the_pointer_moves_beyond_the_size_of_the_local_screen() {
    let local = XServer::start(300, 200);
    let screen = XServer::start(1024, 768);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen));
    screen.xdotool("mousemove 10 10");
    let (mut input, _errors) = start(&guest, &local, &["hall/input", "--release", "F12"]);
    for _ in 0..45 {
        local.xdotool("mousemove_relative 20 15");
    }
    eventually("the pointer arrives", || screen.pointer().0 == (910, 685));
    local.xdotool("mousemove_relative -- -100 -85");
    eventually("the pointer comes back", || screen.pointer().0 == (810, 600));
    local.xdotool("mousedown 1");
    eventually("the button is down", || screen.pointer().1 & 0x100 != 0);
    local.xdotool("mouseup 1");
    eventually("the button is up", || screen.pointer().1 & 0x100 == 0);
    local.xdotool("key F12");
    assert_eq!(code(&mut input.0), 0);
}

#[test]
fn keys_and_buttons_are_released_however_the_session_ends() {
    let local = XServer::start(800, 600);
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen));
    for end in ["INT", "KILL", "cut", "stall", "keys"] {
        let proxy = Proxy::to(&node.address());
        let place = format!("{}@{}/input", home.identity(), proxy.address);
        let (mut input, _errors) = start(&guest, &local, &[&place]);
        local.xdotool("keydown Shift_L keydown a mousedown 1");
        eventually("keys and buttons are down", || {
            screen.keys_are_down() && screen.pointer().1 & 0x101 == 0x101
        });
        match end {
            "cut" => proxy.cut(),
            "stall" => proxy.stall(),
            "keys" => {
                local.xdotool("keyup Shift_L keyup a");
                local.xdotool("key ctrl+alt+Escape");
            }
            name => signal(input.0.id(), name),
        }
        eventually(&format!("nothing is down after {end}"), || {
            !screen.keys_are_down() && screen.pointer().1 & 0x101 == 0
        });
        local.xdotool("keyup a keyup Shift_L mouseup 1");
        if ["cut", "stall"].contains(&end) {
            // The client retries, or has not detected it yet; the signal releases the local
            // keyboard.
            signal(input.0.id(), "INT");
        }
        code(&mut input.0);
    }
}

#[test]
fn a_stopping_node_releases_keys_and_buttons() {
    let local = XServer::start(800, 600);
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen));
    let (mut input, _errors) = start(&guest, &local, &["hall/input"]);
    local.xdotool("keydown Shift_L mousedown 1");
    eventually("keys and buttons are down", || screen.pointer().1 & 0x101 == 0x101);
    node.signal("TERM");
    node.wait();
    // The node has ended, so the keys must be up already.
    assert!(!screen.keys_are_down());
    assert_eq!(screen.pointer().1 & 0x101, 0);
    local.xdotool("keyup Shift_L mouseup 1");
    // The client waits for the node to come back.
    signal(input.0.id(), "INT");
    code(&mut input.0);
}

#[test]
fn input_reconnects_after_a_lost_connection() {
    let local = XServer::start(800, 600);
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    let proxy = Proxy::to(&node.address());
    let place = format!("{}@{}/input", home.identity(), proxy.address);
    let (mut input, errors) = start(&guest, &local, &[&place]);
    local.types("one");
    local.xdotool("key Return");
    content(&file, |typed| typed == "one\n");
    proxy.cut();
    let mut errors = errors.lines().map(Result::unwrap);
    assert!(errors.next().unwrap().contains("trying again"));
    assert!(errors.any(|line| line.contains("releases them")));
    local.types("two");
    local.xdotool("key Return");
    content(&file, |typed| typed == "one\ntwo\n");
    local.xdotool("key ctrl+alt+Escape");
    assert_eq!(code(&mut input.0), 0);
}

#[test]
fn revoking_the_right_releases_the_keyboard() {
    let local = XServer::start(800, 600);
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen));
    let capability = guest.args(["request", "hall/input"]).ok();
    let file = guest.path().join("cap");
    std::fs::write(&file, &capability).unwrap();
    let at = format!("@{}", file.display());
    let (mut input, _errors) = start(&guest, &local, &[&at]);
    local.xdotool("keydown a");
    eventually("the key is down", || screen.keys_are_down());
    guest.args(["revoke", &at]).ok();
    assert_eq!(code(&mut input.0), 121);
    eventually("nothing is down", || !screen.keys_are_down());
    local.xdotool("keyup a");
    // Without the right, nothing is grabbed.
    let mut command = guest.command(["input", &at]);
    let ran: crate::support::Ran = command.env("DISPLAY", &local.display).output().unwrap().into();
    ran.denied("revoked");
}

#[test]
fn scripted_events_move_the_pointer_and_type() {
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    let script = b"# a remark\ntype Hi there\ntap Return\ngoto 100 200\nmove 5 -5\nwait 10ms\n";
    guest.with_input("input hall/input --events -", script).ok();
    assert_eq!(content(&file, |typed| typed.ends_with('\n')), "Hi there\n");
    assert_eq!(screen.pointer().0, (105, 195));
    let ran = guest.with_input("input hall/input --events -", b"down a\njump\n");
    ran.fails(120, "line 2");
    eventually("nothing is down", || !screen.keys_are_down());
    guest.run("input hall/input --events /nowhere").fails(120, "/nowhere");
    let mut command = guest.command(["input", "hall/input"]);
    let ran: crate::support::Ran = command.env_remove("DISPLAY").output().unwrap().into();
    ran.fails(120, "DISPLAY");
}

#[test]
fn events_that_are_not_permitted_are_dropped() {
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let service = format!("{}keyboard = false\n", service(&screen));
    let _node = hall(&home, &guest, &service);
    let (_terminal, file) = writer(&screen, home.path());
    let ran = guest.with_input("input hall/input --events -", b"type no\ntap Return\ngoto 9 8\n");
    assert!(ran.stderr.contains("accepts no keys"), "{}", ran.stderr);
    ran.ok();
    assert_eq!(screen.pointer().0, (9, 8));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

/// Compares with barrier: the same text arrives.
#[test]
fn barrier_types_the_same_text() {
    const TEXT: &str = "The quick brown fox, 1234567890!";
    let local = XServer::start(800, 600);
    let screen = XServer::start(800, 600);
    let home = Home::new();
    let guest = Home::new();
    let _node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    {
        let (mut input, _errors) = start(&guest, &local, &["hall/input"]);
        local.types(TEXT);
        local.xdotool("key Return");
        content(&file, |typed| typed.ends_with('\n'));
        local.xdotool("key ctrl+alt+Escape");
        code(&mut input.0);
    }
    let _barrier = barrier(&home, &local, &screen);
    screen.focus(screen.window("writer"));
    let lines = || std::fs::read_to_string(&file).unwrap().matches('\n').count();
    // Over the right edge, to the other screen.
    eventually("barrier passes keys on", || {
        local.xdotool("mousemove 400 300");
        local.xdotool("mousemove_relative 500 0");
        local.xdotool("key Return");
        lines() > 1
    });
    local.types(TEXT);
    local.xdotool("key Return");
    let typed = content(&file, |typed| typed.matches(TEXT).count() == 2 && typed.ends_with('\n'));
    assert_eq!(typed.lines().next(), Some(TEXT));
    // Apart from the empty lines of the crossing, barrier types the same text.
    let others: Vec<&str> = typed.lines().skip(1).filter(|line| !line.is_empty()).collect();
    assert_eq!(others, [TEXT]);
}

/// Server and client of barrier, with the second screen on the right of the first.
fn barrier(home: &Home, local: &XServer, screen: &XServer) -> [Ends; 2] {
    let config = home.path().join("barrier.conf");
    let mut file = std::fs::File::create(&config).unwrap();
    let text =
        "section: screens\n a:\n b:\nend\nsection: links\n a:\n  right = b\n b:\n  left = a\nend\n";
    file.write_all(text.as_bytes()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let quiet = |command: &mut std::process::Command| {
        Ends(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut server = local.command("barriers");
    server.args(["-f", "--no-restart", "--disable-crypto", "--name", "a", "--display"]);
    server.arg(&local.display).arg("-c").arg(&config).args(["--address", &address]);
    server.env("HOME", home.path());
    let mut client = screen.command("barrierc");
    client.args(["-f", "--disable-crypto", "--name", "b", "--display", &screen.display, &address]);
    client.env("HOME", home.path());
    [quiet(&mut server), quiet(&mut client)]
}
