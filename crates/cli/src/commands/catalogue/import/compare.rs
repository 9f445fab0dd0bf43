//! Compares a version with the published one.

use std::path::Path;

use levada_catalogue::model::Draft;
use levada_core::wire::catalogue::Cause;
use levada_services::catalogue::{CatalogueClient, CatalogueError};

use super::report::Report;
use crate::failure::Failure;

/// Reports what publishing `draft` would do.
pub async fn compare(
    caller: &mut CatalogueClient,
    source: &Path,
    draft: &Draft,
    report: &mut Report,
) -> Result<(), Failure> {
    match is_published(caller, draft).await? {
        None => report.would_publish(),
        Some(true) => report.unchanged(),
        Some(false) => {
            report.conflict(source, draft, "that version is published with other content")
        }
    }
    Ok(())
}

/// Whether the published version equals `draft`; `None` if the version does not exist.
///
/// # Errors
/// [`Failure`] if the catalogue cannot be read.
pub async fn is_published(
    caller: &mut CatalogueClient,
    draft: &Draft,
) -> Result<Option<bool>, Failure> {
    let found = match caller.get(&draft.key, &draft.version.to_string()).await {
        Err(CatalogueError::Failed { cause: Cause::Unknown, .. }) => return Ok(None),
        found => found?,
    };
    Ok(Some(
        found.descriptor == draft.descriptor
            && found.package == draft.package
            && found.signatures == draft.signatures,
    ))
}
