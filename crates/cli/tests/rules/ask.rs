//! Rules that ask an entity: its answers, its absence, and floods of questions.

use std::process::Child;

use crate::support::entity::{Approver, Person, begin, ended, take_ended};
use crate::support::{Home, Node, eventually};

use super::Scene;

/// Carol decides about `exec`, and may register; Alice and Bob have no other right.
const ASK: &str = "allow = [{ identity = 'CAROL', services = ['capability'] }]\n\
                   [[rule]]\nrequesters = ['ALICE', 'BOB']\nservices = ['exec']\nask = 'CAROL'\n";
const SERVICE: &str = "[[service]]\nname = 'capability'\ntype = 'capability'\n";
/// Carol permits `uname` to everyone.
const UNAME: &str =
    "[[rule]]\nrequesters = ['*']\nservices = ['well/exec']\nargs = ['uname', '-s']\nuses = 9\n";

impl Scene {
    fn up_asking(&self, rules: &str) -> Node<'_> {
        self.up(&format!("{rules}{SERVICE}"))
    }

    /// A policy of Carol.
    fn policy(&self, text: &str) -> String {
        let file = self.carol.path().join("policy.toml");
        let text = text.replace("BOB", &self.bob.identity());
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

fn starts(home: &Home, line: &str) -> Child {
    begin(home, line.split_whitespace())
}

#[test]
fn an_entity_decides_by_its_policy() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let _node = scene.up_asking(ASK);
    // Away.
    let name = carol.identity();
    alice.run("run well/exec -- uname -s").fails(122, &format!("asks {name} to approve"));
    let approver = Approver::start(carol, "well/capability", UNAME);
    assert_eq!(alice.run("run well/exec -- uname -s").ok(), "Linux");
    alice.run("run well/exec -- date -u").denied("has refused: no rule allows it");
    // A request that the service refuses leads to no question.
    let decided = approver.log().matches("Denied").count();
    alice.run("run well/exec -- rm -s").denied("rm");
    assert_eq!(approver.log().matches("Denied").count(), decided);
    // A session that was approved starts as often as its uses allow, without a further question.
    let capability = alice.run("request well/exec --uses 2 -- uname -s").ok();
    let asked = approver.log().matches("Allowed").count();
    for _ in 0..2 {
        assert_eq!(alice.args(["connect", &capability]).ok(), "Linux");
    }
    alice.args(["connect", &capability]).denied("used up");
    assert_eq!(approver.log().matches("Allowed").count(), asked);
    // The rule is for the starts of others, too: Bob is one of those that it names.
    let passed = alice.run("request well/exec -- uname -s").ok();
    let of_bob = alice.args(["grant", &passed, "--to", &bob.identity(), "--rights", "x"]).ok();
    assert_eq!(bob.args(["connect", &of_bob]).ok(), "Linux");
    let log = scene.well.run("sessions --log").ok();
    assert!(log.contains("approved by"), "{log}");
}

#[test]
fn a_session_that_was_not_approved_does_not_start() {
    let scene = Scene::new();
    let Scene { alice, carol, .. } = &scene;
    let allow = "allow = ['ALICE', { identity = 'CAROL', services = ['capability'] }]\n";
    let node = scene.up_asking(allow);
    let fixed = alice.run("request well/exec -- uname -s").ok();
    let open = alice.run("request well/exec --uses 3").ok();
    let rule = "[[rule]]\nrequesters = ['ALICE']\nservices = ['exec']\nargs = ['uname', '.*']\n\
                ask = 'CAROL'\n";
    scene.reload(&node, &format!("{allow}{rule}{SERVICE}"));
    let _approver = Approver::start(carol, "well/capability", UNAME);
    alice.args(["connect", &fixed]).denied("has not approved this session");
    let own = alice.identity();
    let narrow = |words: &[&str]| {
        let line = ["grant", &open, "--to", &own, "--rights", "x", "--"];
        alice.args([&line[..], words].concat()).ok()
    };
    alice.args(["connect", &narrow(&["uname", "-s"])]).denied("has not approved this session");
    // `allow` gives other arguments, which the rule does not describe.
    alice.args(["connect", &narrow(&["date", "-u"])]).ok();
    // A later link may set open arguments so that the rule applies: Carol is asked, and refuses.
    alice.run("request well/exec").denied("has refused");
    assert_eq!(alice.run("run well/exec -- uname -s").ok(), "Linux");
}

#[test]
fn a_person_sees_the_requester_and_a_question_ends_with_its_client() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, well } = &scene;
    let node = scene.up_asking(ASK);
    let person = Person::start(carol, "well/capability", &[]);
    let asked = starts(alice, "run well/exec -- uname -s");
    person.sees("Type `yes 1`");
    let screen = person.screen();
    let of_alice = alice.identity();
    for part in [of_alice.as_str(), r#"args = ["uname","-s"]"#, "a rule of that node"] {
        assert!(screen.contains(part), "`{part}` is not in: {screen}");
    }
    person.types("yes 1");
    assert_eq!(ended(asked).ok(), "Linux");
    let asked = starts(bob, "run well/exec -- uname -s");
    person.sees("Type `yes 2`");
    person.types("no");
    ended(asked).denied("has refused");

    // The question of a client that has gone is withdrawn, and nothing was granted.
    let sessions = || well.json("sessions")["sessions"].as_array().unwrap().len();
    let before = sessions();
    let mut asked = starts(bob, "request well/exec -- uname -s");
    person.sees("Type `yes 3`");
    asked.kill().unwrap();
    asked.wait().unwrap();
    person.sees("Question 3 was withdrawn");
    assert_eq!(sessions(), before);

    // The rule is removed while the entity decides. Bob keeps a right, so the connection stays.
    let asked = starts(bob, "request well/exec -- uname -s");
    person.sees("Type `yes 4`");
    let deny = ASK.replace("ask = 'CAROL'", "allow = false").replace("= [{", "= ['BOB', {");
    scene.reload(&node, &format!("{deny}{SERVICE}"));
    person.types("yes 4");
    ended(asked).denied("a rule of the node's owner denies");
    assert_eq!(sessions(), before);
    // The entity goes away while it is asked.
    scene.reload(&node, &format!("{ASK}{SERVICE}"));
    let asked = starts(bob, "request well/exec -- uname -s");
    person.sees("Type `yes 5`");
    person.kill();
    ended(asked).fails(122, "went away before it replied");
}

#[test]
fn a_session_that_an_entity_must_approve_is_requested_by_its_holder() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let _node =
        scene.up_asking(&format!("{ASK}[[rule]]\nrequesters = ['*']\nservices = ['exec']\n"));
    let _approver = Approver::start(carol, "well/capability", UNAME);
    let of_bob = bob.identity();
    let of_carol = carol.identity();
    // A rule asks about the requester, and about the holder only.
    alice.args(["request", "well/exec", "--for", &of_carol]).denied("must request itself");
    carol.args(["request", "well/exec", "--for", &of_bob]).denied("must request itself");
    alice.run("request well/exec -- uname -s").ok();
}

#[test]
fn an_approval_ends_with_a_block_of_its_entity_and_not_with_a_rotation() {
    let scene = Scene::new();
    let Scene { alice, carol, well, .. } = &scene;
    well.args(["peers", "add", "carol", &carol.identity()]).ok();
    let rules = ASK.replace("ask = 'CAROL'", "ask = 'carol'").replace("'CAROL'", "'carol'");
    let node = scene.up_asking(&rules);
    let approver = Approver::start(carol, "well/capability", UNAME);
    let capability = alice.run("request well/exec --uses 3 -- uname -s").ok();
    let start = || alice.args(["connect", &capability]);
    start().ok();
    drop(approver);
    carol.run("id rotate --yes").ok();
    // The node learns of the new key from the entity.
    let _approver = Approver::start(carol, "well/capability", UNAME);
    start().ok();
    scene.reload(&node, &format!("block = ['carol']\n{rules}{SERVICE}"));
    start().denied("has not approved this session");
}

#[test]
fn a_right_that_ends_earlier_does_not_stand_in_for_a_rule_that_has_changed() {
    let scene = Scene::new();
    let Scene { alice, carol, well, .. } = &scene;
    let group = "[[group]]\nname = 'staff'\nmembers = ['ALICE']\n";
    let node = scene.up_asking(&format!("{ASK}{group}"));
    let person = Person::start(carol, "well/capability", &[]);
    let asked = starts(alice, "request well/exec --expires 30d -- uname -s");
    person.sees("Type `yes 1`");
    well.run("access allow group:staff --service exec --expires 1h").ok();
    let allow = ASK.lines().next().unwrap();
    scene.reload(&node, &format!("{allow}\n{group}{SERVICE}"));
    person.types("yes 1");
    ended(asked).denied("the rules of the node have changed");
}

/// Any number of identities of one person have one share of the questions together.
#[test]
fn identities_that_no_list_names_share_the_questions_of_their_address() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let rules = ASK.replace("'ALICE', 'BOB'", "'*'");
    let open = "[[rule]]\nrequesters = ['*']\nservices = ['clock']\n";
    let node = scene.up_asking(&format!("{rules}{open}"));
    let dave = Home::new();
    dave.args(["peers", "add", "well", &node.at()]).ok();
    let person = Person::start(carol, "well/capability", &[]);
    // A session that they start does not name them.
    let all = [alice, bob, &dave];
    all.iter().for_each(|home| drop(home.run("run well/clock").ok()));
    let ask = |home: &&Home| starts(home, "request well/exec -- uname -s");
    let mut waiting: Vec<Child> = all.iter().cycle().take(12).map(ask).collect();
    person.sees("Type `yes 1`");
    for child in take_ended(&mut waiting, 4) {
        ended(child).fails(122, "too many questions from this address");
    }
    for mut child in waiting {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_flood_of_questions_hinders_no_other_requester() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let _node = scene.up_asking(ASK);
    let rule = "ask = true\n[[rule]]\nrequesters = ['BOB']\nservices = ['*/exec']\n\
                args = ['uname', '-s']\n";
    let policy = scene.policy(rule);
    let person = Person::start(carol, "well/capability", &["--policy", &policy]);
    // Each of these waits for Carol, who is asked on her terminal; four of one requester do.
    let mut flood: Vec<Child> =
        (0..8).map(|_| starts(alice, "request well/exec -- uname -s")).collect();
    person.sees("Type `yes 1`");
    for child in take_ended(&mut flood, 4) {
        ended(child).fails(122, "your limit of questions that wait for a reply");
    }
    // Bob's is decided by her policy at the same time.
    assert_eq!(bob.run("run well/exec -- uname -s").ok(), "Linux");
    for mut child in flood {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Then Alice has her four questions again. Carol's terminal may still show some of the flood.
    person.sees("Question 1 was withdrawn");
    let mut asked = starts(alice, "request well/exec -- uname -s");
    eventually("it is approved", || {
        let screen = person.screen();
        let shown = (2..9).rev().find(|number| screen.contains(&format!("Type `yes {number}`")));
        if let Some(number) = shown {
            person.types(&format!("yes {number}"));
        }
        asked.try_wait().unwrap().is_some()
    });
    ended(asked).ok();
}
