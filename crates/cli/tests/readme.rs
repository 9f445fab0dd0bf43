//! Plays the transcripts of README.md and docs/tutorial.md. `screens.rs` plays the part that needs
//! screens, and `hosts/two_machines.rs` plays docs/two-machines.md.

use std::collections::HashMap;

use crate::support::exclusive;
use crate::support::transcript::{OneMachine, README, TUTORIAL, fits, play};

#[test]
fn the_transcript_of_the_readme_is_true() {
    // Its nodes have default ports, and `levada ls` shows all nodes on loopback.
    let _alone = exclusive();
    play(&OneMachine::new(), README, "console", HashMap::new());
}

#[test]
fn the_transcript_of_the_tutorial_is_true() {
    let _alone = exclusive();
    play(&OneMachine::new(), TUTORIAL, "console", HashMap::new());
}

#[test]
fn patterns_fit_what_they_should() {
    let fits_text = |expected: &[&str], text: &str| {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        fits(&expected, &text.lines().collect::<Vec<_>>())
    };
    assert!(fits_text(&["a…c", "…", "end"], "abc\nx\ny\nend"));
    assert!(!fits_text(&["a…c"], "abcd"));
    assert!(!fits_text(&["a"], ""));
    assert!(!fits_text(&[], "more"));
}
