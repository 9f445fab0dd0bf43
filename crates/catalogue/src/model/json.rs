//! Checks that bytes are a JSON object that all parsers read alike: RFC 8259, with the rules of RFC
//! 7493 on duplicate names and surrogates.
//!
//! Descriptors are stored, hashed and signed byte for byte, so this module validates without
//! building a value.

use std::collections::HashSet;

use super::{JsonError, JsonFault};

/// Checks that `bytes` are an object by RFC 8259 without duplicate names or unpaired surrogates,
/// nested at most `levels` deep.
///
/// # Errors
/// [`JsonError`] has the first violation and its offset.
pub fn check_object(bytes: &[u8], levels: usize) -> Result<(), JsonError> {
    let text = str::from_utf8(bytes)
        .map_err(|error| JsonError { at: error.valid_up_to(), fault: JsonFault::Utf8 })?;
    let mut checker = Checker { text, at: 0, levels };
    if checker.next_byte() != Some(b'{') {
        return Err(checker.error(JsonFault::NotAnObject));
    }
    checker.value(1)?;
    if checker.next_byte().is_some() {
        return Err(checker.error(JsonFault::Trailing));
    }
    Ok(())
}

struct Checker<'a> {
    text: &'a str,
    at: usize,
    levels: usize,
}

impl<'a> Checker<'a> {
    fn error(&self, fault: JsonFault) -> JsonError {
        JsonError { at: self.at, fault }
    }

    fn syntax(&self) -> JsonError {
        self.error(JsonFault::Syntax)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips whitespace and returns the next byte without consuming it.
    fn next_byte(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    /// Consumes `byte`; any other byte is an error.
    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.next_byte() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes a value. `level` is its nesting depth if it is an object or array.
    fn value(&mut self, level: usize) -> Result<(), JsonError> {
        match self.next_byte() {
            Some(b'{') => self.object(level),
            Some(b'[') => self.array(level),
            Some(b'"') => self.string(&mut |_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.literal(),
        }
    }

    fn enter(&mut self, level: usize) -> Result<(), JsonError> {
        if level > self.levels {
            return Err(self.error(JsonFault::TooDeep));
        }
        self.at += 1;
        Ok(())
    }

    fn object(&mut self, level: usize) -> Result<(), JsonError> {
        self.enter(level)?;
        if self.next_byte() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut names = HashSet::new();
        loop {
            if self.next_byte() != Some(b'"') {
                return Err(self.syntax());
            }
            let start = self.at;
            let mut name = String::new();
            self.string(&mut |piece| name.push_str(piece))?;
            if !names.insert(name) {
                return Err(JsonError { at: start, fault: JsonFault::DuplicateName });
            }
            self.expect(b':')?;
            self.value(level + 1)?;
            if self.ends(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, level: usize) -> Result<(), JsonError> {
        self.enter(level)?;
        if self.next_byte() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(level + 1)?;
            if self.ends(b']')? {
                return Ok(());
            }
        }
    }

    /// Consumes a comma or `end`. Returns whether it was `end`.
    fn ends(&mut self, end: u8) -> Result<bool, JsonError> {
        let byte = self.next_byte();
        if byte != Some(end) && byte != Some(b',') {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(byte == Some(end))
    }

    /// Consumes a string and passes its decoded text to `piece`, part by part.
    fn string(&mut self, piece: &mut dyn FnMut(&str)) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            let rest = self.rest();
            let stop = rest.find(|c: char| matches!(c, '"' | '\\' | '\0'..='\x1f'));
            let Some(stop) = stop else {
                self.at = self.text.len();
                return Err(self.syntax());
            };
            let (plain, _) = rest.split_at(stop);
            piece(plain);
            self.at += stop;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    piece(c.encode_utf8(&mut [0; 4]));
                }
                _ => return Err(self.syntax()),
            }
        }
    }

    /// The unread text. `at` is always on a character boundary.
    fn rest(&self) -> &'a str {
        self.text.split_at(self.at).1
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 1;
        let c = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode(start);
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.syntax()),
        };
        self.at += 1;
        Ok(c)
    }

    /// Consumes the digits after `\u` and, after a high surrogate, the escape of the low one.
    fn unicode(&mut self, start: usize) -> Result<char, JsonError> {
        let unpaired = JsonError { at: start, fault: JsonFault::Surrogate };
        let high = self.unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or(unpaired);
        }
        if !self.rest().starts_with("\\u") {
            return Err(unpaired);
        }
        self.at += 2;
        let low = self.unit()?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(unpaired);
        }
        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(unpaired)
    }

    /// Consumes the four digits of a UTF-16 code unit.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = (unit << 4) | digit.ok_or_else(|| self.syntax())?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Consumes at least one digit.
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.syntax()) } else { Ok(()) }
    }

    fn literal(&mut self) -> Result<(), JsonError> {
        let rest = self.rest();
        let found = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word));
        self.at += found.ok_or_else(|| self.syntax())?.len();
        Ok(())
    }
}
