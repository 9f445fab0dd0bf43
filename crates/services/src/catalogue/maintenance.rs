//! Packages on their way out, and what keeps a store in order: audit log, garbage collection, verification.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use levada_catalogue::model::Package;
use levada_catalogue::store::{Blob, MAX_PAGE};
use levada_core::wire::catalogue::{self as wire, Cause, Failed, answer::Answer as Said};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::handle::HandleError;
use super::message::{self, invalid, unknown};
use super::rules::Right;
use super::session::{Session, Stop};

/// How much of a file is read at a time, in bytes: some messages.
const READ: usize = 4 * wire::MAX_PART;
/// Findings that wait to be sent.
const FINDINGS: usize = 64;

impl Session<'_> {
    pub(super) async fn fetch(&mut self, call: wire::Fetch) -> Result<(), Stop> {
        let (key, version) = (message::key(&call.key)?, message::version(&call.version)?);
        self.allow(Right::Read, &key)?;
        let (name, number) = (key.to_string(), version.to_string());
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
            return Err(invalid("the offset is behind the end of the package").into());
        }
        let blob = blob.ok_or_else(|| damaged(&package))?;
        self.say(Said::Content(wire::Content {
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
    ) -> Result<(), Stop> {
        let mut blob = Some(blob);
        while at < package.length {
            let Some(open) = blob.take() else { return Err(Stop::Over) };
            let read = spawn_blocking(move || read(open, at)).await;
            let read = read.map_err(|_| Stop::from(HandleError::Closing))?;
            let (open, bytes) = read.map_err(|_| Stop::Torn(damaged(package)))?;
            if bytes.is_empty() || bytes.len() as u64 > package.length - at {
                return Err(Stop::Torn(damaged(package)));
            }
            for part in bytes.chunks(wire::MAX_PART) {
                self.send.send(part).await?;
            }
            at += bytes.len() as u64;
            blob = Some(open);
        }
        Ok(())
    }

    pub(super) async fn audit(&mut self, call: wire::Audit) -> Result<(), Stop> {
        self.allow_some(Right::Admin)?;
        let mut left = if call.limit == 0 { u32::MAX } else { call.limit };
        let mut before = if call.before == 0 { None } else { Some(call.before) };
        while left > 0 {
            let size = left.min(MAX_PAGE);
            let entries = self.handle.with(move |store| store.audit(size, before)).await?;
            let Some(last) = entries.last() else { break };
            before = Some(last.id);
            left -= u32::try_from(entries.len()).unwrap_or(left).min(left);
            for entry in entries {
                self.say(Said::Logged(message::logged(entry))).await?;
            }
        }
        let revision = self.handle.with(|store| store.revision()).await?;
        self.done(false, revision).await
    }

    pub(super) async fn collect(&mut self, call: wire::Collect) -> Result<(), Stop> {
        self.allow_some(Right::Admin)?;
        let (grace, now) = (Duration::from_secs(call.grace), self.handle.now());
        let by = self.visitor.identity;
        let collected = self.handle.with(move |store| store.collect(grace, by, now)).await?;
        let (packages, bytes) = (collected.blobs, collected.bytes);
        Ok(self.say(Said::Collected(wire::Collected { packages, bytes })).await?)
    }

    pub(super) async fn verify(&mut self) -> Result<(), Stop> {
        self.allow_some(Right::Admin)?;
        let (found, findings) = mpsc::channel(FINDINGS);
        let handle = self.handle;
        let work = handle.with(move |store| {
            // Nobody listens any more once the conversation is over; the work goes on to its end.
            store.verify(&mut |finding| drop(found.blocking_send(finding.to_string())))
        });
        let saying = async {
            // Gone when nobody listens, so that the other half does not wait for ever.
            let mut findings = findings;
            while let Some(text) = findings.recv().await {
                let text = Failed::new(Cause::Unspecified, text).text;
                self.say(Said::Finding(wire::Finding { text })).await?;
            }
            Ok::<_, Stop>(())
        };
        let (verified, said) = tokio::join!(work, saying);
        said?;
        let verified = verified?;
        Ok(self
            .say(Said::Verified(wire::Verified {
                versions: verified.versions,
                packages: verified.blobs,
                bytes: verified.bytes,
                findings: verified.findings,
            }))
            .await?)
    }
}

/// What stands at `at`; nothing behind the end.
fn read(blob: Blob, at: u64) -> io::Result<(Blob, Vec<u8>)> {
    match blob {
        Blob::File(file, length) => {
            let bytes = read_file(&file, at)?;
            Ok((Blob::File(file, length), bytes))
        }
        Blob::Bytes(bytes) => {
            let start = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let part = bytes.slice(start..bytes.len().min(start.saturating_add(READ))).to_vec();
            Ok((Blob::Bytes(bytes), part))
        }
    }
}

fn read_file(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ];
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
    let digest = levada_catalogue::model::digest_text(&package.digest);
    Failed::new(Cause::Broken, format!("the package {digest} is damaged in the catalogue"))
}
