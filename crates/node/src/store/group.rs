//! Groups of the owner, and rights of groups. [`crate::policy`] has a copy of them in memory, which
//! it changes together with these tables.

use levada_config::{GROUP_PREFIX, Member};
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row};

use super::{NewAuditEntry, Store, StoreError, audit, row};

/// The operation of changes of groups in the audit log.
const OPERATION: &str = "group";

/// A group of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalGroup {
    /// Its name.
    pub name: String,
    /// Its members: identities, and other groups.
    pub members: Vec<Member>,
}

/// A right of the members of a group to request sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRight {
    /// The name of the group.
    pub group: String,
    /// The service; `None` for every service.
    pub service: Option<String>,
    /// The time from which it permits nothing.
    pub expires: UnixTime,
}

impl Store {
    /// All groups, in the order of their names.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn local_groups(&self) -> Result<Vec<LocalGroup>, StoreError> {
        self.database.read(local_groups)
    }

    /// All rights of groups, in the order of their names.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn group_rights(&self) -> Result<Vec<GroupRight>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM group_right ORDER BY name, service")?
                .query_map([], |row| {
                    Ok(GroupRight {
                        group: row.get("name")?,
                        service: row.get("service")?,
                        expires: row::time(row, "expires")?,
                    })
                })?
                .collect()
        })
    }

    /// Adds members to a group, which is created if it is missing.
    ///
    /// # Errors
    /// [`StoreError`] if they are not on disk.
    pub fn add_members(
        &self,
        name: &str,
        members: &[Member],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            let created = tx.execute(
                "INSERT INTO local_group (name, added) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                (name, row::from_time(now)),
            )?;
            if created == 1 {
                record(tx, &format!("{name}: created"), now)?;
            }
            let mut insert = tx.prepare_cached(
                "INSERT INTO group_member (name, identity, subgroup, added) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
            )?;
            for member in members {
                let (identity, subgroup) = columns(member);
                if insert.execute((name, identity, subgroup, row::from_time(now)))? == 1 {
                    record(tx, &format!("{name}: added {member}"), now)?;
                }
            }
            Ok(())
        })
    }

    /// Removes members from a group.
    ///
    /// # Errors
    /// [`StoreError`] if the change is not on disk.
    pub fn remove_members(
        &self,
        name: &str,
        members: &[Member],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            let mut delete = tx.prepare_cached(
                "DELETE FROM group_member WHERE name = ?1 AND identity IS ?2 AND subgroup IS ?3",
            )?;
            for member in members {
                let (identity, subgroup) = columns(member);
                if delete.execute((name, identity, subgroup))? > 0 {
                    record(tx, &format!("{name}: removed {member}"), now)?;
                }
            }
            Ok(())
        })
    }

    /// Removes a group with its members and its rights.
    ///
    /// # Errors
    /// [`StoreError`] if the change is not on disk.
    pub fn remove_group(&self, name: &str, now: UnixTime) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute("DELETE FROM group_right WHERE name = ?1", [name])?;
            tx.execute("DELETE FROM local_group WHERE name = ?1", [name])?;
            Ok(record(tx, &format!("{name}: removed"), now)?)
        })
    }

    /// Gives the members of a group a right, which replaces an earlier one to the same service.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn add_group_right(&self, right: &GroupRight, now: UnixTime) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT INTO group_right (name, service, added, expires) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name, ifnull(service, '')) DO UPDATE
                 SET added = excluded.added, expires = excluded.expires",
                (&right.group, &right.service, row::from_time(now), row::from_time(right.expires)),
            )?;
            Ok(record_right(tx, "allow", &right.group, right.service.as_deref(), now)?)
        })
    }

    /// Removes the right of a group to `service`, or every right if `None`.
    ///
    /// # Errors
    /// [`StoreError`] if the change is not on disk.
    pub fn remove_group_right(
        &self,
        group: &str,
        service: Option<&str>,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            let removed = tx.execute(
                "DELETE FROM group_right WHERE name = ?1 AND (?2 IS NULL OR service = ?2)",
                (group, service),
            )?;
            if removed > 0 {
                record_right(tx, "disallow", group, service, now)?;
            }
            Ok(())
        })
    }
}

/// All groups, in the order of their names.
pub(super) fn local_groups(connection: &Connection) -> rusqlite::Result<Vec<LocalGroup>> {
    let names = connection
        .prepare("SELECT name FROM local_group ORDER BY name")?
        .query_map([], |row| row.get("name"))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let mut members = connection
        .prepare("SELECT * FROM group_member WHERE name = ?1 ORDER BY subgroup, identity")?;
    let mut groups = Vec::new();
    for name in names {
        let members = members.query_map([&name], member)?.collect::<rusqlite::Result<_>>()?;
        groups.push(LocalGroup { name, members });
    }
    Ok(groups)
}

/// Moves the memberships of a rotated key to its successor.
pub(super) fn move_members(
    connection: &Connection,
    old: &Identity,
    new: &Identity,
) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE OR IGNORE group_member SET identity = ?2 WHERE identity = ?1",
        (old.as_bytes(), new.as_bytes()),
    )?;
    connection.execute("DELETE FROM group_member WHERE identity = ?1", [old.as_bytes()])?;
    Ok(())
}

fn member(row: &Row) -> rusqlite::Result<Member> {
    Ok(match row::optional_identity(row, "identity")? {
        Some(identity) => Member::Identity(identity),
        None => Member::Group(row.get("subgroup")?),
    })
}

/// The columns `identity` and `subgroup` of a member.
fn columns(member: &Member) -> (Option<&[u8; 32]>, Option<&str>) {
    match member {
        Member::Identity(identity) => (Some(identity.as_bytes()), None),
        Member::Group(group) => (None, Some(group)),
    }
}

fn record(connection: &Connection, text: &str, now: UnixTime) -> rusqlite::Result<()> {
    let entry = NewAuditEntry { text, ..NewAuditEntry::new(OPERATION, "done") };
    audit::add(connection, &entry, now)
}

fn record_right(
    connection: &Connection,
    operation: &str,
    group: &str,
    service: Option<&str>,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let text = format!("{GROUP_PREFIX}{group}");
    let entry = NewAuditEntry { service, text: &text, ..NewAuditEntry::new(operation, "done") };
    audit::add(connection, &entry, now)
}
