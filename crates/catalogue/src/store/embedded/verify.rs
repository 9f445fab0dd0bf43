//! Verifies every digest and every reference of the store.

use std::path::Path;

use levada_core::{Digest, sha256};
use levada_database::DatabaseError;
use rusqlite::Connection;

use super::inner::Inner;
use super::{blobs, index, row};
use crate::model::{Key, Published};
use crate::store::{Blob, Finding, StoreError, Verified};

/// How many blobs are listed per query.
const BATCH: u32 = 256;

/// Objects whose selected version is not valid, or does not match the full-text index.
const REFERENCES: &str = "SELECT kind, name FROM object
     WHERE (shown IS NULL) = EXISTS (SELECT 1 FROM version WHERE object = object.id AND NOT yanked)
        OR EXISTS (SELECT 1 FROM version
                   WHERE version.id = shown AND (yanked OR version.object <> object.id))
        OR (shown IS NOT NULL) <> (id IN (SELECT rowid FROM search))";

/// Passes findings on, and counts what was read.
struct Report<'a> {
    each: &'a mut dyn FnMut(Finding),
    verified: Verified,
}

impl Report<'_> {
    fn find(&mut self, finding: Finding) {
        self.verified.findings += 1;
        (self.each)(finding);
    }

    /// Reports a damaged database as a finding, so that the verification continues.
    fn allow_damage(&mut self, outcome: Result<(), StoreError>) -> Result<(), StoreError> {
        match outcome {
            Err(StoreError::Database(DatabaseError::Damaged { detail, .. })) => {
                self.find(Finding::Database(detail));
                Ok(())
            }
            other => other,
        }
    }
}

impl Inner {
    pub fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError> {
        let mut report = Report { each, verified: Verified::default() };
        let database = self.database.integrity_check().map_err(StoreError::from);
        report.allow_damage(database)?;
        let references = self.verify_references(&mut report);
        report.allow_damage(references)?;
        let versions = self.each(&mut |published| verify_version(&published, &mut report));
        report.allow_damage(versions)?;
        let blobs = self.verify_blobs(&mut report);
        report.allow_damage(blobs)?;
        self.find_strays(&mut report)?;
        Ok(report.verified)
    }

    fn verify_references(&self, report: &mut Report) -> Result<(), StoreError> {
        let wrong: Vec<Key> = if self.is_replica() {
            while self.index_next()? {}
            self.database.write::<_, StoreError>(|tx| {
                index::update(tx)?;
                Ok(wrong_references(tx)?)
            })?
        } else {
            self.database.read(wrong_references)?
        };
        for key in wrong {
            let text = format!("{key} does not show its newest version");
            report.find(Finding::Database(text));
        }
        Ok(())
    }

    fn verify_blobs(&self, report: &mut Report) -> Result<(), StoreError> {
        let mut after = Vec::new();
        loop {
            let batch = self.database.read(|connection| list(connection, &after))?;
            let Some((last, _)) = batch.last() else {
                return Ok(());
            };
            after = last.to_vec();
            for (digest, length) in batch {
                self.verify_blob(&digest, length, report)?;
            }
        }
    }

    fn verify_blob(
        &self,
        digest: &Digest,
        length: u64,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        // A file that cannot be read is damaged.
        let finding = match self.blobs.read(digest).map(|blob| blob.map(Blob::digest)) {
            Ok(None) => Finding::Missing(*digest),
            Ok(Some(Ok(found))) if found == (*digest, length) => {
                report.verified.blobs += 1;
                report.verified.bytes += length;
                return Ok(());
            }
            Ok(Some(_)) | Err(_) => Finding::Damaged(*digest),
        };
        // The blob may have been collected since it was listed.
        if self.has_blob(digest)? {
            report.find(finding);
        }
        Ok(())
    }

    fn find_strays(&self, report: &mut Report) -> Result<(), StoreError> {
        for name in self.blobs.shard_names()? {
            let Some(number) = blobs::number_of(&name) else {
                if name != blobs::TEMP {
                    report.find(Finding::Stray(Path::new(&name).display().to_string()));
                }
                continue;
            };
            let placement = self.blobs.lock_placement_exclusive();
            let strays = self.strays(number)?;
            drop(placement);
            let names = self.blobs.names(&self.blobs.shard(number))?;
            let foreign = names.iter().filter(|name| blobs::digest_of(number, name).is_none());
            let foreign = foreign.map(|name| self.blobs.shard(number).join(name));
            for path in strays.into_iter().chain(foreign) {
                report.find(Finding::Stray(path.display().to_string()));
            }
        }
        Ok(())
    }
}

fn wrong_references(connection: &Connection) -> rusqlite::Result<Vec<Key>> {
    connection.prepare(REFERENCES)?.query_map([], row::key)?.collect()
}

fn verify_version(published: &Published, report: &mut Report) {
    report.verified.versions += 1;
    if sha256(&[&published.descriptor]) != published.digest {
        let text = "the descriptor is not what was published".to_owned();
        let key = published.key.clone();
        let version = published.version.clone();
        report.find(Finding::Version { key, version, text });
    }
}

fn list(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<(Digest, u64)>> {
    let mut query = connection.prepare_cached(
        "SELECT digest, length FROM blob WHERE digest > ?1 ORDER BY digest LIMIT ?2",
    )?;
    let rows = query
        .query_map((after, BATCH), |row| Ok((row.get("digest")?, row::number(row, "length")?)))?;
    rows.collect()
}
