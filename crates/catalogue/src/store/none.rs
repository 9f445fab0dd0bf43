//! The store of a node that keeps no catalogue.

use std::path::Path;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};

use super::{
    AuditEntry, Blob, BlobWriter, Change, Collected, Finding, Hit, Outboard, Outcome, SearchCursor,
    Store, StoreError, Verified,
};
use crate::model::{Draft, Key, Kind, Published, Version};

/// An empty store to which nothing can be added.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

impl Store for NoStore {
    fn publish(&self, _: &Draft, _: Option<Identity>, _: UnixTime) -> Result<Outcome, StoreError> {
        Err(StoreError::Broken)
    }

    fn yank(
        &self,
        _: &Key,
        _: &Version,
        _: bool,
        _: Option<Identity>,
        _: UnixTime,
    ) -> Result<Outcome, StoreError> {
        Err(StoreError::Broken)
    }

    fn get(&self, _: &Key, _: &Version) -> Result<Option<Published>, StoreError> {
        Ok(None)
    }

    fn versions(&self, _: &Key) -> Result<Vec<Published>, StoreError> {
        Ok(Vec::new())
    }

    fn list(
        &self,
        _: Option<Kind>,
        _: &str,
        _: Option<&Key>,
        _: u32,
    ) -> Result<Vec<Key>, StoreError> {
        Ok(Vec::new())
    }

    fn each(&self, _: &mut dyn FnMut(Published)) -> Result<(), StoreError> {
        Ok(())
    }

    fn search(
        &self,
        _: &str,
        _: Option<Kind>,
        _: Option<&SearchCursor>,
        _: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        Ok(Vec::new())
    }

    fn changes(&self, _: u64, _: u32) -> Result<Vec<Change>, StoreError> {
        Ok(Vec::new())
    }

    fn revision(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn begin_blob(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Err(StoreError::Broken)
    }

    fn open_blob(&self, _: &Digest) -> Result<Option<Blob>, StoreError> {
        Ok(None)
    }

    fn has_blob(&self, _: &Digest) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn outboard(&self, _: &Digest) -> Result<Option<Outboard>, StoreError> {
        Ok(None)
    }

    fn add_outboard(&self, _: &Digest, _: &Outboard) -> Result<(), StoreError> {
        Ok(())
    }

    fn audit(&self, _: u32, _: Option<i64>) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(Vec::new())
    }

    fn collect(
        &self,
        _: Duration,
        _: Option<Identity>,
        _: UnixTime,
    ) -> Result<Collected, StoreError> {
        Err(StoreError::Broken)
    }

    fn verify(&self, _: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError> {
        Ok(Verified::default())
    }

    fn back_up(&self, _: &Path) -> Result<Vec<Digest>, StoreError> {
        Err(StoreError::Broken)
    }
}
