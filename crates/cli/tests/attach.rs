//! The client's end of a session: exit codes, separate outputs, signals, readers that leave, terminals.

#![allow(clippy::unwrap_used)] // What a test cannot do, it fails with.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;

use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use support::{Home, Node, PATIENCE, Ran, eventually};

const SHELL: &str = "name = 'sh'\ntype = 'exec'\n[[command]]\nprogram = 'sh'\nargs = '[\\s\\S]*'\n";

fn shell_node(home: &Home) -> Node<'_> {
    let file = home.path().join("sh.toml");
    fs::write(&file, SHELL).unwrap();
    home.up(&format!("--name well --service {}", file.display()))
}

fn script(text: &str) -> [&str; 6] {
    ["run", "well/sh", "--", "sh", "-c", text]
}

fn start(home: &Home, text: &str) -> Child {
    let mut command = home.command(script(text));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn signal(process: u32, name: &str) {
    let process = process.to_string();
    assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
}

fn nothing_runs(home: &Home) {
    eventually("no session runs", || home.json("status")["running_sessions"] == 0);
}

#[test]
fn outputs_are_apart_and_the_exit_code_is_the_programs() {
    let home = Home::new();
    let _node = shell_node(&home);
    let ran = home.args(script("echo out; echo err >&2; exit 7"));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(home.args(script("kill -9 $$")).code, 137);
    let ran = home.with_input("run well/sh -- sh -c tr${IFS}a-z${IFS}A-Z", b"input");
    assert_eq!(ran.ok(), "INPUT");
}

#[test]
fn the_rest_of_standard_input_belongs_to_the_session() {
    let home = Home::new();
    let _node = shell_node(&home);
    let capability = home.run("request well/sh -- sh -c cat").ok();
    let ran = home.with_input("connect -", format!("{capability}\nthe rest").as_bytes());
    assert_eq!(ran.ok(), "the rest");
}

#[test]
fn a_signal_ends_the_session_even_while_the_output_is_held() {
    let home = Home::new();
    let _node = shell_node(&home);
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut child = start(&home, "echo started; exec yes");
        let mut line = String::new();
        // The rest is never read.
        let mut output = BufReader::with_capacity(16, child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        nothing_runs(&home);
    }
}

#[test]
fn a_reader_that_leaves_ends_the_session_and_is_no_error() {
    let home = Home::new();
    let _node = shell_node(&home);
    let mut child = start(&home, "exec yes");
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 2]).unwrap();
    drop(output);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    nothing_runs(&home);
}

/// Reads from a terminal until `text` has come, and gives all that came.
fn await_text(terminal: &mut impl Read, text: &str) -> String {
    let (mut seen, mut buffer) = (String::new(), [0; 1024]);
    while !seen.contains(text) {
        let length = terminal.read(&mut buffer).unwrap_or(0);
        assert_ne!(length, 0, "waited for {text:?}, and there was {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    seen
}

const IN_TERMINAL: &str = "trap 'stty size' WINCH; trap 'echo inter''rupted' INT; \
    stty size; echo ready; while :; do sleep 0.05; done";

/// A client on a terminal; killed if it takes too long, so that what never comes is not awaited for ever.
fn on_terminal(home: &Home, words: &[&str]) -> (pty_process::blocking::Pty, Child) {
    let (terminal, inside) = pty_process::blocking::open().unwrap();
    terminal.resize(pty_process::Size::new(33, 101)).unwrap();
    let child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(words)
        .env("LEVADA_HOME", home.path())
        .env("TERM", "xterm-kitty")
        .spawn(inside)
        .unwrap();
    let process = child.id();
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        // Of this test still, if it has not ended: it is not reaped before.
        if fs::read_to_string(format!("/proc/{process}/cmdline"))
            .is_ok_and(|line| line.contains("levada"))
        {
            signal(process, "KILL");
        }
    });
    (terminal, child)
}

#[test]
fn a_terminal_is_told_of_its_kind_and_left_by_an_escape_sequence() {
    let home = Home::new();
    let _node = shell_node(&home);
    let text = "stty -echo; echo kind $TERM; while read -r line; do echo \"<$line>\"; done";
    let words = ["run", "well/sh", "--pty", "sh", "-c", text];
    let (mut terminal, mut child) = on_terminal(&home, &words);
    await_text(&mut terminal, "kind xterm-kitty");
    terminal.write_all(b"~~.\ra~.\r").unwrap();
    let seen = await_text(&mut terminal, "<a~.>");
    assert!(seen.contains("<~.>"), "{seen}");
    terminal.write_all(b"~?").unwrap();
    await_text(&mut terminal, "ends the session");
    terminal.write_all(b"~.").unwrap();
    await_text(&mut terminal, "ended by ~.");
    assert_eq!(child.wait().unwrap().code(), Some(129));
    assert!(tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON));
    nothing_runs(&home);
    let (mut terminal, mut child) =
        on_terminal(&home, &[&["run", "--escape", "none"], &words[1..]].concat());
    await_text(&mut terminal, "kind");
    terminal.write_all(b"~.\r").unwrap();
    await_text(&mut terminal, "<~.>");
    terminal.write_all(b"\x04").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_session_that_takes_nothing_can_be_left() {
    let home = Home::new();
    let _node = shell_node(&home);
    let words =
        ["run", "well/sh", "--pty", "sh", "-c", "stty raw -echo; echo ready; exec sleep 1000"];
    let (mut terminal, mut child) = on_terminal(&home, &words);
    await_text(&mut terminal, "ready");
    // More than the terminal there takes: the rest waits here.
    for _ in 0..64 {
        terminal.write_all(&[b'x'; 1024]).unwrap();
    }
    terminal.write_all(b"\r~.").unwrap();
    await_text(&mut terminal, "ended by ~.");
    assert_eq!(child.wait().unwrap().code(), Some(129));
}

#[test]
fn a_terminal_is_passed_through_and_restored() {
    let home = Home::new();
    let _node = shell_node(&home);
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    terminal.resize(pty_process::Size::new(33, 101)).unwrap();
    let cooked = |terminal: &pty_process::blocking::Pty| {
        tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    };
    let mut child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["run", "well/sh", "--pty", "--", "sh", "-c", IN_TERMINAL])
        .env("LEVADA_HOME", home.path())
        .spawn(inside)
        .unwrap();
    let process = child.id();
    let (done, watched) = std::sync::mpsc::channel::<()>();
    // What never comes must not be awaited for ever: without the client reading fails.
    std::thread::spawn(move || {
        if watched.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            signal(process, "KILL");
        }
    });
    eventually("the terminal is raw", || !cooked(&terminal));
    assert!(await_text(&mut terminal, "ready").contains("33 101"));
    let wider = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, wider).unwrap();
    await_text(&mut terminal, "40 120");
    // Ctrl-C goes to the program there, not to the client here.
    terminal.write_all(b"\x03").unwrap();
    await_text(&mut terminal, "interrupted");
    drop(done);
    signal(process, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(cooked(&terminal), "the terminal is as before");
    nothing_runs(&home);
}
