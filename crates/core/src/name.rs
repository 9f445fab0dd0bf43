//! The names of nodes and services.

/// The rule for names, as quoted in error messages.
pub const NAME_RULE: &str =
    "a name of 1 to 63 letters, digits, `-`, `_` and `.` that does not begin with `-` or `.`";

/// The longest name, in bytes.
pub const MAX_NAME: usize = 63;

/// Whether `text` can be the name of a node or service.
///
/// # Errors
/// A text that states the rule.
pub fn check_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with(['-', '.'])
        && text.chars().all(plain);
    if fits { Ok(()) } else { Err(format!("it is not {NAME_RULE}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_bounded_length_and_a_fixed_alphabet() {
        for name in ["a", "well", "Well-2", "a.b_c", "9", &"a".repeat(63)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for text in ["", "-a", ".a", "a b", "a/b", "a@b", "ü", "a\u{1b}", "a\n", &"a".repeat(64)] {
            assert!(check_name(text).unwrap_err().contains("63 letters"), "{text:?}");
        }
    }
}
