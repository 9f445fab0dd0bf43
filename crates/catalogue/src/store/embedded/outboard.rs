//! The hash trees of blobs.

use levada_core::Digest;
use rusqlite::OptionalExtension;

use super::inner::Inner;
use crate::store::{Outboard, StoreError};

impl Inner {
    pub fn outboard(&self, digest: &Digest) -> Result<Option<Outboard>, StoreError> {
        Ok(self.database.read(|connection| {
            connection
                .prepare_cached("SELECT root, part, hashes FROM outboard WHERE digest = ?1")?
                .query_row([digest], |row| {
                    let hashes: Vec<u8> = row.get("hashes")?;
                    let (hashes, _) = hashes.as_chunks::<32>();
                    let hashes = hashes.to_vec();
                    Ok(Outboard { root: row.get("root")?, part: row.get("part")?, hashes })
                })
                .optional()
        })?)
    }

    pub fn add_outboard(&self, digest: &Digest, outboard: &Outboard) -> Result<(), StoreError> {
        self.database.write(|tx| {
            // Nothing is stored for a blob that was collected meanwhile.
            tx.execute(
                "INSERT OR REPLACE INTO outboard (digest, root, part, hashes)
                 SELECT digest, ?2, ?3, ?4 FROM blob WHERE digest = ?1",
                (digest, outboard.root, outboard.part, outboard.hashes.as_flattened()),
            )?;
            Ok(())
        })
    }
}
