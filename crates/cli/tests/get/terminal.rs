//! `levada get` on a terminal.

use std::fs;
use std::io::Read;

use super::Fixed;
use crate::support::forward::noise;
use crate::support::{Home, Watchdog, exit_code};

/// The width of the terminal, in columns.
const COLUMNS: u16 = 44;

#[test]
fn a_progress_bar_is_one_line_also_for_a_long_name() {
    let mut well = Fixed::new(1);
    well.film = well.home.path().join(format!("a-{}-name.mkv", "long-".repeat(20)));
    fs::write(&well.film, noise(1, 3_000_000)).unwrap();
    let _node = well.up();
    let ticket = well.share(&[]);
    let alice = Home::new();
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    terminal.resize(pty_process::Size::new(24, COLUMNS)).unwrap();
    let output = alice.path().join("out.mkv").display().to_string();
    let mut child = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["get", &ticket, "-o", &output])
        .env("LEVADA_HOME", alice.path())
        .env("TERM", "xterm")
        .spawn(inside)
        .unwrap();
    let watchdog = Watchdog::over(child.id());
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    // A terminal whose processes have ended fails to read (EIO).
    while let Ok(length @ 1..) = terminal.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..length]);
    }
    drop(watchdog);
    assert_eq!(exit_code(&mut child), 0);
    let shown = String::from_utf8(shown).unwrap();
    // Each refresh begins with a carriage return; the bar is the text with a bracket.
    let bars = shown.split(['\r', '\n']).map(|text| text.trim_start_matches("\u{1b}[2K"));
    let bars: Vec<&str> = bars.filter(|text| text.contains(" [")).collect();
    assert!(!bars.is_empty(), "{shown:?}");
    for bar in bars {
        assert!(bar.starts_with("a-long-"), "{bar:?}");
        assert!(bar.chars().count() <= usize::from(COLUMNS), "{bar:?}");
    }
}
