//! `levada access` about rules, `levada group remove`, and notes about rules without an effect.

use serde_json::Value;

use super::Scene;
use crate::support::eventually;

/// The row of `access` about this service.
fn row<'a>(rows: &'a Value, service: &str) -> &'a Value {
    let mut rows = rows["access"].as_array().unwrap().iter();
    rows.find(|row| row["service"] == service).unwrap()
}

#[test]
fn a_row_of_a_pattern_counts_what_the_pattern_covers() {
    let scene = Scene::new();
    let rule = "[[rule]]\nrequesters = ['BOB']\nservices = ['cl*']\n\
                [[rule]]\nrequesters = ['BOB']\nservices = ['ec*']\n";
    let _node = scene.up(rule);
    let bob = scene.bob.identity();
    scene.bob.run("run well/clock").ok();
    let rows = scene.well.json(&format!("access {bob}"));
    assert!(row(&rows, "cl*")["last_used"].is_u64(), "{rows}");
    assert!(row(&rows, "ec*")["last_used"].is_null(), "{rows}");
    // Only the rule that gives the service is named.
    let remove = scene.well.args(["access", "remove", &bob, "--service", "clock"]);
    assert!(remove.stderr.contains("config.toml:1 still"), "{remove:?}");
    assert!(!remove.stderr.contains("config.toml:4"), "{remove:?}");
}

#[test]
fn a_right_that_a_rule_denies_is_marked() {
    let scene = Scene::new();
    let text = "allow = [{ identity = 'CAROL', services = ['clock'] }, 'ALICE']\n\
                [[rule]]\nrequesters = ['BOB']\nservices = ['clock']\n\
                [[rule]]\nrequesters = ['*']\nservices = ['clock']\nallow = false\n";
    let _node = scene.up(text);
    scene.carol.run("run well/clock").denied("a rule of the node's owner denies");
    let rows = |of: &str| scene.well.json(&format!("access {of}"));
    let [alice, bob, carol] = [&scene.alice, &scene.bob, &scene.carol].map(|home| home.identity());
    let is_place =
        |value: &Value| value.as_str().is_some_and(|text| text.ends_with("config.toml:5"));
    let of_carol = rows(&carol);
    assert!(is_place(&row(&of_carol, "clock")["denied_by"]), "{of_carol}");
    // Another rule gives it to Bob.
    let of_bob = rows(&bob);
    assert!(row(&of_bob, "clock")["denied_by"].is_null(), "{of_bob}");
    // Alice has a right to every service, of which one is denied.
    let of_alice = &rows(&alice)["access"][0];
    assert!(of_alice["denied_by"].is_null(), "{of_alice}");
    assert!(is_place(&of_alice["denied_services"]["clock"]), "{of_alice}");
    let everyone = &rows("")["rules_for_everyone"][0];
    assert_eq!((&everyone["service"], &everyone["effect"]), (&"clock".into(), &"deny".into()));
    let shown = scene.well.run("access --wide").ok();
    assert!(shown.contains(", denied by ") && shown.contains(", clock denied by "), "{shown}");
}

#[test]
fn remaining_sessions_are_listed_when_a_member_loses_the_right_of_a_rule() {
    let scene = Scene::new();
    let alice = scene.alice.identity();
    let node = scene.up("");
    scene.well.args(["group", "add", "family", &alice]).ok();
    let rule = "[[rule]]\nrequesters = ['group:family']\nservices = ['clock']\nuses = 9\n";
    scene.reload(&node, rule);
    scene.alice.run("request well/clock --uses 9").ok();
    let removed = scene.well.run(&format!("group remove family {alice}"));
    let note = removed.stderr.clone();
    removed.ok();
    assert!(note.contains(&alice) && note.contains("clock"), "{note}");
}

#[test]
fn a_rule_that_names_no_service_of_the_node_is_noted() {
    let scene = Scene::new();
    let alice = scene.alice.identity();
    let rule = |service: &str| {
        format!("[[rule]]\nrequesters = ['*']\nservices = ['{service}']\nallow = false\n")
    };
    scene.configure(&rule("ech"));
    let text = "config.toml:1: the rule names `ech`, which is no service of this node; did you \
                mean `echo`?";
    let checked = scene.well.run("up --check");
    assert!(checked.code == 0 && checked.stderr.contains(text), "{checked:?}");
    let doctor = scene.well.run("doctor --json");
    assert!(doctor.stdout.contains("the rule names `ech`"), "{doctor:?}");
    scene.configure(&rule("e*o"));
    let checked = scene.well.run("up --check");
    assert!(!checked.stderr.contains("the rule names"), "{checked:?}");

    let node = scene.up(&rule("ech"));
    eventually("the start logs it", || node.log().contains("the rule names `ech`"));
    scene.reload(&node, &rule(&format!("{alice}/echo")));
    let text = format!("the rule names `{alice}/echo`, which is another node");
    eventually("the reload logs it", || node.log().contains(&text));
}
