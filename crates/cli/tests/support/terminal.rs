//! Commands on a terminal of their own.

use std::io::Read;

use super::{Home, Ran, Watchdog, exit_code};

/// Runs `levada` on a terminal with this number of columns, until it ends: `stdout` has all that
/// the terminal shows, with the line ends of a file.
pub fn on_terminal(home: &Home, columns: u16, environment: &[(&str, &str)], line: &str) -> Ran {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    terminal.resize(pty_process::Size::new(24, columns)).unwrap();
    let mut child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(line.split_whitespace())
        .env("LEVADA_HOME", home.path())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .envs(environment.iter().copied())
        .spawn(inside)
        .unwrap();
    let watchdog = Watchdog::over(child.id());
    let mut shown = Vec::new();
    // The end of a terminal that no process has open is an error.
    let _ = terminal.read_to_end(&mut shown);
    drop(watchdog);
    let stdout = String::from_utf8(shown).unwrap().replace("\r\n", "\n");
    Ran { code: exit_code(&mut child), stdout, stderr: String::new() }
}
