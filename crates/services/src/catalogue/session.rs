//! The server of the catalogue protocol: one session of one principal, with its requests and
//! responses.

use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Package};
use levada_catalogue::store::{Blob, Outcome, Store, StoreError};
use levada_core::Identity;
use levada_core::wire::catalogue::{
    self as wire, Answer, Cause, Failed, answer::Answer as Response, call::Call as Request,
};
use levada_core::wire::{decode_within, encode};
use thiserror::Error;
use tokio::time::timeout;

use super::blocking::HandleError;
use super::handle::CatalogueHandle;
use super::message::{self, invalid};
use super::offer::{MIN_PACKAGE, hash_tree};
use super::pipe::{PipeError, Receiver, Sender, close};
use super::rules::{Right, Rights};

/// How long a client may take until its next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a client may take until the next part of an upload.
const PART_TIMEOUT: Duration = Duration::from_secs(60);

/// The party that a session serves, and its rights.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Its identity; `None` is the owner of the store, on this machine.
    pub identity: Option<Identity>,
    /// Its rights.
    pub rights: Rights,
    /// The longest package that it may publish, in bytes.
    pub max_package: u64,
}

impl Principal {
    /// The owner of the store, on this machine.
    pub fn owner() -> Self {
        Self { identity: None, rights: Rights::all(), max_package: u64::MAX }
    }
}

/// Why a session failed.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The client disconnected, stalled, or sent an invalid message.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The store failed. Unless it is the owner, the client received no details.
    #[error("the catalogue's store: {0}")]
    Store(String),
}

/// Why a request was not completed.
pub(super) enum RequestError {
    /// It is refused; the session continues.
    Refused(Failed),
    /// It is refused while parts of a package are on their way. The session ends, because the end
    /// of the parts is unknown.
    Fatal(Failed),
    /// The store failed; the session ends.
    Store(StoreError),
    /// The client finished the session.
    Finished,
    /// The connection to the client failed.
    Pipe(PipeError),
}

impl From<Failed> for RequestError {
    fn from(failed: Failed) -> Self {
        Self::Refused(failed)
    }
}

impl From<PipeError> for RequestError {
    fn from(error: PipeError) -> Self {
        Self::Pipe(error)
    }
}

impl From<HandleError> for RequestError {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Store(error) => match message::failed(&error) {
                Some(failed) => Self::Refused(failed),
                None => Self::Store(error),
            },
            HandleError::Closing => Self::Fatal(Failed::new(Cause::Busy, error.to_string())),
        }
    }
}

/// Serves the requests of `principal` until it finishes.
///
/// # Errors
/// [`ServeError`] if the connection or the store failed.
pub async fn serve(
    handle: &CatalogueHandle,
    principal: &Principal,
    (send, receive): (Sender, Receiver),
) -> Result<(), ServeError> {
    let mut session = Session { handle, principal, send, receive };
    let outcome = session.serve_requests().await;
    let Session { send, receive, .. } = session;
    match outcome {
        Err(ServeError::Pipe(error)) => Err(error.into()),
        outcome => {
            close(send, receive).await;
            outcome
        }
    }
}

/// A session. Its requests are served in this file, `admission.rs`, `batch.rs`, `query.rs` and
/// `maintenance.rs`.
pub(super) struct Session<'a> {
    pub(super) handle: &'a CatalogueHandle,
    pub(super) principal: &'a Principal,
    pub(super) send: Sender,
    pub(super) receive: Receiver,
}

impl Session<'_> {
    async fn serve_requests(&mut self) -> Result<(), ServeError> {
        loop {
            let next = timeout(IDLE_TIMEOUT, self.receive.receive(wire::MAX_MESSAGE)).await;
            let Some(bytes) = next.map_err(|_| PipeError::Stalled)?? else { return Ok(()) };
            let call = decode_within::<wire::Call>(&bytes, wire::MAX_MESSAGE);
            let call = call.ok().and_then(|call| call.call).ok_or(PipeError::Malformed)?;
            drop(bytes);
            match self.serve_request(call).await {
                Ok(()) => {}
                Err(RequestError::Refused(failed)) => {
                    self.respond(Response::Failed(failed)).await?
                }
                Err(RequestError::Fatal(failed)) => {
                    return Ok(self.respond(Response::Failed(failed)).await?);
                }
                Err(RequestError::Finished) => return Ok(()),
                Err(RequestError::Pipe(error)) => return Err(error.into()),
                Err(RequestError::Store(error)) => return self.store_failed(&error).await,
            }
        }
    }

    async fn serve_request(&mut self, call: Request) -> Result<(), RequestError> {
        match call {
            Request::Publish(call) => self.publish(call).await,
            Request::PublishAll(call) => self.publish_all(call).await,
            Request::Yank(call) => self.yank(call).await,
            Request::Get(call) => self.get(call).await,
            Request::Versions(call) => self.versions(call).await,
            Request::List(call) => self.list(call).await,
            Request::Search(call) => self.search(call).await,
            Request::Watch(call) => self.watch(call).await,
            Request::Fetch(call) => self.fetch(call).await,
            Request::Admit(call) => self.admit(call).await,
            Request::Audit(call) => self.audit(call).await,
            Request::Collect(call) => self.collect(call).await,
            Request::Verify(wire::Verify {}) => self.verify().await,
        }
    }

    /// Sends the details of the error to the owner only.
    async fn store_failed(&mut self, error: &StoreError) -> Result<(), ServeError> {
        let text = match self.principal.identity {
            None => error.to_string(),
            Some(_) => "the store of the catalogue failed: see the log of its node".to_owned(),
        };
        self.respond(Response::Failed(Failed::new(Cause::Broken, text))).await?;
        Err(ServeError::Store(error.to_string()))
    }

    pub(super) async fn respond(&mut self, response: Response) -> Result<(), PipeError> {
        self.send.send(&encode(&Answer { answer: Some(response) })).await
    }

    pub(super) async fn done(&mut self, changed: bool, revision: u64) -> Result<(), RequestError> {
        Ok(self.respond(Response::Done(wire::Done { changed, revision })).await?)
    }

    pub(super) fn check_right(&self, right: Right, key: &Key) -> Result<(), Failed> {
        if self.principal.rights.allows(right, key) {
            return Ok(());
        }
        let text = format!("this session has no right to {} {key}", right.as_str());
        Err(Failed::new(Cause::Denied, text))
    }

    pub(super) fn check_any_right(&self, right: Right) -> Result<(), Failed> {
        if self.principal.rights.allows_any(right) {
            return Ok(());
        }
        let text = format!("this session has no right to {}", right.as_str());
        Err(Failed::new(Cause::Denied, text))
    }

    async fn publish(&mut self, call: wire::Publish) -> Result<(), RequestError> {
        let draft = message::draft(call)?;
        self.check_right(Right::Write, &draft.key)?;
        let (draft, missing) = check_draft(self.handle, draft).await?;
        if let Some(package) = missing {
            self.receive_package(&package).await?;
        }
        let package = draft.package.clone().filter(|package| package.length >= MIN_PACKAGE);
        let outcome = self.handle.publish(draft, self.principal.identity).await;
        if let (Ok(_), Some(package)) = (&outcome, package) {
            // After a failure, the first reader's request computes it.
            let _ = self.handle.with(move |store| hash_tree(store, &package)).await;
        }
        self.respond_outcome(outcome).await
    }

    async fn receive_package(&mut self, package: &Package) -> Result<(), RequestError> {
        check_length(package, self.principal.max_package)?;
        let handle = self.handle;
        let by = self.principal.identity;
        let upload = handle.uploads.begin(handle.store(), by, package.digest).await?;
        let busy = || Failed::new(Cause::Busy, "too many uploads are running: try again later");
        let mut upload = upload.ok_or_else(busy)?;
        self.respond(Response::Wanted(wire::Wanted { offset: upload.offset() })).await?;
        while upload.offset() < package.length {
            let part = self.receive_part(package.length - upload.offset()).await?;
            // The next message is a part, not a request.
            upload = upload.write(part).await.map_err(fatal)?;
        }
        Ok(upload.finish().await?)
    }

    /// Receives the next part of a package of which `left` bytes are missing.
    pub(super) async fn receive_part(&mut self, left: u64) -> Result<Vec<u8>, RequestError> {
        let part = timeout(PART_TIMEOUT, self.receive.receive(wire::MAX_PART)).await;
        let part = part.map_err(|_| PipeError::Stalled)??.ok_or(RequestError::Finished)?;
        if part.is_empty() || part.len() as u64 > left {
            return Err(RequestError::Pipe(PipeError::Malformed));
        }
        Ok(part)
    }

    async fn yank(&mut self, call: wire::Yank) -> Result<(), RequestError> {
        let key = message::key(&call.key)?;
        let version = message::version(&call.version)?;
        self.check_right(Right::Yank, &key)?;
        let by = self.principal.identity;
        let outcome = self.handle.yank(key, version, !call.back, by).await;
        self.respond_outcome(outcome).await
    }

    async fn respond_outcome(
        &mut self,
        outcome: Result<Outcome, HandleError>,
    ) -> Result<(), RequestError> {
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

/// The response when the version exists with other content.
pub(super) fn conflict() -> Failed {
    let text = "the version is already published with other content; a version never changes: publish a new one";
    Failed::new(Cause::Conflict, text)
}

/// Whether the package of `draft` must be uploaded before the draft can be published.
pub(super) fn needs_package(store: &dyn Store, draft: &Draft) -> Result<bool, StoreError> {
    let Some(package) = &draft.package else { return Ok(false) };
    // The conflict check comes first: it only queries the database, whereas the other check reads
    // the whole package.
    Ok(!is_conflict(store, draft, package)? && !has_intact_package(store, package)?)
}

/// Checks the draft. Returns it with its package, if that must be uploaded first.
async fn check_draft(
    handle: &CatalogueHandle,
    draft: Draft,
) -> Result<(Draft, Option<Package>), HandleError> {
    handle
        .with(move |store| {
            draft.check()?;
            draft.check_signatures()?;
            let needs = needs_package(store, &draft)?;
            let missing = draft.package.clone().filter(|_| needs);
            Ok((draft, missing))
        })
        .await
}

/// Refuses a package that is longer than the configuration allows.
pub(super) fn check_length(package: &Package, max_package: u64) -> Result<(), Failed> {
    if package.length > max_package {
        return Err(invalid(&format!(
            "the package is too long: this catalogue allows {max_package} bytes"
        )));
    }
    Ok(())
}

/// Whether the store has an intact copy of the package. This reads the whole package, so that an
/// upload replaces a damaged one.
fn has_intact_package(store: &dyn Store, package: &Package) -> Result<bool, StoreError> {
    if !store.has_blob(&package.digest)? {
        return Ok(false);
    }
    let found = store.open_blob(&package.digest)?.map(Blob::digest);
    // A package that cannot be read is damaged.
    Ok(matches!(found, Some(Ok((digest, _))) if digest == package.digest))
}

/// Whether the version exists with another package, which is a conflict whatever is uploaded.
fn is_conflict(store: &dyn Store, draft: &Draft, package: &Package) -> Result<bool, StoreError> {
    let found = store.get(&draft.key, &draft.version)?;
    let same = |found: &Package| found.digest == package.digest;
    Ok(found.is_some_and(|found| !found.package.as_ref().is_some_and(same)))
}

/// An error while parts of a package are on their way is fatal: the end of the parts is unknown.
fn fatal(error: HandleError) -> RequestError {
    match RequestError::from(error) {
        RequestError::Refused(failed) => RequestError::Fatal(failed),
        other => other,
    }
}
