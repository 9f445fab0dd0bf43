//! Events from lines of text, for scripts and for machines without a keyboard.

use std::time::Duration;

use thiserror::Error;

use super::event::{Event, MAX_BUTTON};
use super::keysym::{self, of_char};

/// Maximum length of a line, in bytes.
pub const MAX_LINE: usize = 4096;
/// Maximum pause of one line.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Maximum number of pressed keys.
const MAX_HELD: usize = 256;
/// The button of each direction of the wheel.
const WHEEL: [(&str, u8); 4] = [("up", 4), ("down", 5), ("left", 6), ("right", 7)];

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An event to send.
    Event(Event),
    /// A pause.
    Wait(Duration),
}

/// Why a line is invalid.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ScriptError {
    /// The first word is not known.
    #[error(
        "`{0}` is not a command: a line begins with tap, type, down, up, press, release, click, wheel, move, goto or wait"
    )]
    Unknown(String),
    /// The arguments do not fit the first word.
    #[error("`{0}` takes {1}")]
    Takes(String, &'static str),
    /// No key has this name.
    #[error("`{0}` is not a key: write its name (Return, F5, Left), one character, or U+20AC")]
    Key(String),
    /// Too many keys are pressed.
    #[error("more than {MAX_HELD} keys are pressed")]
    Held,
    /// The line is too long.
    #[error("a line has more than {MAX_LINE} bytes")]
    Long,
}

/// Parses lines, and tracks the pressed keys.
#[derive(Debug)]
pub struct Script {
    /// The keysym of each key number that is pressed.
    held: [Option<u32>; MAX_HELD],
}

impl Default for Script {
    fn default() -> Self {
        Self { held: [None; MAX_HELD] }
    }
}

impl Script {
    /// Parses a line into steps; none if it is empty or begins with `#`.
    ///
    /// # Errors
    /// [`ScriptError`]; no step of the line is returned.
    pub fn line(&mut self, line: &str) -> Result<Vec<Step>, ScriptError> {
        if line.len() > MAX_LINE {
            return Err(ScriptError::Long);
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            return Ok(Vec::new());
        }
        let (command, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        let takes = |what| ScriptError::Takes(command.to_owned(), what);
        let argument = rest.trim();
        Ok(match command {
            "type" if !rest.is_empty() => return self.text(rest),
            "type" => return Err(takes("a text")),
            "tap" => return self.taps(argument.split_whitespace()),
            "down" => vec![self.key_down(key(argument)?)?],
            "up" => self.key_up(key(argument)?).into_iter().collect(),
            "press" => vec![button(argument, true).ok_or_else(|| takes(BUTTON))?],
            "release" => vec![button(argument, false).ok_or_else(|| takes(BUTTON))?],
            "click" => click(argument).ok_or_else(|| takes(BUTTON))?,
            "wheel" => wheel(argument).ok_or_else(|| takes("up, down, left or right"))?,
            "move" => {
                let (dx, dy) = pair(argument).ok_or_else(|| takes("two numbers of pixels"))?;
                vec![Step::Event(Event::Motion { dx, dy })]
            }
            "goto" => {
                let (x, y) = pair(argument).ok_or_else(|| takes("two numbers of pixels"))?;
                vec![Step::Event(Event::Position { x, y })]
            }
            "wait" => vec![wait(argument).ok_or_else(|| takes("a time such as 50ms or 2s"))?],
            _ => return Err(ScriptError::Unknown(command.to_owned())),
        })
    }

    fn text(&mut self, text: &str) -> Result<Vec<Step>, ScriptError> {
        let keysyms: Vec<u32> = text.chars().filter_map(of_char).collect();
        self.tap_all(keysyms)
    }

    /// Presses and releases each key in turn.
    fn taps<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<Vec<Step>, ScriptError> {
        let keysyms = names.map(key).collect::<Result<Vec<u32>, _>>()?;
        if keysyms.is_empty() {
            return Err(ScriptError::Takes("tap".into(), "the names of keys"));
        }
        self.tap_all(keysyms)
    }

    fn tap_all(&mut self, keysyms: Vec<u32>) -> Result<Vec<Step>, ScriptError> {
        let mut steps = Vec::with_capacity(2 * keysyms.len());
        for keysym in keysyms {
            steps.push(self.key_down(keysym)?);
            steps.extend(self.key_up(keysym));
        }
        Ok(steps)
    }

    fn key_down(&mut self, keysym: u32) -> Result<Step, ScriptError> {
        let known = self.held.iter().position(|held| *held == Some(keysym));
        let free = || self.held.iter().position(Option::is_none);
        let index = known.or_else(free).ok_or(ScriptError::Held)?;
        self.held[index] = Some(keysym);
        Ok(Step::Event(Event::KeyDown { key: number(index), keysym }))
    }

    /// `None` if the key is not pressed.
    fn key_up(&mut self, keysym: u32) -> Option<Step> {
        let index = self.held.iter().position(|held| *held == Some(keysym))?;
        self.held[index] = None;
        Some(Step::Event(Event::KeyUp { key: number(index) }))
    }
}

const BUTTON: &str = "the number of a button, such as 1";

fn number(index: usize) -> u8 {
    // `index` is less than `MAX_HELD`.
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn key(name: &str) -> Result<u32, ScriptError> {
    keysym::parse(name).ok_or_else(|| ScriptError::Key(name.to_owned()))
}

fn button(text: &str, down: bool) -> Option<Step> {
    let button = text.parse().ok().filter(|button| (1..=MAX_BUTTON).contains(button))?;
    Some(Step::Event(Event::Button { button, down }))
}

fn click(text: &str) -> Option<Vec<Step>> {
    Some(vec![button(text, true)?, button(text, false)?])
}

fn wheel(text: &str) -> Option<Vec<Step>> {
    let (_, button) = WHEEL.iter().find(|(name, _)| *name == text)?;
    let turn = |down| Step::Event(Event::Button { button: *button, down });
    Some(vec![turn(true), turn(false)])
}

fn pair<T: std::str::FromStr>(text: &str) -> Option<(T, T)> {
    let mut words = text.split_whitespace();
    let both = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(both)
}

fn wait(text: &str) -> Option<Step> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, Duration::from_millis(1)),
        None => (text.strip_suffix('s')?, Duration::from_secs(1)),
    };
    let time = unit.checked_mul(digits.parse().ok()?)?;
    (time <= MAX_WAIT).then_some(Step::Wait(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(line: &str) -> Vec<Step> {
        Script::default().line(line).unwrap()
    }

    #[test]
    fn parses_each_command() {
        let event = Step::Event;
        let down = |key, keysym| event(Event::KeyDown { key, keysym });
        let up = |key| event(Event::KeyUp { key });
        assert_eq!(events("tap a Return"), [down(0, 0x61), up(0), down(0, 0xff0d), up(0)]);
        assert_eq!(events("type  é"), [down(0, 0x20), up(0), down(0, 0xe9), up(0)]);
        assert_eq!(events("move -3 4"), [event(Event::Motion { dx: -3, dy: 4 })]);
        assert_eq!(events("  goto 100 200\n"), [event(Event::Position { x: 100, y: 200 })]);
        let button = |button, down| event(Event::Button { button, down });
        assert_eq!(events("click 1"), [button(1, true), button(1, false)]);
        assert_eq!(events("wheel down"), [button(5, true), button(5, false)]);
        assert_eq!(events("press 31"), [button(31, true)]);
        assert_eq!(events("wait 50ms"), [Step::Wait(Duration::from_millis(50))]);
        assert_eq!(events("wait 2s"), [Step::Wait(Duration::from_secs(2))]);
        for empty in ["", "   ", "# tap a", "\n"] {
            assert_eq!(events(empty), []);
        }
    }

    #[test]
    fn pressed_keys_keep_their_number() {
        let mut script = Script::default();
        let mut key = |line: &str| match script.line(line).unwrap().first() {
            Some(Step::Event(Event::KeyDown { key, .. } | Event::KeyUp { key })) => Some(*key),
            _ => None,
        };
        assert_eq!(key("down Shift"), Some(0));
        assert_eq!(key("down a"), Some(1));
        assert_eq!(key("down a"), Some(1));
        assert_eq!(key("up Shift"), Some(0));
        assert_eq!(key("up Shift"), None);
        assert_eq!(key("down b"), Some(0));
        assert_eq!(key("up a"), Some(1));
    }

    #[test]
    fn errors_name_the_invalid_part() {
        let error = |line: &str| Script::default().line(line).unwrap_err().to_string();
        assert!(error("jump 1").contains("`jump`"));
        assert!(error("tap Nokey").contains("`Nokey`"));
        assert!(error("tap").contains("keys"));
        assert!(error("type").contains("a text"));
        for line in ["click", "click 0", "press 32", "release x"] {
            assert!(error(line).contains("button"), "{line}");
        }
        for line in ["move 1", "move 1 2 3", "goto -1 2", "move 40000 1"] {
            assert!(error(line).contains("pixels"), "{line}");
        }
        for line in ["wait", "wait 5", "wait 2h", "wait 3601s", "wait -1s"] {
            assert!(error(line).contains("time"), "{line}");
        }
        assert_eq!(Script::default().line(&"x".repeat(MAX_LINE + 1)), Err(ScriptError::Long));
    }

    #[test]
    fn arbitrary_lines_never_panic() {
        bolero::check!().with_type::<String>().for_each(|line| {
            let mut script = Script::default();
            let _ = script.line(line);
            let _ = script.line(&format!("tap {line}"));
            let _ = script.line(&format!("type {line}"));
        });
    }
}
