//! How messages are divided into contexts.

use std::str::FromStr;

use hyper::header::{HeaderMap, HeaderName};
use levada_contexts::{Context, Path, Purpose, Right};
use thiserror::Error;

/// How requests and responses are divided into contexts. Client and server know it by the purposes
/// of the contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Everything in one context.
    One,
    /// Head and body of each in contexts of their own.
    #[default]
    Four,
    /// As `Four`, and fields that tell much about a person or steer a cache in contexts of their
    /// own, by [`FIELDS`]. All others stay in the contexts of the heads.
    PerHeader,
}

/// The name of the context of trailers, which a path may have with each strategy.
pub const TRAILERS: &str = "trailers";

pub(super) const ONE: &[(&str, Purpose)] = &[("exchange", Purpose::Other)];
pub(super) const FOUR: &[(&str, Purpose)] = &[
    ("request-head", Purpose::RequestHead),
    ("request-body", Purpose::RequestBody),
    ("response-head", Purpose::ResponseHead),
    ("response-body", Purpose::ResponseBody),
];

/// The contexts of [`Strategy::PerHeader`] for fields, with the names of their fields; each serves
/// requests and responses.
pub const FIELDS: &[(&str, &[&str])] = &[
    ("cookie", &["cookie", "set-cookie"]),
    ("authorization", &["authorization", "www-authenticate"]),
    ("user-agent", &["user-agent"]),
    ("referer", &["referer", "origin"]),
    ("accept", &["accept", "accept-encoding", "accept-language"]),
    ("content-type", &["content-type", "content-encoding", "content-language"]),
    ("location", &["location", "content-location"]),
    ("cache-control", &["cache-control", "pragma", "expires", "age", "vary"]),
    ("validators", &["etag", "last-modified", "if-match", "if-none-match", "if-modified-since"]),
];

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::One, Self::Four, Self::PerHeader];

    /// The name, as [`Strategy::from_str`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Four => "four",
            Self::PerHeader => "per-header",
        }
    }
}

impl FromStr for Strategy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or("expected one, four or per-header")
    }
}

/// The contexts of a strategy by name, in the order of their numbers from 1, without that of
/// trailers, which is the last one of a path that has it.
pub fn context_names(strategy: Strategy) -> Vec<(&'static str, Purpose)> {
    match strategy {
        Strategy::One => ONE.to_vec(),
        Strategy::Four => FOUR.to_vec(),
        Strategy::PerHeader => {
            let fields = FIELDS.iter().map(|(name, _)| (*name, Purpose::Fields));
            FOUR.iter().copied().chain(fields).collect()
        }
    }
}

/// A grant that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// There is no such context.
    #[error("there is no context `{0}`; there are {1}")]
    Context(String, String),
    /// There is no such right.
    #[error("`{0}` is no right: r reads, rw reads and writes")]
    Right(String),
    /// Not CONTEXT=RIGHT.
    #[error("`{0}` is not CONTEXT=r or CONTEXT=rw")]
    Form(String),
}

/// Reads grants such as `request-head=r,response-head=rw`. `names` are the contexts that there are.
pub(super) fn parse_grants(
    text: &str,
    names: &[&'static str],
) -> Result<Vec<(&'static str, Right)>, LayoutError> {
    let grant = |grant: &str| {
        let form = || LayoutError::Form(grant.to_owned());
        let (name, right) = grant.split_once('=').ok_or_else(form)?;
        let known = names.iter().find(|known| **known == name);
        let known = known.ok_or_else(|| LayoutError::Context(name.to_owned(), names.join(", ")))?;
        match right {
            "r" => Ok((*known, Right::Read)),
            "rw" => Ok((*known, Right::Write)),
            other => Err(LayoutError::Right(other.to_owned())),
        }
    };
    text.split(',').filter(|one| !one.is_empty()).map(grant).collect()
}

/// The contexts of a strategy with the rights of each middlebox, given as
/// `request-head=r,response-head=rw`. A context that is not named: no right. There is a context for
/// trailers if a grant names it or `trailers`.
///
/// # Errors
/// [`LayoutError`], with what cannot be read.
pub fn contexts(
    strategy: Strategy,
    trailers: bool,
    grants: &[&str],
) -> Result<Vec<Context>, LayoutError> {
    let mut known = context_names(strategy);
    known.push((TRAILERS, Purpose::Trailers));
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let context = |(_, purpose): &(&str, Purpose)| Context {
        purpose: *purpose,
        pad: 0,
        rights: vec![Right::None; grants.len()],
    };
    let mut all: Vec<Context> = known.iter().map(context).collect();
    let mut has_trailers = trailers;
    for (hop, grants) in grants.iter().enumerate() {
        for (name, right) in parse_grants(grants, &names)? {
            has_trailers |= name == TRAILERS;
            let at = names.iter().position(|known| *known == name).unwrap_or_default();
            all[at].rights[hop] = right;
        }
    }
    if !has_trailers {
        all.pop();
    }
    Ok(all)
}

/// What a context carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Head and body, with an empty line between them.
    Whole,
    Head,
    /// The fields of [`FIELDS`] with this index.
    Fields(usize),
    Body,
    Trailers,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
}

/// The layout of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) strategy: Strategy,
    /// There is a place for trailers.
    pub(super) trailers: bool,
}

impl Layout {
    /// Of an ordinary session.
    pub(super) const STREAM: Self = Self { strategy: Strategy::Four, trailers: true };

    /// Of a path; None if its contexts are those of no strategy.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let purposes: Vec<Purpose> = path.contexts.iter().map(|context| context.purpose).collect();
        let (trailers, purposes) = match purposes.split_last() {
            Some((Purpose::Trailers, rest)) => (true, rest),
            _ => (false, purposes.as_slice()),
        };
        let fits = |strategy: &Strategy| {
            context_names(*strategy).iter().map(|(_, purpose)| purpose).eq(purposes)
        };
        let strategy = Strategy::ALL.into_iter().find(fits)?;
        Some(Self { strategy, trailers })
    }

    /// The names of all contexts, in the order of their numbers from 1.
    pub(super) fn names(self) -> Vec<&'static str> {
        let names = context_names(self.strategy).into_iter().map(|(name, _)| name);
        names.chain(self.trailers.then_some(TRAILERS)).collect()
    }

    /// What the context with a number carries in a message; None if it carries nothing there.
    pub(super) fn part(self, kind: Kind, context: u8) -> Option<Part> {
        let at = usize::from(context).checked_sub(1)?;
        let names = context_names(self.strategy);
        if at == names.len() && self.trailers {
            return Some(Part::Trailers);
        }
        match (names.get(at)?.1, kind) {
            (Purpose::Other, _) => Some(Part::Whole),
            (Purpose::RequestHead, Kind::Request) | (Purpose::ResponseHead, Kind::Response) => {
                Some(Part::Head)
            }
            (Purpose::RequestBody, Kind::Request) | (Purpose::ResponseBody, Kind::Response) => {
                Some(Part::Body)
            }
            (Purpose::Fields, _) => Some(Part::Fields(at - FOUR.len())),
            _ => None,
        }
    }

    /// The number of the context that carries a part; None if there is none.
    pub(super) fn context(self, kind: Kind, part: Part) -> Option<u8> {
        let count = u8::try_from(self.names().len()).unwrap_or(u8::MAX);
        (1..=count).find(|context| self.part(kind, *context) == Some(part))
    }

    /// Moves fields out of `fields` that have a context of their own: by index of [`FIELDS`].
    pub(super) fn split(self, fields: &mut HeaderMap) -> Vec<HeaderMap> {
        if self.strategy != Strategy::PerHeader {
            return Vec::new();
        }
        let mut parts = vec![HeaderMap::new(); FIELDS.len()];
        let mut rest = HeaderMap::new();
        for (name, value) in &*fields {
            let to = index_of(name).and_then(|at| parts.get_mut(at)).unwrap_or(&mut rest);
            to.append(name, value.clone());
        }
        *fields = rest;
        parts
    }
}

/// The index in [`FIELDS`] of the context for a field; None if that is the head's.
pub(super) fn index_of(name: &HeaderName) -> Option<usize> {
    FIELDS.iter().position(|(_, names)| names.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_become_rights() {
        let grants = ["request-head=r,response-head=rw", ""];
        let all = contexts(Strategy::Four, false, &grants).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].rights, [Right::Read, Right::None]);
        assert_eq!(all[1].rights, [Right::None, Right::None]);
        assert_eq!(all[2].rights, [Right::Write, Right::None]);
        assert_eq!(all[2].purpose, Purpose::ResponseHead);
        for wrong in ["request-head", "head=r", "request-head=w", "cookie=r"] {
            assert!(contexts(Strategy::Four, false, &[wrong]).is_err(), "{wrong}");
        }
        let all = contexts(Strategy::PerHeader, false, &["cookie=r,trailers=rw"]).unwrap();
        assert_eq!((all.len(), all[4].rights[0]), (4 + FIELDS.len() + 1, Right::Read));
        assert_eq!(contexts(Strategy::One, true, &["exchange=r"]).unwrap().len(), 2);
    }

    #[test]
    fn the_purposes_of_a_path_tell_its_layout() {
        for strategy in Strategy::ALL {
            for trailers in [false, true] {
                let layout = Layout { strategy, trailers };
                let path = Path {
                    kem: levada_contexts::Kem::X25519,
                    server: party(1),
                    hops: Vec::new(),
                    contexts: contexts(strategy, trailers, &[]).unwrap(),
                };
                assert_eq!(Layout::of(&path), Some(layout));
                let mut less = path.clone();
                less.contexts.remove(0);
                assert_eq!(Layout::of(&less), None);
                for context in 1..=u8::try_from(path.contexts.len()).unwrap() {
                    let parts = [Kind::Request, Kind::Response]
                        .map(|kind| layout.part(kind, context).map(|part| (kind, part)));
                    assert!(parts.iter().any(Option::is_some));
                    for (kind, part) in parts.into_iter().flatten() {
                        assert_eq!(layout.context(kind, part), Some(context));
                    }
                }
            }
        }
        assert!(Strategy::ALL.iter().all(|one| one.name().parse() == Ok(*one)));
    }

    fn party(byte: u8) -> levada_contexts::Party {
        let identity = levada_core::Identity::from_bytes([byte; 32]);
        levada_contexts::Party { identity, address: String::new() }
    }

    #[test]
    fn every_field_has_at_most_one_context() {
        let mut names: Vec<&str> =
            FIELDS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| HeaderName::from_static(name).as_str() == *name));
    }
}
