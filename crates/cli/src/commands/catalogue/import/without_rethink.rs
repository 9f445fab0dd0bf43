//! What stands in for `rethink` in a build without the feature `rethink`: no folder of the reTHINK
//! catalogue can be opened.

use std::convert::Infallible;
use std::path::Path;

use clap::Args;
use levada_services::catalogue::CatalogueClient;

use super::report::Report;
use crate::failure::Failure;

/// The examples in the help.
pub const EXAMPLES: &str = "Examples:
  levada catalogue import /srv/export
  levada catalogue import /var/lib/levada/catalogue/restored";

/// The options for a folder of the reTHINK catalogue, of which there are none.
#[derive(Debug, Args)]
pub struct Options {}

/// A folder of the reTHINK catalogue, of which there is none.
pub struct Folder(Infallible);

impl Options {
    /// Refuses nothing.
    ///
    /// # Errors
    /// None.
    pub fn refuse(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Refuses a folder of another kind.
///
/// # Errors
/// [`Failure`] 120.
pub fn open(folder: &Path) -> Result<Folder, Failure> {
    Err(Failure::local(format!(
        "{}: `levada catalogue export` did not write it, and it is not the folder of a catalogue",
        folder.display()
    )))
}

/// Imports a folder.
///
/// # Errors
/// None.
pub async fn import(
    _: &mut CatalogueClient,
    folder: Folder,
    _: Options,
    _: &mut Report,
) -> Result<(), Failure> {
    match folder.0 {}
}
