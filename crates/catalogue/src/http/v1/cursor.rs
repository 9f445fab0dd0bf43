//! Cursors: opaque to the client, and validated when the client sends them.

use data_encoding::BASE64URL_NOPAD;

use crate::http::problem::problem;
use crate::http::response::Response;
use crate::model::Key;
use crate::store::SearchCursor;

/// The maximum length of a cursor, in characters: a key has at most 12 + 1 + 255 bytes.
const MAX_LENGTH: usize = 400;

/// The cursor of a list to the objects behind `key`.
pub(in crate::http) fn of_key(key: &Key) -> String {
    BASE64URL_NOPAD.encode(format!("l{key}").as_bytes())
}

/// The cursor of a search to the hits behind one.
pub(super) fn of_hit(cursor: &SearchCursor) -> String {
    BASE64URL_NOPAD.encode(format!("s{cursor}").as_bytes())
}

/// The key that the cursor of a list points behind.
pub(in crate::http) fn key(text: &str) -> Result<Key, Response> {
    read(text, 'l').and_then(|key| key.parse().ok()).ok_or_else(unknown)
}

/// The position that the cursor of a search points behind.
pub(in crate::http) fn hit(text: &str) -> Result<SearchCursor, Response> {
    read(text, 's').map(SearchCursor).ok_or_else(unknown)
}

fn read(text: &str, mark: char) -> Option<String> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.strip_prefix(mark).map(str::to_owned)
}

/// The cursor is malformed, or belongs to another kind of request.
fn unknown() -> Response {
    problem(404, "the cursor is not one of this list: begin without a cursor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_its_own_cursors() {
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
    fn validates_any_cursor() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(found) = key(text) {
                assert_eq!(of_key(&found), *text);
            }
            let _ = hit(text);
        });
    }
}
