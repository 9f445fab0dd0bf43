//! Adds a field to heads.

use levada_session::contexts::{Action, Inspector, Path, Piece, Purpose};

use super::Purposes;

/// Adds a field to each response.
pub struct AddField {
    /// `name: value CRLF`.
    line: Vec<u8>,
    purposes: Purposes,
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
        Some(Self { line, purposes: Purposes::default() })
    }
}

impl Inspector for AddField {
    fn granted(&mut self, path: &Path, _: u8) {
        self.purposes = Purposes::new(path);
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if piece.end && self.purposes.of(piece.context) == Purpose::ResponseHead {
            return Action::Replace([piece.data, &self.line].concat());
        }
        Action::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_field_can_be_added() {
        assert_eq!(AddField::new("X-Seen: yes").unwrap().line, b"x-seen: yes\r\n");
        for wrong in ["x", ": a", "a b: c", "a: b\r\nc: d", "a: b\n"] {
            assert!(AddField::new(wrong).is_none(), "{wrong:?}");
        }
    }
}
