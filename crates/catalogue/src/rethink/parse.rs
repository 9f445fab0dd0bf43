//! The lenient JSON parser of reTHINK's catalogue, which used the library Gson 2.6. It parsed
//! files, and then each value of an object a second time, because its components exchanged values
//! as strings: so `"1.10"` became a number and `"{a:b}"` an object.
//!
//! Beyond JSON it accepts: strings in `'…'` and without quotes; names without quotes; `=` and `=>`
//! for `:`, and `;` for `,`; an empty element of a list, as null; `/* */`, `//` and `#` comments;
//! any case of `true`, `false` and `null`; a byte order mark, and then `)]}'` with a line feed, at
//! the start; any character after a backslash. After the value only blanks are accepted.

mod number;
#[cfg(test)]
mod tests;

use thiserror::Error;

use super::{Members, Value};

/// The maximum nesting depth of lists and objects. reTHINK's catalogue was limited by its stack, to
/// a few thousand.
pub const MAX_DEPTH: usize = 256;
/// The maximum number of values in a text, so that a small text cannot use much memory.
pub const MAX_VALUES: usize = 100_000;

/// The prefix that some servers send before JSON so that it cannot be executed as a script.
const GUARD: &str = ")]}'\n";

/// Why a text cannot be parsed.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{what}, at byte {at}")]
pub struct Malformed {
    /// The offset in bytes, from 0.
    pub at: usize,
    /// The error at this offset.
    pub what: &'static str,
}

/// Parses `text`. `None` if it has only blanks and comments.
///
/// # Errors
/// [`Malformed`] if it is not a single value, or exceeds [`MAX_DEPTH`] or [`MAX_VALUES`].
pub fn parse(text: &str) -> Result<Option<Value>, Malformed> {
    let mut parser = Parser { text, at: 0, values: 0 };
    parser.consume("\u{feff}");
    if parser.peek_token()?.is_none() {
        return Ok(None);
    }
    if parser.consume(GUARD) && parser.peek_token()?.is_none() {
        return Ok(None);
    }
    let value = parser.value(1, false)?;
    parser.end()?;
    Ok(Some(value))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    fn error<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed { at: self.at, what })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The unread text. `at` is always on a character boundary.
    fn rest(&self) -> &'a str {
        self.text.split_at(self.at).1
    }

    /// Consumes `text` if it is next. Returns whether it was.
    fn consume(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    /// Skips blanks and comments and returns the next byte without consuming it.
    fn peek_token(&mut self) -> Result<Option<u8>, Malformed> {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'#' => self.skip_line(),
                b'/' if self.rest().starts_with("//") => self.skip_line(),
                b'/' if self.rest().starts_with("/*") => self.skip_comment()?,
                _ => return Ok(Some(byte)),
            }
        }
        Ok(None)
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += rest.find(['\r', '\n']).map_or(rest.len(), |end| end + 1);
    }

    fn skip_comment(&mut self) -> Result<(), Malformed> {
        self.at += 2;
        let Some(end) = self.rest().find("*/") else {
            return self.error("a comment is not closed");
        };
        self.at += end + 2;
        Ok(())
    }

    /// As [`Self::peek_token`]; the end of the text is an error.
    fn expect_token(&mut self) -> Result<u8, Malformed> {
        match self.peek_token()? {
            Some(byte) => Ok(byte),
            None => self.error("the text is incomplete"),
        }
    }

    /// Checks that only blanks follow the value. A comment is an error here.
    fn end(&mut self) -> Result<(), Malformed> {
        let blank = self.rest().trim_start_matches([' ', '\t', '\r', '\n']);
        if blank.is_empty() { Ok(()) } else { self.error("text follows the value") }
    }

    fn value(&mut self, depth: usize, in_list: bool) -> Result<Value, Malformed> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return self.error("there are too many values");
        }
        match self.expect_token()? {
            b']' | b',' | b';' if in_list => Ok(Value::Null),
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            quote @ (b'"' | b'\'') => self.quoted(quote).map(Value::Text),
            _ => self.unquoted().map(number::word_value),
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return self.error("it is nested too deeply");
        }
        self.at += 1;
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Value, Malformed> {
        self.enter(depth)?;
        let mut values = Vec::new();
        if self.expect_token()? == b']' {
            self.at += 1;
            return Ok(Value::List(values));
        }
        loop {
            values.push(self.value(depth + 1, true)?);
            if self.ends(b']')? {
                return Ok(Value::List(values));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Malformed> {
        self.enter(depth)?;
        let mut members = Members::new();
        if self.expect_token()? == b'}' {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            let name = match self.expect_token()? {
                quote @ (b'"' | b'\'') => self.quoted(quote)?,
                _ => self.unquoted()?.to_owned(),
            };
            self.separator()?;
            members.insert(name, self.value(depth + 1, false)?);
            if self.ends(b'}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    /// Consumes the separator of a name and its value.
    fn separator(&mut self) -> Result<(), Malformed> {
        match self.expect_token()? {
            b':' => self.at += 1,
            b'=' => {
                self.at += 1;
                self.consume(">");
            }
            _ => return self.error("a name has no value"),
        }
        Ok(())
    }

    /// Consumes a comma, a semicolon or `end`. Returns whether it was `end`.
    fn ends(&mut self, end: u8) -> Result<bool, Malformed> {
        let byte = self.expect_token()?;
        if byte != end && byte != b',' && byte != b';' {
            return self.error("a list or object is not closed");
        }
        self.at += 1;
        Ok(byte == end)
    }

    /// Consumes a word without quotes, which must not be empty.
    fn unquoted(&mut self) -> Result<&'a str, Malformed> {
        let rest = self.rest();
        let (word, _) = rest.split_at(rest.find(ends_word).unwrap_or(rest.len()));
        if word.is_empty() {
            return self.error("a name or value is missing");
        }
        self.at += word.len();
        Ok(word)
    }

    /// Consumes a string in quotes, whose opening quote is next.
    fn quoted(&mut self, quote: u8) -> Result<String, Malformed> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let Some(stop) = rest.find([char::from(quote), '\\']) else {
                return self.error("a string is not closed");
            };
            let (plain, _) = rest.split_at(stop);
            text.push_str(plain);
            self.at += stop + 1;
            if rest.as_bytes().get(stop) == Some(&quote) {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    /// Consumes the text of an escape after its backslash.
    fn escape(&mut self) -> Result<char, Malformed> {
        let Some(c) = self.rest().chars().next() else {
            return self.error("a string is not closed");
        };
        self.at += c.len_utf8();
        Ok(match c {
            'u' => self.unicode()?,
            't' => '\t',
            'b' => '\u{8}',
            'n' => '\n',
            'r' => '\r',
            'f' => '\u{c}',
            other => other,
        })
    }

    /// Consumes the digits after `\u` and, after a high surrogate, the escape of the low one. An
    /// unpaired surrogate becomes `?`, as reTHINK's encoder wrote it.
    fn unicode(&mut self) -> Result<char, Malformed> {
        let unit = self.unit()?;
        if !(0xd800..0xdc00).contains(&unit) {
            return Ok(char::from_u32(unit).unwrap_or('?'));
        }
        let before = self.at;
        if self.consume("\\u") {
            let low = self.unit()?;
            if (0xdc00..0xe000).contains(&low) {
                let number = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(number).unwrap_or('?'));
            }
            self.at = before;
        }
        Ok('?')
    }

    /// Consumes the four digits of a UTF-16 code unit.
    fn unit(&mut self) -> Result<u32, Malformed> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return self.error("an escape is not four digits") };
            unit = (unit << 4) | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

fn ends_word(c: char) -> bool {
    matches!(
        c,
        '/' | '\\'
            | ';'
            | '#'
            | '='
            | '{'
            | '}'
            | '['
            | ']'
            | ':'
            | ','
            | ' '
            | '\t'
            | '\u{c}'
            | '\r'
            | '\n'
    )
}
