//! The client's side of a session: exit codes, separate outputs, signals, closed outputs,
//! terminals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use crate::support::{Home, Node, Ran, Watchdog, eventually, exit_code, signal};
use pty_process::blocking::Pty;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

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

fn wait_until_no_session_runs(home: &Home) {
    eventually("no session runs", || home.json("status")["running_sessions"] == 0);
}

#[test]
fn stdout_stderr_and_the_exit_code_are_those_of_the_program() {
    let home = Home::new();
    let _node = shell_node(&home);
    let ran = home.args(script("echo out; echo err >&2; exit 7"));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(home.args(script("kill -9 $$")).code, 137);
    let ran = home.with_input("run well/sh -- sh -c tr${IFS}a-z${IFS}A-Z", b"input");
    assert_eq!(ran.ok(), "INPUT");
}

#[test]
fn connect_passes_the_rest_of_standard_input_to_the_session() {
    let home = Home::new();
    let _node = shell_node(&home);
    let capability = home.run("request well/sh -- sh -c cat").ok();
    let ran = home.with_input("connect -", format!("{capability}\nthe rest").as_bytes());
    assert_eq!(ran.ok(), "the rest");
}

#[test]
fn a_signal_ends_the_session_while_its_output_is_not_read() {
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
        wait_until_no_session_runs(&home);
    }
}

#[test]
fn a_closed_output_ends_the_session_without_an_error() {
    let home = Home::new();
    let _node = shell_node(&home);
    let mut child = start(&home, "exec yes");
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 2]).unwrap();
    drop(output);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    wait_until_no_session_runs(&home);
}

const IN_TERMINAL: &str = "trap 'stty size' WINCH; trap 'echo inter''rupted' INT; \
    stty size; echo ready; while :; do sleep 0.05; done";

/// A client on a terminal.
struct OnTerminal {
    terminal: Pty,
    child: Child,
    watchdog: Watchdog,
}

impl OnTerminal {
    fn start(home: &Home, words: &[&str]) -> Self {
        let (terminal, inside) = pty_process::blocking::open().unwrap();
        terminal.resize(pty_process::Size::new(33, 101)).unwrap();
        let child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
            .args(words)
            .env("LEVADA_HOME", home.path())
            .env("TERM", "xterm-kitty")
            .spawn(inside)
            .unwrap();
        let watchdog = Watchdog::over(child.id());
        Self { terminal, child, watchdog }
    }

    /// Types these bytes.
    fn types(&mut self, bytes: &[u8]) {
        self.terminal.write_all(bytes).unwrap();
    }

    /// Reads until `text` has come, and gives all that came.
    fn shows(&mut self, text: &str) -> String {
        let mut seen = String::new();
        let mut buffer = [0; 1024];
        while !seen.contains(text) {
            let length = self.terminal.read(&mut buffer).unwrap_or(0);
            assert_ne!(length, 0, "waited for {text:?}, and there was {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        seen
    }

    /// Whether the terminal edits lines itself (canonical mode), as it does before and after a
    /// session.
    fn is_canonical(&self) -> bool {
        tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end of the client: its exit code, and the terminal.
    fn wait(self) -> (i32, Pty) {
        let Self { terminal, mut child, watchdog } = self;
        drop(watchdog);
        (exit_code(&mut child), terminal)
    }
}

#[test]
fn the_program_learns_the_kind_of_terminal_and_an_escape_sequence_ends_the_session() {
    let home = Home::new();
    let _node = shell_node(&home);
    let text = "stty -echo; echo kind $TERM; while read -r line; do echo \"<$line>\"; done";
    let words = ["run", "well/sh", "--pty", "sh", "-c", text];
    let mut client = OnTerminal::start(&home, &words);
    client.shows("kind xterm-kitty");
    client.types(b"~~.\ra~.\r");
    let seen = client.shows("<a~.>");
    assert!(seen.contains("<~.>"), "{seen}");
    client.types(b"~?");
    client.shows("ends the session");
    client.types(b"~.");
    client.shows("ended by ~.");
    eventually("the terminal is as before", || client.is_canonical());
    assert_eq!(client.wait().0, 129);
    wait_until_no_session_runs(&home);
    let words = [&["run", "--escape", "none"], &words[1..]].concat();
    let mut client = OnTerminal::start(&home, &words);
    client.shows("kind");
    client.types(b"~.\r");
    client.shows("<~.>");
    client.types(b"\x04");
    assert_eq!(client.wait().0, 0);
}

#[test]
fn a_shell_gets_the_terminal_of_its_client_unless_that_is_refused() {
    let home = Home::new();
    let config = "shell = true\n[[service]]\nname = 'login'\ntype = 'shell'\n";
    fs::write(home.path().join("config.toml"), config).unwrap();
    let _node = home.up("--name well");
    let use_shell = |service: &str| {
        let mut client = OnTerminal::start(&home, &["run", service]);
        client.types(b"stty size; exit 5\r");
        client.shows("33 101");
        assert_eq!(client.wait().0, 5, "{service}");
    };
    use_shell("well/shell");
    for words in [&["run", "well/shell", "--no-pty"][..], &["run", "well/login"]] {
        let mut client = OnTerminal::start(&home, words);
        client.shows("--pty");
        assert_eq!(client.wait().0, 121, "{words:?}");
    }
    // Now its type is known.
    home.run("query well").ok();
    use_shell("well/login");
}

#[test]
fn an_escape_sequence_ends_a_session_whose_program_reads_nothing() {
    let home = Home::new();
    let _node = shell_node(&home);
    let words =
        ["run", "well/sh", "--pty", "sh", "-c", "stty raw -echo; echo ready; exec sleep 1000"];
    let mut client = OnTerminal::start(&home, &words);
    client.shows("ready");
    // More than the program's terminal takes: the rest waits in the client.
    for _ in 0..64 {
        client.types(&[b'x'; 1024]);
    }
    client.types(b"\r~.");
    client.shows("ended by ~.");
    assert_eq!(client.wait().0, 129);
}

#[test]
fn a_terminal_is_passed_through_and_restored() {
    let home = Home::new();
    let _node = shell_node(&home);
    let words = ["run", "well/sh", "--pty", "--", "sh", "-c", IN_TERMINAL];
    let mut client = OnTerminal::start(&home, &words);
    eventually("the terminal is raw", || !client.is_canonical());
    assert!(client.shows("ready").contains("33 101"));
    let wider = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&client.terminal, wider).unwrap();
    client.shows("40 120");
    // Ctrl-C goes to the remote program, not to the client.
    client.types(b"\x03");
    client.shows("interrupted");
    signal(client.child.id(), "TERM");
    let (code, terminal) = client.wait();
    assert_eq!(code, 143);
    let modes = tcgetattr(&terminal).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON), "the terminal is as before");
    wait_until_no_session_runs(&home);
}
