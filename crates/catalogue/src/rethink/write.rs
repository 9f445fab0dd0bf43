//! Writers for the two forms of JSON of reTHINK's catalogue: answers are indented by two blanks per
//! level with the special characters of HTML escaped; hashed and serialized values are compact.

use std::borrow::Cow;

use super::{Members, Value};

impl Value {
    /// The string by which the components of reTHINK's catalogue exchanged the value: a text
    /// unchanged, any other value as JSON. Answers contain the value that this string parses to.
    pub fn serialized(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Number(text) => Cow::Borrowed(text),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Null | Self::List(_) | Self::Object(_) => Cow::Owned(compact(self)),
        }
    }

    /// The text of a string, number or boolean, or of a list with one of them as its only element.
    pub fn scalar(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(_) | Self::Number(_) | Self::Bool(_) => Some(self.serialized()),
            Self::List(values) => match values.as_slice() {
                [value] => value.scalar(),
                _ => None,
            },
            Self::Null | Self::Object(_) => None,
        }
    }
}

/// The text exceeds its maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// JSON without blanks, with null members, without HTML escapes.
pub fn compact(value: &Value) -> String {
    let mut out = String::new();
    write_compact(value, &mut out);
    out
}

/// As [`compact`], for the members of an object.
pub(super) fn compact_members(members: &Members) -> String {
    let mut out = String::new();
    write_compact_members(members, &mut out);
    out
}

fn write_compact(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(number),
        Value::Text(text) => write_string(text, false, out),
        Value::List(values) => {
            out.push('[');
            for (position, value) in values.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_compact(value, out);
            }
            out.push(']');
        }
        Value::Object(members) => write_compact_members(members, out),
    }
}

fn write_compact_members(members: &Members, out: &mut String) {
    out.push('{');
    for (position, (name, value)) in members.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_string(name, false, out);
        out.push(':');
        write_compact(value, out);
    }
    out.push('}');
}

/// JSON with one value per line, without null members. `None` if it would have more than `max_len`
/// bytes, which a few nested brackets can reach.
pub fn pretty(value: &Value, max_len: usize) -> Option<String> {
    let mut out = PrettyWriter::new(max_len);
    out.value(value, 0).ok()?;
    Some(out.text)
}

/// Writes indented JSON of at most `max_len` bytes.
pub(super) struct PrettyWriter {
    pub(super) text: String,
    max_len: usize,
}

impl PrettyWriter {
    pub(super) fn new(max_len: usize) -> Self {
        Self { text: String::new(), max_len }
    }

    /// Writes `value`, which is nested in `level` lists and objects.
    pub(super) fn value(&mut self, value: &Value, level: usize) -> Result<(), TooLong> {
        match value {
            Value::Null => self.raw("null"),
            Value::Bool(value) => self.raw(if *value { "true" } else { "false" }),
            Value::Number(number) => self.raw(number),
            Value::Text(text) => self.string(text),
            Value::List(values) => self.list(values, level),
            Value::Object(members) => self.object(members, level),
        }
    }

    fn list(&mut self, values: &[Value], level: usize) -> Result<(), TooLong> {
        self.raw("[")?;
        for (position, value) in values.iter().enumerate() {
            self.line(position > 0, level + 1)?;
            self.value(value, level + 1)?;
        }
        self.close("]", values.is_empty(), level)
    }

    fn object(&mut self, members: &Members, level: usize) -> Result<(), TooLong> {
        self.raw("{")?;
        let mut empty = true;
        for (name, value) in members.iter().filter(|(_, value)| **value != Value::Null) {
            self.name(name, !empty, level + 1)?;
            self.value(value, level + 1)?;
            empty = false;
        }
        self.close("}", empty, level)
    }

    /// Writes a member's name on a new line, after a comma if `comma`.
    pub(super) fn name(&mut self, name: &str, comma: bool, level: usize) -> Result<(), TooLong> {
        self.line(comma, level)?;
        self.string(name)?;
        self.raw(": ")
    }

    /// Writes the bracket that ends a list or object.
    pub(super) fn close(&mut self, end: &str, empty: bool, level: usize) -> Result<(), TooLong> {
        if !empty {
            self.line(false, level)?;
        }
        self.raw(end)
    }

    fn line(&mut self, comma: bool, level: usize) -> Result<(), TooLong> {
        self.raw(if comma { ",\n" } else { "\n" })?;
        for _ in 0..level {
            self.text.push_str("  ");
        }
        self.check_len()
    }

    pub(super) fn string(&mut self, text: &str) -> Result<(), TooLong> {
        write_string(text, true, &mut self.text);
        self.check_len()
    }

    pub(super) fn raw(&mut self, text: &str) -> Result<(), TooLong> {
        self.text.push_str(text);
        self.check_len()
    }

    fn check_len(&self) -> Result<(), TooLong> {
        if self.text.len() > self.max_len { Err(TooLong) } else { Ok(()) }
    }
}

/// Writes a string in quotes. Line and paragraph separators are escaped because JavaScript before
/// ECMAScript 2019 took them for line ends.
fn write_string(text: &str, html: bool, out: &mut String) {
    out.push('"');
    write_escaped(text, html, out);
    out.push('"');
}

/// Writes the content of a string.
pub(super) fn write_escaped(text: &str, html: bool, out: &mut String) {
    let mut written = 0;
    for (at, c) in text.char_indices() {
        let Some(escape) = escape(c, html) else { continue };
        out.push_str(&text[written..at]);
        match escape {
            Escape::Short(letter) => out.extend(['\\', letter]),
            Escape::Number => push_number(c, out),
        }
        written = at + c.len_utf8();
    }
    out.push_str(&text[written..]);
}

enum Escape {
    Short(char),
    Number,
}

fn escape(c: char, html: bool) -> Option<Escape> {
    match c {
        '"' | '\\' => Some(Escape::Short(c)),
        '\t' => Some(Escape::Short('t')),
        '\u{8}' => Some(Escape::Short('b')),
        '\n' => Some(Escape::Short('n')),
        '\r' => Some(Escape::Short('r')),
        '\u{c}' => Some(Escape::Short('f')),
        '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => Some(Escape::Number),
        '<' | '>' | '&' | '=' | '\'' if html => Some(Escape::Number),
        _ => None,
    }
}

/// Writes `\u` and four lower-case digits. All characters that are escaped this way have 16 bits.
fn push_number(c: char, out: &mut String) {
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        let digit = (u32::from(c) >> shift) & 0xf;
        out.extend(char::from_digit(digit, 16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rethink::parse;

    fn value(text: &str) -> Value {
        parse(text).unwrap().unwrap()
    }

    #[test]
    fn pretty_writes_one_value_per_line_without_null_members() {
        let text = pretty(&value("{a:[],b:{},c:[1,{d:null}],e:null,f:[null]}"), 1000).unwrap();
        let expected = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {}\n  ],\n  \"f\": [\n    null\n  ]\n}";
        assert_eq!(text, expected);
        for (short, text) in
            [("null", "null"), ("[]", "[]"), ("{}", "{}"), ("{a:null}", "{}"), ("1.10", "1.10")]
        {
            assert_eq!(pretty(&value(short), 1000).as_deref(), Some(text));
        }
    }

    #[test]
    fn compact_keeps_null_members_and_html() {
        let text = "{\"a\":null,\"<b>\":[1.50,\"x=y & 'z'\",true,null]}";
        assert_eq!(compact(&value(text)), text);
    }

    #[test]
    fn html_is_escaped_in_names_and_texts() {
        let value = value(
            "{'</a>': \"=&'\\u0001\\u001f\\u007f\\u2028\\u2029\\\"\\\\/\\t\\b\\n\\r\\f ç😀\"}",
        );
        let pretty = pretty(&value, 1000).unwrap();
        let expected = concat!(
            "{\n  \"\\u003c/a\\u003e\": \"\\u003d\\u0026\\u0027\\u0001\\u001f\u{7f}\\u2028\\u2029",
            "\\\"\\\\/\\t\\b\\n\\r\\f ç😀\"\n}"
        );
        assert_eq!(pretty, expected);
    }

    #[test]
    fn pretty_fails_over_the_maximum_length() {
        let nested = value(&format!("{}1{}", "[".repeat(200), "]".repeat(200)));
        let length = pretty(&nested, usize::MAX).unwrap().len();
        assert!(pretty(&nested, length).is_some());
        assert_eq!(pretty(&nested, length - 1), None);
    }

    #[test]
    fn pretty_output_is_valid_for_serde_json_and_round_trips() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(Some(value)) = parse(text) {
                let pretty = pretty(&value, usize::MAX).unwrap();
                if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&pretty) {
                    // serde_json is limited to 127 levels.
                    assert!(error.to_string().starts_with("recursion limit"), "{error}: {pretty}");
                }
                let again = parse(&pretty).unwrap().unwrap();
                assert_eq!(super::pretty(&again, usize::MAX), Some(pretty));
            }
        });
    }
}
