//! Cursors: opaque to whoever gets one, and checked when they come back.

use data_encoding::BASE64URL_NOPAD;

use crate::http::problem::problem;
use crate::http::response::Response;
use crate::model::Key;
use crate::store::SearchCursor;

/// The longest, in characters: a key has at most 12 + 1 + 255 bytes.
const MAX: usize = 400;

/// Behind `key` in a list.
pub(super) fn of_key(key: &Key) -> String {
    BASE64URL_NOPAD.encode(format!("l{key}").as_bytes())
}

/// Behind a hit of a search.
pub(super) fn of_hit(cursor: &SearchCursor) -> String {
    BASE64URL_NOPAD.encode(format!("s{cursor}").as_bytes())
}

pub(super) fn key(text: &str) -> Result<Key, Response> {
    read(text, 'l').and_then(|key| key.parse().ok()).ok_or_else(wrong)
}

pub(super) fn hit(text: &str) -> Result<SearchCursor, Response> {
    read(text, 's').map(SearchCursor).ok_or_else(wrong)
}

fn read(text: &str, mark: char) -> Option<String> {
    if text.len() > MAX {
        return None;
    }
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.strip_prefix(mark).map(str::to_owned)
}

/// A page that is nowhere: the cursor belongs to something else.
fn wrong() -> Response {
    problem(404, "this cursor leads nowhere here: begin without one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_no_other_does() {
        let one: Key = "idp-proxy/ç d".parse().unwrap();
        assert_eq!(key(&of_key(&one)).unwrap(), one);
        let longest: Key = format!("protocolstub/{}", "x".repeat(255)).parse().unwrap();
        assert_eq!(key(&of_key(&longest)).unwrap(), longest);
        let at = SearchCursor("n7".to_owned());
        assert_eq!(hit(&of_hit(&at)).unwrap(), at);
        assert!(key(&of_hit(&at)).is_err() && hit(&of_key(&one)).is_err());
        for wrong in ["", "a", "====", "bA", "ç"] {
            assert!(key(wrong).is_err() && hit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whatever_comes_back_is_checked() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(found) = key(text) {
                assert_eq!(of_key(&found), *text);
            }
            let _ = hit(text);
        });
    }
}
