//! Verification and backups: what the cache lacks is fetched.

use std::path::Path;

use levada_core::Digest;

use super::inner::Cluster;
use crate::store::{Finding, StoreError, Verified};

impl Cluster {
    /// Verifies the replica, and every package.
    pub fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError> {
        let mut blobs = 0;
        let mut bytes = 0;
        let mut verified = self.local.verify(&mut |finding| match finding {
            Finding::Missing(digest) | Finding::Damaged(digest) => match self.again(&digest) {
                Some(length) => {
                    blobs += 1;
                    bytes += length;
                }
                None => each(finding),
            },
            other => each(other),
        })?;
        verified.blobs += blobs;
        verified.bytes += bytes;
        verified.findings -= blobs;
        Ok(verified)
    }

    /// The length of a package that the cache lacks, or has damaged, if the engine has it.
    fn again(&self, digest: &Digest) -> Option<u64> {
        self.local.blobs.remove(&self.local.blobs.path(digest)).ok()?;
        self.blob(digest).ok()?.map(|blob| blob.length())
    }

    /// Writes a snapshot, with all packages that versions refer to. While the engine is away, those
    /// that the cache lacks are missing.
    pub fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError> {
        let mut missing = Vec::new();
        let mut is_away = false;
        for digest in self.local.back_up(to)? {
            if !is_away {
                match self.blob(&digest) {
                    Ok(_) => {}
                    Err(StoreError::Unavailable(_)) => is_away = true,
                    Err(error) => return Err(error),
                }
            }
            if !self.local.copy_blob(&digest, to)? {
                missing.push(digest);
            }
        }
        Ok(missing)
    }
}
