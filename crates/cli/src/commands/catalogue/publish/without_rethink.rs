//! What stands in for `rethink` in a build without the feature `rethink`.

use levada_catalogue::model::Draft;

/// Finds no problem: no version is shown to reTHINK clients.
pub fn problem(_: &Draft) -> Option<String> {
    None
}
