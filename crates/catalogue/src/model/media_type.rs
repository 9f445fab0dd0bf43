//! Validation of media types (RFC 9110 section 8.3.1).

use super::MAX_MEDIA_TYPE;

/// Whether `text` is `type/subtype` with or without parameters, of at most [`MAX_MEDIA_TYPE`]
/// bytes. It is copied into a header unchanged, so it must not contain anything else.
pub(super) fn is_valid(text: &str) -> bool {
    if text.len() > MAX_MEDIA_TYPE {
        return false;
    }
    let (essence, parameters) = split_essence(text);
    let Some((main, sub)) = essence.split_once('/') else { return false };
    is_token(main) && is_token(sub) && parameters.is_none_or(are_parameters)
}

/// The text before the first `;` without trailing blanks, and the text after it.
fn split_essence(text: &str) -> (&str, Option<&str>) {
    match text.split_once(';') {
        Some((essence, parameters)) => (trim_end(essence), Some(parameters)),
        None => (text, None),
    }
}

fn trim_end(text: &str) -> &str {
    text.trim_end_matches([' ', '\t'])
}

/// Whether `text`, which follows the first `;`, is a list of parameters (RFC 9110 section 5.6.6).
fn are_parameters(text: &str) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let Some((name, value)) = rest.split_once('=') else { return false };
        if !is_token(name) {
            return false;
        }
        let Some(after) = skip_value(value) else { return false };
        if after.is_empty() {
            return true;
        }
        let after = after.trim_start_matches([' ', '\t']);
        let Some(next) = after.strip_prefix(';') else { return false };
        rest = next;
    }
}

/// The text after the token or quoted string at the start of `text`.
fn skip_value(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        return skip_quoted(quoted);
    }
    let end = text.find(|c: char| !is_token_char(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end).1)
}

/// The text after a quoted string (RFC 9110 section 5.6.4) of visible ASCII and blanks. `text`
/// follows the opening quote.
fn skip_quoted(text: &str) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(text.split_at(at + 1).1),
            '\\' if !escaped => escaped = true,
            ' '..='~' | '\t' => escaped = false,
            _ => return None,
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_char)
}

/// RFC 9110 section 5.6.2.
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn accepts_media_types_of_rfc_9110_only() {
        for text in [
            "text/javascript",
            "text/html;charset=utf-8",
            "Text/HTML;Charset=\"utf-8\"",
            "text/html; charset=\"utf-8\"",
            "a/b ; c=d;e=\"f; \\\"g\"",
            "application/vnd.levada+json",
        ] {
            assert!(is_valid(text), "{text}");
        }
        for text in [
            "",
            "text",
            "text/",
            "/html",
            "text/a b",
            "text/html;",
            "text/html; a",
            "a/b;c=",
            "a/b;c=\"",
            "a/b;c=d e",
            "text/html\r\nX: y",
            "a/b;c=\"\n\"",
            "tëxt/html",
            "a/b;c=\"d\"e",
            "a/b/c",
        ] {
            assert!(!is_valid(text), "{text:?}");
        }
        assert!(is_valid(&format!("a/{}", "b".repeat(253))));
        assert!(!is_valid(&format!("a/{}", "b".repeat(254))));
    }

    #[test]
    fn valid_media_types_are_printable_ascii() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if is_valid(text) {
                assert!(text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)));
            }
        });
    }
}
