//! Publishes many objects in one request, with one transaction and one sync to disk for all.

use levada_catalogue::model::Draft;
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::wire::catalogue::{
    self as wire, Failed, answer::Answer as Response, outcome::Outcome as ObjectOutcome,
};
use levada_core::{Digest, sha256};

use super::message::{self, invalid};
use super::rules::Right;
use super::session::{RequestError, Session, check_length, conflict, needs_package};

/// Maximum number of objects of a batch.
pub const MAX_BATCH: usize = 64;
/// Maximum size of all packages of a batch, in bytes. If a client also counts descriptors and
/// package descriptions within this limit, its request does not exceed the maximum size of a
/// message.
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// A draft, or why it is refused.
type Checked = Result<Draft, Failed>;

/// A package that the client must upload.
struct MissingPackage {
    /// Index of its object in the request.
    object: u32,
    digest: Digest,
    length: usize,
}

impl Session<'_> {
    pub(super) async fn publish_all(&mut self, call: wire::PublishAll) -> Result<(), RequestError> {
        if call.objects.len() > MAX_BATCH {
            let text = format!("a batch has at most {MAX_BATCH} objects");
            return Err(invalid(&text).into());
        }
        let parse = |object: wire::Publish| -> Checked {
            let draft = message::draft(object)?;
            self.check_right(Right::Write, &draft.key)?;
            Ok(draft)
        };
        let drafts: Vec<Checked> = call.objects.into_iter().map(parse).collect();
        let max_package = self.principal.max_package;
        let check = move |store: &dyn Store| check_drafts(store, drafts, max_package);
        let (drafts, missing) = self.handle.with(check).await?;
        let contents = self.receive_packages(&missing).await?;
        let (drafts, contents) = verify_packages(drafts, &missing, contents);
        self.publish_checked(drafts, contents).await
    }

    /// Requests the missing packages, and receives them in this order.
    async fn receive_packages(
        &mut self,
        missing: &[MissingPackage],
    ) -> Result<Vec<Vec<u8>>, RequestError> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let objects = missing.iter().map(|one| one.object).collect();
        self.respond(Response::WantedAll(wire::WantedAll { objects })).await?;
        let mut contents = Vec::with_capacity(missing.len());
        for one in missing {
            let mut content = Vec::new();
            while content.len() < one.length {
                let part = self.receive_part((one.length - content.len()) as u64).await?;
                content.extend_from_slice(&part);
            }
            contents.push(content);
        }
        Ok(contents)
    }

    async fn publish_checked(
        &mut self,
        drafts: Vec<Checked>,
        contents: Vec<Vec<u8>>,
    ) -> Result<(), RequestError> {
        let mut accepted = Vec::new();
        let mut refused = Vec::new();
        for draft in drafts {
            refused.push(match draft {
                Ok(draft) => {
                    accepted.push(draft);
                    None
                }
                Err(failed) => Some(failed),
            });
        }
        let published =
            self.handle.publish_all(accepted, contents, self.principal.identity).await?;
        let newest = self.handle.with(|store| store.revision()).await?;
        let mut published = published.into_iter();
        let mut outcomes = Vec::with_capacity(refused.len());
        for failed in refused {
            let outcome = match failed {
                Some(failed) => ObjectOutcome::Failed(failed),
                // `published` has an outcome for each draft that was not refused.
                None => match published.next() {
                    Some(outcome) => object_outcome(outcome, newest)?,
                    None => break,
                },
            };
            outcomes.push(wire::Outcome { outcome: Some(outcome) });
        }
        Ok(self.respond(Response::Outcomes(wire::Outcomes { outcomes })).await?)
    }
}

/// Checks the drafts. Returns them with the packages that must be uploaded first, each once.
fn check_drafts(
    store: &dyn Store,
    drafts: Vec<Checked>,
    max_package: u64,
) -> Result<(Vec<Checked>, Vec<MissingPackage>), StoreError> {
    let mut missing: Vec<MissingPackage> = Vec::new();
    let mut space = MAX_BATCH_BYTES;
    let mut checked_drafts = Vec::with_capacity(drafts.len());
    for (object, draft) in (0..).zip(drafts) {
        let checked = draft.and_then(check);
        let needed = match &checked {
            Ok(draft) if needs_package(store, draft)? => draft.package.as_ref(),
            _ => None,
        };
        let needed = needed.filter(|it| missing.iter().all(|other| other.digest != it.digest));
        let Some(package) = needed else {
            checked_drafts.push(checked);
            continue;
        };
        if let Err(failed) = check_length(package, max_package) {
            checked_drafts.push(Err(failed));
            continue;
        }
        match usize::try_from(package.length).ok().filter(|length| *length <= space) {
            Some(length) => {
                space -= length;
                missing.push(MissingPackage { object, digest: package.digest, length });
                checked_drafts.push(checked);
            }
            None => checked_drafts.push(Err(invalid(
                "its package is too long for a batch: publish the object alone",
            ))),
        }
    }
    Ok((checked_drafts, missing))
}

fn check(draft: Draft) -> Checked {
    let checked = draft.check().and_then(|()| draft.check_signatures());
    checked.map_err(|error| invalid(&error.to_string()))?;
    Ok(draft)
}

/// Refuses the drafts whose package does not have the announced digest. Returns the drafts and the
/// other packages.
fn verify_packages(
    mut drafts: Vec<Checked>,
    missing: &[MissingPackage],
    contents: Vec<Vec<u8>>,
) -> (Vec<Checked>, Vec<Vec<u8>>) {
    let mut intact = Vec::new();
    let mut damaged = Vec::new();
    for (one, content) in missing.iter().zip(contents) {
        if sha256(&[&content]) == one.digest {
            intact.push(content);
        } else {
            damaged.push(one.digest);
        }
    }
    for draft in &mut drafts {
        let package = draft.as_ref().ok().and_then(|draft| draft.package.as_ref());
        if package.is_some_and(|package| damaged.contains(&package.digest)) {
            let text = "its package does not have the announced digest: it was changed or truncated on the way";
            *draft = Err(invalid(text));
        }
    }
    (drafts, intact)
}

fn object_outcome(
    outcome: Result<Outcome, StoreError>,
    newest: u64,
) -> Result<ObjectOutcome, RequestError> {
    Ok(match outcome {
        Ok(Outcome::Created(revision)) => {
            ObjectOutcome::Done(wire::Done { changed: true, revision })
        }
        Ok(Outcome::Same) => ObjectOutcome::Done(wire::Done { changed: false, revision: newest }),
        Ok(Outcome::Conflict) => ObjectOutcome::Failed(conflict()),
        Err(error) => match message::failed(&error) {
            Some(failed) => ObjectOutcome::Failed(failed),
            None => return Err(RequestError::Store(error)),
        },
    })
}
