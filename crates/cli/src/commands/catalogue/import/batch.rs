//! Versions that are published together: the disk takes as long for all of them as for one.

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use levada_catalogue::model::Draft;
use levada_services::catalogue::{Caller, CallerError, Changed, MAX_BATCH, MAX_BATCH_BYTES};

use super::report::Report;
use crate::commands::catalogue::exported::Ready;
use crate::failure::Failure;

/// What a version is called where something is said of it.
pub fn named(draft: &Draft) -> PathBuf {
    PathBuf::from(format!("{}@{}", draft.key, draft.version))
}

/// Whether its package is too long to be kept in memory.
pub fn is_long(draft: &Draft) -> bool {
    draft.package.as_ref().is_some_and(|package| package.length > MAX_BATCH_BYTES as u64)
}

/// A version that was read whole.
pub struct Item {
    /// Where it is from.
    pub place: PathBuf,
    /// What is published.
    pub draft: Draft,
    /// Its package.
    pub code: Vec<u8>,
    /// What becomes of it.
    pub then: Then,
}

/// What becomes of a version when it is published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is shown.
    Shown,
    /// It was taken back when it was exported, and is again.
    Yanked,
    /// It stands in the place of another, whose version it had.
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
        Ok(Self { place: named(&draft), draft, code, then: then(yanked) })
    }

    /// How many bytes of a call and of packages it takes.
    fn bytes(&self) -> usize {
        let about = self.draft.package.as_ref().map_or(0, |package| package.description.len());
        self.draft.descriptor.len() + about + self.code.len()
    }
}

/// What becomes of a version that was exported.
pub fn then(yanked: bool) -> Then {
    if yanked { Then::Yanked } else { Then::Shown }
}

/// What is published in one go.
#[derive(Default)]
pub struct Batch {
    /// Where they are from, and what becomes of them.
    places: Vec<(PathBuf, Then)>,
    /// With their packages.
    drafts: Vec<(Draft, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    /// Adds one, and publishes what was there if there is no room. One that is taken back is the last of its batch: it is
    /// shown for a moment only, and nothing is published between the two that was not when it was exported.
    ///
    /// # Errors
    /// [`Failure`] if publishing failed for a reason that is not one of the versions.
    pub async fn add(
        &mut self,
        item: Item,
        caller: &mut Caller,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let bytes = item.bytes();
        if self.drafts.len() >= MAX_BATCH || self.bytes + bytes > MAX_BATCH_BYTES {
            self.publish(caller, report).await?;
        }
        self.bytes += bytes;
        let is_last = item.then == Then::Yanked;
        self.places.push((item.place, item.then));
        self.drafts.push((item.draft, item.code));
        if is_last { self.publish(caller, report).await } else { Ok(()) }
    }

    /// Publishes all that is in it, and empties it.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub async fn publish(
        &mut self,
        caller: &mut Caller,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let Self { places, drafts, bytes } = std::mem::take(self);
        let outcomes = match &drafts[..] {
            [] => return Ok(()),
            // Too long for the company of others.
            [(draft, code)] if bytes > MAX_BATCH_BYTES => {
                vec![caller.publish(draft, &mut Cursor::new(code), |_| {}).await]
            }
            drafts => caller.publish_all(drafts).await?,
        };
        // All of them were tried: what went wrong with one is said when the others are done with.
        let mut all = Ok(());
        for (((place, then), (draft, _)), outcome) in places.iter().zip(&drafts).zip(outcomes) {
            let settled = settle(caller, report, place, (draft, *then), outcome).await;
            all = all.and(settled);
        }
        all
    }
}

/// Counts a version, and takes it back if it was.
///
/// # Errors
/// [`Failure`] if publishing failed for a reason that is not this version, or it could not be taken back.
pub async fn settle(
    caller: &mut Caller,
    report: &mut Report,
    place: &std::path::Path,
    (draft, then): (&Draft, Then),
    outcome: Result<Changed, CallerError>,
) -> Result<(), Failure> {
    let (is_there, is_new) = (outcome.is_ok(), outcome.as_ref().is_ok_and(|it| it.is_new));
    report.settle(place, draft, outcome)?;
    match then {
        Then::Yanked if is_there => {
            caller.yank(&draft.key, &draft.version, true).await?;
        }
        Then::Replaces if is_new => report.replace(format!("{}@{}", draft.key, draft.version)),
        _ => {}
    }
    Ok(())
}
