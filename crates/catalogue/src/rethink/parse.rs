//! How the original read JSON: leniently, as the library Gson 2.6 does. It read files so, and then each value of an
//! object once more, because values travelled as strings: so `"1.10"` became a number and `"{a:b}"` an object.
//!
//! Beyond JSON it takes: strings in `'…'` and without quotes; names without quotes; `=` and `=>` for `:`, and `;` for
//! `,`; nothing between commas of a list, for null; `/* */`, `//` and `#` comments; any case of `true`, `false` and
//! `null`; a byte order mark, and then `)]}'` with a line feed, in front; any character behind a backslash. Only
//! blanks may follow the value: lenience ends with it.

mod number;
#[cfg(test)]
mod tests;

use thiserror::Error;

use super::{Members, Value};

/// How deep lists and objects may be nested. The original stopped at the end of its stack, at some thousands.
pub const MAX_DEPTH: usize = 256;
/// How many values may be in one text, so that a small text does not become a large tree.
pub const MAX_VALUES: usize = 100_000;

/// What servers put before JSON so that it cannot be run as a script.
const GUARD: &str = ")]}'\n";

/// Why a text has no value.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{what}, at byte {at}")]
pub struct Malformed {
    /// The offset in bytes, from 0.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// The value of `text`; `None` if there is nothing in it but blanks and comments.
///
/// # Errors
/// [`Malformed`] if it is no single value, or is over [`MAX_DEPTH`] or [`MAX_VALUES`].
pub fn parse(text: &str) -> Result<Option<Value>, Malformed> {
    let mut parser = Parser { text, at: 0, values: 0 };
    parser.eat("\u{feff}");
    if parser.significant()?.is_none() {
        return Ok(None);
    }
    if parser.eat(GUARD) && parser.significant()?.is_none() {
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

    /// What is not read yet. `at` only ever passes whole characters.
    fn rest(&self) -> &'a str {
        self.text.split_at(self.at).1
    }

    /// Consumes `text` if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        let comes = self.rest().starts_with(text);
        if comes {
            self.at += text.len();
        }
        comes
    }

    /// The next byte that is neither blank nor comment. It is not consumed.
    fn significant(&mut self) -> Result<Option<u8>, Malformed> {
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
            return self.error("a comment does not end");
        };
        self.at += end + 2;
        Ok(())
    }

    /// As [`Self::significant`], where something must come.
    fn required(&mut self) -> Result<u8, Malformed> {
        match self.significant()? {
            Some(byte) => Ok(byte),
            None => self.error("it ends too early"),
        }
    }

    /// After the value: here a comment is no blank.
    fn end(&mut self) -> Result<(), Malformed> {
        let blank = self.rest().trim_start_matches([' ', '\t', '\r', '\n']);
        if blank.is_empty() { Ok(()) } else { self.error("something follows the value") }
    }

    fn value(&mut self, depth: usize, in_list: bool) -> Result<Value, Malformed> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return self.error("there are too many values");
        }
        match self.required()? {
            b']' | b',' | b';' if in_list => Ok(Value::Null),
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            quote @ (b'"' | b'\'') => self.quoted(quote).map(Value::Text),
            _ => self.bare().map(number::word_value),
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return self.error("it is nested too deep");
        }
        self.at += 1;
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Value, Malformed> {
        self.enter(depth)?;
        let mut values = Vec::new();
        if self.required()? == b']' {
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
        if self.required()? == b'}' {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            let name = match self.required()? {
                quote @ (b'"' | b'\'') => self.quoted(quote)?,
                _ => self.bare()?.to_owned(),
            };
            self.separator()?;
            members.insert(name, self.value(depth + 1, false)?);
            if self.ends(b'}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    /// Consumes what stands between a name and its value.
    fn separator(&mut self) -> Result<(), Malformed> {
        match self.required()? {
            b':' => self.at += 1,
            b'=' => {
                self.at += 1;
                self.eat(">");
            }
            _ => return self.error("a name has no value"),
        }
        Ok(())
    }

    /// Consumes a comma or semicolon, or `end`: then it is true.
    fn ends(&mut self, end: u8) -> Result<bool, Malformed> {
        let byte = self.required()?;
        if byte != end && byte != b',' && byte != b';' {
            return self.error("a list or object does not end");
        }
        self.at += 1;
        Ok(byte == end)
    }

    /// A word without quotes; not an empty one.
    fn bare(&mut self) -> Result<&'a str, Malformed> {
        let rest = self.rest();
        let (word, _) = rest.split_at(rest.find(ends_word).unwrap_or(rest.len()));
        if word.is_empty() {
            return self.error("a name or value is missing");
        }
        self.at += word.len();
        Ok(word)
    }

    /// A string up to `quote`, which is next.
    fn quoted(&mut self, quote: u8) -> Result<String, Malformed> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let Some(stop) = rest.find([char::from(quote), '\\']) else {
                return self.error("a string does not end");
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

    /// What stands behind a backslash.
    fn escape(&mut self) -> Result<char, Malformed> {
        let Some(c) = self.rest().chars().next() else {
            return self.error("a string does not end");
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

    /// A character by its number, with the second half of a pair. Half a pair alone is `?`, as the original's encoder
    /// wrote it.
    fn unicode(&mut self) -> Result<char, Malformed> {
        let unit = self.unit()?;
        if !(0xd800..0xdc00).contains(&unit) {
            return Ok(char::from_u32(unit).unwrap_or('?'));
        }
        let before = self.at;
        if self.eat("\\u") {
            let low = self.unit()?;
            if (0xdc00..0xe000).contains(&low) {
                let number = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(number).unwrap_or('?'));
            }
            self.at = before;
        }
        Ok('?')
    }

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
