//! Requests that download packages, read the audit log, collect garbage, and verify the store.

use std::io::Write;
use std::time::Duration;

use levada_catalogue::model::{Key, Published, Version};
use levada_core::wire::catalogue::{
    self as wire, answer::Answer as Response, call::Call as Request,
};
use levada_core::wire::decode;
use tokio::time::timeout;

use super::{Admitted, CatalogueClient, CatalogueError, RESPONSE_TIMEOUT};
use crate::catalogue::message;
use crate::catalogue::pipe::PipeError;

impl CatalogueClient {
    /// Writes the package of a version to `target`, from `offset` on. `progress` receives the
    /// number of bytes that are present. The caller must compare the digest.
    ///
    /// # Errors
    /// [`CatalogueError`]; the bytes received before it are written.
    pub async fn fetch(
        &mut self,
        version: &Published,
        offset: u64,
        target: &mut (dyn Write + Send),
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<(), CatalogueError> {
        let length = version.package.as_ref().map_or(0, |package| package.length);
        let key = version.key.to_string();
        let number = version.version.to_string();
        self.request(Request::Fetch(wire::Fetch { key, version: number, offset })).await?;
        let Response::Content(content) = self.response().await? else {
            return Err(CatalogueError::Unexpected);
        };
        if (content.length, content.offset) != (length, offset) {
            return Err(CatalogueError::Unexpected);
        }
        let mut at = offset;
        progress(at);
        while at < length {
            let part = timeout(RESPONSE_TIMEOUT, self.receive.receive(wire::MAX_PART)).await;
            let part = part.map_err(|_| PipeError::Stalled)??.ok_or(CatalogueError::Gone)?;
            if part.is_empty() || part.len() as u64 > length - at {
                return Err(CatalogueError::Unexpected);
            }
            target.write_all(&part)?;
            at += part.len() as u64;
            progress(at);
        }
        Ok(())
    }

    /// Asks for admission to the swarm in which other nodes provide the package of a version.
    /// `provide`: this node will, too.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub async fn admit(
        &mut self,
        key: &Key,
        version: &Version,
        provide: bool,
    ) -> Result<Admitted, CatalogueError> {
        let key = key.to_string();
        let version = version.to_string();
        self.request(Request::Admit(wire::Admit { key, version, provide })).await?;
        // The first reader of an old package waits until it is hashed.
        let Response::Admitted(admitted) = self.response().await? else {
            return Err(CatalogueError::Unexpected);
        };
        let root = admitted.root.try_into().map_err(|_| CatalogueError::Unexpected)?;
        let granted = match admitted.granted.as_slice() {
            [] => None,
            bytes => Some(decode(bytes).map_err(|_| CatalogueError::Unexpected)?),
        };
        Ok(Admitted { providers: admitted.providers, root, granted })
    }

    /// Passes entries of the audit log to `each`, the newest first: at most `limit`, or all if it
    /// is 0.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn audit<E: From<CatalogueError>>(
        &mut self,
        limit: u32,
        mut each: impl FnMut(wire::Logged) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        self.request(Request::Audit(wire::Audit { limit, before: 0 })).await?;
        loop {
            match self.response().await? {
                Response::Logged(entry) => {
                    message::check_logged(&entry).map_err(|_| CatalogueError::Unexpected)?;
                    each(entry)?;
                }
                Response::Done(_) => return Ok(()),
                _ => return Err(CatalogueError::Unexpected.into()),
            }
        }
    }

    /// Deletes the packages that no version refers to and that are older than `grace`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub async fn collect(&mut self, grace: Duration) -> Result<wire::Collected, CatalogueError> {
        self.request(Request::Collect(wire::Collect { grace: grace.as_secs() })).await?;
        match self.late_response().await? {
            Response::Collected(collected) => Ok(collected),
            _ => Err(CatalogueError::Unexpected),
        }
    }

    /// Verifies all versions and packages of the store, and passes each finding to `each`.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn verify<E: From<CatalogueError>>(
        &mut self,
        mut each: impl FnMut(String) -> Result<(), E> + Send,
    ) -> Result<wire::Verified, E> {
        self.request(Request::Verify(wire::Verify {})).await?;
        loop {
            match self.late_response().await? {
                Response::Finding(finding) => each(finding.text)?,
                Response::Verified(verified) => return Ok(verified),
                _ => return Err(CatalogueError::Unexpected.into()),
            }
        }
    }
}
