//! Quoting of words in shell commands that are printed for the user to paste.

use std::borrow::Cow;

/// `text` as one word of a POSIX shell: unchanged if the shell takes every character literally,
/// else in single quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let literal = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    // `=` is literal in an argument, but would make the first word of a command an assignment.
    if !text.is_empty() && text.chars().all(literal) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_words_that_the_shell_would_change() {
        for plain in ["levada", "/srv/a.b", "lv1@[::1]:5382".trim_end_matches("[::1]:5382"), "a=b"]
        {
            assert_eq!(shell_word(plain), plain);
        }
        for (text, word) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("$(id)", "'$(id)'"),
            ("it's", r"'it'\''s'"),
            ("~", "'~'"),
            ("lv1@[::1]:5382", "'lv1@[::1]:5382'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
