//! Publishing and yanking versions.

use levada_core::{Digest, Identity, UnixTime};
use levada_database::Fault;
use rusqlite::{Connection, OptionalExtension, named_params};

use super::audit::Details;
use super::inner::Inner;
use super::search::IndexUpdates;
use super::{audit, feed, read, row, search, words};
use crate::model::{Draft, Key, Published, Version};
use crate::store::{Action, Event, Outcome, StoreError};
use crate::wire::write_signatures;

/// A valid draft, with what is computed before the transaction.
struct CheckedDraft<'a> {
    draft: &'a Draft,
    digest: Digest,
    words: String,
}

impl<'a> CheckedDraft<'a> {
    fn check(draft: &'a Draft) -> Result<Self, StoreError> {
        draft.check()?;
        let words = words::of_version(&draft.key, &draft.descriptor);
        Ok(Self { draft, digest: draft.digest(), words })
    }
}

impl Inner {
    pub fn publish(
        &self,
        draft: &Draft,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        let new = CheckedDraft::check(draft)?;
        self.database.write(|tx| {
            let mut updates = IndexUpdates::default();
            let outcome = add(tx, &new, by, now, self.kept_changes, &mut updates)?;
            search::update(tx, &updates)?;
            Ok(outcome)
        })
    }

    /// Publishes all in one transaction.
    pub fn publish_all(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Vec<Outcome>, StoreError> {
        let new = drafts.iter().map(CheckedDraft::check).collect::<Result<Vec<_>, _>>()?;
        self.database.write(|tx| {
            let mut updates = IndexUpdates::default();
            let each = new.iter().map(|new| add(tx, new, by, now, self.kept_changes, &mut updates));
            let outcomes = each.collect::<Result<_, _>>()?;
            search::update(tx, &updates)?;
            Ok(outcomes)
        })
    }

    /// Repairs objects for which an earlier build selected a pre-release as the newest version.
    /// Writes only if there are some.
    pub fn repair_latest(&self) -> Result<(), StoreError> {
        if self.database.read(search::with_wrong_newest)?.is_empty() {
            return Ok(());
        }
        self.database.write(|tx| {
            for (object, key) in search::with_wrong_newest(tx)? {
                search::update_newest(tx, object, &key)?;
            }
            Ok(())
        })
    }

    pub fn yank(
        &self,
        key: &Key,
        version: &Version,
        yanked: bool,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        self.database.write(|tx| {
            let Some(found) = state(tx, key, version)? else {
                let key = key.clone();
                let version = version.clone();
                return Err(Fault::Refused(StoreError::NoSuchVersion { key, version }));
            };
            if found.yanked == yanked {
                return Ok(Outcome::Same);
            }
            let revision = feed::next_revision(tx)?;
            let change = Yank { key, version, yanked, revision };
            set_yanked(tx, &found, &change, by, now, self.kept_changes)?;
            search::update_newest(tx, found.object, key)?;
            Ok(Outcome::Created(revision))
        })
    }
}

/// A change of whether a version is yanked.
pub(super) struct Yank<'a> {
    pub key: &'a Key,
    pub version: &'a Version,
    pub yanked: bool,
    pub revision: u64,
}

/// Yanks a version or restores it, and adds it to the audit log. The index of words is not changed.
pub(super) fn set_yanked(
    connection: &Connection,
    found: &State,
    change: &Yank,
    by: Option<Identity>,
    now: UnixTime,
    kept_changes: u64,
) -> rusqlite::Result<()> {
    let Yank { key, version, yanked, revision } = *change;
    let (event, action) = match yanked {
        true => (Event::Yanked, Action::Yank),
        false => (Event::Unyanked, Action::Unyank),
    };
    connection
        .prepare_cached("UPDATE version SET yanked = ?2, revision = ?3 WHERE id = ?1")?
        .execute((found.id, yanked, row::from_number(revision)))?;
    feed::add(connection, revision, found.id, event, kept_changes)?;
    search::select_newest(connection, found.object)?;
    let details = Details { identity: by, key: Some(key), version: Some(version), text: "" };
    audit::add(connection, action, "done", &details, now)
}

fn add<'a>(
    connection: &Connection,
    new: &'a CheckedDraft,
    by: Option<Identity>,
    now: UnixTime,
    kept_changes: u64,
    updates: &mut IndexUpdates<'a>,
) -> Result<Outcome, Fault<StoreError>> {
    let Draft { key, version, .. } = new.draft;
    if let Some(found) = read::find(connection, key, version)? {
        if is_same(new.draft, &found) {
            return Ok(Outcome::Same);
        }
        add_conflict(connection, key, version, by, now)?;
        return Ok(Outcome::Conflict);
    }
    check_package(connection, new.draft)?;
    let revision = feed::next_revision(connection)?;
    let change = New { draft: new.draft, digest: new.digest, revision, by, now };
    if let Some(Shown { object, is_new }) = put(connection, &change, kept_changes)? {
        updates.add(object, is_new, &new.words);
    }
    Ok(Outcome::Created(revision))
}

/// A version that does not exist yet.
pub(super) struct New<'a> {
    pub draft: &'a Draft,
    /// The digest of its descriptor.
    pub digest: Digest,
    pub revision: u64,
    pub by: Option<Identity>,
    pub now: UnixTime,
}

/// The object that shows a new version.
pub(super) struct Shown {
    object: i64,
    /// It has no other version.
    is_new: bool,
}

/// Adds a version, and to the audit log. The object, if it shows this version now. The index of
/// words is not changed.
pub(super) fn put(
    connection: &Connection,
    new: &New,
    kept_changes: u64,
) -> rusqlite::Result<Option<Shown>> {
    let Draft { key, version, .. } = new.draft;
    let (object, is_new) = object(connection, key)?;
    let id = insert(connection, new, object)?;
    feed::add(connection, new.revision, id, Event::Published, kept_changes)?;
    let is_shown = search::set_if_newest(connection, object, id, version)?;
    let details = Details { identity: new.by, key: Some(key), version: Some(version), text: "" };
    audit::add(connection, Action::Publish, "done", &details, new.now)?;
    Ok(is_shown.then_some(Shown { object, is_new }))
}

/// Adds to the audit log that a version was refused because a different one exists.
pub(super) fn add_conflict(
    connection: &Connection,
    key: &Key,
    version: &Version,
    by: Option<Identity>,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let details = Details { identity: by, key: Some(key), version: Some(version), text: "" };
    audit::add(connection, Action::Publish, "conflict", &details, now)
}

/// Whether the draft equals a published version. Publisher and time are not compared.
pub(in crate::store) fn is_same(draft: &Draft, found: &Published) -> bool {
    let signature = |it: &crate::model::DescriptorSignature| (it.identity, it.signature);
    found.descriptor == draft.descriptor
        && row::package_parts(found.package.as_ref()) == row::package_parts(draft.package.as_ref())
        && found.signatures.iter().map(signature).eq(draft.signatures.iter().map(signature))
}

/// Checks that the package is stored and has its length. The blob cannot be deleted before the end
/// of this transaction.
fn check_package(connection: &Connection, draft: &Draft) -> Result<(), Fault<StoreError>> {
    let Some(package) = &draft.package else {
        return Ok(());
    };
    let digest = package.digest;
    let mut query = connection.prepare_cached("SELECT length FROM blob WHERE digest = ?1")?;
    let found = query.query_row([digest], |row| row::number(row, "length")).optional()?;
    let found = found.ok_or(Fault::Refused(StoreError::NoSuchBlob(digest)))?;
    if found != package.length {
        let claimed = package.length;
        return Err(Fault::Refused(StoreError::PackageLength { digest, claimed, found }));
    }
    Ok(())
}

/// The id of the object, and whether it was created now.
fn object(connection: &Connection, key: &Key) -> rusqlite::Result<(i64, bool)> {
    let kind = key.kind.as_str();
    let name = key.name.as_str();
    let mut query =
        connection.prepare_cached("SELECT id FROM object WHERE kind = ?1 AND name = ?2")?;
    if let Some(id) = query.query_row((kind, name), |row| row.get(0)).optional()? {
        return Ok((id, false));
    }
    let mut insert =
        connection.prepare_cached("INSERT INTO object (kind, name) VALUES (?1, ?2)")?;
    Ok((insert.insert((kind, name))?, true))
}

fn insert(connection: &Connection, new: &New, object: i64) -> rusqlite::Result<i64> {
    let draft = new.draft;
    let package = draft.package.as_ref();
    let mut insert = connection.prepare_cached(
        "INSERT INTO version (object, version, revision, published, publisher, digest, package,
                              package_type, package_description, signatures, descriptor)
         VALUES (:object, :version, :revision, :published, :publisher, :digest, :package,
                 :package_type, :package_description, :signatures, :descriptor)",
    )?;
    insert.insert(named_params! {
        ":object": object,
        ":version": draft.version.to_string(),
        ":revision": row::from_number(new.revision),
        ":published": row::from_time(new.now),
        ":publisher": new.by.as_ref().map(Identity::as_bytes),
        ":digest": new.digest,
        ":package": package.map(|package| package.digest),
        ":package_type": package.map(|package| &package.media_type),
        ":package_description": package.map(|package| &package.description),
        ":signatures": write_signatures(&draft.signatures),
        ":descriptor": draft.descriptor,
    })
}

/// The row of a version.
pub(super) struct State {
    id: i64,
    object: i64,
    pub yanked: bool,
}

/// The row of a version, if there is one.
pub(super) fn state(
    connection: &Connection,
    key: &Key,
    version: &Version,
) -> rusqlite::Result<Option<State>> {
    let mut query = connection.prepare_cached(
        "SELECT version.id AS id, object, yanked FROM version JOIN object ON object.id = object
         WHERE kind = ?1 AND name = ?2 AND version.version = ?3",
    )?;
    let parameters = (key.kind.as_str(), key.name.as_str(), version.to_string());
    let state = query.query_row(parameters, |row| {
        Ok(State { id: row.get("id")?, object: row.get("object")?, yanked: row.get("yanked")? })
    });
    state.optional()
}
