//! The result of the checks.

use crate::failure::Failure;
use crate::output;
use serde_json::json;
use std::fmt::Display;

/// The result of one check.
#[derive(Debug)]
pub struct Check {
    name: &'static str,
    state: State,
    text: String,
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No problem.
    Fine,
    /// A limitation that does not prevent operation.
    Note,
    /// Broken, or insecure.
    Wrong,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

impl Check {
    /// No problem.
    pub fn fine(name: &'static str, text: impl Display) -> Self {
        Self { name, state: State::Fine, text: text.to_string(), remedy: String::new() }
    }

    /// A limitation that does not prevent operation.
    pub fn note(name: &'static str, text: impl Display, remedy: impl Display) -> Self {
        Self { name, state: State::Note, text: text.to_string(), remedy: remedy.to_string() }
    }

    /// A problem; `remedy` is empty if the text already contains it.
    pub fn wrong(name: &'static str, text: impl Display, remedy: impl Display) -> Self {
        Self { name, state: State::Wrong, text: text.to_string(), remedy: remedy.to_string() }
    }
}

/// The results of all checks.
#[derive(Debug)]
pub struct Report(pub Vec<Check>);

impl Report {
    /// Whether nothing is wrong.
    pub fn is_healthy(&self) -> bool {
        self.0.iter().all(|check| check.state != State::Wrong)
    }

    /// Prints a line for each check, or one JSON object.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        if json { self.print_json() } else { self.print_lines() }
    }

    fn print_json(&self) -> Result<(), Failure> {
        let checks = self.0.iter().map(|check| {
            json!({
                "name": check.name,
                "state": check.state.word(),
                "text": check.text,
                "remedy": check.remedy,
            })
        });
        output::json(json!({ "healthy": self.is_healthy(), "checks": checks.collect::<Vec<_>>() }))
    }

    fn print_lines(&self) -> Result<(), Failure> {
        for Check { name, state, text, remedy } in &self.0 {
            output::data(format_args!("{:5}  {name}: {text}", state.word()))?;
            if !remedy.is_empty() {
                output::data(format_args!("       remedy: {remedy}"))?;
            }
        }
        Ok(())
    }
}
