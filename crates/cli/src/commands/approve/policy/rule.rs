//! A rule of a policy: which questions it matches, and what it allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_capability::exchange::SessionRequest;
use levada_core::parse_duration;
use levada_core::{Identity, Params, UnixTime};
use levada_services::brokering::ServicePattern;
use regex_lite::Regex;
use serde::Deserialize;

/// By how much the clock of a requester may be ahead.
const SLACK: Duration = Duration::from_secs(300);
/// Matches every requester, or every node.
const ANY: &str = "*";

/// A rule, read from a policy's file.
#[derive(Debug)]
pub(super) struct Rule {
    /// Every requester if `None`.
    requesters: Option<BTreeSet<Identity>>,
    services: Vec<ServicePattern>,
    /// What the rule allows; `None` denies everything.
    pub(super) terms: Option<Terms>,
}

/// What a rule allows.
#[derive(Debug)]
pub(super) struct Terms {
    /// One pattern for each argument; `None` if no arguments may be set.
    args: Option<Vec<Regex>>,
    /// One pattern for each other parameter that is set.
    parameters: BTreeMap<String, Regex>,
    /// The longest validity.
    pub(super) expires: Option<Duration>,
    /// The maximum number of uses.
    uses: u32,
}

/// A rule as it is written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    requesters: Vec<String>,
    services: Vec<String>,
    #[serde(default = "yes")]
    allow: bool,
    args: Option<Vec<String>>,
    parameters: Option<BTreeMap<String, String>>,
    expires: Option<String>,
    uses: Option<u32>,
}

impl Rule {
    pub(super) fn new(
        text: RuleText,
        identify: &impl Fn(&str) -> Result<Identity, String>,
    ) -> Result<Self, String> {
        if text.requesters.is_empty() || text.services.is_empty() {
            return Err(
                "`requesters` and `services` need at least one entry each; `*` is any".into()
            );
        }
        let any = text.requesters.iter().any(|name| name == ANY);
        let requesters = text.requesters.iter().filter(|name| *name != ANY);
        let requesters = requesters.map(|name| identify(name)).collect::<Result<_, _>>()?;
        let services = text.services.iter().map(|text| read_service(text, identify));
        Ok(Self {
            requesters: (!any).then_some(requesters),
            services: services.collect::<Result<_, _>>()?,
            terms: Terms::new(&text)?,
        })
    }

    pub(super) fn matches(&self, requester: &Identity, request: &SessionRequest) -> bool {
        self.requesters.as_ref().is_none_or(|some| some.contains(requester))
            && self.services.iter().any(|service| service.matches(&request.node, &request.service))
    }
}

impl Terms {
    fn new(text: &RuleText) -> Result<Option<Self>, String> {
        if !text.allow {
            let limited = text.args.is_some() || text.parameters.is_some();
            if limited || text.expires.is_some() || text.uses.is_some() {
                let text = "a rule that does not allow has only `requesters` and `services`";
                return Err(text.into());
            }
            return Ok(None);
        }
        let args = text.args.as_ref();
        let args = args.map(|args| args.iter().map(|arg| pattern(arg)).collect());
        let parameters = text.parameters.iter().flatten();
        let parameters =
            parameters.map(|(key, value)| Ok::<_, String>((key.clone(), pattern(value)?)));
        let expires = text.expires.as_deref().map(parse_duration);
        let uses = text.uses.unwrap_or(1);
        if uses == 0 {
            return Err("`uses` is at least 1; `allow = false` denies".into());
        }
        Ok(Some(Self {
            args: args.transpose()?,
            parameters: parameters.collect::<Result<_, _>>()?,
            expires: expires.transpose().map_err(|error| format!("`expires`: {error}"))?,
            uses,
        }))
    }

    pub(super) fn allow(&self, request: &SessionRequest, now: UnixTime) -> bool {
        let lasts = |most: Duration| {
            request.expires.is_none_or(|asked| asked <= now.after(most).after(SLACK))
        };
        request.uses <= self.uses && self.expires.is_none_or(lasts) && self.fit(&request.params)
    }

    /// Whether each pattern matches its parameter, and each parameter has a pattern. The requester
    /// can still set a parameter that the question does not fix, so every pattern needs its
    /// parameter.
    fn fit(&self, params: &Params) -> bool {
        let Ok(args) = params.args() else { return false };
        let args_fit = match (&self.args, &args) {
            (None, None) => true,
            (Some(patterns), Some(args)) => {
                let mut pairs = patterns.iter().zip(args);
                patterns.len() == args.len() && pairs.all(|(one, arg)| one.is_match(arg))
            }
            _ => false,
        };
        let others = || params.iter().filter(|(key, _)| *key != Params::ARGS);
        let fits = |(key, value): (&str, &[u8])| {
            let text = std::str::from_utf8(value).ok();
            self.parameters.get(key).zip(text).is_some_and(|(one, text)| one.is_match(text))
        };
        args_fit && others().count() == self.parameters.len() && others().all(fits)
    }
}

/// NODE/SERVICE, where NODE is an identity, a nickname or `*`.
fn read_service(
    text: &str,
    identify: &impl Fn(&str) -> Result<Identity, String>,
) -> Result<ServicePattern, String> {
    let Some((node, service)) = text.rsplit_once('/') else {
        return Err(format!("`{text}` is not NODE/SERVICE, such as well/exec or */echo"));
    };
    let node = if node == ANY { None } else { Some(identify(node)?) };
    ServicePattern::new(node, service).map_err(|error| format!("`{text}`: {error}"))
}

/// A regular expression that a value must match from its first to its last character.
fn pattern(text: &str) -> Result<Regex, String> {
    let wrong = |error: regex_lite::Error| format!("the pattern `{text}`: {error}");
    // Without the group first: `a)|(b` would be a valid expression inside it, but not anchored.
    Regex::new(text).map_err(wrong)?;
    Regex::new(&format!(r"\A(?:{text})\z")).map_err(wrong)
}

fn yes() -> bool {
    true
}
