//! `levada access test` and `levada access explain`.

use super::Scene;

const RULES: &str = "\
allow = [
  { identity = 'BOB', services = ['clock'] },
]
block = ['CAROL']
[[rule]]
requesters = ['ALICE']
services = ['exec']
args = ['uname', '-[a-z]']
parameters = { pty = '\\d+ \\d+' }

[[rule]]
requesters = ['ALICE']
services = ['exec']
ask = 'BOB'

[[rule]]
requesters = ['*']
services = ['echo']
allow = false

[[service]]
name = 'exec'
type = 'exec'
[[service.command]]
program = 'uname'
args = '.*'
";

#[test]
fn lines_are_checked_against_a_configuration_without_a_node() {
    let scene = Scene::new();
    scene.configure(RULES);
    let [alice, bob, carol] = [&scene.alice, &scene.bob, &scene.carol].map(|home| home.identity());
    let file = scene.well.path().join("rights.txt");
    let test = |text: &str| {
        let text = text.replace("ALICE", &alice).replace("BOB", &bob).replace("CAROL", &carol);
        std::fs::write(&file, text).unwrap();
        scene.well.args(["access", "test", file.to_str().unwrap()])
    };
    let right = "# the rights of this node\n\
                 may ALICE exec pty='24 80' -- uname -s\n\
                 asks ALICE exec -- uname -s\n\
                 asks ALICE exec\n\
                 may not ALICE echo\n\
                 may BOB clock\n\
                 \n\
                 may not BOB exec -- uname -s # no right\n\
                 may not CAROL clock\n";
    test(right).ok();
    let ran = test(&right.replace("may BOB clock", "may not BOB clock"));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
    let config = scene.well.path().join("config.toml");
    let place = format!("{}:6: `may not` fails", file.display());
    assert!(ran.stdout.starts_with(&place), "{ran:?}");
    assert!(ran.stdout.contains(&format!("{}:2: `allow`", config.display())), "{ran:?}");
    let ran = test("may ALICE exec\n");
    assert!(ran.stdout.contains("the answer is ask"), "{ran:?}");
    assert!(ran.stdout.contains(&format!("{}:11: the rule asks", config.display())), "{ran:?}");
    // Lines that cannot be read are no answer.
    test("may ALICE\n").fails(2, "rights.txt:1: expected");
    test("\nmay nemo exec\n").fails(2, "rights.txt:2: ");
    test("may BOB clocks\n").fails(1, "no service `clocks`");
    let other = ["--config", "/nowhere/config.toml"];
    let words = ["access", "test", file.to_str().unwrap()];
    scene.well.args([&words[..], &other].concat()).fails(120, "/nowhere/config.toml");
}

#[test]
fn what_decides_is_explained_with_its_place() {
    let scene = Scene::new();
    scene.configure(RULES);
    let config = scene.well.path().join("config.toml");
    let [alice, bob, carol] = [&scene.alice, &scene.bob, &scene.carol].map(|home| home.identity());
    let explain = |identity: &str, words: &[&str], code: i32, text: &str| {
        let ran = scene.well.args([&["access", "explain", identity], words].concat());
        assert_eq!(ran.code, code, "{ran:?}");
        let text = text.replace("CONFIG", &config.display().to_string());
        assert!(ran.stdout.starts_with(&text), "{text}: {ran:?}");
    };
    let by_configuration = || {
        let exec = ["exec", "--param", "pty=24 80", "--", "uname", "-s"];
        explain(&alice, &exec, 0, "yes: CONFIG:5: the rule allows it");
        let twice = ["exec", "--uses", "2", "--param", "pty=24 80", "--", "uname", "-s"];
        explain(&alice, &twice, 0, "ask: CONFIG:11: the rule asks lv");
        explain(&alice, &["exec"], 0, "ask: CONFIG:11: the rule asks lv");
        explain(&alice, &["echo"], 1, "no: CONFIG:16: the rule denies it");
        explain(&bob, &["clock"], 0, "yes: CONFIG:2: `allow`");
        explain(&bob, &["exec"], 1, "no: no rule matches, and no right permits it");
    };
    by_configuration();
    explain(&carol, &["clock"], 1, "no: CONFIG:4: `block`");
    // A running node answers with the rights of its store.
    let node = scene.well.up("--name well");
    by_configuration();
    explain(&carol, &["clock"], 1, "no: CONFIG:4: `block`");
    scene.well.args(["access", "allow", &bob, "--service", "exec", "--uses", "3"]).ok();
    explain(&bob, &["exec", "--uses", "3"], 0, "yes: a right of origin `owner` gives it");
    explain(&bob, &["exec", "--uses", "4"], 1, "no: ");
    explain(&scene.well.identity(), &["exec"], 0, "yes: it is the identity of the node");
    let ran = scene.well.args(["access", "explain", &bob, "clocks"]);
    ran.fails(1, "no service `clocks`");
    let json = scene.well.json(&format!("access explain {bob} clock"));
    assert_eq!((&json["answer"], &json["service"]), (&"yes".into(), &"clock".into()));
    // The list includes rights by rules.
    let rows = scene.well.json(&format!("access {alice}"))["access"].take();
    let from: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["from"].clone()).collect();
    assert_eq!(from, ["rule", "rule that asks"]);
    // Removing a right leaves the rights by rules.
    let place = format!("{}:5 still gives a right", config.display());
    scene.well.args(["access", "remove", &alice]).fails(1, &place);
    drop(node);
}

#[test]
fn explain_and_the_node_agree_about_rights_of_the_store() {
    let scene = Scene::new();
    let node = scene.up("");
    let alice = scene.alice.identity();
    let explain =
        |words: &[&str]| scene.well.args([&["access", "explain", &alice, "clock"], words].concat());
    // One that never ends and has one use, and one for every service that ends, for any number.
    let allow = ["access", "allow", &alice];
    scene.well.args([&allow[..], &["--service", "clock", "--uses", "1"]].concat()).ok();
    scene.alice.run("request well/clock --uses 2 --expires 1h").denied("may not request `clock`");
    explain(&["--uses", "2"]).fails(1, "");
    scene.well.args([&allow[..], &["--expires", "10m"]].concat()).ok();
    let explained = explain(&["--uses", "5", "--expires", "1h"]).ok();
    assert!(explained.contains("; the session expires with the right, at "), "{explained}");
    scene.alice.run("request well/clock --uses 5 --expires 1h").ok();
    // A right of the store is used instead of the one of a group that ends earlier.
    scene.well.args(["access", "remove", &alice]).ok();
    scene.well.args(["group", "add", "family", &alice]).ok();
    let family = ["access", "allow", "group:family", "--expires", "1h"];
    scene.well.args(family).ok();
    assert!(explain(&[]).ok().contains("to group:family"));
    scene.well.args([&allow[..], &["--expires", "2h"]].concat()).ok();
    assert!(explain(&[]).ok().contains("a right of origin `owner`"));
    drop(node);
}

#[test]
fn without_a_node_rotations_of_its_database_and_the_services_of_the_file_count() {
    let scene = Scene::new();
    let deny = "[[rule]]\nrequesters = ['BOB']\nservices = ['clock']\nallow = false\n";
    let open = "[[rule]]\nrequesters = ['*']\nservices = ['*']\n";
    let node = scene.up(&format!("catalogue = true\n{deny}{open}"));
    let code = node.invite("--name guest");
    scene.bob.args(["join", &code]).ok();
    scene.bob.run("run well/echo").ok();
    let old = scene.bob.identity();
    scene.bob.run("id rotate --yes").ok();
    scene.bob.run("run well/echo").ok();
    scene.bob.run("run well/clock").denied("a rule of the node's owner denies");
    drop(node);
    let new = scene.bob.identity();
    let file = scene.well.path().join("rights.txt");
    let test = |text: &str| {
        std::fs::write(&file, text).unwrap();
        scene.well.args(["access", "test", file.to_str().unwrap()])
    };
    test(&format!("may not {new} clock\nmay {new} echo\nmay not {old} echo\n")).ok();
    scene.well.args(["access", "explain", &old, "echo"]).fails(1, "");
    test(&format!("may {new} catalogue\n")).ok();
    // The rule for every service gives none that the node does not have.
    let ran = test(&format!("may {new} clok\n"));
    assert!(ran.code == 1 && ran.stdout.contains("has no such service"), "{ran:?}");
    test(&format!("may not {new} clok\n")).ok();
}
