//! Rules about groups.

use super::Scene;

const FAMILY: &str = "[[group]]\nname = 'family'\nmembers = ['ALICE']\n";
const OF_FAMILY: &str = "[[rule]]\nrequesters = ['group:family']\nservices = ['exec']\n\
                         args = ['uname', '-s']\nuses = 9\n";
const DENY_GUESTS: &str = "[[rule]]\nrequesters = ['group:guests']\nservices = ['clock']\n\
                           allow = false\n";

#[test]
fn a_rule_of_a_group_is_for_its_members_of_that_time() {
    let scene = Scene::new();
    let Scene { alice, bob, .. } = &scene;
    let node = scene.up(&format!("{FAMILY}{OF_FAMILY}"));
    let session = "request well/exec --uses 9 -- uname -s";
    let of_alice = alice.run(session).ok();
    assert_eq!(alice.args(["connect", &of_alice]).ok(), "Linux");
    bob.run(session).denied("may not request `exec`");
    let shown = scene.well.run("access group:family").ok();
    assert!(shown.contains("group:family (rule, "), "{shown}");

    scene.reload(&node, &format!("{}{OF_FAMILY}", FAMILY.replace("ALICE", "BOB")));
    bob.run(session).ok();
    alice.run(session).denied("may not request `exec`");
    alice.args(["connect", &of_alice]).denied("no rule permits it");
}

#[test]
fn a_session_of_a_group_is_not_given_by_a_rule_for_other_parameters() {
    let scene = Scene::new();
    let alice = &scene.alice;
    let allow = "allow = [{ identity = 'group:family', services = ['exec'] }]\n";
    let rule = OF_FAMILY.replace("group:family", "ALICE");
    let node = scene.up(&format!("{allow}{FAMILY}{rule}"));
    let [by_group, by_rule] = ["-r", "-s"]
        .map(|option| alice.run(&format!("request well/exec --uses 9 -- uname {option}")).ok());
    scene.reload(&node, &format!("{allow}{}{rule}", FAMILY.replace("ALICE", "BOB")));
    assert_eq!(alice.args(["connect", &by_rule]).ok(), "Linux");
    alice
        .args(["connect", &by_group])
        .denied("right by which this session was requested has ended");
    // A group may stand in for a rule that has gone.
    scene.reload(&node, &format!("{allow}{FAMILY}"));
    assert_eq!(alice.args(["connect", &by_rule]).ok(), "Linux");
    alice.args(["connect", &by_group]).ok();
}

#[test]
fn rules_follow_the_groups_of_the_owner() {
    let scene = Scene::new();
    let Scene { well, bob, .. } = &scene;
    let of_bob = bob.identity();
    let node = scene.up("allow = ['BOB']\n");
    well.args(["group", "add", "guests", &of_bob]).ok();
    bob.run("run well/clock").ok();
    scene.reload(&node, &format!("allow = ['BOB']\n{DENY_GUESTS}"));
    bob.run("run well/clock").denied("a rule of the node's owner denies");
    // The rotation of a key does not lead out of the group.
    bob.run("id rotate --yes").ok();
    bob.run("run well/clock").denied("a rule of the node's owner denies");
    scene.reload(&node, &format!("allow = ['BOB']\n{DENY_GUESTS}"));
    bob.run("run well/clock").denied("a rule of the node's owner denies");
    well.args(["group", "remove", "guests"]).fails(2, "refers to group:guests");
    let file = well.path().join("rights.txt");
    std::fs::write(&file, format!("may not {} clock\n", bob.identity())).unwrap();
    let test = ["access", "test", file.to_str().unwrap()];
    let ran = well.args(test);
    assert!(ran.code == 1 && ran.stderr.contains("group:guests has no members here"), "{ran:?}");
    well.args(["group", "remove", "guests", &bob.identity()]).ok();
    bob.run("run well/clock").ok();
    well.args(["group", "add", "guests", &bob.identity()]).ok();
    drop(node);
    // Without a node, the groups of its database count.
    well.args(test).ok();
}

#[test]
fn a_rule_about_an_unknown_group_is_an_error() {
    let scene = Scene::new();
    scene.configure(DENY_GUESTS);
    let text = "config.toml:2: key `rule[0].requesters[0]`: no group has the name `guests`";
    scene.well.run("up").fails(120, text);
    let clock = scene.well.args(["access", "explain", &scene.bob.identity(), "clock"]);
    clock.fails(120, text);
}
