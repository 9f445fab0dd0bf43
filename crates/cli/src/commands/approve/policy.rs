//! The rules of `approve --policy FILE`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use levada_capability::exchange::SessionRequest;
use levada_core::{Identity, Params, UnixTime};
use levada_node::client::Client;
use levada_node::config::parse_duration;
use levada_services::brokering::ServicePattern;
use regex_lite::Regex;
use serde::Deserialize;

use crate::failure::Failure;

/// The longest file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// By how much the clock of a requester may be ahead of ours.
const SLACK: Duration = Duration::from_secs(300);
/// Stands for everybody, or for every node.
const ANY: &str = "*";

/// Rules in order. The first that matches decides; without one a person is asked, or the answer is no.
#[derive(Debug)]
pub struct Policy {
    ask: bool,
    rules: Vec<Rule>,
}

/// What a policy says to a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, until then.
    Allow {
        /// When the right to start shall end; `None` leaves it to the node.
        expires: Option<UnixTime>,
    },
    /// No.
    Deny,
    /// No rule says anything.
    Ask,
}

#[derive(Debug)]
struct Rule {
    /// Everybody if `None`.
    requesters: Option<BTreeSet<Identity>>,
    places: Vec<ServicePattern>,
    /// What is allowed; `None` denies everything.
    terms: Option<Terms>,
}

#[derive(Debug)]
struct Terms {
    /// One pattern for each argument; `None` if no arguments may be set.
    args: Option<Vec<Regex>>,
    /// One pattern for each parameter that is set beside the arguments.
    parameters: BTreeMap<String, Regex>,
    /// For how long at most.
    expires: Option<Duration>,
    /// How often at most.
    uses: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    ask: bool,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    requesters: Vec<String>,
    services: Vec<String>,
    #[serde(default = "yes")]
    allow: bool,
    args: Option<Vec<String>>,
    parameters: Option<BTreeMap<String, String>>,
    expires: Option<String>,
    uses: Option<u32>,
}

impl Policy {
    /// No rules: a person is asked.
    pub fn ask_always() -> Self {
        Self { ask: true, rules: Vec::new() }
    }

    /// Reads a file. Nicknames stand for the keys that are pinned to them now.
    ///
    /// # Errors
    /// [`Failure`] 120 names the file, the place in it and what is wrong there.
    pub fn load(file: &Path, client: &Client) -> Result<Self, Failure> {
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(Failure::file("read the policy", file))?;
        if text.len() as u64 > MAX_FILE {
            // Its end may forbid what its beginning allows.
            let text = format!("{}: a policy has at most {MAX_FILE} bytes", file.display());
            return Err(Failure::local(text));
        }
        let who = |name: &str| client.identity_of(name).map_err(|error| error.to_string());
        Self::parse(&text, who)
            .map_err(|error| Failure::local(format!("{}: {error}", file.display())))
    }

    fn parse(text: &str, who: impl Fn(&str) -> Result<Identity, String>) -> Result<Self, String> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            format!("line {}: {message}", before.matches('\n').count() + 1)
        })?;
        let rules = file.rules.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| {
            Rule::new(rule, &who).map_err(|error| format!("rule {}: {error}", index + 1))
        });
        Ok(Self { ask: file.ask, rules: rules.collect::<Result<_, _>>()? })
    }

    /// Whether a person may have to be asked.
    pub fn asks(&self) -> bool {
        self.ask
    }

    /// What the first rule that matches says to `wish`.
    pub fn judge(&self, requester: &Identity, wish: &SessionRequest, now: UnixTime) -> Verdict {
        for rule in &self.rules {
            if !rule.speaks_of(requester, wish) {
                continue;
            }
            let Some(terms) = &rule.terms else { return Verdict::Deny };
            if terms.allow(wish, now) {
                let most = terms.expires.map(|most| now.after(most));
                return Verdict::Allow { expires: wish.expires.or(most) };
            }
        }
        if self.ask { Verdict::Ask } else { Verdict::Deny }
    }
}

impl Rule {
    fn new(
        text: RuleText,
        who: &impl Fn(&str) -> Result<Identity, String>,
    ) -> Result<Self, String> {
        if text.requesters.is_empty() || text.services.is_empty() {
            return Err("`requesters` and `services` name at least one each; `*` is any".into());
        }
        let any = text.requesters.iter().any(|name| name == ANY);
        let requesters = text.requesters.iter().filter(|name| *name != ANY);
        let requesters = requesters.map(|name| who(name)).collect::<Result<_, _>>()?;
        let places = text.services.iter().map(|place| read_place(place, who));
        Ok(Self {
            requesters: (!any).then_some(requesters),
            places: places.collect::<Result<_, _>>()?,
            terms: Terms::new(&text)?,
        })
    }

    fn speaks_of(&self, requester: &Identity, wish: &SessionRequest) -> bool {
        self.requesters.as_ref().is_none_or(|some| some.contains(requester))
            && self.places.iter().any(|place| place.matches(&wish.node, &wish.service))
    }
}

impl Terms {
    fn new(text: &RuleText) -> Result<Option<Self>, String> {
        if !text.allow {
            let limited = text.args.is_some() || text.parameters.is_some();
            if limited || text.expires.is_some() || text.uses.is_some() {
                let why = "a rule that does not allow has `requesters` and `services` alone";
                return Err(why.into());
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
            return Err("`uses` is at least 1; `allow = false` refuses".into());
        }
        Ok(Some(Self {
            args: args.transpose()?,
            parameters: parameters.collect::<Result<_, _>>()?,
            expires: expires.transpose().map_err(|error| format!("`expires`: {error}"))?,
            uses,
        }))
    }

    fn allow(&self, wish: &SessionRequest, now: UnixTime) -> bool {
        let lasts =
            |most: Duration| wish.expires.is_none_or(|asked| asked <= now.after(most).after(SLACK));
        wish.uses <= self.uses && self.expires.is_none_or(lasts) && self.fit(&wish.params)
    }

    /// What a question leaves open, its requester may still set: so every pattern needs its parameter,
    /// and every parameter its pattern.
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
fn read_place(
    text: &str,
    who: &impl Fn(&str) -> Result<Identity, String>,
) -> Result<ServicePattern, String> {
    let Some((node, service)) = text.rsplit_once('/') else {
        return Err(format!("`{text}` is not NODE/SERVICE, such as well/exec or */echo"));
    };
    let node = if node == ANY { None } else { Some(who(node)?) };
    ServicePattern::new(node, service).map_err(|error| format!("`{text}`: {error}"))
}

/// A regular expression that a value must match from its first to its last character.
fn pattern(text: &str) -> Result<Regex, String> {
    let wrong = |error: regex_lite::Error| format!("the pattern `{text}`: {error}");
    // By itself first: `a)|(b` would be a valid expression in the group, and not anchored.
    Regex::new(text).map_err(wrong)?;
    Regex::new(&format!(r"\A(?:{text})\z")).map_err(wrong)
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::encode_list;

    const ALICE: Identity = Identity::from_bytes([1; 32]);
    const BOB: Identity = Identity::from_bytes([2; 32]);
    const WELL: Identity = Identity::from_bytes([3; 32]);
    const NOW: UnixTime = UnixTime(1000);

    fn who(name: &str) -> Result<Identity, String> {
        match name {
            "alice" => Ok(ALICE),
            "well" => Ok(WELL),
            name => name.parse().map_err(|_| format!("nobody is known as `{name}`")),
        }
    }

    fn policy(text: &str) -> Policy {
        Policy::parse(text, who).unwrap()
    }

    fn wish(service: &str, args: Option<&[&str]>) -> SessionRequest {
        let mut params = Params::new();
        if let Some(args) = args {
            params.add(Params::ARGS, encode_list(args)).unwrap();
        }
        let (node, addresses, service) = (WELL, Vec::new(), service.to_owned());
        SessionRequest { node, addresses, service, params, expires: None, uses: 1 }
    }

    const RULES: &str = r#"
        [[rule]]
        requesters = ["alice"]
        services = ["well/exec"]
        args = ["uname", "-[a-z]"]
        expires = "1h"
        uses = 3

        [[rule]]
        requesters = ["alice"]
        services = ["*/ex*"]
        allow = false

        [[rule]]
        requesters = ["*"]
        services = ["well/*"]
    "#;
    const YES: Verdict = Verdict::Allow { expires: None };
    const AN_HOUR: Verdict = Verdict::Allow { expires: Some(UnixTime(4600)) };

    #[test]
    fn the_first_rule_that_matches_decides_and_without_one_it_is_no() {
        let policy = policy(RULES);
        let judge = |who: &Identity, wish: &SessionRequest| policy.judge(who, wish, NOW);
        assert_eq!(judge(&ALICE, &wish("exec", Some(&["uname", "-a"]))), AN_HOUR);
        for args in [&["uname"][..], &["uname", "-a", "-a"], &["uname", "-ab"], &["date", "-a"]] {
            assert_eq!(judge(&ALICE, &wish("exec", Some(args))), Verdict::Deny, "{args:?}");
        }
        assert_eq!(judge(&ALICE, &wish("exec", None)), Verdict::Deny);
        assert_eq!(judge(&ALICE, &wish("clock", None)), YES);
        assert_eq!(judge(&BOB, &wish("exec", None)), YES);
        assert_eq!(judge(&BOB, &wish("exec", Some(&["uname"]))), Verdict::Deny);
        let elsewhere = SessionRequest { node: BOB, ..wish("clock", None) };
        assert_eq!(judge(&BOB, &elsewhere), Verdict::Deny);
    }

    #[test]
    fn time_and_uses_are_bounded() {
        let policy = policy(RULES);
        let asked = |expires, uses| {
            let wish = wish("exec", Some(&["uname", "-a"]));
            policy.judge(&ALICE, &SessionRequest { expires, uses, ..wish }, NOW)
        };
        assert_eq!(asked(None, 3), AN_HOUR);
        assert_eq!(asked(None, 4), Verdict::Deny);
        let until = |time| Some(UnixTime(time));
        assert_eq!(asked(until(2000), 1), Verdict::Allow { expires: until(2000) });
        // Clocks may differ a little.
        assert_eq!(asked(until(4900), 1), Verdict::Allow { expires: until(4900) });
        assert_eq!(asked(until(4901), 1), Verdict::Deny);
        assert_eq!(asked(Some(UnixTime::NEVER), 1), Verdict::Deny);
    }

    #[test]
    fn every_parameter_needs_a_pattern_and_every_pattern_a_parameter() {
        let policy = policy(
            "[[rule]]\nrequesters = ['*']\nservices = ['*/*']\nparameters = { pty = '\\d+ \\d+' }",
        );
        let judge = |pairs: &[(&str, &[u8])]| {
            let mut wish = wish("exec", None);
            for (key, value) in pairs {
                wish.params.add(key, value.to_vec()).unwrap();
            }
            policy.judge(&BOB, &wish, NOW)
        };
        assert_eq!(judge(&[("pty", b"24 80")]), YES);
        assert_eq!(judge(&[]), Verdict::Deny);
        assert_eq!(judge(&[("pty", b"24 80\n")]), Verdict::Deny);
        assert_eq!(judge(&[("pty", b"24 \xff")]), Verdict::Deny);
        assert_eq!(judge(&[("env.A", b"24 80")]), Verdict::Deny);
        assert_eq!(judge(&[("pty", b"24 80"), ("env.A", b"1")]), Verdict::Deny);
        assert_eq!(judge(&[("pty", b"24 80"), ("args", b"")]), Verdict::Deny);
    }

    #[test]
    fn where_no_rule_matches_a_person_may_be_asked() {
        let policy = policy(&format!("ask = true\n{RULES}"));
        assert!(policy.asks());
        let elsewhere = SessionRequest { node: BOB, ..wish("clock", None) };
        assert_eq!(policy.judge(&BOB, &elsewhere, NOW), Verdict::Ask);
        assert_eq!(policy.judge(&ALICE, &wish("exec", None), NOW), Verdict::Deny);
        assert!(Policy::ask_always().asks() && !super::Policy::parse("", who).unwrap().asks());
    }

    #[test]
    fn errors_name_their_place() {
        let wrong = |text: &str| Policy::parse(text, who).unwrap_err();
        assert!(wrong("ask = 1").starts_with("line 1: "));
        assert!(wrong("\n[[rule]]\ncolour = 1").starts_with("line 3: unknown field"));
        let rule = |rest: &str| {
            wrong(&format!("{RULES}[[rule]]\nrequesters = ['*']\nservices = ['*/*']\n{rest}"))
        };
        assert!(rule("args = ['(']").starts_with("rule 4: the pattern `(`"));
        assert!(rule("args = ['a)|(b']").starts_with("rule 4: "));
        assert!(rule("expires = '1w'").starts_with("rule 4: `expires`: "));
        assert!(rule("uses = 0").starts_with("rule 4: `uses` is at least 1"));
        assert!(rule("allow = false\nuses = 2").starts_with("rule 4: a rule that does not allow"));
        let one = |who: &str, place: &str| {
            wrong(&format!("[[rule]]\nrequesters = [{who}]\nservices = [{place}]"))
        };
        assert!(one("'carol'", "'*/*'").contains("`carol`"));
        assert!(one("'*'", "'nowhere/*'").contains("`nowhere`"));
        assert!(one("'*'", "'exec'").contains("`exec`"));
        assert!(one("", "'*/*'").contains("at least one"));
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = Policy::parse(text, who);
            let _ = Policy::parse(&format!("[[rule]]\nrequesters = ['*']\n{text}"), who);
        });
    }
}
