//! Adds a field to heads.

use levada_contexts::{Action, Direction, Inspector, Path, Piece, Purpose};

use super::Granted;

/// Adds a field to each response.
pub struct AddField {
    /// `name: value CRLF`.
    line: Vec<u8>,
    granted: Granted,
    /// The head that passes has the field already.
    added: bool,
}

impl AddField {
    /// The field of `text`, `Name: value`. None if it is no field.
    pub fn new(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(':')?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
        let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let value = value.trim_matches([' ', '\t']);
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(plain) {
            return None;
        }
        let line = format!("{}: {value}\r\n", name.to_ascii_lowercase()).into_bytes();
        Some(Self { line, granted: Granted::default(), added: false })
    }
}

impl Inspector for AddField {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        let head = self.granted.purpose(piece.context) == Purpose::ResponseHead;
        if self.added || !head || !self.granted.may_write(piece.context) {
            return Action::Pass;
        }
        // Behind the first line, and not at the end: an answer of another middlebox has no record
        // that ends the head, and a server's answer to a request that was answered on the way has
        // no head, and must not get one.
        let Some(end) = piece.data.windows(2).position(|pair| pair == b"\r\n") else {
            return Action::Pass;
        };
        self.added = true;
        let (first, rest) = piece.data.split_at(end + 2);
        Action::Replace([first, &self.line, rest].concat())
    }

    fn exchange(&mut self, direction: Direction, _: u64, _: bool) {
        self.added &= direction == Direction::ToServer;
    }
}

#[cfg(test)]
mod tests {
    use levada_contexts::Right;

    use super::*;

    #[test]
    fn only_a_field_can_be_added() {
        assert_eq!(AddField::new("X-Seen: yes").unwrap().line, b"x-seen: yes\r\n");
        for wrong in ["x", ": a", "a b: c", "a: b\r\nc: d", "a: b\n"] {
            assert!(AddField::new(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn each_head_gets_the_field_once_and_an_empty_one_does_not() {
        let mut add = AddField::new("X-Seen: yes").unwrap();
        add.granted = Granted(vec![(Purpose::ResponseHead, Right::Write)]);
        let direction = Direction::ToClient;
        let record = |add: &mut AddField, data, end| {
            add.record(Piece { direction, context: 1, data, end, origin: 0 })
        };
        for end in [true, false] {
            let added = Action::Replace(b"200\r\nx-seen: yes\r\na: b\r\n".to_vec());
            assert_eq!(record(&mut add, b"200\r\na: b\r\n", end), added);
            assert_eq!(record(&mut add, b"c: d\r\n", true), Action::Pass);
            add.exchange(Direction::ToServer, 1, false);
            assert_eq!(record(&mut add, b"e: f\r\n", true), Action::Pass);
            add.exchange(direction, 0, false);
            assert_eq!(record(&mut add, b"", true), Action::Pass);
            add.exchange(direction, 0, false);
        }
        // A reader does not try to write, which would end the session.
        add.granted = Granted(vec![(Purpose::ResponseHead, Right::Read)]);
        assert_eq!(record(&mut add, b"200\r\n", true), Action::Pass);
    }
}
