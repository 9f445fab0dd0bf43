//! `show` and `input` between X servers: windows, keys and pointer arrive, survive lost
//! connections, and leave no process or pressed key behind.
//!
//! The tests need xpra, Xvfb, xterm, xdotool and barrier, which `scripts/test --all` installs.

mod input;
mod picture;
mod proxy;
mod show;
mod xserver;

use std::process::Child;

use crate::support::{self, Home, Node, exclusive, signal};
use xserver::XServer;

/// A node called `hall` with `service`, which `guest` may use.
fn hall<'a>(home: &'a Home, guest: &Home, service: &str) -> Node<'a> {
    let file = home.path().join("service.toml");
    std::fs::write(&file, service).unwrap();
    let node = home.up(&format!("--name hall --service {}", file.display()));
    node.welcome(guest, "hall");
    node
}

/// Each terminal of the transcript has its own screen.
#[test]
fn the_screen_transcript_of_the_readme_is_true() {
    // As in `readme`: default ports, and `levada ls`.
    let _alone = exclusive();
    let screens = ["well", "alice"].map(|name| (name, XServer::start(800, 600)));
    let export = |(name, screen): &(&str, XServer)| {
        ((*name).to_owned(), vec![format!("export DISPLAY={}", screen.display)])
    };
    support::transcript::play(
        &support::transcript::OneMachine::new(),
        support::transcript::TUTORIAL,
        "console screens",
        screens.iter().map(export).collect(),
    );
}

/// A child process; killed when dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end of a child, twice as long as other steps: its exit code, or -1.
fn code(child: &mut Child) -> i32 {
    let start = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(start.elapsed() < 2 * support::STEP_TIMEOUT, "the process does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
