//! Publishes versions in batches: one batch costs one sync of the disk.

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use levada_catalogue::model::Draft;
use levada_services::catalogue::{
    CatalogueClient, CatalogueError, ChangeOutcome, MAX_BATCH, MAX_BATCH_BYTES,
};

use super::report::Report;
use crate::commands::catalogue::exported::Ready;
use crate::failure::Failure;

/// The name of a version in messages.
pub fn label(draft: &Draft) -> PathBuf {
    PathBuf::from(format!("{}@{}", draft.key, draft.version))
}

/// Whether its package is too long to be kept in memory.
pub fn is_long(draft: &Draft) -> bool {
    draft.package.as_ref().is_some_and(|package| package.length > MAX_BATCH_BYTES as u64)
}

/// A version with its package in memory.
pub struct Item {
    /// Its source in messages.
    pub source: PathBuf,
    /// The version to publish.
    pub draft: Draft,
    /// Its package.
    pub code: Vec<u8>,
    /// What follows its publication.
    pub then: Then,
}

/// What follows the publication of a version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Shown,
    /// It is yanked, as it was when it was exported.
    Yanked,
    /// It is reported as a replacement of the version with its original number.
    Replaces,
}

impl Item {
    /// Reads the package of a version that was exported.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be read.
    pub fn read(Ready { draft, yanked, package }: Ready) -> Result<Self, Failure> {
        let code = match package {
            Some(path) => fs::read(&path).map_err(Failure::file("read", &path))?,
            None => Vec::new(),
        };
        Ok(Self { source: label(&draft), draft, code, then: then(yanked) })
    }

    /// The bytes that it adds to a batch.
    fn bytes(&self) -> usize {
        let about = self.draft.package.as_ref().map_or(0, |package| package.description.len());
        self.draft.descriptor.len() + about + self.code.len()
    }
}

/// What follows the publication of an exported version.
pub fn then(yanked: bool) -> Then {
    if yanked { Then::Yanked } else { Then::Shown }
}

/// Versions that are published together.
#[derive(Default)]
pub struct Batch {
    /// The source of each version, and what follows its publication.
    sources: Vec<(PathBuf, Then)>,
    /// The versions, with their packages.
    drafts: Vec<(Draft, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    /// Adds a version, and publishes the earlier ones first if the batch is full. A yanked version
    /// ends its batch, so that it is shown only briefly, and no later version is published before
    /// it is yanked.
    ///
    /// # Errors
    /// [`Failure`] if publishing failed for a reason other than one of the versions.
    pub async fn add(
        &mut self,
        item: Item,
        caller: &mut CatalogueClient,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let bytes = item.bytes();
        if self.drafts.len() >= MAX_BATCH || self.bytes + bytes > MAX_BATCH_BYTES {
            self.publish(caller, report).await?;
        }
        self.bytes += bytes;
        let is_last = item.then == Then::Yanked;
        self.sources.push((item.source, item.then));
        self.drafts.push((item.draft, item.code));
        if is_last { self.publish(caller, report).await } else { Ok(()) }
    }

    /// Publishes all versions, and empties the batch.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub async fn publish(
        &mut self,
        caller: &mut CatalogueClient,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let Self { sources, drafts, bytes } = std::mem::take(self);
        let outcomes = match &drafts[..] {
            [] => return Ok(()),
            // Too long for a batch.
            [(draft, code)] if bytes > MAX_BATCH_BYTES => {
                vec![caller.publish(draft, &mut Cursor::new(code), |_| {}).await]
            }
            drafts => caller.publish_all(drafts).await?,
        };
        // All outcomes are reported before the first error is returned.
        let mut all = Ok(());
        for (((source, then), (draft, _)), outcome) in sources.iter().zip(&drafts).zip(outcomes) {
            let settled = settle(caller, report, source, (draft, *then), outcome).await;
            all = all.and(settled);
        }
        all
    }
}

/// Reports the outcome of a version, and yanks it if it was yanked when it was exported.
///
/// # Errors
/// [`Failure`] if publishing failed for a reason other than this version, or it could not be
/// yanked.
pub async fn settle(
    caller: &mut CatalogueClient,
    report: &mut Report,
    source: &std::path::Path,
    (draft, then): (&Draft, Then),
    outcome: Result<ChangeOutcome, CatalogueError>,
) -> Result<(), Failure> {
    let exists = outcome.is_ok();
    let is_new = outcome.as_ref().is_ok_and(|it| it.is_new);
    report.settle(source, draft, outcome)?;
    match then {
        Then::Yanked if exists => {
            caller.yank(&draft.key, &draft.version, true).await?;
        }
        Then::Replaces if is_new => report.replace(format!("{}@{}", draft.key, draft.version)),
        _ => {}
    }
    Ok(())
}
