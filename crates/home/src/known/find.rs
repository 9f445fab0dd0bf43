//! Finds the identities that a home has stored, by the beginning of their text.

use std::collections::BTreeSet;

use levada_core::{Identity, identity_range, with_beginning};
use levada_database::DatabaseError as StoreError;

use super::Known;

impl Known {
    /// The identities that are pinned here, or named by a capability that passed through this home.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn identities(&self) -> Result<BTreeSet<Identity>, StoreError> {
        self.between(([0; 32], [0xff; 32]))
    }

    /// The same, limited to the identities whose text begins with `text`.
    ///
    /// # Errors
    /// As for [`Self::identities`].
    pub fn identities_with_beginning(&self, text: &str) -> Result<BTreeSet<Identity>, StoreError> {
        let Some(range) = identity_range(text) else { return Ok(BTreeSet::new()) };
        Ok(with_beginning(self.between(range)?, text))
    }

    fn between(&self, range: ([u8; 32], [u8; 32])) -> Result<BTreeSet<Identity>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT identity FROM pin WHERE identity BETWEEN ?1 AND ?2
                     UNION SELECT node FROM capability WHERE node BETWEEN ?1 AND ?2
                     UNION SELECT holder FROM capability WHERE holder BETWEEN ?1 AND ?2",
                )?
                .query_map(range, |row| row.get(0).map(Identity::from_bytes))?
                .collect()
        })
    }
}
