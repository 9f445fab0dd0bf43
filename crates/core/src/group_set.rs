//! Group sets: named sets of identities that an identity signs for other nodes. `levada group
//! export` makes one.
//!
//! A set is text, so that its reader sees what was signed: a line for each field and each member,
//! with the names of members as comments. The form is canonical: the text of the parsed fields must
//! be the text that was read.

use std::collections::BTreeMap;
use std::fmt::Write;

use data_encoding::HEXLOWER;
use thiserror::Error;

use crate::{Digest, Identity, SecretKey, Signature, UnixTime, check_name, label, sha256};

/// The first line.
const HEAD: &str = "levada group set 1";
/// The beginning of the last line.
const SIGNATURE: &str = "signature ";

/// The reason why a group set was refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum GroupSetError {
    /// It is longer than [`GroupSet::MAX_BYTES`].
    #[error("a group set has at most {} bytes", GroupSet::MAX_BYTES)]
    TooLong,
    /// It has more than [`GroupSet::MAX_GROUPS`] groups.
    #[error("a group set has at most {} groups", GroupSet::MAX_GROUPS)]
    TooManyGroups,
    /// It has more than [`GroupSet::MAX_MEMBERS`] members.
    #[error("a group set has at most {} members in all of its groups", GroupSet::MAX_MEMBERS)]
    TooManyMembers,
    /// A line is not what its place requires.
    #[error("line {0} of the group set is malformed")]
    Malformed(usize),
    /// It has no signature at its end, or fields in another form than that in which they are
    /// signed.
    #[error("it is not a group set of `levada group export`, or was changed")]
    Form,
    /// The signature is not by the identity that it names.
    #[error("the signature of the group set does not verify: it was changed, or forged")]
    Signature,
}

/// The members of a group, each with its name at the signer, which is a comment.
pub type NamedMembers = BTreeMap<Identity, Option<String>>;

/// Groups of identities that one identity signs under a label of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSet {
    /// The name of the set: a signer may have several.
    pub set: String,
    /// The version, which grows with each set of this name; at least 1.
    pub version: u64,
    /// The time of the signature, by the signer's clock.
    pub time: UnixTime,
    /// The time from which it gives no rights.
    pub expires: UnixTime,
    /// The members of each group by its name.
    pub groups: BTreeMap<String, NamedMembers>,
}

impl GroupSet {
    /// The maximum length of a signed set, in bytes.
    pub const MAX_BYTES: usize = 160 * 1024;
    /// The maximum number of groups.
    pub const MAX_GROUPS: usize = 64;
    /// The maximum number of members in all groups together.
    pub const MAX_MEMBERS: usize = 1000;

    /// The text of this set with a signature by `key`.
    ///
    /// # Errors
    /// [`GroupSetError`] if it exceeds a limit, or a name is not one.
    pub fn sign(&self, key: &SecretKey) -> Result<String, GroupSetError> {
        let body = self.body(&key.identity());
        // A name with a line break, for example, would be another line.
        if Self::parse(&body)? != (self.clone(), key.identity()) {
            return Err(GroupSetError::Form);
        }
        let signature = HEXLOWER.encode(&key.sign(label::GROUP_SET, body.as_bytes()));
        let text = format!("{body}{SIGNATURE}{signature}\n");
        if text.len() > Self::MAX_BYTES { Err(GroupSetError::TooLong) } else { Ok(text) }
    }

    /// Verifies the output of [`Self::sign`]. Returns the set with the identity that has signed it.
    ///
    /// # Errors
    /// [`GroupSetError`] names the fault.
    pub fn verify(text: &str) -> Result<(Self, Identity), GroupSetError> {
        if text.len() > Self::MAX_BYTES {
            return Err(GroupSetError::TooLong);
        }
        let (body, signature) = text.rsplit_once(SIGNATURE).ok_or(GroupSetError::Form)?;
        let signature = signature.strip_suffix('\n').ok_or(GroupSetError::Form)?;
        let signature = HEXLOWER.decode(signature.as_bytes()).map_err(|_| GroupSetError::Form)?;
        let signature = Signature::try_from(signature).map_err(|_| GroupSetError::Form)?;
        let (set, signer) = Self::parse(body)?;
        signer
            .verify(label::GROUP_SET, body.as_bytes(), &signature)
            .map_err(|_| GroupSetError::Signature)?;
        Ok((set, signer))
    }

    /// The hash by which two sets of one version are compared.
    pub fn hash(text: &str) -> Digest {
        sha256(&[text.as_bytes()])
    }

    /// The signed text.
    fn body(&self, signer: &Identity) -> String {
        let Self { set, version, time, expires, groups } = self;
        let mut body = format!(
            "{HEAD}\nset {set}\nversion {version}\ntime {}\nexpires {}\nby {signer}\n",
            time.0, expires.0
        );
        // Writing to a string does not fail.
        for (name, members) in groups {
            let _ = writeln!(body, "group {name}");
            for (identity, name) in members {
                let _ = match name {
                    Some(name) => writeln!(body, "{identity} # {name}"),
                    None => writeln!(body, "{identity}"),
                };
            }
        }
        body
    }

    fn parse(body: &str) -> Result<(Self, Identity), GroupSetError> {
        if body.len() > Self::MAX_BYTES {
            return Err(GroupSetError::TooLong);
        }
        let mut lines = body.split('\n').enumerate().map(|(index, line)| Line(index + 1, line));
        let mut line = || lines.next().unwrap_or(Line(0, ""));
        let head = line();
        if head.1 != HEAD {
            return Err(head.malformed());
        }
        let mut set = Self {
            set: line().name("set ")?,
            version: line().number("version ")?,
            time: UnixTime(line().number("time ")?),
            expires: UnixTime(line().number("expires ")?),
            groups: BTreeMap::new(),
        };
        let signer = line().field("by ")?;
        let signer = signer.1.parse().map_err(|_| signer.malformed())?;
        set.parse_groups(lines)?;
        // Versions and times are stored as signed numbers.
        let is_stored = |number: u64| i64::try_from(number).is_ok();
        let fits = is_stored(set.version) && is_stored(set.time.0) && set.version > 0;
        let is_canonical = set.body(&signer) == body;
        if fits && is_canonical { Ok((set, signer)) } else { Err(GroupSetError::Form) }
    }

    fn parse_groups<'a>(
        &mut self,
        lines: impl Iterator<Item = Line<'a>>,
    ) -> Result<(), GroupSetError> {
        let mut members = 0;
        let mut current: Option<(String, NamedMembers)> = None;
        // The body ends with a line break, so its last line is empty.
        for line in lines.filter(|line| !line.1.is_empty()) {
            if line.1.starts_with("group ") {
                let next = (line.name("group ")?, NamedMembers::new());
                self.groups.extend(current.replace(next));
                if self.groups.len() >= Self::MAX_GROUPS {
                    return Err(GroupSetError::TooManyGroups);
                }
                continue;
            }
            members += 1;
            if members > Self::MAX_MEMBERS {
                return Err(GroupSetError::TooManyMembers);
            }
            let (_, group) = current.as_mut().ok_or_else(|| line.malformed())?;
            let (identity, name) = line.member()?;
            group.insert(identity, name);
        }
        self.groups.extend(current);
        Ok(())
    }
}

/// A line with its number.
#[derive(Clone, Copy)]
struct Line<'a>(usize, &'a str);

impl<'a> Line<'a> {
    fn malformed(self) -> GroupSetError {
        GroupSetError::Malformed(self.0)
    }

    /// The line after its first word.
    fn field(self, word: &str) -> Result<Self, GroupSetError> {
        self.1.strip_prefix(word).map(|rest| Self(self.0, rest)).ok_or_else(|| self.malformed())
    }

    fn name(self, word: &str) -> Result<String, GroupSetError> {
        let name = self.field(word)?.1;
        check_name(name).map_err(|_| self.malformed())?;
        Ok(name.to_owned())
    }

    fn number(self, word: &str) -> Result<u64, GroupSetError> {
        self.field(word)?.1.parse().map_err(|_| self.malformed())
    }

    /// An identity, and its name in a comment.
    fn member(self) -> Result<(Identity, Option<String>), GroupSetError> {
        let (identity, name) = match self.1.split_once(" # ") {
            Some((identity, name)) => (identity, Some(name)),
            None => (self.1, None),
        };
        if name.is_some_and(|name| check_name(name).is_err()) {
            return Err(self.malformed());
        }
        let identity: Identity = identity.parse().map_err(|_| self.malformed())?;
        Ok((identity, name.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    fn key() -> SecretKey {
        SecretKey::generate(&SystemRandom).unwrap()
    }

    fn set() -> GroupSet {
        let members = [(Identity::from_bytes([1; 32]), Some("anna".to_owned()))];
        let groups = [
            ("family".to_owned(), NamedMembers::from(members)),
            ("none".into(), NamedMembers::new()),
        ];
        GroupSet {
            set: "default".into(),
            version: 3,
            time: UnixTime(7),
            expires: UnixTime(9),
            groups: groups.into(),
        }
    }

    #[test]
    fn a_signed_set_verifies_and_is_readable() {
        let key = key();
        let text = set().sign(&key).unwrap();
        assert_eq!(GroupSet::verify(&text), Ok((set(), key.identity())));
        assert!(text.starts_with("levada group set 1\nset default\nversion 3\ntime 7\n"), "{text}");
        assert!(text.contains("group family\nlv") && text.contains(" # anna\ngroup none\n"));
    }

    #[test]
    fn every_change_is_refused() {
        let [key, other] = [key(), key()];
        let text = set().sign(&key).unwrap();
        for (from, to) in [
            ("version 3", "version 4"),
            ("version 3", "version 03"),
            ("expires 9", "expires 99"),
            (" # anna", " # bob"),
            (" # anna", ""),
            ("group none\n", ""),
            ("group none", "group group:none"),
            ("signature ", "signature  "),
        ] {
            assert!(GroupSet::verify(&text.replace(from, to)).is_err(), "{from} {to}");
        }
        let forged = text.replace(&key.identity().to_string(), &other.identity().to_string());
        assert_eq!(GroupSet::verify(&forged), Err(GroupSetError::Signature));
        let member = text.lines().nth(7).unwrap();
        let group = text.replace(member, "group:family");
        assert_eq!(GroupSet::verify(&group), Err(GroupSetError::Malformed(8)));
        let twice = text.replace(member, &format!("{member}\n{member}"));
        assert_eq!(GroupSet::verify(&twice), Err(GroupSetError::Form));
        for end in 0..text.len() {
            assert!(GroupSet::verify(&text[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_signature_for_another_purpose_is_refused() {
        let key = key();
        let text = set().sign(&key).unwrap();
        let (body, _) = text.rsplit_once(SIGNATURE).unwrap();
        let other = HEXLOWER.encode(&key.sign(label::SUCCESSION, body.as_bytes()));
        let forged = format!("{body}{SIGNATURE}{other}\n");
        assert_eq!(GroupSet::verify(&forged), Err(GroupSetError::Signature));
    }

    #[test]
    fn limits_hold_at_both_ends() {
        let key = key();
        let member = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            (Identity::from_bytes(bytes), Some("a".repeat(63)))
        };
        let mut large = set();
        let full: NamedMembers = (0..GroupSet::MAX_MEMBERS).map(member).collect();
        large.groups = [("a".to_owned(), full)].into();
        let text = large.sign(&key).unwrap();
        assert!(text.len() < GroupSet::MAX_BYTES, "{}", text.len());
        large.groups.insert("b".into(), [member(0)].into());
        assert_eq!(large.sign(&key), Err(GroupSetError::TooManyMembers));
        let mut many = set();
        let groups = |number| (0..number).map(|n| (format!("g{n}"), NamedMembers::new())).collect();
        many.groups = groups(GroupSet::MAX_GROUPS);
        many.sign(&key).unwrap();
        many.groups = groups(GroupSet::MAX_GROUPS + 1);
        assert_eq!(many.sign(&key), Err(GroupSetError::TooManyGroups));
        let long = "x".repeat(GroupSet::MAX_BYTES + 1);
        assert_eq!(GroupSet::verify(&long), Err(GroupSetError::TooLong));
        let odd = GroupSet { set: "a\nversion 9".into(), ..set() };
        assert!(odd.sign(&key).is_err());
        assert!(GroupSet { version: 0, ..set() }.sign(&key).is_err());
    }

    #[test]
    fn arbitrary_text_never_panics() {
        let text = set().sign(&key()).unwrap();
        bolero::check!().with_type::<(String, usize)>().for_each(|(inserted, at)| {
            let _ = GroupSet::verify(inserted);
            let at = at % text.len();
            let _ = GroupSet::verify(&format!("{}{inserted}{}", &text[..at], &text[at..]));
        });
    }
}
