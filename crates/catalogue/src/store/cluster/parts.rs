//! The parts of packages and snapshots in the engine.

use std::io::Read;

use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind, Stream};
use bytes::Bytes;
use futures_util::{StreamExt, TryFutureExt, TryStreamExt, stream};
use levada_core::Digest;
use tokio::time::{Instant, sleep};

use super::connect::unavailable;
use super::engine::{Engine, RETRY_DELAY};
use super::publish::Attempt;
use crate::store::embedded::replica::{Stored, UploadId};
use crate::store::{Blob, StoreError};

/// The length of a part, in bytes; the last may be shorter.
const PART: usize = 512 * 1024;
/// How many parts are under way at a time, of one package.
const IN_FLIGHT: usize = 8;

impl Engine {
    /// Stores the parts of `content`, also across a reconnection.
    pub async fn add_parts(&self, stored: &Stored, content: Blob) -> Result<(), StoreError> {
        // Without an engine, the reason is known at once.
        self.parts().await?;
        let add = |part: Result<(u64, Bytes), StoreError>| async move {
            let (number, bytes) = part?;
            let subject = self.subjects.part(&stored.digest, &stored.upload, number);
            let mut attempt = Attempt::begin(self.part_timeout);
            loop {
                let added = self.add_part(subject.clone(), bytes.clone()).map_ok(|()| 0);
                if attempt.next(added).await?.is_some() {
                    return Ok(());
                }
            }
        };
        let parts = stream::iter(Parts { content, number: 0 });
        parts.map(add).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Fetches the parts in their order, also across a reconnection, and gives each to `write`.
    pub async fn fetch_parts(
        &self,
        stored: &Stored,
        mut write: impl FnMut(Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let engine = self.parts().await?;
        let count = stored.length.div_ceil(PART as u64);
        let parts = stream::iter(0..count).map(|number| self.part(&engine, stored, number));
        let mut parts = parts.buffered(IN_FLIGHT);
        while let Some(bytes) = parts.next().await {
            write(bytes?)?;
        }
        Ok(())
    }

    async fn part(
        &self,
        engine: &Stream<()>,
        stored: &Stored,
        number: u64,
    ) -> Result<Bytes, StoreError> {
        let subject = self.subjects.part(&stored.digest, &stored.upload, number);
        let until = Instant::now() + self.part_timeout;
        loop {
            // The server that answers may not have it yet; the leader has.
            if let Ok(part) = engine.direct_get_last_for_subject(subject.as_str()).await {
                return Ok(part.payload);
            }
            match engine.get_last_raw_message_by_subject(&subject).await {
                Ok(part) => return Ok(part.payload),
                Err(error) if is_final(&error) || Instant::now() >= until => {
                    return Err(unavailable(&error));
                }
                Err(_) => sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Deletes the parts of an upload that nothing names. What fails is left to the garbage
    /// collection.
    pub async fn drop_parts(&self, digest: &Digest, upload: &UploadId) {
        let subject = self.subjects.upload_parts(digest, upload);
        if let Ok(parts) = self.parts().await
            && let Err(error) = parts.purge().filter(subject).await
        {
            tracing::debug!(%error, "parts of a package are left");
        }
    }
}

/// Returns true if the part was deleted.
fn is_final(error: &RawMessageError) -> bool {
    error.kind() == RawMessageErrorKind::NoMessageFound
}

/// The parts of a blob, with their numbers.
struct Parts {
    content: Blob,
    number: u64,
}

impl Iterator for Parts {
    type Item = Result<(u64, Bytes), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = match &mut self.content {
            Blob::Bytes(bytes) => bytes.split_to(bytes.len().min(PART)),
            Blob::File(file, _) => {
                let mut bytes = Vec::with_capacity(PART);
                if let Err(error) = file.take(PART as u64).read_to_end(&mut bytes) {
                    return Some(Err(unavailable(&error)));
                }
                bytes.into()
            }
        };
        let number = self.number;
        self.number += 1;
        (!bytes.is_empty()).then_some(Ok((number, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_cut_into_parts() {
        let bytes: Vec<u8> = (0..2 * PART + 5).map(|at| at as u8).collect();
        let content = Blob::Bytes(bytes.clone().into());
        let parts: Vec<_> = Parts { content, number: 0 }.map(Result::unwrap).collect();
        let lengths: Vec<_> = parts.iter().map(|(number, part)| (*number, part.len())).collect();
        assert_eq!(lengths, [(0, PART), (1, PART), (2, 5)]);
        assert_eq!(parts.iter().flat_map(|(_, part)| part.to_vec()).collect::<Vec<_>>(), bytes);
        assert_eq!(Parts { content: Blob::Bytes(Bytes::new()), number: 0 }.count(), 0);
    }
}
