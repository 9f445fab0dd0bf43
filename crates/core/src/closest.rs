//! Finds what a mistyped word may have meant.

/// The number of changed, added, removed or exchanged letters at which a word is still similar.
const MAX_DISTANCE: usize = 2;
/// The maximum length of a mistyped word, in characters, which bounds the work.
const MAX_LEN: usize = 64;

/// The candidate that is most similar to `word`; none if no candidate is within two edits, or
/// within one of a word of up to three letters.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = if word.chars().count() <= 3 { 1 } else { MAX_DISTANCE };
    let distances = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (_, found) = distances.filter(|(edits, _)| (1..=limit).contains(edits)).min()?;
    Some(found)
}

/// The optimal string alignment distance: letters that are added, removed, replaced, or exchanged
/// with the next one.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    if from == to {
        return 0;
    }
    if from.len().abs_diff(to.len()) > MAX_DISTANCE || from.len().max(to.len()) > MAX_LEN {
        return MAX_DISTANCE + 1;
    }
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanged_missing_and_wrong_letters_are_similar() {
        let verbs = ["run", "revoke", "request", "up"];
        for (word, meant) in [("rnu", "run"), ("revok", "revoke"), ("reqeust", "request")] {
            assert_eq!(closest(word, verbs), Some(meant));
        }
        for other in ["run", "fly", "r", "", "something quite long"] {
            assert_eq!(closest(other, ["run", "revoke"]), None, "{other}");
        }
    }

    #[test]
    fn the_distance_is_symmetric_and_zero_for_equal_words() {
        bolero::check!().with_type::<(String, String)>().for_each(|(from, to)| {
            assert_eq!(distance(from, to), distance(to, from));
            assert_eq!(distance(from, from), 0);
        });
    }
}
