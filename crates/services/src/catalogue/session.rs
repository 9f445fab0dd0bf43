//! One conversation with whoever may use the store: calls, and their answers.

use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Package};
use levada_catalogue::store::{Blob, Outcome, Store, StoreError};
use levada_core::Identity;
use levada_core::wire::catalogue::{
    self as wire, Answer, Cause, Failed, answer::Answer as Said, call::Call as Asked,
};
use levada_core::wire::{decode_within, encode};
use thiserror::Error;
use tokio::time::timeout;

use super::handle::{CatalogueHandle, HandleError};
use super::message::{self, invalid};
use super::pipe::{PipeError, Receiver, Sender, farewell};
use super::rules::{Right, Rights};

/// How long whoever has a conversation may say nothing.
const IDLE: Duration = Duration::from_secs(600);
/// How long the next part of an upload may take.
const NEXT_PART: Duration = Duration::from_secs(60);

/// Who speaks, and what he may do.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Who; `None` is the store's owner, on this machine.
    pub identity: Option<Identity>,
    /// What he may do.
    pub rights: Rights,
    /// The longest package that he may publish, in bytes.
    pub max_package: u64,
}

impl Visitor {
    /// The owner of the store, on this machine.
    pub fn owner() -> Self {
        Self { identity: None, rights: Rights::all(), max_package: u64::MAX }
    }
}

/// Why a conversation did not come to its own end.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The other side went away, or said something that does not belong here.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The store failed. The other side was told so, and no more.
    #[error("the catalogue's store: {0}")]
    Store(String),
}

/// What ends the answer to a call before its time.
pub(super) enum Stop {
    /// It is refused; the conversation goes on.
    Told(Failed),
    /// It is refused, and what comes next could not be understood.
    Torn(Failed),
    /// The store failed.
    Store(StoreError),
    /// The other side has ended the conversation.
    Over,
    /// The other side has gone.
    Lost(PipeError),
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Told(failed)
    }
}

impl From<PipeError> for Stop {
    fn from(error: PipeError) -> Self {
        Self::Lost(error)
    }
}

impl From<HandleError> for Stop {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Store(error) => match message::failed(&error) {
                Some(failed) => Self::Told(failed),
                None => Self::Store(error),
            },
            HandleError::Closing => Self::Torn(Failed::new(Cause::Busy, error.to_string())),
        }
    }
}

/// Serves `visitor` until he has nothing more to ask.
///
/// # Errors
/// [`ServeError`] if the conversation was cut off.
pub async fn serve(
    handle: &CatalogueHandle,
    visitor: &Visitor,
    (send, receive): (Sender, Receiver),
) -> Result<(), ServeError> {
    let mut session = Session { handle, visitor, send, receive };
    let outcome = session.answer_all().await;
    let Session { send, receive, .. } = session;
    match outcome {
        Err(ServeError::Pipe(error)) => Err(error.into()),
        outcome => {
            farewell(send, receive).await;
            outcome
        }
    }
}

/// A conversation. What is asked in it is spread over this file, `batch.rs`, `query.rs` and `maintenance.rs`.
pub(super) struct Session<'a> {
    pub(super) handle: &'a CatalogueHandle,
    pub(super) visitor: &'a Visitor,
    pub(super) send: Sender,
    pub(super) receive: Receiver,
}

impl Session<'_> {
    async fn answer_all(&mut self) -> Result<(), ServeError> {
        loop {
            let next = timeout(IDLE, self.receive.receive(wire::MAX_MESSAGE)).await;
            let Some(bytes) = next.map_err(|_| PipeError::Stalled)?? else { return Ok(()) };
            let call = decode_within::<wire::Call>(&bytes, wire::MAX_MESSAGE);
            let call = call.ok().and_then(|call| call.call).ok_or(PipeError::Malformed)?;
            drop(bytes);
            match self.answer(call).await {
                Ok(()) => {}
                Err(Stop::Told(failed)) => self.say(Said::Failed(failed)).await?,
                Err(Stop::Torn(failed)) => return Ok(self.say(Said::Failed(failed)).await?),
                Err(Stop::Over) => return Ok(()),
                Err(Stop::Lost(error)) => return Err(error.into()),
                Err(Stop::Store(error)) => return self.broken(&error).await,
            }
        }
    }

    async fn answer(&mut self, call: Asked) -> Result<(), Stop> {
        match call {
            Asked::Publish(call) => self.publish(call).await,
            Asked::PublishAll(call) => self.publish_all(call).await,
            Asked::Yank(call) => self.yank(call).await,
            Asked::Get(call) => self.get(call).await,
            Asked::Versions(call) => self.versions(call).await,
            Asked::List(call) => self.list(call).await,
            Asked::Search(call) => self.search(call).await,
            Asked::Watch(call) => self.watch(call).await,
            Asked::Fetch(call) => self.fetch(call).await,
            Asked::Audit(call) => self.audit(call).await,
            Asked::Collect(call) => self.collect(call).await,
            Asked::Verify(wire::Verify {}) => self.verify().await,
        }
    }

    /// The owner hears what happened; others hear that something did.
    async fn broken(&mut self, error: &StoreError) -> Result<(), ServeError> {
        let text = match self.visitor.identity {
            None => error.to_string(),
            Some(_) => "the catalogue's store does not work; its log says why".to_owned(),
        };
        self.say(Said::Failed(Failed::new(Cause::Broken, text))).await?;
        Err(ServeError::Store(error.to_string()))
    }

    pub(super) async fn say(&mut self, said: Said) -> Result<(), PipeError> {
        self.send.send(&encode(&Answer { answer: Some(said) })).await
    }

    pub(super) async fn done(&mut self, changed: bool, revision: u64) -> Result<(), Stop> {
        Ok(self.say(Said::Done(wire::Done { changed, revision })).await?)
    }

    pub(super) fn allow(&self, right: Right, key: &Key) -> Result<(), Failed> {
        if self.visitor.rights.allows(right, key) {
            return Ok(());
        }
        let text = format!("this session has no right to {} {key}", right.as_str());
        Err(Failed::new(Cause::Denied, text))
    }

    pub(super) fn allow_some(&self, right: Right) -> Result<(), Failed> {
        if self.visitor.rights.allows_some(right) {
            return Ok(());
        }
        let text = format!("this session has no right to {}", right.as_str());
        Err(Failed::new(Cause::Denied, text))
    }

    async fn publish(&mut self, call: wire::Publish) -> Result<(), Stop> {
        let draft = message::draft(call)?;
        self.allow(Right::Write, &draft.key)?;
        let (draft, lacking) = look_at(self.handle, draft).await?;
        if let Some(package) = lacking {
            self.receive_package(&package).await?;
        }
        let outcome = self.handle.publish(draft, self.visitor.identity).await;
        self.told(outcome).await
    }

    async fn receive_package(&mut self, package: &Package) -> Result<(), Stop> {
        check_length(package, self.visitor.max_package)?;
        let (handle, by) = (self.handle, self.visitor.identity);
        let begun = handle.uploads.begin(handle, by, package.digest).await?;
        let mut upload =
            begun.ok_or_else(|| Failed::new(Cause::Busy, "too many uploads are under way"))?;
        self.say(Said::Wanted(wire::Wanted { offset: upload.offset() })).await?;
        while upload.offset() < package.length {
            let part = self.receive_part(package.length - upload.offset()).await?;
            // What still comes is a part, and no call.
            upload = upload.write(part).await.map_err(torn)?;
        }
        Ok(upload.finish().await?)
    }

    /// The next part of a package of which `left` bytes are still to come.
    pub(super) async fn receive_part(&mut self, left: u64) -> Result<Vec<u8>, Stop> {
        let part = timeout(NEXT_PART, self.receive.receive(wire::MAX_PART)).await;
        let part = part.map_err(|_| PipeError::Stalled)??.ok_or(Stop::Over)?;
        if part.is_empty() || part.len() as u64 > left {
            return Err(Stop::Lost(PipeError::Malformed));
        }
        Ok(part)
    }

    async fn yank(&mut self, call: wire::Yank) -> Result<(), Stop> {
        let (key, version) = (message::key(&call.key)?, message::version(&call.version)?);
        self.allow(Right::Yank, &key)?;
        let by = self.visitor.identity;
        let outcome = self.handle.yank(key, version, !call.back, by).await;
        self.told(outcome).await
    }

    async fn told(&mut self, outcome: Result<Outcome, HandleError>) -> Result<(), Stop> {
        match outcome? {
            Outcome::Created(revision) => self.done(true, revision).await,
            Outcome::Same => {
                let revision = self.handle.with(|store| store.revision()).await?;
                self.done(false, revision).await
            }
            Outcome::Conflict => Err(conflict().into()),
        }
    }
}

/// Another stands there.
pub(super) fn conflict() -> Failed {
    let text = "that version is published already, and is another: a version never changes";
    Failed::new(Cause::Conflict, text)
}

/// Whether the package of `draft` must be uploaded before it can be published.
pub(super) fn lacks_package(store: &dyn Store, draft: &Draft) -> Result<bool, StoreError> {
    let Some(package) = &draft.package else { return Ok(false) };
    // A look at the database first: the other reads the whole package.
    Ok(!is_another(store, draft, package)? && !is_whole(store, package)?)
}

/// Checks the draft; with it comes the package that has to be uploaded first, if there is one.
async fn look_at(
    handle: &CatalogueHandle,
    draft: Draft,
) -> Result<(Draft, Option<Package>), HandleError> {
    handle
        .with(move |store| {
            draft.check()?;
            draft.check_signatures()?;
            let lacks = lacks_package(store, &draft)?;
            let lacking = draft.package.clone().filter(|_| lacks);
            Ok((draft, lacking))
        })
        .await
}

/// A package may be as long as the configuration says.
pub(super) fn check_length(package: &Package, max_package: u64) -> Result<(), Failed> {
    if package.length > max_package {
        return Err(invalid(&format!("a package has at most {max_package} bytes here")));
    }
    Ok(())
}

/// Whether the store has all of a package. It is read, so that an upload heals one that is damaged.
fn is_whole(store: &dyn Store, package: &Package) -> Result<bool, StoreError> {
    if !store.has_blob(&package.digest)? {
        return Ok(false);
    }
    let found = store.open_blob(&package.digest)?.map(Blob::digest);
    // What the disk does not give back is damaged.
    Ok(matches!(found, Some(Ok((digest, _))) if digest == package.digest))
}

/// Whether the version is there with another package: that is a conflict, whatever is uploaded.
fn is_another(store: &dyn Store, draft: &Draft, package: &Package) -> Result<bool, StoreError> {
    let found = store.get(&draft.key, &draft.version)?;
    let same = |found: &Package| found.digest == package.digest;
    Ok(found.is_some_and(|found| !found.package.as_ref().is_some_and(same)))
}

/// A failure while messages come that are no calls: nobody could tell where they end.
fn torn(error: HandleError) -> Stop {
    match Stop::from(error) {
        Stop::Told(failed) => Stop::Torn(failed),
        other => other,
    }
}
