//! Publishing many objects in one go: what the disk would take for each of them, it takes once.

use levada_catalogue::model::Draft;
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::wire::catalogue::{
    self as wire, Failed, answer::Answer as Said, outcome::Outcome as Told,
};
use levada_core::{Digest, sha256};

use super::message::{self, invalid};
use super::rules::Right;
use super::session::{Session, Stop, check_length, conflict, lacks_package};

/// The most objects of one call.
pub const MAX_BATCH: usize = 64;
/// The most bytes that their packages may have together. Whoever keeps descriptors, packages and what is said of them
/// within this sends no call that is too long either.
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// What is to be published, or why not.
type Checked = Result<Draft, Failed>;

/// A package that is still to come.
struct Lacking {
    /// The place of its object in the call.
    object: u32,
    digest: Digest,
    length: usize,
}

impl Session<'_> {
    pub(super) async fn publish_all(&mut self, call: wire::PublishAll) -> Result<(), Stop> {
        if call.objects.len() > MAX_BATCH {
            let text = format!("at most {MAX_BATCH} objects are published by one call");
            return Err(invalid(&text).into());
        }
        let read = |object: wire::Publish| -> Checked {
            let draft = message::draft(object)?;
            self.allow(Right::Write, &draft.key)?;
            Ok(draft)
        };
        let drafts: Vec<Checked> = call.objects.into_iter().map(read).collect();
        let max_package = self.visitor.max_package;
        let look = move |store: &dyn Store| look_at(store, drafts, max_package);
        let (drafts, lacking) = self.handle.with(look).await?;
        let contents = self.receive_all(&lacking).await?;
        let (drafts, contents) = sort_out(drafts, &lacking, contents);
        self.publish_checked(drafts, contents).await
    }

    /// The packages, in the order in which they are asked for.
    async fn receive_all(&mut self, lacking: &[Lacking]) -> Result<Vec<Vec<u8>>, Stop> {
        if lacking.is_empty() {
            return Ok(Vec::new());
        }
        let objects = lacking.iter().map(|one| one.object).collect();
        self.say(Said::WantedAll(wire::WantedAll { objects })).await?;
        let mut contents = Vec::with_capacity(lacking.len());
        for one in lacking {
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
    ) -> Result<(), Stop> {
        let (mut good, mut refused) = (Vec::new(), Vec::new());
        for draft in drafts {
            refused.push(match draft {
                Ok(draft) => {
                    good.push(draft);
                    None
                }
                Err(failed) => Some(failed),
            });
        }
        let published = self.handle.publish_all(good, contents, self.visitor.identity).await?;
        let newest = self.handle.with(|store| store.revision()).await?;
        let mut published = published.into_iter();
        let mut outcomes = Vec::with_capacity(refused.len());
        for failed in refused {
            let told = match failed {
                Some(failed) => Told::Failed(failed),
                // There is one for each.
                None => match published.next() {
                    Some(outcome) => tell(outcome, newest)?,
                    None => break,
                },
            };
            outcomes.push(wire::Outcome { outcome: Some(told) });
        }
        Ok(self.say(Said::Outcomes(wire::Outcomes { outcomes })).await?)
    }
}

/// Checks the drafts; with them come the packages that have to be uploaded first, each once.
fn look_at(
    store: &dyn Store,
    drafts: Vec<Checked>,
    max_package: u64,
) -> Result<(Vec<Checked>, Vec<Lacking>), StoreError> {
    let mut lacking: Vec<Lacking> = Vec::new();
    let mut room = MAX_BATCH_BYTES;
    let mut looked = Vec::with_capacity(drafts.len());
    for (object, draft) in (0..).zip(drafts) {
        let checked = draft.and_then(check);
        let wanted = match &checked {
            Ok(draft) if lacks_package(store, draft)? => draft.package.as_ref(),
            _ => None,
        };
        let wanted = wanted.filter(|it| lacking.iter().all(|other| other.digest != it.digest));
        let Some(package) = wanted else {
            looked.push(checked);
            continue;
        };
        if let Err(failed) = check_length(package, max_package) {
            looked.push(Err(failed));
            continue;
        }
        match usize::try_from(package.length).ok().filter(|length| *length <= room) {
            Some(length) => {
                room -= length;
                lacking.push(Lacking { object, digest: package.digest, length });
                looked.push(checked);
            }
            None => {
                looked.push(Err(invalid("its package is too long to be published with others")))
            }
        }
    }
    Ok((looked, lacking))
}

fn check(draft: Draft) -> Checked {
    let checked = draft.check().and_then(|()| draft.check_signatures());
    checked.map_err(|error| invalid(&error.to_string()))?;
    Ok(draft)
}

/// Refuses those whose package is not what was announced; what is left of the packages.
fn sort_out(
    mut drafts: Vec<Checked>,
    lacking: &[Lacking],
    contents: Vec<Vec<u8>>,
) -> (Vec<Checked>, Vec<Vec<u8>>) {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for (one, content) in lacking.iter().zip(contents) {
        if sha256(&[&content]) == one.digest {
            right.push(content);
        } else {
            wrong.push(one.digest);
        }
    }
    for draft in &mut drafts {
        let package = draft.as_ref().ok().and_then(|draft| draft.package.as_ref());
        if package.is_some_and(|package| wrong.contains(&package.digest)) {
            let text = "its package has another digest: it was changed or cut on its way";
            *draft = Err(invalid(text));
        }
    }
    (drafts, right)
}

fn tell(outcome: Result<Outcome, StoreError>, newest: u64) -> Result<Told, Stop> {
    Ok(match outcome {
        Ok(Outcome::Created(revision)) => Told::Done(wire::Done { changed: true, revision }),
        Ok(Outcome::Same) => Told::Done(wire::Done { changed: false, revision: newest }),
        Ok(Outcome::Conflict) => Told::Failed(conflict()),
        Err(error) => match message::failed(&error) {
            Some(failed) => Told::Failed(failed),
            None => return Err(Stop::Store(error)),
        },
    })
}
