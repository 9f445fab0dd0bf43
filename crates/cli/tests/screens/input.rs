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
    eventually("it reads", || file.exists());
    (terminal, file)
}

/// `levada input` with these words, once it has taken keyboard and pointer of `hands`.
fn taken(home: &Home, hands: &XServer, words: &[&str]) -> (Ends, BufReader<ChildStderr>) {
    let mut command = home.command([&["input"], words].concat());
    command.env("DISPLAY", &hands.display).env_remove("XAUTHORITY").stderr(Stdio::piped());
    let mut child = Ends(command.spawn().unwrap());
    let mut said = BufReader::new(child.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("releases them"), "{line}");
    (child, said)
}

#[test]
fn what_is_typed_on_one_keyboard_is_written_on_the_other() {
    let (hands, screen) = (XServer::start(800, 600), XServer::start(1024, 768));
    let (home, guest) = (Home::new(), Home::new());
    let _node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    // Different layouts: what is meant arrives, not which key it was.
    hands.layout("us");
    screen.layout("de");
    let (mut input, _said) = taken(&guest, &hands, &["hall/input"]);
    let text = "Hello, World! /@[]{}|\\~ yz YZ \"'`";
    hands.types(text);
    hands.hands("key Return");
    assert_eq!(content(&file, |typed| typed.ends_with('\n')).trim_end_matches('\n'), text);
    // Other keyboards, while they are in use; the one there lacks these characters.
    hands.layout("es");
    screen.layout("us");
    hands.types("ñ¿ç");
    hands.hands("key Return");
    let typed = content(&file, |typed| typed.matches('\n').count() == 2);
    assert!(typed.ends_with("ñ¿ç\n"), "{typed}");
    hands.hands("key ctrl+alt+Escape");
    assert_eq!(code(&mut input.0), 0);
    assert!(!screen.keys_are_down());
    // The keyboard is back.
    let (_own, own) = writer(&hands, guest.path());
    hands.types("mine");
    hands.hands("key Return");
    assert_eq!(content(&own, |typed| typed.ends_with('\n')), "mine\n");
}

#[test]
fn the_pointer_goes_further_than_the_screen_it_is_moved_on() {
    let (hands, screen) = (XServer::start(300, 200), XServer::start(1024, 768));
    let (home, guest) = (Home::new(), Home::new());
    let _node = hall(&home, &guest, &service(&screen));
    screen.hands("mousemove 10 10");
    let (mut input, _said) = taken(&guest, &hands, &["hall/input", "--release", "F12"]);
    for _ in 0..45 {
        hands.hands("mousemove_relative 20 15");
    }
    eventually("the pointer arrives", || screen.pointer().0 == (910, 685));
    hands.hands("mousemove_relative -- -100 -85");
    eventually("the pointer comes back", || screen.pointer().0 == (810, 600));
    hands.hands("mousedown 1");
    eventually("the button is down", || screen.pointer().1 & 0x100 != 0);
    hands.hands("mouseup 1");
    eventually("the button is up", || screen.pointer().1 & 0x100 == 0);
    hands.hands("key F12");
    assert_eq!(code(&mut input.0), 0);
}

#[test]
fn nothing_stays_down_however_it_ends() {
    let (hands, screen) = (XServer::start(800, 600), XServer::start(800, 600));
    let (home, guest) = (Home::new(), Home::new());
    let node = hall(&home, &guest, &service(&screen));
    for end in ["INT", "KILL", "cut", "stall", "keys"] {
        let proxy = Proxy::to(&node.address());
        let place = format!("{}@{}/input", home.identity(), proxy.address);
        let (mut input, _said) = taken(&guest, &hands, &[&place]);
        hands.hands("keydown Shift_L keydown a mousedown 1");
        eventually("they are down", || {
            screen.keys_are_down() && screen.pointer().1 & 0x101 == 0x101
        });
        match end {
            "cut" => proxy.cut(),
            "stall" => proxy.stall(),
            "keys" => {
                hands.hands("keyup Shift_L keyup a");
                hands.hands("key ctrl+alt+Escape");
            }
            name => signal(input.0.id(), name),
        }
        eventually(&format!("nothing is down after {end}"), || {
            !screen.keys_are_down() && screen.pointer().1 & 0x101 == 0
        });
        hands.hands("keyup a keyup Shift_L mouseup 1");
        if ["cut", "stall"].contains(&end) {
            // It would go on, or has not noticed yet, and gives the keyboard back all the same.
            signal(input.0.id(), "INT");
        }
        code(&mut input.0);
    }
}

#[test]
fn a_node_that_ends_lets_go_first() {
    let (hands, screen) = (XServer::start(800, 600), XServer::start(800, 600));
    let (home, guest) = (Home::new(), Home::new());
    let node = hall(&home, &guest, &service(&screen));
    let (mut input, _said) = taken(&guest, &hands, &["hall/input"]);
    hands.hands("keydown Shift_L mousedown 1");
    eventually("they are down", || screen.pointer().1 & 0x101 == 0x101);
    node.signal("TERM");
    node.wait();
    // Nobody is left who could do it later.
    assert!(!screen.keys_are_down());
    assert_eq!(screen.pointer().1 & 0x101, 0);
    hands.hands("keyup Shift_L mouseup 1");
    // It would go on when the node is back.
    signal(input.0.id(), "INT");
    code(&mut input.0);
}

#[test]
fn it_goes_on_when_the_connection_was_lost() {
    let (hands, screen) = (XServer::start(800, 600), XServer::start(800, 600));
    let (home, guest) = (Home::new(), Home::new());
    let node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    let proxy = Proxy::to(&node.address());
    let place = format!("{}@{}/input", home.identity(), proxy.address);
    let (mut input, said) = taken(&guest, &hands, &[&place]);
    hands.types("one");
    hands.hands("key Return");
    content(&file, |typed| typed == "one\n");
    proxy.cut();
    let mut said = said.lines().map(Result::unwrap);
    assert!(said.next().unwrap().contains("trying again"));
    assert!(said.any(|line| line.contains("releases them")));
    hands.types("two");
    hands.hands("key Return");
    content(&file, |typed| typed == "one\ntwo\n");
    hands.hands("key ctrl+alt+Escape");
    assert_eq!(code(&mut input.0), 0);
}

#[test]
fn a_right_that_is_revoked_gives_the_keyboard_back() {
    let (hands, screen) = (XServer::start(800, 600), XServer::start(800, 600));
    let (home, guest) = (Home::new(), Home::new());
    let _node = hall(&home, &guest, &service(&screen));
    let capability = guest.args(["request", "hall/input"]).ok();
    let file = guest.path().join("cap");
    std::fs::write(&file, &capability).unwrap();
    let at = format!("@{}", file.display());
    let (mut input, _said) = taken(&guest, &hands, &[&at]);
    hands.hands("keydown a");
    eventually("it is down", || screen.keys_are_down());
    guest.args(["revoke", &at]).ok();
    assert_eq!(code(&mut input.0), 121);
    eventually("nothing is down", || !screen.keys_are_down());
    hands.hands("keyup a");
    // Whoever may not, has nothing taken from him.
    let mut command = guest.command(["input", &at]);
    let ran: crate::support::Ran = command.env("DISPLAY", &hands.display).output().unwrap().into();
    ran.denied("revoked");
}

#[test]
fn lines_of_text_do_what_hands_would() {
    let screen = XServer::start(800, 600);
    let (home, guest) = (Home::new(), Home::new());
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
fn what_is_not_permitted_is_left_out() {
    let screen = XServer::start(800, 600);
    let (home, guest) = (Home::new(), Home::new());
    let service = format!("{}keyboard = false\n", service(&screen));
    let _node = hall(&home, &guest, &service);
    let (_terminal, file) = writer(&screen, home.path());
    let ran = guest.with_input("input hall/input --events -", b"type no\ntap Return\ngoto 9 8\n");
    assert!(ran.stderr.contains("takes no keys"), "{}", ran.stderr);
    ran.ok();
    assert_eq!(screen.pointer().0, (9, 8));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

/// barrier does the same by other means: what it makes of a text is what we make of it.
#[test]
fn barrier_writes_the_same() {
    const TEXT: &str = "The quick brown fox, 1234567890!";
    let (hands, screen) = (XServer::start(800, 600), XServer::start(800, 600));
    let (home, guest) = (Home::new(), Home::new());
    let _node = hall(&home, &guest, &service(&screen));
    let (_terminal, file) = writer(&screen, home.path());
    {
        let (mut input, _said) = taken(&guest, &hands, &["hall/input"]);
        hands.types(TEXT);
        hands.hands("key Return");
        content(&file, |typed| typed.ends_with('\n'));
        hands.hands("key ctrl+alt+Escape");
        code(&mut input.0);
    }
    let _both = barrier(&home, &hands, &screen);
    screen.focus(screen.window("writer"));
    let lines = || std::fs::read_to_string(&file).unwrap().matches('\n').count();
    // Over the right edge, to the other screen.
    eventually("barrier passes keys on", || {
        hands.hands("mousemove 400 300");
        hands.hands("mousemove_relative 500 0");
        hands.hands("key Return");
        lines() > 1
    });
    hands.types(TEXT);
    hands.hands("key Return");
    let typed = content(&file, |typed| typed.matches(TEXT).count() == 2 && typed.ends_with('\n'));
    assert_eq!(typed.lines().next(), Some(TEXT));
    // But for the empty lines of the crossing, the same once more.
    let others: Vec<&str> = typed.lines().skip(1).filter(|line| !line.is_empty()).collect();
    assert_eq!(others, [TEXT]);
}

/// barrier's two ends, the second screen on the right of the first.
fn barrier(home: &Home, hands: &XServer, screen: &XServer) -> [Ends; 2] {
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
    let mut server = hands.command("barriers");
    server.args(["-f", "--no-restart", "--disable-crypto", "--name", "a", "--display"]);
    server.arg(&hands.display).arg("-c").arg(&config).args(["--address", &address]);
    server.env("HOME", home.path());
    let mut client = screen.command("barrierc");
    client.args(["-f", "--disable-crypto", "--name", "b", "--display", &screen.display, &address]);
    client.env("HOME", home.path());
    [quiet(&mut server), quiet(&mut client)]
}
