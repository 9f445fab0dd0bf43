//! Requests that publish and yank versions.

use std::io::{Cursor, SeekFrom};

use levada_catalogue::model::{Draft, Key, Version};
use levada_core::wire::catalogue::{
    self as wire, answer::Answer as Response, call::Call as Request,
    outcome::Outcome as ObjectOutcome,
};

use super::{CatalogueClient, CatalogueError, ChangeOutcome, Source, change_outcome, parse};
use crate::catalogue::message;

impl CatalogueClient {
    /// Publishes `draft`, and uploads its package from `source` if the catalogue does not have it.
    /// An interrupted upload is resumed. `progress` receives the number of bytes that are uploaded.
    ///
    /// # Errors
    /// [`CatalogueError`]; the catalogue keeps an incomplete upload for a while, and a later call
    /// resumes it.
    pub async fn publish(
        &mut self,
        draft: &Draft,
        source: &mut dyn Source,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<ChangeOutcome, CatalogueError> {
        self.request(Request::Publish(message::publish(draft))).await?;
        let length = draft.package.as_ref().map_or(0, |package| package.length);
        loop {
            match self.response().await? {
                Response::Done(done) => return Ok(change_outcome(done)),
                Response::Wanted(wanted) if wanted.offset <= length => {
                    self.upload(source, wanted.offset, length, &mut progress).await?;
                }
                _ => return Err(CatalogueError::Unexpected),
            }
        }
    }

    /// Publishes a batch in order, each draft with its package: at most
    /// [`MAX_BATCH`](crate::catalogue::MAX_BATCH) objects with
    /// [`MAX_BATCH_BYTES`](crate::catalogue::MAX_BATCH_BYTES) in all. Returns an outcome for each
    /// draft.
    ///
    /// # Errors
    /// [`CatalogueError`]; some of the drafts may be published nevertheless.
    pub async fn publish_all(
        &mut self,
        drafts: &[(Draft, Vec<u8>)],
    ) -> Result<Vec<Result<ChangeOutcome, CatalogueError>>, CatalogueError> {
        let objects = drafts.iter().map(|(draft, _)| message::publish(draft)).collect();
        self.request(Request::PublishAll(wire::PublishAll { objects })).await?;
        let mut response = self.response().await?;
        if let Response::WantedAll(wanted) = response {
            self.upload_wanted(drafts, &wanted.objects).await?;
            response = self.response().await?;
        }
        let Response::Outcomes(wire::Outcomes { outcomes }) = response else {
            return Err(CatalogueError::Unexpected);
        };
        if outcomes.len() != drafts.len() {
            return Err(CatalogueError::Unexpected);
        }
        let outcome = |one: wire::Outcome| match one.outcome {
            Some(ObjectOutcome::Done(done)) => Ok(Ok(change_outcome(done))),
            Some(ObjectOutcome::Failed(failed)) => Ok(Err(CatalogueError::from(failed))),
            None => Err(CatalogueError::Unexpected),
        };
        outcomes.into_iter().map(outcome).collect()
    }

    /// Uploads the packages of the drafts with these indices.
    async fn upload_wanted(
        &mut self,
        drafts: &[(Draft, Vec<u8>)],
        wanted: &[u32],
    ) -> Result<(), CatalogueError> {
        if wanted.len() > drafts.len() {
            return Err(CatalogueError::Unexpected);
        }
        for index in wanted {
            let index = usize::try_from(*index).map_err(|_| CatalogueError::Unexpected)?;
            let (draft, package) = drafts.get(index).ok_or(CatalogueError::Unexpected)?;
            let length = draft.package.as_ref().map_or(0, |package| package.length);
            let mut source = Cursor::new(package.as_slice());
            self.upload(&mut source, 0, length, &mut |_| {}).await?;
        }
        Ok(())
    }

    async fn upload(
        &mut self,
        source: &mut dyn Source,
        offset: u64,
        length: u64,
        progress: &mut (impl FnMut(u64) + Send),
    ) -> Result<(), CatalogueError> {
        source.seek(SeekFrom::Start(offset))?;
        let mut part = vec![0; wire::MAX_PART];
        let mut at = offset;
        progress(at);
        while at < length {
            let size = usize::try_from(length - at).unwrap_or(usize::MAX).min(part.len());
            source.read_exact(&mut part[..size])?;
            // A response before the end of the upload reports its failure.
            tokio::select! {
                biased;
                message = self.receive.receive(wire::MAX_MESSAGE) => {
                    return Err(match parse(message?)? {
                        Response::Failed(failed) => failed.into(),
                        _ => CatalogueError::Unexpected,
                    });
                }
                sent = self.send.send(&part[..size]) => sent?,
            }
            at += size as u64;
            progress(at);
        }
        Ok(())
    }

    /// Yanks a version, or restores it if not `yanked`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub async fn yank(
        &mut self,
        key: &Key,
        version: &Version,
        yanked: bool,
    ) -> Result<ChangeOutcome, CatalogueError> {
        let call = wire::Yank { key: key.to_string(), version: version.to_string(), back: !yanked };
        self.request(Request::Yank(call)).await?;
        match self.response().await? {
            Response::Done(done) => Ok(change_outcome(done)),
            _ => Err(CatalogueError::Unexpected),
        }
    }
}
