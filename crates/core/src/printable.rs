//! Which characters of text from another machine may be printed unchanged, and how the others are
//! escaped or removed.
//!
//! All output of such text uses this module: the terminal, the log, the catalogue's pages, and the
//! short texts that one machine sends to be printed by another.

/// Whether `c` is neither a terminal control nor able to make a text look like another.
///
/// Returns `false` for the control characters (C0, DEL, C1), the bidirectional controls (Unicode
/// UAX 9), line and paragraph separators, tags, and characters that are invisible in every script.
/// U+200C and U+200D are printable: Persian and the languages of India are written with them.
pub fn is_printable(c: char) -> bool {
    let is_bidirectional = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    let is_invisible = matches!(
        c,
        '\u{ad}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !(c.is_control() || is_bidirectional || is_separator || is_invisible)
}

/// `text` on one line, with each character that is not [printable](is_printable) replaced by an
/// escape such as `\u{1b}` or `\n`.
pub fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if is_printable(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
        out
    })
}

/// The printable characters of `text`, cut to at most `max` bytes, for a text that is sent to
/// another machine.
pub fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    for c in text.chars().filter(|&c| is_printable(c)) {
        if line.len() + c.len_utf8() > max {
            break;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARMFUL: &str = "\0\x07\t\n\r\x1b\x7f\u{80}\u{85}\u{9b}\u{9f}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\
        \u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";

    #[test]
    fn control_and_bidirectional_characters_are_not_printable() {
        for c in HARMFUL.chars() {
            assert!(!is_printable(c), "{c:?}");
        }
        for c in "aZ ~é漢\u{200c}\u{200d}\u{301}🦀\u{fffd}".chars() {
            assert!(is_printable(c), "{c:?}");
        }
    }

    #[test]
    fn escape_and_one_line_emit_only_printable_characters() {
        assert_eq!(escape("a\x1b[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(escape("Grüße"), "Grüße");
        assert_eq!(one_line("a\x1b[2J\nb\u{202e}é", 64), "a[2Jbé");
        assert_eq!(one_line("aéb", 2), "a");
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(escape(text).chars().all(is_printable));
            let line = one_line(text, 16);
            assert!(line.len() <= 16 && line.chars().all(is_printable));
        });
    }
}
