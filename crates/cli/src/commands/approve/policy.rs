//! The rules of `approve --policy FILE`.

mod rule;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use levada_capability::exchange::SessionRequest;
use levada_core::{Identity, UnixTime};
use levada_home::known::Known;
use serde::Deserialize;

use crate::failure::Failure;
use rule::{Rule, RuleText};

/// The longest file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Rules in order. The first that matches decides; if none does, the terminal is asked or the
/// question denied.
#[derive(Debug)]
pub struct Policy {
    ask: bool,
    rules: Vec<Rule>,
}

/// The result of evaluating a policy.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The question is allowed.
    Allow {
        /// When the right to start expires; `None` leaves it to the node.
        expires: Option<UnixTime>,
    },
    /// The question is denied.
    Deny,
    /// No rule matches.
    Ask,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    ask: bool,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
}

impl Policy {
    /// A policy without rules: every question is asked on the terminal.
    pub fn ask_always() -> Self {
        Self { ask: true, rules: Vec::new() }
    }

    /// Reads a file. Nicknames are resolved now, to the keys that are pinned under them.
    ///
    /// # Errors
    /// [`Failure`] 120 with the file, the line or rule, and what is wrong there.
    pub fn load(file: &Path, known: &Known) -> Result<Self, Failure> {
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(Failure::file("read the policy", file))?;
        if text.len() as u64 > MAX_FILE {
            // Not truncated: the end may deny what the beginning allows.
            let text = format!("{}: a policy has at most {MAX_FILE} bytes", file.display());
            return Err(Failure::local(text));
        }
        let identify = |name: &str| known.identity_of(name).map_err(|error| error.to_string());
        Self::parse(&text, identify)
            .map_err(|error| Failure::local(format!("{}: {error}", file.display())))
    }

    fn parse(
        text: &str,
        identify: impl Fn(&str) -> Result<Identity, String>,
    ) -> Result<Self, String> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            format!("line {}: {message}", before.matches('\n').count() + 1)
        })?;
        let rules = file.rules.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| {
            Rule::new(rule, &identify).map_err(|error| format!("rule {}: {error}", index + 1))
        });
        Ok(Self { ask: file.ask, rules: rules.collect::<Result<_, _>>()? })
    }

    /// Whether a question may be asked on the terminal.
    pub fn asks(&self) -> bool {
        self.ask
    }

    /// The verdict of the first rule that matches `request`.
    pub fn evaluate(
        &self,
        requester: &Identity,
        request: &SessionRequest,
        now: UnixTime,
    ) -> Verdict {
        for rule in &self.rules {
            if !rule.matches(requester, request) {
                continue;
            }
            let Some(terms) = &rule.terms else { return Verdict::Deny };
            if terms.allow(request, now) {
                let most = terms.expires.map(|most| now.after(most));
                return Verdict::Allow { expires: request.expires.or(most) };
            }
        }
        if self.ask { Verdict::Ask } else { Verdict::Deny }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::{Params, encode_list};

    const ALICE: Identity = Identity::from_bytes([1; 32]);
    const BOB: Identity = Identity::from_bytes([2; 32]);
    const WELL: Identity = Identity::from_bytes([3; 32]);
    const NOW: UnixTime = UnixTime(1000);

    fn identify(name: &str) -> Result<Identity, String> {
        match name {
            "alice" => Ok(ALICE),
            "well" => Ok(WELL),
            name => name.parse().map_err(|_| format!("`{name}` is unknown")),
        }
    }

    fn policy(text: &str) -> Policy {
        Policy::parse(text, identify).unwrap()
    }

    fn request(service: &str, args: Option<&[&str]>) -> SessionRequest {
        let mut params = Params::new();
        if let Some(args) = args {
            params.add(Params::ARGS, encode_list(args)).unwrap();
        }
        let node = WELL;
        let addresses = Vec::new();
        let service = service.to_owned();
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
    fn the_first_matching_rule_decides_and_the_default_is_deny() {
        let policy = policy(RULES);
        let evaluate = |requester: &Identity, request: &SessionRequest| {
            policy.evaluate(requester, request, NOW)
        };
        assert_eq!(evaluate(&ALICE, &request("exec", Some(&["uname", "-a"]))), AN_HOUR);
        for args in [&["uname"][..], &["uname", "-a", "-a"], &["uname", "-ab"], &["date", "-a"]] {
            assert_eq!(evaluate(&ALICE, &request("exec", Some(args))), Verdict::Deny, "{args:?}");
        }
        assert_eq!(evaluate(&ALICE, &request("exec", None)), Verdict::Deny);
        assert_eq!(evaluate(&ALICE, &request("clock", None)), YES);
        assert_eq!(evaluate(&BOB, &request("exec", None)), YES);
        assert_eq!(evaluate(&BOB, &request("exec", Some(&["uname"]))), Verdict::Deny);
        let elsewhere = SessionRequest { node: BOB, ..request("clock", None) };
        assert_eq!(evaluate(&BOB, &elsewhere), Verdict::Deny);
    }

    #[test]
    fn bounds_validity_and_uses() {
        let policy = policy(RULES);
        let asked = |expires, uses| {
            let request = request("exec", Some(&["uname", "-a"]));
            policy.evaluate(&ALICE, &SessionRequest { expires, uses, ..request }, NOW)
        };
        assert_eq!(asked(None, 3), AN_HOUR);
        assert_eq!(asked(None, 4), Verdict::Deny);
        let until = |time| Some(UnixTime(time));
        assert_eq!(asked(until(2000), 1), Verdict::Allow { expires: until(2000) });
        // Within the allowed difference of the clocks.
        assert_eq!(asked(until(4900), 1), Verdict::Allow { expires: until(4900) });
        assert_eq!(asked(until(4901), 1), Verdict::Deny);
        assert_eq!(asked(Some(UnixTime::NEVER), 1), Verdict::Deny);
    }

    #[test]
    fn every_parameter_needs_a_pattern_and_every_pattern_a_parameter() {
        let policy = policy(
            "[[rule]]\nrequesters = ['*']\nservices = ['*/*']\nparameters = { pty = '\\d+ \\d+' }",
        );
        let evaluate = |pairs: &[(&str, &[u8])]| {
            let mut request = request("exec", None);
            for (key, value) in pairs {
                request.params.add(key, value.to_vec()).unwrap();
            }
            policy.evaluate(&BOB, &request, NOW)
        };
        assert_eq!(evaluate(&[("pty", b"24 80")]), YES);
        assert_eq!(evaluate(&[]), Verdict::Deny);
        assert_eq!(evaluate(&[("pty", b"24 80\n")]), Verdict::Deny);
        assert_eq!(evaluate(&[("pty", b"24 \xff")]), Verdict::Deny);
        assert_eq!(evaluate(&[("env.A", b"24 80")]), Verdict::Deny);
        assert_eq!(evaluate(&[("pty", b"24 80"), ("env.A", b"1")]), Verdict::Deny);
        assert_eq!(evaluate(&[("pty", b"24 80"), ("args", b"")]), Verdict::Deny);
    }

    #[test]
    fn asks_if_no_rule_matches_and_the_policy_says_so() {
        let policy = policy(&format!("ask = true\n{RULES}"));
        assert!(policy.asks());
        let elsewhere = SessionRequest { node: BOB, ..request("clock", None) };
        assert_eq!(policy.evaluate(&BOB, &elsewhere, NOW), Verdict::Ask);
        assert_eq!(policy.evaluate(&ALICE, &request("exec", None), NOW), Verdict::Deny);
        assert!(Policy::ask_always().asks() && !super::Policy::parse("", identify).unwrap().asks());
    }

    #[test]
    fn errors_name_the_line_or_the_rule() {
        let wrong = |text: &str| Policy::parse(text, identify).unwrap_err();
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
        let one = |requester: &str, service: &str| {
            wrong(&format!("[[rule]]\nrequesters = [{requester}]\nservices = [{service}]"))
        };
        assert!(one("'carol'", "'*/*'").contains("`carol`"));
        assert!(one("'*'", "'nowhere/*'").contains("`nowhere`"));
        assert!(one("'*'", "'exec'").contains("`exec`"));
        assert!(one("", "'*/*'").contains("at least one"));
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = Policy::parse(text, identify);
            let _ = Policy::parse(&format!("[[rule]]\nrequesters = ['*']\n{text}"), identify);
        });
    }
}
