//! `levada access` about rules, `levada group remove`, and notes about rules without an effect.

use serde_json::Value;

use super::Scene;

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
