use std::path::Path;

use levada_core::{Identity, Params, UnixTime, encode_list};
use levada_home::known::Known;
use tempfile::TempDir;

use super::*;
use crate::{Config, GroupDefinition, Groups, Member};

const ALICE: Identity = Identity::from_bytes([1; 32]);
const BOB: Identity = Identity::from_bytes([2; 32]);
const WELL: Identity = Identity::from_bytes([3; 32]);
const EVE: Identity = Identity::from_bytes([4; 32]);
const NOW: UnixTime = UnixTime(1000);

/// Pins `alice`, `well` and `eve`.
fn known() -> (TempDir, Known) {
    let folder = tempfile::tempdir().unwrap();
    let known = Known::open(&folder.path().join("known.db")).unwrap();
    for (name, identity) in [("alice", ALICE), ("well", WELL), ("eve", EVE)] {
        known.pin(name, &identity, &[], UnixTime(1)).unwrap();
    }
    (folder, known)
}

fn try_policy(text: &str) -> Result<Rules, String> {
    let (_folder, known) = known();
    PolicyFile::parse(Path::new("rules.toml"), text)
        .and_then(|file| Rules::resolve(&file.rules, &known))
        .map_err(|error| error.to_string())
}

fn policy(text: &str) -> Rules {
    try_policy(text).unwrap()
}

fn try_config(text: &str) -> Result<Rules, String> {
    let (_folder, known) = known();
    Config::parse(Path::new("config.toml"), text)
        .and_then(|config| Rules::resolve(&config.rules, &known))
        .map_err(|error| error.to_string())
}

fn config(text: &str) -> Rules {
    try_config(text).unwrap()
}

fn params(args: Option<&[&str]>) -> Params {
    let mut params = Params::new();
    if let Some(args) = args {
        params.add(Params::ARGS, encode_list(args)).unwrap();
    }
    params
}

fn asked<'a>(identity: &'a Identity, service: &'a str, params: &'a Params) -> Asked<'a> {
    Asked { identity, node: &WELL, service, by_name: false, params, expires: None, uses: 1 }
}

fn verdict(rules: &Rules, asked: &Asked<'_>) -> Option<Verdict> {
    rules.evaluate(asked, NOW).map(|decision| decision.verdict)
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
const YES: Option<Verdict> = Some(Verdict::Allow { expires: None });
const NO: Option<Verdict> = Some(Verdict::Deny);
const AN_HOUR: Option<Verdict> = Some(Verdict::Allow { expires: Some(UnixTime(4600)) });
const ASK: Option<Verdict> = Some(Verdict::Ask { entity: EVE, expires: None });

#[test]
fn the_first_matching_rule_decides() {
    let rules = policy(RULES);
    let of =
        |identity, service: &str, args| verdict(&rules, &asked(identity, service, &params(args)));
    assert_eq!(of(&ALICE, "exec", Some(&["uname", "-a"])), AN_HOUR);
    for args in [&["uname"][..], &["uname", "-a", "-a"], &["uname", "-ab"], &["date", "-a"]] {
        assert_eq!(of(&ALICE, "exec", Some(args)), NO, "{args:?}");
    }
    assert_eq!(of(&ALICE, "exec", None), NO);
    assert_eq!(of(&ALICE, "clock", None), YES);
    assert_eq!(of(&BOB, "exec", None), YES);
    assert_eq!(of(&BOB, "exec", Some(&["uname"])), None);
    let none = params(None);
    let elsewhere = Asked { node: &BOB, ..asked(&BOB, "clock", &none) };
    assert_eq!(verdict(&rules, &elsewhere), None);
    let place = rules.evaluate(&asked(&BOB, "clock", &params(None)), NOW).unwrap().place;
    assert_eq!(&*place, "rules.toml:14");
}

#[test]
fn bounds_validity_and_uses() {
    let rules = policy(RULES);
    let params = params(Some(&["uname", "-a"]));
    let of =
        |expires, uses| verdict(&rules, &Asked { expires, uses, ..asked(&ALICE, "exec", &params) });
    assert_eq!(of(None, 3), AN_HOUR);
    assert_eq!(of(None, 4), NO);
    let until = |time| Some(UnixTime(time));
    assert_eq!(of(until(2000), 1), Some(Verdict::Allow { expires: until(2000) }));
    // Within the tolerated difference of the clocks.
    assert_eq!(of(until(4900), 1), Some(Verdict::Allow { expires: until(4900) }));
    assert_eq!(of(until(4901), 1), NO);
    assert_eq!(of(Some(UnixTime::NEVER), 1), NO);
}

#[test]
fn every_parameter_needs_a_pattern_and_every_pattern_a_parameter() {
    let rules = policy(
        "[[rule]]\nrequesters = ['*']\nservices = ['*/*']\nparameters = { pty = '\\d+ \\d+' }",
    );
    let of = |pairs: &[(&str, &[u8])]| {
        let mut params = params(None);
        for (key, value) in pairs {
            params.add(key, value.to_vec()).unwrap();
        }
        verdict(&rules, &asked(&BOB, "exec", &params))
    };
    assert_eq!(of(&[("pty", b"24 80")]), YES);
    // The node sets these two, and no service sees the second.
    assert_eq!(of(&[("pty", b"24 80"), ("framing", b"auto"), ("nonce", b"1")]), YES);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("pty", b"24 80\n")]), None);
    assert_eq!(of(&[("pty", b"24 \xff")]), None);
    assert_eq!(of(&[("env.A", b"24 80")]), None);
    assert_eq!(of(&[("pty", b"24 80"), ("env.A", b"1")]), None);
    assert_eq!(of(&[("pty", b"24 80"), ("args", b"")]), None);
}

#[test]
fn a_rule_that_asks_applies_to_whatever_may_match() {
    let rules = config(
        "[[rule]]\nrequesters = ['*']\nservices = ['exec']\nask = 'eve'\nargs = ['rm', '.*']\n\
         parameters = { pty = '1' }",
    );
    let of = |args: Option<&[&str]>, pairs: &[(&str, &[u8])]| {
        let mut params = params(args);
        for (key, value) in pairs {
            params.add(key, value.to_vec()).unwrap();
        }
        verdict(&rules, &asked(&BOB, "exec", &params))
    };
    assert_eq!(of(Some(&["rm", "a"]), &[("pty", b"1")]), ASK);
    // Parameters that are open, that no pattern is for, that are not text, and with a newline.
    assert_eq!(of(None, &[]), ASK);
    assert_eq!(of(Some(&["rm", "a"]), &[]), ASK);
    assert_eq!(of(Some(&["rm", "a"]), &[("env.A", b"1")]), ASK);
    assert_eq!(of(Some(&["rm", "a"]), &[("pty", b"\xff")]), ASK);
    assert_eq!(of(None, &[("args", b"\xff")]), ASK);
    assert_eq!(of(Some(&["rm", "a\nb"]), &[]), ASK);
    // Values that differ from their patterns.
    assert_eq!(of(Some(&["ls", "a"]), &[]), None);
    assert_eq!(of(Some(&["rm", "a"]), &[("pty", b"2")]), None);
}

#[test]
fn a_request_beyond_the_bounds_of_a_rule_that_asks_is_denied() {
    let rules = config(
        "[[rule]]\nrequesters = ['*']\nservices = ['exec']\nask = 'eve'\nexpires = '1h'\nuses = 2",
    );
    let params = params(None);
    let of =
        |expires, uses| verdict(&rules, &Asked { expires, uses, ..asked(&BOB, "exec", &params) });
    assert_eq!(of(None, 2), Some(Verdict::Ask { entity: EVE, expires: Some(UnixTime(4600)) }));
    assert_eq!(of(None, 3), NO);
    assert_eq!(of(Some(UnixTime::NEVER), 1), NO);
}

#[test]
fn a_pattern_with_a_star_gives_no_service_that_must_be_named() {
    let of = |rule: &str| {
        let rules = config(&format!("[[rule]]\nrequesters = ['*']\n{rule}"));
        let params = params(None);
        let asked = Asked { by_name: true, ..asked(&BOB, "shell", &params) };
        (
            verdict(&rules, &asked),
            rules.prospect(&BOB, &WELL, ("shell", true), NOW) == Prospect::Possible,
        )
    };
    assert_eq!(of("services = ['*']"), (None, false));
    assert_eq!(of("services = ['shell']"), (YES, true));
    assert_eq!(of("services = ['*']\nallow = false"), (NO, false));
    assert_eq!(of("services = ['*']\nask = 'eve'"), (NO, false));
    assert_eq!(of("services = ['shell']\nask = 'eve'"), (ASK, true));
}

#[test]
fn prospects_follow_the_order_of_the_rules() {
    let rules = config(
        "[[rule]]\nrequesters = ['alice']\nservices = ['well/exec']\nargs = ['date']\n\
         [[rule]]\nrequesters = ['*']\nservices = ['exec']\nallow = false\n\
         [[rule]]\nrequesters = ['*']\nservices = ['exec', 'echo']",
    );
    let of = |identity, service| rules.prospect(identity, &WELL, (service, false), NOW);
    assert_eq!(of(&ALICE, "exec"), Prospect::Possible);
    assert_eq!(of(&BOB, "exec"), Prospect::Denied("config.toml:5".into()));
    assert_eq!(of(&BOB, "echo"), Prospect::Possible);
    assert_eq!(of(&BOB, "clock"), Prospect::Unconcerned);
    assert!(rules.may_give_to(&ALICE, NOW) && !rules.may_give_to(&BOB, NOW));
    let shown =
        |right: RuleRight<'_>| (right.identity, right.services.service().to_owned(), right.effect);
    let named: Vec<_> = rules.rights(&WELL).map(shown).collect();
    assert_eq!(named, [(Some(ALICE), "exec".to_owned(), Effect::Allow)]);
    assert_eq!(rules.rights(&BOB).count(), 0, "the rule is about another node");
    let of = |identity| rules.rights_of(identity, &WELL).count();
    assert_eq!([of(ALICE), of(BOB)], [1, 0]);
    let unmatched = |node, names: &[&str]| {
        let all = rules.unmatched(node, names);
        all.map(|(place, services)| (place.to_string(), services.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(unmatched(&WELL, &["exec", "echo"]), []);
    assert_eq!(unmatched(&WELL, &["exec"]), [("config.toml:9".to_owned(), "*/echo".to_owned())]);
    let elsewhere = [("config.toml:1".to_owned(), format!("{WELL}/exec"))];
    assert_eq!(unmatched(&BOB, &["exec", "echo"]), elsewhere);
    let everyone: Vec<_> = rules.for_everyone(&WELL).map(shown).collect();
    let [deny, exec, echo] =
        [("exec", Effect::Deny), ("exec", Effect::Allow), ("echo", Effect::Allow)]
            .map(|(service, effect)| (None, service.to_owned(), effect));
    assert_eq!(everyone, [deny, exec, echo]);
}

#[test]
fn a_rotated_key_does_not_lead_past_a_rule() {
    let mut rules = config(
        "[[rule]]\nrequesters = ['alice']\nservices = ['exec']\nallow = false\n\
         [[rule]]\nrequesters = ['alice']\nservices = ['echo']\nask = 'eve'\n\
         [[rule]]\nrequesters = ['alice']\nservices = ['clock']",
    );
    rules.follow(&[(EVE, BOB), (ALICE, EVE)].into());
    let params = params(None);
    let of = |service| verdict(&rules, &asked(&BOB, service, &params));
    // A right is not passed on by a rotation, as one of `allow` is not.
    assert_eq!([of("exec"), of("echo"), of("clock")], [NO, ASK, None]);
}

#[test]
fn a_cycle_of_rotations_ends() {
    let mut rules = config("[[rule]]\nrequesters = ['alice']\nservices = ['exec']\nallow = false");
    rules.follow(&[(ALICE, EVE), (EVE, BOB), (BOB, ALICE)].into());
    let params = params(None);
    for identity in [ALICE, EVE, BOB] {
        assert_eq!(verdict(&rules, &asked(&identity, "exec", &params)), NO);
    }
}

#[test]
fn names_follow_the_rotations_of_their_keys() {
    let mut rules = config(
        "[[rule]]\nrequesters = ['alice']\nservices = ['echo']\n\
         [[rule]]\nrequesters = ['well']\nservices = ['exec']\nask = 'eve'",
    );
    rules.follow_names(|key| match key {
        ALICE => BOB,
        EVE => ALICE,
        key => key,
    });
    let params = params(None);
    let of = |identity, service| verdict(&rules, &asked(identity, service, &params));
    assert_eq!([of(&ALICE, "echo"), of(&BOB, "echo")], [None, YES]);
    assert_eq!(of(&WELL, "exec"), Some(Verdict::Ask { entity: ALICE, expires: None }));
    assert!(rules.name(&ALICE) && !rules.name(&EVE));
}

#[test]
fn a_rule_that_asks_about_every_session_is_the_last_one_for_its_requesters() {
    let rules = config(
        "[[rule]]\nrequesters = ['*']\nservices = ['*']\nask = 'eve'\n\
         [[rule]]\nrequesters = ['bob']\nservices = ['shell']"
            .replace("bob", &BOB.to_string())
            .as_str(),
    );
    let of = |service, by_name| rules.prospect(&BOB, &WELL, (service, by_name), NOW);
    assert_eq!(of("echo", false), Prospect::Possible);
    // A shell must be named.
    assert_eq!(of("shell", true), Prospect::Denied("config.toml:1".into()));
    let none = params(None);
    let shell = Asked { by_name: true, ..asked(&BOB, "shell", &none) };
    assert_eq!(verdict(&rules, &shell), NO);
}

fn group(name: &str, members: &[Identity], until: UnixTime) -> GroupDefinition {
    let members = members.iter().copied().map(Member::Identity).collect();
    GroupDefinition { name: name.to_owned(), members, until }
}

#[test]
fn a_rule_concerns_the_members_of_its_groups() {
    let rules = config(
        "[[rule]]\nrequesters = ['group:admins', 'bob']\nservices = ['exec']\n\
         [[rule]]\nrequesters = ['group:guests']\nservices = ['clock']\nask = 'eve'\n\
         [[rule]]\nrequesters = ['group:guests']\nservices = ['echo']\nallow = false"
            .replace("bob", &BOB.to_string())
            .as_str(),
    );
    let params = params(None);
    let of = |rules: &Rules, identity, service| verdict(rules, &asked(identity, service, &params));
    // Without members, the rule still concerns who is named.
    assert_eq!([of(&rules, &ALICE, "exec"), of(&rules, &BOB, "exec")], [None, YES]);
    let expand = |groups: &[GroupDefinition]| {
        rules.expanded(&Groups::expand(groups, false).unwrap()).map_err(|error| error.to_string())
    };
    let guests = group("guests", &[WELL], NOW);
    let mut some = expand(&[group("admins", &[ALICE], UnixTime(1001)), guests.clone()]).unwrap();
    assert_eq!([of(&some, &ALICE, "exec"), of(&some, &EVE, "exec")], [YES, None]);
    let named: Vec<_> = some.rights(&WELL).map(|right| (right.identity, right.group)).collect();
    let [admins, guest] = [(Some(ALICE), Some("admins")), (Some(WELL), Some("guests"))];
    assert_eq!(named, [(Some(BOB), None), admins, guest]);
    // A group that has expired gives no right, and leads past no rule.
    assert_eq!([of(&some, &WELL, "clock"), of(&some, &WELL, "echo")], [NO, NO]);
    assert!(some.may_give_to(&ALICE, NOW) && !some.may_give_to(&WELL, NOW));
    some.follow(&[(WELL, EVE)].into());
    assert_eq!([of(&some, &EVE, "clock"), of(&some, &EVE, "echo")], [NO, NO]);
    let none = expand(&[guests]).unwrap_err();
    assert!(none.starts_with("config.toml:2: key `rule[0].requesters[0]`: no group"), "{none}");
    let of_policy = try_policy("[[rule]]\nrequesters = ['group:admins']\nservices = ['*/*']");
    assert!(of_policy.unwrap_err().contains("requesters[0]"));
}

#[test]
fn errors_name_file_line_and_key() {
    let wrong = |text: &str| try_policy(text).unwrap_err();
    assert!(wrong("ask = 1").starts_with("rules.toml:1: key `ask`: "));
    let unknown = wrong("\n[[rule]]\ncolour = 1");
    assert!(unknown.starts_with("rules.toml:3: key `rule[0].colour`: it is unknown"), "{unknown}");
    let rule = |rest: &str| {
        wrong(&format!("{RULES}[[rule]]\nrequesters = ['*']\nservices = ['*/*']\n{rest}"))
    };
    let of_rule = |rest: &str, key: &str, message: &str| {
        let error = rule(rest);
        let start = format!("rules.toml:20: key `rule[3].{key}`: {message}");
        assert!(error.starts_with(&start), "{error}");
    };
    of_rule("args = ['(']", "args[0]", "the pattern `(`");
    of_rule("args = ['a)|(b']", "args[0]", "the pattern");
    of_rule("parameters = { args = 'a' }", "parameters.args", "arguments have a key");
    of_rule("expires = '1w'", "expires", "");
    of_rule("uses = 0", "uses", "it is 0; allowed is a whole number from 1");
    assert!(rule("allow = false\nuses = 2").contains("a rule that does not allow"));
    of_rule("ask = 'eve'", "ask", "it is unknown");
    let one = |requester: &str, service: &str| {
        wrong(&format!("[[rule]]\nrequesters = [{requester}]\nservices = [{service}]"))
    };
    assert!(one("'carol'", "'*/*'").contains("`carol`"));
    assert!(one("'*'", "'nowhere/*'").contains("nowhere"));
    assert!(one("'*'", "'exec'").contains("`exec` is not NODE/SERVICE"));
    assert!(one("", "'*/*'").contains("at least one"));
    assert!(one("'*'", "").contains("at least one"));
    let both = "[[rule]]\nrequesters = ['*']\nservices = ['exec']\nask = 'eve'\nallow = true";
    assert!(try_config(both).unwrap_err().starts_with("config.toml:5: key `rule[0].allow`: "));
    let away = "[[rule]]\nrequesters = ['*']\nservices = ['exec']\nask = 'mallory'";
    assert!(try_config(away).unwrap_err().starts_with("config.toml:4: key `rule[0].ask`: "));
}

#[test]
fn arbitrary_text_never_panics() {
    bolero::check!().with_type::<String>().for_each(|text| {
        let parse = |text: &str| {
            let _ = PolicyFile::parse(Path::new("rules.toml"), text);
        };
        parse(text);
        parse(&format!("[[rule]]\nrequesters = ['*']\n{text}"));
    });
}
