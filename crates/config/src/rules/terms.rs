//! The parameters, expiry and uses that a rule is about.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::{Params, UnixTime, parse_duration};
use regex_lite::Regex;

use super::asked::Asked;
use crate::ConfigError;
use crate::reader::{Section, Value};

/// The tolerated difference of two clocks.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
/// Parameters that rules do not see: the node sets the framing, and the nonce selects no session.
const UNSEEN: [&str; 2] = [Params::FRAMING, Params::NONCE];

/// The sessions that a rule allows, or asks an entity about.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    patterns: Patterns,
    bounds: Bounds,
}

/// The patterns of parameters.
#[derive(Clone, Debug)]
struct Patterns {
    /// One for each argument; `None` without `args`.
    args: Option<Vec<Regex>>,
    /// One for each other parameter.
    parameters: BTreeMap<String, Regex>,
}

#[derive(Clone, Debug)]
struct Bounds {
    /// The longest validity.
    expires: Option<Duration>,
    /// The maximum number of uses; `None` for any number.
    uses: Option<u32>,
}

impl Terms {
    pub(super) fn read_allowing(section: &Section<'_>) -> Result<Self, ConfigError> {
        let mut bounds = Bounds::read(section)?;
        bounds.uses = bounds.uses.or(Some(1));
        Ok(Self { patterns: Patterns::read(section, "")?, bounds })
    }

    pub(super) fn read_asking(section: &Section<'_>) -> Result<Self, ConfigError> {
        // `.` also matches a newline: one in a value must not lead past the rule.
        let patterns = Patterns::read(section, "(?s)")?;
        Ok(Self { patterns, bounds: Bounds::read(section)? })
    }

    pub(super) fn have_no_patterns(&self) -> bool {
        self.patterns.args.is_none() && self.patterns.parameters.is_empty()
    }

    /// Returns true if each pattern matches its parameter, and each parameter has a pattern.
    pub(super) fn cover(&self, params: &Params) -> bool {
        self.patterns.cover(params)
    }

    /// Returns true unless a parameter is set to a value that its pattern does not match. A value
    /// that is not text counts as a match.
    pub(super) fn may_match(&self, params: &Params) -> bool {
        self.patterns.may_match(params)
    }

    /// The expiry of the session: the requested one, or else the longest; `None` if the request
    /// exceeds a bound.
    pub(super) fn permit(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Option<UnixTime>> {
        self.bounds.permit(asked, now)
    }
}

impl Bounds {
    fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let uses = section.value("uses").map(|value| {
            let number = value.number(1..=u32::MAX as usize)?;
            u32::try_from(number).map_err(|_| value.not("a whole number"))
        });
        let expires = section.value("expires").map(|value| {
            let text = value.text("a duration such as \"10m\", \"1h\" or \"7d\"")?;
            parse_duration(text).map_err(|error| value.wrong(error.to_string()))
        });
        Ok(Self { expires: expires.transpose()?, uses: uses.transpose()? })
    }

    fn permit(&self, asked: &Asked<'_>, now: UnixTime) -> Option<Option<UnixTime>> {
        let latest = self.expires.map(|longest| now.after(longest));
        let lasts = match (asked.expires, latest) {
            (Some(expires), Some(latest)) => expires <= latest.after(CLOCK_SKEW),
            _ => true,
        };
        let fits = lasts && self.uses.is_none_or(|most| asked.uses <= most);
        fits.then_some(asked.expires.or(latest))
    }
}

impl Patterns {
    fn read(section: &Section<'_>, flags: &str) -> Result<Self, ConfigError> {
        let args = section.value("args");
        let args = args.map(|value| value.each(|value| pattern(value, flags)));
        let parameters = section.value("parameters").map(|value| {
            let allowed = "a table such as { pty = '\\d+ \\d+' }";
            let values = value.section_or(allowed)?.values();
            let pair = |value: &Value<'_>| Ok((key(value)?, pattern(value, flags)?));
            values.iter().map(pair).collect::<Result<_, ConfigError>>()
        });
        Ok(Self {
            args: args.transpose()?,
            parameters: parameters.transpose()?.unwrap_or_default(),
        })
    }

    fn cover(&self, params: &Params) -> bool {
        let Ok(args) = params.args() else { return false };
        let args_fit = match (&self.args, &args) {
            (None, None) => true,
            (Some(patterns), Some(args)) => match_all(patterns, args),
            _ => false,
        };
        let fits = |(key, value): (&str, &[u8])| {
            let text = std::str::from_utf8(value).ok();
            self.parameters.get(key).zip(text).is_some_and(|(one, text)| one.is_match(text))
        };
        args_fit && others(params).count() == self.parameters.len() && others(params).all(fits)
    }

    fn may_match(&self, params: &Params) -> bool {
        let args_may = match (&self.args, params.args()) {
            (Some(patterns), Ok(Some(args))) => match_all(patterns, &args),
            _ => true,
        };
        let mut set = others(params).filter_map(|(key, value)| {
            Some((self.parameters.get(key)?, std::str::from_utf8(value).ok()?))
        });
        args_may && set.all(|(one, text)| one.is_match(text))
    }
}

fn match_all(patterns: &[Regex], args: &[String]) -> bool {
    patterns.len() == args.len() && patterns.iter().zip(args).all(|(one, arg)| one.is_match(arg))
}

/// The parameters other than `args` that rules see.
fn others(params: &Params) -> impl Iterator<Item = (&str, &[u8])> {
    params.iter().filter(|(key, _)| *key != Params::ARGS && !UNSEEN.contains(key))
}

/// The name of a parameter.
fn key(value: &Value<'_>) -> Result<String, ConfigError> {
    match value.name() {
        Params::ARGS => Err(value.wrong("arguments have a key of their own: `args` of the rule")),
        name if UNSEEN.contains(&name) => Err(value.wrong("rules do not see this parameter")),
        name => Ok(name.to_owned()),
    }
}

/// A regular expression that a value must match from its first to its last character.
fn pattern(value: &Value<'_>, flags: &str) -> Result<Regex, ConfigError> {
    let text = value.text("a regular expression")?;
    let wrong = |error: regex_lite::Error| value.wrong(format!("the pattern `{text}`: {error}"));
    // Without the group first: `a)|(b` would be a valid expression inside it, but not anchored.
    Regex::new(text).map_err(wrong)?;
    Regex::new(&format!(r"{flags}\A(?:{text})\z")).map_err(wrong)
}
