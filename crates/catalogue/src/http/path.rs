//! Which part of the API a path belongs to.

/// Returns true if the reTHINK compatibility layer answers a path, and this build has it.
pub(super) fn is_rethink(path: &str) -> bool {
    cfg!(feature = "rethink") && is_below(path, "/.well-known")
}

/// Whether `path` is `root` or below it.
pub(super) fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The methods that are answered; `rethink` for a path of the reTHINK compatibility layer.
pub(super) const fn allowed_methods(rethink: bool) -> &'static str {
    if rethink { "GET, HEAD, POST, OPTIONS" } else { "GET, HEAD, OPTIONS" }
}
