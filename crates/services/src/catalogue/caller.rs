//! The other end of a conversation: whoever asks a catalogue.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Kind, Published, Version};
use levada_core::wire::catalogue::{
    self as wire, Answer, Cause, Detail, Failed, answer::Answer as Said, call::Call as Asked,
    outcome::Outcome as Told,
};
use levada_core::wire::{decode_within, encode};
use thiserror::Error;
use tokio::time::timeout;

use super::message;
use super::pipe::{PipeError, Receiver, Sender};

/// How long an answer may take: the store may be busy with a long upload of somebody else.
const ANSWER: Duration = Duration::from_secs(120);
/// How long the last words may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a catalogue did not do what it was asked.
#[derive(Debug, Error)]
pub enum CallerError {
    /// It said so.
    #[error("{text}")]
    Failed {
        /// Of what kind it is.
        cause: Cause,
        /// One line; the catalogue's own words.
        text: String,
    },
    /// It cannot be reached any more.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// It ended the conversation before its answer was whole.
    #[error("the catalogue ended the conversation")]
    Gone,
    /// It sent something else than was asked for.
    #[error("the catalogue sent something else than was asked")]
    Unexpected,
    /// The file with the package could not be read or written.
    #[error("the package: {0}")]
    Package(#[from] io::Error),
}

impl From<Failed> for CallerError {
    /// What another machine says is cut to one short line.
    fn from(failed: Failed) -> Self {
        let cause = failed.cause();
        Self::Failed { cause, text: Failed::new(cause, failed.text).text }
    }
}

/// Where a package to be published is read from.
pub trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

/// How a change went: whether anything is different now, and the catalogue's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// False if it was so already.
    pub is_new: bool,
    /// Of the catalogue, after it.
    pub revision: u64,
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub key: Key,
    /// Its newest version; `None` if all are yanked, or were not asked for.
    pub newest: Option<Published>,
}

/// A conversation with a catalogue.
pub struct Caller {
    send: Sender,
    receive: Receiver,
}

impl Caller {
    /// Speaks through `pipe`, at whose other end somebody serves.
    pub fn new((send, receive): (Sender, Receiver)) -> Self {
        Self { send, receive }
    }

    /// Publishes `draft`; its package is read from `source` as far as the catalogue lacks it. `progress` hears how
    /// many bytes of it are there.
    ///
    /// # Errors
    /// [`CallerError`]; what was uploaded is kept for a while, so that a later call goes on there.
    pub async fn publish(
        &mut self,
        draft: &Draft,
        source: &mut dyn Source,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Changed, CallerError> {
        self.ask(Asked::Publish(message::publish(draft))).await?;
        let length = draft.package.as_ref().map_or(0, |package| package.length);
        loop {
            match self.next().await? {
                Said::Done(done) => return Ok(changed(done)),
                Said::Wanted(wanted) if wanted.offset <= length => {
                    self.upload(source, wanted.offset, length, &mut progress).await?;
                }
                _ => return Err(CallerError::Unexpected),
            }
        }
    }

    /// Publishes many in one go, in order, each with its package: at most [`MAX_BATCH`](super::MAX_BATCH), which
    /// all in all have at most [`MAX_BATCH_BYTES`](super::MAX_BATCH_BYTES). Each has an outcome of its own.
    ///
    /// # Errors
    /// [`CallerError`]; some may be published then.
    pub async fn publish_all(
        &mut self,
        drafts: &[(Draft, Vec<u8>)],
    ) -> Result<Vec<Result<Changed, CallerError>>, CallerError> {
        let objects = drafts.iter().map(|(draft, _)| message::publish(draft)).collect();
        self.ask(Asked::PublishAll(wire::PublishAll { objects })).await?;
        let mut said = self.next().await?;
        if let Said::WantedAll(wanted) = said {
            if wanted.objects.len() > drafts.len() {
                return Err(CallerError::Unexpected);
            }
            for object in wanted.objects {
                let place = usize::try_from(object).map_err(|_| CallerError::Unexpected)?;
                let (draft, package) = drafts.get(place).ok_or(CallerError::Unexpected)?;
                let length = draft.package.as_ref().map_or(0, |package| package.length);
                let mut source = Cursor::new(package.as_slice());
                self.upload(&mut source, 0, length, &mut |_| {}).await?;
            }
            said = self.next().await?;
        }
        let Said::Outcomes(wire::Outcomes { outcomes }) = said else {
            return Err(CallerError::Unexpected);
        };
        if outcomes.len() != drafts.len() {
            return Err(CallerError::Unexpected);
        }
        let outcome = |one: wire::Outcome| match one.outcome {
            Some(Told::Done(done)) => Ok(Ok(changed(done))),
            Some(Told::Failed(failed)) => Ok(Err(CallerError::from(failed))),
            None => Err(CallerError::Unexpected),
        };
        outcomes.into_iter().map(outcome).collect()
    }

    async fn upload(
        &mut self,
        source: &mut dyn Source,
        offset: u64,
        length: u64,
        progress: &mut (impl FnMut(u64) + Send),
    ) -> Result<(), CallerError> {
        source.seek(SeekFrom::Start(offset))?;
        let mut part = vec![0; wire::MAX_PART];
        let mut at = offset;
        progress(at);
        while at < length {
            let room = usize::try_from(length - at).unwrap_or(usize::MAX).min(part.len());
            source.read_exact(&mut part[..room])?;
            // A catalogue that cannot go on says so before it has all.
            tokio::select! {
                biased;
                said = self.receive.receive(wire::MAX_MESSAGE) => {
                    return Err(match read(said?)? {
                        Said::Failed(failed) => failed.into(),
                        _ => CallerError::Unexpected,
                    });
                }
                sent = self.send.send(&part[..room]) => sent?,
            }
            at += room as u64;
            progress(at);
        }
        Ok(())
    }

    /// Takes a version back, or gives it back if not `yanked`.
    ///
    /// # Errors
    /// [`CallerError`].
    pub async fn yank(
        &mut self,
        key: &Key,
        version: &Version,
        yanked: bool,
    ) -> Result<Changed, CallerError> {
        let call = wire::Yank { key: key.to_string(), version: version.to_string(), back: !yanked };
        self.ask(Asked::Yank(call)).await?;
        match self.next().await? {
            Said::Done(done) => Ok(changed(done)),
            _ => Err(CallerError::Unexpected),
        }
    }

    /// One version, with its descriptor: `version` is a version, a range, or empty for the newest.
    ///
    /// # Errors
    /// [`CallerError`]; its cause is [`Cause::Unknown`] if there is none.
    pub async fn get(&mut self, key: &Key, version: &str) -> Result<Published, CallerError> {
        let call = wire::Get { key: key.to_string(), version: version.to_owned() };
        self.ask(Asked::Get(call)).await?;
        let Said::Entry(entry) = self.next().await? else { return Err(CallerError::Unexpected) };
        let found = published(entry)?;
        if found.key != *key { Err(CallerError::Unexpected) } else { Ok(found) }
    }

    /// Gives every version of an object to `each`, ascending and without descriptors.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn versions<E: From<CallerError>>(
        &mut self,
        key: &Key,
        mut each: impl FnMut(Published) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        self.ask(Asked::Versions(wire::Versions { key: key.to_string() })).await?;
        loop {
            match self.next().await? {
                Said::Entry(entry) => each(published(entry)?)?,
                Said::Done(_) => return Ok(()),
                _ => return Err(CallerError::Unexpected.into()),
            }
        }
    }

    /// Gives the objects whose name begins with `prefix` to `each`, in order; at most `limit`, all if that is 0.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn list<E: From<CallerError>>(
        &mut self,
        kind: Option<Kind>,
        prefix: &str,
        limit: u64,
        detail: Detail,
        each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let call = wire::List {
            kind: text(kind),
            prefix: prefix.to_owned(),
            after: String::new(),
            limit,
            detail: detail.into(),
        };
        self.ask(Asked::List(call)).await?;
        self.items(each).await
    }

    /// Gives what has every word of `query` to `each`, the best first; at most `limit`, all if that is 0.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn search<E: From<CallerError>>(
        &mut self,
        query: &str,
        kind: Option<Kind>,
        limit: u64,
        each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let call = wire::Search { query: query.to_owned(), kind: text(kind), limit };
        self.ask(Asked::Search(call)).await?;
        self.items(each).await
    }

    async fn items<E: From<CallerError>>(
        &mut self,
        mut each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        loop {
            match self.next().await? {
                Said::Item(item) => {
                    let key = message::key(&item.key).map_err(|_| CallerError::Unexpected)?;
                    let newest = item.newest.map(published).transpose()?;
                    each(Item { key, newest })?;
                }
                Said::Done(_) => return Ok(()),
                _ => return Err(CallerError::Unexpected.into()),
            }
        }
    }

    /// Gives changes to `each`, from the one behind `after` on, or from now on if that is `None`; if not `follow`,
    /// until the last one, whose revision is returned.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn watch<E: From<CallerError>>(
        &mut self,
        after: Option<u64>,
        (kind, prefix): (Option<Kind>, &str),
        follow: bool,
        mut each: impl FnMut(wire::Changed) -> Result<(), E> + Send,
    ) -> Result<u64, E> {
        let call = wire::Watch {
            after: after.unwrap_or(0),
            kind: text(kind),
            prefix: prefix.to_owned(),
            follow,
            now: after.is_none(),
        };
        self.ask(Asked::Watch(call)).await?;
        loop {
            // Nothing may happen for days.
            let said = self.receive.receive(wire::MAX_MESSAGE).await.map_err(CallerError::from)?;
            match read(said)? {
                Said::Changed(change) => {
                    message::check_changed(&change).map_err(|_| CallerError::Unexpected)?;
                    each(change)?;
                }
                Said::Done(done) => return Ok(done.revision),
                Said::Failed(failed) => return Err(CallerError::from(failed).into()),
                _ => return Err(CallerError::Unexpected.into()),
            }
        }
    }

    /// Writes the package of a version to `target`, from `offset` on. `progress` hears how many bytes of it are there.
    /// Whoever calls this compares the digest.
    ///
    /// # Errors
    /// [`CallerError`]; what came is written.
    pub async fn fetch(
        &mut self,
        version: &Published,
        offset: u64,
        target: &mut (dyn Write + Send),
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<(), CallerError> {
        let length = version.package.as_ref().map_or(0, |package| package.length);
        let (key, number) = (version.key.to_string(), version.version.to_string());
        self.ask(Asked::Fetch(wire::Fetch { key, version: number, offset })).await?;
        let Said::Content(content) = self.next().await? else {
            return Err(CallerError::Unexpected);
        };
        if (content.length, content.offset) != (length, offset) {
            return Err(CallerError::Unexpected);
        }
        let mut at = offset;
        progress(at);
        while at < length {
            let part = timeout(ANSWER, self.receive.receive(wire::MAX_PART)).await;
            let part = part.map_err(|_| PipeError::Stalled)??.ok_or(CallerError::Gone)?;
            if part.is_empty() || part.len() as u64 > length - at {
                return Err(CallerError::Unexpected);
            }
            target.write_all(&part)?;
            at += part.len() as u64;
            progress(at);
        }
        Ok(())
    }

    /// Gives entries of the audit log to `each`, the newest first; at most `limit`, all if that is 0.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn audit<E: From<CallerError>>(
        &mut self,
        limit: u32,
        mut each: impl FnMut(wire::Logged) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        self.ask(Asked::Audit(wire::Audit { limit, before: 0 })).await?;
        loop {
            match self.next().await? {
                Said::Logged(entry) => {
                    message::check_logged(&entry).map_err(|_| CallerError::Unexpected)?;
                    each(entry)?;
                }
                Said::Done(_) => return Ok(()),
                _ => return Err(CallerError::Unexpected.into()),
            }
        }
    }

    /// Deletes the packages that nothing refers to and that are older than `grace`.
    ///
    /// # Errors
    /// [`CallerError`].
    pub async fn collect(&mut self, grace: Duration) -> Result<wire::Collected, CallerError> {
        self.ask(Asked::Collect(wire::Collect { grace: grace.as_secs() })).await?;
        match self.next_of_long_work().await? {
            Said::Collected(collected) => Ok(collected),
            _ => Err(CallerError::Unexpected),
        }
    }

    /// Has everything read and compared; what is wrong goes to `each`.
    ///
    /// # Errors
    /// [`CallerError`], or what `each` returned.
    pub async fn verify<E: From<CallerError>>(
        &mut self,
        mut each: impl FnMut(String) -> Result<(), E> + Send,
    ) -> Result<wire::Verified, E> {
        self.ask(Asked::Verify(wire::Verify {})).await?;
        loop {
            match self.next_of_long_work().await? {
                Said::Finding(finding) => each(finding.text)?,
                Said::Verified(verified) => return Ok(verified),
                _ => return Err(CallerError::Unexpected.into()),
            }
        }
    }

    /// Says that nothing more is asked.
    pub async fn finish(&mut self) {
        // Whether the other side hears it does not matter: the answers are there.
        let _ = timeout(FAREWELL, self.send.finish()).await;
    }

    async fn ask(&mut self, call: Asked) -> Result<(), CallerError> {
        Ok(self.send.send(&encode(&wire::Call { call: Some(call) })).await?)
    }

    async fn next(&mut self) -> Result<Said, CallerError> {
        let said = timeout(ANSWER, self.receive.receive(wire::MAX_MESSAGE)).await;
        answered(read(said.map_err(|_| PipeError::Stalled)??)?)
    }

    /// Reading a whole store takes as long as it takes; whether the other side lives, the connection knows.
    async fn next_of_long_work(&mut self) -> Result<Said, CallerError> {
        answered(read(self.receive.receive(wire::MAX_MESSAGE).await?)?)
    }
}

fn read(message: Option<Vec<u8>>) -> Result<Said, CallerError> {
    let bytes = message.ok_or(CallerError::Gone)?;
    let answer = decode_within::<Answer>(&bytes, wire::MAX_MESSAGE);
    answer.ok().and_then(|answer| answer.answer).ok_or(CallerError::Unexpected)
}

fn answered(said: Said) -> Result<Said, CallerError> {
    match said {
        Said::Failed(failed) => Err(failed.into()),
        other => Ok(other),
    }
}

fn published(entry: wire::Entry) -> Result<Published, CallerError> {
    message::published(entry).map_err(|_| CallerError::Unexpected)
}

fn changed(done: wire::Done) -> Changed {
    Changed { is_new: done.changed, revision: done.revision }
}

fn text(kind: Option<Kind>) -> String {
    kind.map_or_else(String::new, |kind| kind.as_str().to_owned())
}
