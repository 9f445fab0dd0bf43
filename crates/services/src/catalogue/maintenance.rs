//! Requests that download packages, read the audit log, collect garbage, and verify the store.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use levada_catalogue::model::{Package, digest_text};
use levada_catalogue::store::{Blob, MAX_PAGE};
use levada_core::wire::catalogue::{self as wire, Cause, Failed, answer::Answer as Response};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::message::{self, invalid, unknown};
use super::rules::Right;
use super::session::{RequestError, Session};

/// Size of one read of a package, in bytes: four messages.
const READ_SIZE: usize = 4 * wire::MAX_PART;
/// Capacity of the queue of findings to be sent.
const FINDING_QUEUE: usize = 64;

impl Session<'_> {
    pub(super) async fn fetch(&mut self, call: wire::Fetch) -> Result<(), RequestError> {
        let key = message::key(&call.key)?;
        let version = message::version(&call.version)?;
        self.check_right(Right::Read, &key)?;
        let name = key.to_string();
        let number = version.to_string();
        let found = self.handle.with(move |store| {
            let found = store.get(&key, &version)?;
            let package = found.map(|found| found.package);
            let blob = match &package {
                Some(Some(package)) => store.open_blob(&package.digest)?,
                _ => None,
            };
            Ok((package, blob))
        });
        let (package, blob) = found.await?;
        let package = package.ok_or_else(|| unknown(&format!("{name} has no version {number}")))?;
        let package = package.ok_or_else(|| unknown(&format!("{name} {number} has no package")))?;
        if call.offset > package.length {
            return Err(invalid("the offset is beyond the end of the package").into());
        }
        let blob = blob.ok_or_else(|| damaged(&package))?;
        self.respond(Response::Content(wire::Content {
            digest: package.digest.to_vec(),
            length: package.length,
            offset: call.offset,
        }))
        .await?;
        self.send_package(blob, call.offset, &package).await
    }

    async fn send_package(
        &mut self,
        blob: Blob,
        mut at: u64,
        package: &Package,
    ) -> Result<(), RequestError> {
        let mut blob = Some(blob);
        while at < package.length {
            let Some(open) = blob.take() else { return Err(RequestError::Finished) };
            let left = package.length - at;
            let read = spawn_blocking(move || read(open, at)).await.ok().and_then(Result::ok);
            let read = read.filter(|(_, bytes)| (1..=left).contains(&(bytes.len() as u64)));
            let Some((open, bytes)) = read else {
                let digest = digest_text(&package.digest);
                tracing::warn!(%digest, at, "a package cannot be read on");
                // The client would store a failure as a part of the package. It resumes from what
                // it has.
                return Err(RequestError::Finished);
            };
            for part in bytes.chunks(wire::MAX_PART) {
                self.send.send(part).await?;
            }
            at += bytes.len() as u64;
            blob = Some(open);
        }
        Ok(())
    }

    pub(super) async fn audit(&mut self, call: wire::Audit) -> Result<(), RequestError> {
        self.check_any_right(Right::Admin)?;
        let mut left = if call.limit == 0 { u32::MAX } else { call.limit };
        let mut before = if call.before == 0 { None } else { Some(call.before) };
        while left > 0 {
            let size = left.min(MAX_PAGE);
            let entries = self.handle.with(move |store| store.audit(size, before)).await?;
            let Some(last) = entries.last() else { break };
            before = Some(last.id);
            left -= u32::try_from(entries.len()).unwrap_or(left).min(left);
            for entry in entries {
                self.respond(Response::Logged(message::logged(entry))).await?;
            }
        }
        let revision = self.handle.with(|store| store.revision()).await?;
        self.done(false, revision).await
    }

    pub(super) async fn collect(&mut self, call: wire::Collect) -> Result<(), RequestError> {
        self.check_any_right(Right::Admin)?;
        let grace = Duration::from_secs(call.grace);
        let now = self.handle.now();
        let by = self.principal.identity;
        let collected = self.handle.with(move |store| store.collect(grace, by, now)).await?;
        let packages = collected.blobs;
        let bytes = collected.bytes;
        Ok(self.respond(Response::Collected(wire::Collected { packages, bytes })).await?)
    }

    pub(super) async fn verify(&mut self) -> Result<(), RequestError> {
        self.check_any_right(Right::Admin)?;
        let (found, findings) = mpsc::channel(FINDING_QUEUE);
        let handle = self.handle;
        let work = handle.with(move |store| {
            // If the session has ended, the findings are dropped, and the verification runs to
            // completion.
            store.verify(&mut |finding| drop(found.blocking_send(finding.to_string())))
        });
        let sending = async {
            // If sending fails, the receiver is dropped here, so that the verification does not
            // wait for space in the queue.
            let mut findings = findings;
            while let Some(text) = findings.recv().await {
                let text = Failed::new(Cause::Unspecified, text).text;
                self.respond(Response::Finding(wire::Finding { text })).await?;
            }
            Ok::<_, RequestError>(())
        };
        let (verified, sent) = tokio::join!(work, sending);
        sent?;
        let verified = verified?;
        Ok(self
            .respond(Response::Verified(wire::Verified {
                versions: verified.versions,
                packages: verified.blobs,
                bytes: verified.bytes,
                findings: verified.findings,
            }))
            .await?)
    }
}

/// Reads up to [`READ_SIZE`] bytes at `at`; nothing beyond the end.
fn read(blob: Blob, at: u64) -> io::Result<(Blob, Vec<u8>)> {
    match blob {
        Blob::File(file, length) => {
            let bytes = read_file(&file, at)?;
            Ok((Blob::File(file, length), bytes))
        }
        Blob::Bytes(bytes) => {
            let start = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let part =
                bytes.slice(start..bytes.len().min(start.saturating_add(READ_SIZE))).to_vec();
            Ok((Blob::Bytes(bytes), part))
        }
    }
}

fn read_file(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_SIZE];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn damaged(package: &Package) -> Failed {
    let digest = digest_text(&package.digest);
    Failed::new(Cause::Broken, format!("the package {digest} is damaged in the catalogue"))
}
