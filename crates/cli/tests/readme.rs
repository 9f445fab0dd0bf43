//! Runs the transcript of README.md; `screens/main.rs` runs the part that needs screens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;

use support::transcript::{fits, play};

#[test]
fn the_transcript_of_the_readme_is_true() {
    play("console", HashMap::new());
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
