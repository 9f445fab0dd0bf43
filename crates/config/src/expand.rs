//! Expands groups to sets of identities.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use levada_core::{Identity, UnixTime};
use thiserror::Error;

/// The beginning of a group where an identity may stand, too.
pub const GROUP_PREFIX: &str = "group:";
/// The maximum number of groups within each other.
pub const MAX_GROUP_DEPTH: usize = 8;
/// The maximum number of groups.
pub const MAX_GROUPS: usize = 1000;
/// The maximum number of members of all groups together, each with the members of its groups.
pub const MAX_GROUP_MEMBERS: usize = 20_000;

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// An identity.
    Identity(Identity),
    /// All members of the group with this name.
    Group(String),
}

/// As the configuration and the command line write it.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(identity) => identity.fmt(f),
            Self::Group(name) => write!(f, "{GROUP_PREFIX}{name}"),
        }
    }
}

/// A group with the members that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDefinition {
    /// Its name.
    pub name: String,
    /// The members that it names.
    pub members: Vec<Member>,
    /// The time from which its members have no right by it.
    pub until: UnixTime,
}

/// The identities in a group, each with the time from which it has no right by it.
pub type Members = BTreeMap<Identity, UnixTime>;

/// Adds the successors of rotated keys, with the values that the keys have. `rotations` has rotated
/// keys with their successors.
pub fn add_successors<T: Clone>(
    keys: &mut BTreeMap<Identity, T>,
    rotations: &HashMap<Identity, Identity>,
) {
    let rotated: Vec<_> = keys.keys().filter(|key| rotations.contains_key(key)).copied().collect();
    for mut key in rotated {
        while let Some(next) = rotations.get(&key).filter(|next| !keys.contains_key(next))
            && let Some(value) = keys.get(&key).cloned()
        {
            keys.insert(*next, value);
            key = *next;
        }
    }
}

/// A group that cannot be expanded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct GroupError {
    /// The names of the groups within each other at which it was found, the outermost first.
    pub path: Vec<String>,
    text: String,
}

/// The members of all groups by name, with the members of groups within them.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    all: BTreeMap<String, Members>,
    may_be_absent: bool,
    /// The members of a group that is absent.
    none: Members,
}

impl Groups {
    /// Expands `definitions`. A group that is not defined has no members if `may_be_absent`, and
    /// is an error otherwise.
    ///
    /// # Errors
    /// [`GroupError`] for a cycle, for a limit, for two groups of one name, and for a group that
    /// is not defined.
    pub fn expand(
        definitions: &[GroupDefinition],
        may_be_absent: bool,
    ) -> Result<Self, GroupError> {
        let mut by_name = HashMap::new();
        for definition in definitions {
            if by_name.insert(definition.name.as_str(), definition).is_some() {
                return Err(error(&[&definition.name], "it is defined twice"));
            }
        }
        if definitions.len() > MAX_GROUPS {
            return Err(error(&[], &format!("there are more than {MAX_GROUPS} groups")));
        }
        let mut expansion = Expansion { by_name, may_be_absent, done: BTreeMap::new(), total: 0 };
        for definition in definitions {
            expansion.expand(&definition.name, &mut Vec::new())?;
        }
        let done = expansion.done.into_iter();
        let all = done.map(|(name, (members, _))| (name.to_owned(), members)).collect();
        Ok(Self { all, may_be_absent, none: Members::new() })
    }

    /// The members of a group; `None` if it is not defined.
    pub fn members(&self, name: &str) -> Option<&Members> {
        self.all.get(name)
    }

    /// Returns true if `identity` is a member of any group.
    pub fn contain(&self, identity: &Identity) -> bool {
        self.all.values().any(|members| members.contains_key(identity))
    }

    /// As [`Self::members`], but a group that may be absent has none.
    pub fn members_or_none(&self, name: &str) -> Option<&Members> {
        self.all.get(name).or(self.may_be_absent.then_some(&self.none))
    }
}

struct Expansion<'a> {
    by_name: HashMap<&'a str, &'a GroupDefinition>,
    may_be_absent: bool,
    /// The members of a group, and the number of groups within each other that it begins.
    done: BTreeMap<&'a str, (Members, usize)>,
    /// The number of members in `done`.
    total: usize,
}

impl<'a> Expansion<'a> {
    /// Expands the group `name` within the groups of `path`. Returns the number of groups within
    /// each other that it begins. The depth of calls is at most [`MAX_GROUP_DEPTH`].
    fn expand(&mut self, name: &'a str, path: &mut Vec<&'a str>) -> Result<usize, GroupError> {
        let is_cycle = path.contains(&name);
        path.push(name);
        if is_cycle {
            return Err(error(path, "a group must not contain itself"));
        }
        let depth = match self.done.get(name) {
            Some((_, depth)) => *depth,
            None => self.expand_members(name, path)?,
        };
        if path.len() - 1 + depth > MAX_GROUP_DEPTH {
            return Err(too_deep(path));
        }
        path.pop();
        Ok(depth)
    }

    fn expand_members(
        &mut self,
        name: &'a str,
        path: &mut Vec<&'a str>,
    ) -> Result<usize, GroupError> {
        if path.len() > MAX_GROUP_DEPTH {
            return Err(too_deep(path));
        }
        let Some(definition) = self.by_name.get(name).copied() else {
            return match self.may_be_absent {
                true => Ok(1),
                false => Err(error(path, &format!("no group has the name `{name}`"))),
            };
        };
        let mut members = Members::new();
        let mut depth = 0;
        for member in &definition.members {
            match member {
                Member::Identity(identity) => add(&mut members, *identity, definition.until),
                Member::Group(inner) => {
                    depth = depth.max(self.expand(inner, path)?);
                    let inner = self.done.get(inner.as_str()).map(|(members, _)| members);
                    for (identity, until) in inner.into_iter().flatten() {
                        add(&mut members, *identity, definition.until.min(*until));
                    }
                }
            }
        }
        self.total += members.len();
        if self.total > MAX_GROUP_MEMBERS {
            let text = format!("all groups together have more than {MAX_GROUP_MEMBERS} members");
            return Err(error(path, &text));
        }
        self.done.insert(name, (members, depth + 1));
        Ok(depth + 1)
    }
}

/// Adds a member; of two times the later one counts.
fn add(members: &mut Members, identity: Identity, until: UnixTime) {
    let entry = members.entry(identity).or_insert(until);
    *entry = until.max(*entry);
}

fn too_deep(path: &[&str]) -> GroupError {
    error(path, &format!("more than {MAX_GROUP_DEPTH} groups are within each other"))
}

fn error(path: &[&str], problem: &str) -> GroupError {
    let shown =
        path.iter().map(|name| format!("{GROUP_PREFIX}{name}")).collect::<Vec<_>>().join(" → ");
    let text = if shown.is_empty() { problem.to_owned() } else { format!("{shown}: {problem}") };
    GroupError { path: path.iter().map(|&name| name.to_owned()).collect(), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> Identity {
        Identity::from_bytes([byte; 32])
    }

    fn group(name: &str, members: &[Member]) -> GroupDefinition {
        GroupDefinition { name: name.into(), members: members.to_vec(), until: UnixTime::NEVER }
    }

    fn one(byte: u8) -> Member {
        Member::Identity(id(byte))
    }

    fn all(name: &str) -> Member {
        Member::Group(name.to_owned())
    }

    /// `length` groups within each other; the last one has an identity.
    fn chain(length: usize) -> Vec<GroupDefinition> {
        let name = |index: usize| format!("g{index}");
        let inner = |index| if index == length { one(1) } else { all(&name(index + 1)) };
        (1..=length).map(|index| group(&name(index), &[inner(index)])).collect()
    }

    #[test]
    fn a_group_has_the_members_of_its_groups() {
        let groups = [
            group("family", &[one(1), all("others"), all("others")]),
            group("others", &[one(2), one(1)]),
            group("none", &[]),
        ];
        let groups = Groups::expand(&groups, false).unwrap();
        let members = |name| groups.members(name).unwrap().keys().copied().collect::<Vec<_>>();
        assert_eq!(members("family"), [id(1), id(2)]);
        assert_eq!(members("none"), []);
        assert_eq!(groups.members("other"), None);
        assert_eq!(all("others").to_string(), "group:others");
        assert!(groups.contain(&id(2)) && !groups.contain(&id(3)));
    }

    #[test]
    fn a_member_by_several_groups_has_the_latest_end() {
        let shared = GroupDefinition { until: UnixTime(9), ..group("shared", &[one(1), one(2)]) };
        let groups = [group("staff", &[all("shared"), one(1)]), shared];
        let groups = Groups::expand(&groups, false).unwrap();
        let staff = groups.members("staff").unwrap();
        assert_eq!((staff[&id(1)], staff[&id(2)]), (UnixTime::NEVER, UnixTime(9)));
    }

    #[test]
    fn cycles_are_errors_with_their_path() {
        let groups = [group("a", &[all("b")]), group("b", &[all("c")]), group("c", &[all("b")])];
        let error = Groups::expand(&groups, true).unwrap_err();
        assert_eq!(error.path, ["a", "b", "c", "b"]);
        assert!(error.to_string().contains("group:c → group:b: a group must not contain itself"));
        assert!(Groups::expand(&[group("a", &[all("a")])], true).is_err());
    }

    #[test]
    fn eight_groups_may_be_within_each_other_in_any_order() {
        for reverse in [false, true] {
            let [mut fits, mut deep] = [chain(8), chain(9)];
            if reverse {
                fits.reverse();
                deep.reverse();
            }
            let groups = Groups::expand(&fits, false).unwrap();
            assert!(groups.members("g1").unwrap().contains_key(&id(1)));
            let error = Groups::expand(&deep, false).unwrap_err();
            assert!(error.to_string().contains("more than 8 groups"), "{error}");
        }
    }

    #[test]
    fn unknown_groups_and_limits_are_errors() {
        let absent = [group("a", &[all("nowhere")])];
        assert!(Groups::expand(&absent, false).unwrap_err().to_string().contains("`nowhere`"));
        assert!(Groups::expand(&absent, true).unwrap().members("a").unwrap().is_empty());
        assert!(Groups::expand(&[group("a", &[]), group("a", &[])], true).is_err());
        let bytes = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            Member::Identity(Identity::from_bytes(bytes))
        };
        let large: Vec<_> = (0..MAX_GROUP_MEMBERS / 2).map(bytes).collect();
        let mut groups = vec![group("a", &large), group("b", &[all("a")])];
        assert!(Groups::expand(&groups, false).is_ok());
        groups.push(group("c", &[one(1)]));
        assert!(Groups::expand(&groups, false).unwrap_err().to_string().contains("20000 members"));
        let many: Vec<_> = (0..=MAX_GROUPS).map(|n| group(&format!("g{n}"), &[])).collect();
        assert!(Groups::expand(&many, false).is_err());
    }

    #[test]
    fn arbitrary_references_never_panic() {
        bolero::check!().with_type::<Vec<(u8, Vec<u8>)>>().for_each(|groups| {
            let definition = |(name, inner): &(u8, Vec<u8>)| {
                let members: Vec<_> = inner.iter().map(|byte| all(&byte.to_string())).collect();
                group(&name.to_string(), &members)
            };
            let groups: Vec<_> = groups.iter().map(definition).collect();
            let _ = Groups::expand(&groups, true);
        });
    }
}
