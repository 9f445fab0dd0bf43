//! The groups of the configuration, and their exchange with other nodes.

use levada_core::{NAME_RULE, UnixTime, check_name};
use levada_home::known::Known;

use super::identify::Position;
use super::reader::{Section, Value};
use super::{ConfigError, GroupDefinition, IdentityRef, Member, Subject};

/// A `[[group]]`: a name for a set of identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSource {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<Subject>,
    position: Position,
}

impl GroupSource {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let section = value.section()?;
        section.only(&["name", "members"])?;
        let name = group_name(&section.required("name", NAME_RULE)?)?;
        let members = section.required("members", "a list of identities, names and groups")?;
        Ok(Self { name, members: members.each(Subject::read)?, position: Position::of(value) })
    }

    /// Its place in the configuration, as FILE:LINE.
    pub fn place(&self) -> String {
        self.position.place()
    }

    /// An error at its place.
    pub fn wrong(&self, message: String) -> ConfigError {
        self.position.wrong(message)
    }

    /// The group with the identities of names that are pinned now.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for a name that is not pinned, with its position.
    pub fn definition(&self, known: &Known) -> Result<GroupDefinition, ConfigError> {
        let member = |subject: &Subject| match subject {
            Subject::Identity(identity) => identity.identity(known).map(Member::Identity),
            Subject::Group(_) => Ok(Member::Group(subject.group().unwrap_or_default().to_owned())),
        };
        Ok(GroupDefinition {
            name: self.name.clone(),
            members: self.members.iter().map(member).collect::<Result<_, _>>()?,
            until: UnixTime::NEVER,
        })
    }
}

/// The `[groups]`: groups of another node, and the nodes that may read the sets of this one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SharedGroups {
    /// The identity that signs the groups that this node takes over.
    pub from: Option<IdentityRef>,
    /// The set of groups that it takes over; `None` for the default one.
    pub set: Option<String>,
    /// The identities that may read the sets that this node exports.
    pub readers: Vec<Subject>,
}

impl SharedGroups {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        section.only(&["from", "set", "readers"])?;
        let shared = Self {
            from: section.value("from").map(|value| IdentityRef::read(&value)).transpose()?,
            set: section.value("set").map(|value| group_name(&value)).transpose()?,
            readers: match section.value("readers") {
                Some(value) => value.each(Subject::read)?,
                None => Vec::new(),
            },
        };
        match section.value("set") {
            Some(set) if shared.from.is_none() => {
                Err(set.wrong("it needs `from`, the identity that signs the set"))
            }
            _ => Ok(shared),
        }
    }
}

fn group_name(value: &Value<'_>) -> Result<String, ConfigError> {
    let name = value.text(NAME_RULE)?;
    check_name(name).map_err(|_| value.not(NAME_RULE))?;
    Ok(name.to_owned())
}

/// Refuses a second group of a name.
pub(super) fn refuse_repeated(groups: &[GroupSource]) -> Result<(), ConfigError> {
    for (index, group) in groups.iter().enumerate() {
        if let Some(first) = groups[..index].iter().find(|first| first.name == group.name) {
            let text = format!("the group `{}` is defined at {}, too", group.name, first.place());
            return Err(group.wrong(text));
        }
    }
    Ok(())
}
