//! Words of commands that are printed to be pasted.

use std::borrow::Cow;

/// `text` as one word of a POSIX shell: as it is where the shell takes every character literally, else in single quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let literal = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    // Of these, `=` would make the first word of a command an assignment.
    if !text.is_empty() && text.chars().all(literal) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_the_shell_would_change_it() {
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
