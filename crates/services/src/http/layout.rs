//! How messages are divided into contexts.

use levada_session::contexts::{Context, Purpose, Right};
use thiserror::Error;

/// How requests and responses are divided into contexts. Client and server know it by the purposes of the contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Head and body of each in contexts of their own.
    #[default]
    Four,
}

/// The contexts of a strategy by name, in the order of their numbers from 1.
pub fn context_names(strategy: Strategy) -> &'static [(&'static str, Purpose)] {
    match strategy {
        Strategy::Four => &[
            ("request-head", Purpose::RequestHead),
            ("request-body", Purpose::RequestBody),
            ("response-head", Purpose::ResponseHead),
            ("response-body", Purpose::ResponseBody),
        ],
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

/// The contexts of a strategy with the rights of each middlebox, given as `request-head=r,response-head=rw`. A context that is not named: no right.
///
/// # Errors
/// [`LayoutError`], with what cannot be read.
pub fn contexts(strategy: Strategy, grants: &[&str]) -> Result<Vec<Context>, LayoutError> {
    let names = context_names(strategy);
    let context = |(_, purpose): &(&str, Purpose)| Context {
        purpose: *purpose,
        pad: 0,
        rights: vec![Right::None; grants.len()],
    };
    let mut all: Vec<Context> = names.iter().map(context).collect();
    for (hop, grants) in grants.iter().enumerate() {
        for grant in grants.split(',').filter(|grant| !grant.is_empty()) {
            let form = || LayoutError::Form(grant.to_owned());
            let (name, right) = grant.split_once('=').ok_or_else(form)?;
            let at = names.iter().position(|(known, _)| *known == name);
            let at = at.ok_or_else(|| {
                let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                LayoutError::Context(name.to_owned(), known.join(", "))
            })?;
            all[at].rights[hop] = match right {
                "r" => Right::Read,
                "rw" => Right::Write,
                other => return Err(LayoutError::Right(other.to_owned())),
            };
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_become_rights() {
        let all = contexts(Strategy::Four, &["request-head=r,response-head=rw", ""]).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].rights, [Right::Read, Right::None]);
        assert_eq!(all[1].rights, [Right::None, Right::None]);
        assert_eq!(all[2].rights, [Right::Write, Right::None]);
        assert_eq!(all[2].purpose, Purpose::ResponseHead);
        for wrong in ["request-head", "head=r", "request-head=w"] {
            assert!(contexts(Strategy::Four, &[wrong]).is_err(), "{wrong}");
        }
    }
}
