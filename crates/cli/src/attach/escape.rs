//! Escape sequences as in ssh: typed at the beginning of a line on a terminal, they control the
//! client.

use std::fmt;
use std::str::FromStr;

/// The character that begins an escape sequence; `None` disables them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape(Option<u8>);

impl Default for Escape {
    fn default() -> Self {
        Self(Some(b'~'))
    }
}

impl FromStr for Escape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.as_bytes() {
            b"none" => Ok(Self(None)),
            [byte] if byte.is_ascii_punctuation() && *byte != b'.' && *byte != b'?' => {
                Ok(Self(Some(*byte)))
            }
            _ => Err("expected a punctuation character other than . and ?, or none"),
        }
    }
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(byte) => write!(f, "{}", char::from(byte)),
            None => f.write_str("none"),
        }
    }
}

/// The command of an escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// End the session.
    Leave,
    /// Print the list of sequences.
    Help,
}

/// Removes escape sequences from typed input.
pub(super) struct Filter {
    escape: u8,
    position: Position,
}

/// Where in its line the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Beginning,
    /// After an escape character at the beginning, which is held back.
    Escaped,
    Within,
}

impl Escape {
    /// The filter for these sequences; `None` if they are disabled.
    pub(super) fn filter(self) -> Option<Filter> {
        Some(Filter { escape: self.0?, position: Position::Beginning })
    }

    /// Help on the sequences, with line ends for a terminal in raw mode.
    pub(super) fn help(self) -> String {
        format!(
            "\r\nAt the beginning of a line:\r\n \
             {self}.  ends the session\r\n \
             {self}?  prints this\r\n \
             {self}{self}  sends one {self}\r\n"
        )
    }
}

impl Filter {
    /// The bytes of `typed` for the service, and the actions in order. Nothing follows
    /// [`Action::Leave`].
    pub(super) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, Vec<Action>) {
        let mut bytes = Vec::with_capacity(typed.len() + 1);
        let mut actions = Vec::new();
        for byte in typed {
            let after = match byte {
                b'\r' | b'\n' => Position::Beginning,
                _ => Position::Within,
            };
            self.position = match (self.position, *byte) {
                (Position::Beginning, byte) if byte == self.escape => Position::Escaped,
                (Position::Escaped, b'.') => {
                    actions.push(Action::Leave);
                    self.position = Position::Beginning;
                    return (bytes, actions);
                }
                (Position::Escaped, b'?') => {
                    actions.push(Action::Help);
                    Position::Beginning
                }
                (Position::Escaped, byte) => {
                    bytes.push(self.escape);
                    if byte != self.escape {
                        bytes.push(byte);
                    }
                    after
                }
                (_, byte) => {
                    bytes.push(byte);
                    after
                }
            };
        }
        (bytes, actions)
    }

    /// The byte that is held back at the end of the input, if any.
    pub(super) fn rest(&self) -> Option<u8> {
        (self.position == Position::Escaped).then_some(self.escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(parts: &[&str]) -> (String, Vec<Action>) {
        let mut filter = Escape::default().filter().unwrap();
        let mut text = Vec::new();
        let mut actions = Vec::new();
        for part in parts {
            let (bytes, asked) = filter.take(part.as_bytes());
            text.extend(bytes);
            actions.extend(asked);
        }
        text.extend(filter.rest());
        (String::from_utf8(text).unwrap(), actions)
    }

    #[test]
    fn recognizes_sequences_only_at_the_beginning_of_a_line() {
        let leave = vec![Action::Leave];
        for parts in [&["~."][..], &["~", "."], &["ls\r~."], &["ls\r", "~", ".more"]] {
            let (text, actions) = typed(parts);
            assert_eq!(actions, leave, "{parts:?}");
            assert!(!text.contains('~'), "{parts:?}");
        }
        for (part, sent) in [
            ("a~.", "a~."),
            (" ~.", " ~."),
            ("~~.", "~."),
            ("\r~~", "\r~"),
            ("~a~.", "~a~."),
            ("~\r~x", "~\r~x"),
            ("~", "~"),
        ] {
            assert_eq!(typed(&[part]), (sent.to_owned(), vec![]), "{part:?}");
        }
        assert_eq!(typed(&["~?ls\r"]), ("ls\r".to_owned(), vec![Action::Help]));
        assert_eq!(typed(&["~?~."]), (String::new(), vec![Action::Help, Action::Leave]));
    }

    #[test]
    fn passes_every_other_byte_unchanged() {
        bolero::check!().with_type::<Vec<Vec<u8>>>().for_each(|parts| {
            let mut filter = Escape(Some(b'~')).filter().unwrap();
            let whole: usize = parts.iter().map(Vec::len).sum();
            let sent: usize = parts.iter().map(|part| filter.take(part).0.len()).sum();
            assert!(sent <= whole);
            if !parts.concat().contains(&b'~') {
                assert_eq!(sent, whole);
            }
        });
    }

    #[test]
    fn parses_another_escape_character_and_none() {
        for (text, escape) in [("none", None), ("%", Some(b'%')), ("~", Some(b'~'))] {
            let read: Escape = text.parse().unwrap();
            assert_eq!((read, read.to_string().as_str()), (Escape(escape), text));
        }
        for wrong in ["", "a", ".", "?", "~~", "é", "\n"] {
            assert!(wrong.parse::<Escape>().is_err(), "{wrong}");
        }
    }
}
