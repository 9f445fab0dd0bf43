//! Lists of names in messages.

/// The first `most` of `names`, and the number of the others: `a, b and 3 more`.
pub fn listed(names: &[&str], most: usize) -> String {
    let shown = names[..names.len().min(most)].join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_names_are_listed() {
        assert_eq!(listed(&[], 2), "");
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d"], 2), "a, b and 2 more");
    }
}
