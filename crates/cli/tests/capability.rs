//! Asking an entity for a capability through a service in the middle: four identities, real processes.

use std::process::{Child, Stdio};

use crate::support::entity::{Approver, Person};
use crate::support::{Home, Node, Ran, eventually};

/// Four homes: the service in the middle, the node with the program, who decides, and who asks.
struct Homes {
    hub: Home,
    well: Home,
    eve: Home,
    alice: Home,
}

/// Both nodes, with places as one types them.
struct Scene<'a> {
    homes: &'a Homes,
    hub: Node<'a>,
    well: Node<'a>,
    /// The service that carries questions.
    desk: String,
    /// The service that is asked for.
    exec: String,
    eve: String,
}

const SERVICE: &str = "name = 'capability'\ntype = 'capability'\n";
/// Everybody may have `uname -s`, once.
const UNAME: &str =
    "[[rule]]\nrequesters = ['*']\nservices = ['well/exec']\nargs = ['uname', '-s']\n";

impl Homes {
    fn new() -> Self {
        Self { hub: Home::new(), well: Home::new(), eve: Home::new(), alice: Home::new() }
    }

    /// Eve may request at the well, and knows it; Alice may not.
    fn scene(&self, service: &str) -> Scene<'_> {
        let well = self.well.up("--demo --name well");
        well.welcome(&self.eve, "well");
        let file = self.hub.path().join("capability.toml");
        std::fs::write(&file, service).unwrap();
        let (eve, alice) = (self.eve.identity(), self.alice.identity());
        let allow = format!("--allow {eve} --allow {alice}");
        let hub = self.hub.up(&format!("--name hub --service {} {allow}", file.display()));
        let (desk, exec) = (format!("{}/capability", hub.at()), format!("{}/exec", well.at()));
        Scene { homes: self, hub, well, desk, exec, eve }
    }
}

impl Scene<'_> {
    fn words<'b>(&'b self, options: &[&'b str], params: &[&'b str]) -> Vec<&'b str> {
        let words = ["ask", &self.desk, "--entity", &self.eve, "--service", &self.exec];
        [&words[..], options, &["--"], params].concat()
    }

    /// Alice asks, and waits.
    fn ask(&self, options: &[&str], params: &[&str]) -> Ran {
        self.homes.alice.args(self.words(options, params))
    }

    /// Alice asks, and goes on.
    fn asks(&self, options: &[&str], params: &[&str]) -> Child {
        let mut command = self.homes.alice.command(self.words(options, params));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

#[test]
fn what_the_policy_allows_is_asked_for_and_used_by_who_asked_alone() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let approver = Approver::start(&homes.eve, &scene.desk, UNAME);
    let run = ["run", &scene.exec, "--", "uname", "-s"];
    homes.alice.args(run).denied("may not request");
    let capability = scene.ask(&[], &["uname", "-s"]).ok();
    assert!(capability.starts_with("lvcap1") && !capability.contains(['\n', ' ']), "{capability}");
    assert!(approver.log().contains("Allowed"), "{}", approver.log());
    // The service in the middle, the entity itself, and a stranger cannot use it.
    for other in [&homes.hub, &homes.eve, &Home::new()] {
        other.args(["connect", &capability]).denied("bound to another identity");
        other.args(["terminate", &capability]).denied("bound to another identity");
    }
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    homes.alice.args(["connect", &capability]).denied("used up");
    // Who asked for it may end it.
    let another = scene.ask(&[], &["uname", "-s"]).ok();
    homes.alice.args(["terminate", &another]).ok();
    homes.alice.args(["connect", &another]).denied("terminated");
    // The well knows who asked it, and for whom.
    let sessions = homes.well.json("sessions");
    let session = &sessions["sessions"][0];
    assert_eq!(session["requester"], scene.eve);
    assert_eq!(session["holder"], homes.alice.identity());
}

#[test]
fn what_the_policy_does_not_allow_is_a_no() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let approver = Approver::start(&homes.eve, &scene.desk, UNAME);
    scene.ask(&[], &["uname", "-a"]).fails(1, "refused: no rule allows it");
    scene.ask(&["--uses", "2"], &["uname", "-s"]).fails(1, "refused");
    scene.ask(&[], &[]).fails(1, "refused");
    assert_eq!(approver.log().matches("Denied by the policy").count(), 3);
    assert_eq!(homes.well.json("sessions")["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn what_was_asked_for_is_what_is_given() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = UNAME.replace("args", "expires = '1h'\nuses = 5\nargs");
    let _approver = Approver::start(&homes.eve, &scene.desk, &rules);
    let capability = scene.ask(&["--uses", "3", "--expires", "10m"], &["uname", "-s"]).ok();
    let inspected = homes.alice.json(&format!("inspect {capability}"));
    assert_eq!(inspected["uses"], 3);
    assert_eq!(inspected["holder"], homes.alice.identity());
    assert_eq!(inspected["parameters"]["args"], serde_json::json!(["uname", "-s"]));
    assert_eq!(inspected["service"], "exec");
    for _ in 0..3 {
        assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    }
    homes.alice.args(["connect", &capability]).denied("used up");
    scene.ask(&["--expires", "2h"], &["uname", "-s"]).fails(1, "refused");
}

#[test]
fn a_person_sees_what_is_asked_and_decides() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    let asked = scene.asks(&["--uses", "2"], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    let screen = person.screen();
    let alice = homes.alice.identity();
    let who = format!("an identity without a name here ({alice})");
    let node = format!("well ({})", homes.well.identity());
    let uses = format!("{:11} 2", "uses");
    for part in [who.as_str(), "exec", &node, r#"args = ["uname","-s"]"#, &uses] {
        assert!(screen.contains(part), "`{part}` is not in: {screen}");
    }
    person.types("yes 1");
    let capability = ended(asked).ok();
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    // Anything else is a no.
    for (number, word) in [(2, ""), (3, "y"), (4, "no")] {
        let asked = scene.asks(&[], &["uname", "-s"]);
        person.sees(&format!("Type `yes {number}`"));
        person.types(word);
        ended(asked).fails(1, "refused");
    }
}

#[test]
fn questions_are_shown_one_at_a_time_and_the_others_wait() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    let first = scene.asks(&[], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    let second = scene.asks(&[], &["date", "-u"]);
    // The service has passed the second one on when it holds two sessions of Alice's.
    eventually("both have asked", || homes.hub.json("status")["running_sessions"] == 3);
    assert!(!person.screen().contains("\"date\""));
    // Not an answer to the one that is shown.
    person.types("yes 2");
    person.sees("another question");
    person.types("no");
    ended(first).fails(1, "refused");
    person.sees("\"date\"");
    person.sees("Type `yes 2`");
    person.types("yes 2");
    ended(second).ok();
}

#[test]
fn a_policy_may_leave_the_rest_to_a_person() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = homes.eve.path().join("rules.toml");
    std::fs::write(&rules, format!("ask = true\n{UNAME}")).unwrap();
    let person = Person::start(&homes.eve, &scene.desk, &["--policy", rules.to_str().unwrap()]);
    scene.ask(&[], &["uname", "-s"]).ok();
    assert!(!person.screen().contains("Question"));
    let asked = scene.asks(&[], &["date", "-u"]);
    person.sees("Type `yes 1`");
    person.types("yes 1");
    ended(asked).ok();
}

#[test]
fn an_entity_that_is_not_there_is_unreachable() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    scene.ask(&[], &["uname", "-s"]).fails(122, "the entity is not registered here");
    let approver = Approver::start(&homes.eve, &scene.desk, UNAME);
    scene.ask(&[], &["uname", "-s"]).ok();
    drop(approver);
    eventually("it is registered no more", || homes.hub.json("status")["running_sessions"] == 0);
    scene.ask(&[], &["uname", "-s"]).fails(122, "the entity is not registered here");
    // Somebody whom Alice does not know, and a service that is none.
    let words = ["ask", &scene.desk, "--entity", "nobody", "--service", &scene.exec];
    homes.alice.args(words).fails(2, "no identity is known here as `nobody`");
    let echo = format!("{}/echo", scene.hub.at());
    let words = ["ask", &echo, "--entity", &scene.eve, "--service", &scene.exec];
    homes.alice.args(words).denied("there is no parameter \"role\"");
}

#[test]
fn an_entity_that_is_killed_in_mid_request_leaves_nobody_waiting() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    // It would wait an hour.
    let asked = scene.asks(&["--wait", "1h"], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    person.kill();
    ended(asked).fails(122, "the entity went away before it replied");
}

#[test]
fn a_service_that_is_killed_in_mid_request_leaves_nobody_waiting() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    let asked = scene.asks(&["--wait", "1h"], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    let Scene { hub, well, .. } = scene;
    hub.kill();
    let ran = ended(asked);
    assert!([122, 123].contains(&ran.code), "{ran:?}");
    assert_eq!(ran.stdout, "");
    drop(well);
}

#[test]
fn a_slow_entity_is_not_waited_for_longer_than_said() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    // Who gives up is not waited for either.
    let mut asked = scene.asks(&[], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    asked.kill().unwrap();
    asked.wait().unwrap();
    person.sees("Question 1 was withdrawn");
    // Whether this one is shown before it is withdrawn, is a matter of time.
    scene.ask(&["--wait", "2s"], &["uname", "-s"]).fails(122, "did not reply within 2s");
    scene.ask(&["--wait", "2h"], &["uname", "-s"]).fails(2, "1h");
}

#[test]
fn an_entity_that_wanted_to_and_could_not_says_why() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = "[[rule]]\nrequesters = ['*']\nservices = ['*/*']\nargs = ['.*', '.*']\n";
    let approver = Approver::start(&homes.eve, &scene.desk, rules);
    scene.ask(&[], &["rm", "-rf"]).denied("allowed it, but its request failed");
    let nothing = format!("{}/nothing", scene.well.at());
    let ask = |place: &str| {
        let words = ["ask", &scene.desk, "--entity", &scene.eve, "--service", place, "--"];
        homes.alice.args([&words[..], &["a", "b"]].concat())
    };
    ask(&nothing).fails(1, "offers no service");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ask(&format!("{}@{free}/exec", Home::new().identity())).fails(122, "was not reached");
    // The key that is asked for counts, and not where it is said to be.
    ask(&format!("{}@{}/exec", Home::new().identity(), scene.well.address())).denied("could not");
    assert_eq!(approver.log().matches("it failed").count(), 4);
}

#[test]
fn the_node_of_the_service_need_not_be_in_reach_of_who_asks() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    scene.well.welcome(&homes.alice, "well");
    let _approver = Approver::start(&homes.eve, &scene.desk, UNAME);
    let Scene { hub, well, desk, eve, .. } = scene;
    well.kill();
    let words = ["ask", &desk, "--entity", &eve, "--service", "well/exec", "--", "uname", "-s"];
    // The entity says what became of it: she has not tried by herself.
    homes
        .alice
        .args(words)
        .fails(122, "allowed it, but its request failed: that node was not reached");
    drop(hub);
}

#[test]
fn several_entities_serve_several_requesters_at_once() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let other = Home::new();
    scene.well.welcome(&other, "well");
    scene.hub.welcome(&other, "hub");
    let _eve = Approver::start(&homes.eve, &scene.desk, UNAME);
    let date = UNAME.replace("'uname', '-s'", "'date', '-u'");
    let _other = Approver::start(&other, "hub/capability", &date);
    let entity = other.identity();
    let asks = |entity: &str, params: &[&str]| {
        let words = ["ask", &scene.desk, "--entity", entity, "--service", &scene.exec, "--"];
        let mut command = homes.alice.command([&words[..], params].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (uname, utc) = (["uname", "-s"], ["date", "-u"]);
    let asked = [
        (asks(&scene.eve, &uname), true),
        (asks(&entity, &utc), true),
        (asks(&scene.eve, &utc), false),
        (asks(&entity, &uname), false),
    ];
    for (child, allowed) in asked {
        let ran = ended(child);
        if allowed { drop(ran.ok()) } else { ran.fails(1, "refused") }
    }
}

#[test]
fn an_entity_that_registers_again_takes_the_place_of_its_older_self() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let older = Approver::start(&homes.eve, &scene.desk, "");
    let same = homes.eve.copy();
    let _newer = Approver::start(&same, &scene.desk, UNAME);
    scene.ask(&[], &["uname", "-s"]).ok();
    assert!(older.log().contains("Registered"));
    assert_eq!(older.wait(), 121);
}

#[test]
fn limits_are_those_of_the_configuration() {
    let homes = Homes::new();
    let scene = homes.scene(&format!("{SERVICE}questions_per_requester = 1\nentities = 1\n"));
    let person = Person::start(&homes.eve, &scene.desk, &[]);
    let _asked = Killed(scene.asks(&[], &["uname", "-s"]));
    person.sees("Type `yes 1`");
    scene.ask(&[], &["uname", "-s"]).fails(122, "as many questions of yours");
    let rules = homes.alice.path().join("rules.toml");
    std::fs::write(&rules, "").unwrap();
    let words = ["approve", "--at", &scene.desk, "--policy", rules.to_str().unwrap()];
    homes.alice.args(words).fails(122, "as many entities");
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_may_not_use_the_service_can_neither_register_nor_ask() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let stranger = Home::new();
    let words = ["ask", &scene.desk, "--entity", &scene.eve, "--service", &scene.exec];
    stranger.args(words).denied("may not request");
    let rules = stranger.path().join("rules.toml");
    std::fs::write(&rules, "").unwrap();
    let words = ["approve", "--at", &scene.desk, "--policy", rules.to_str().unwrap()];
    stranger.args(words).denied("may not request");
}

#[test]
fn without_a_terminal_or_with_wrong_rules_nobody_is_registered() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    homes.eve.args(["approve", "--at", &scene.desk]).fails(2, "no terminal");
    let rules = homes.eve.path().join("rules.toml");
    let approve = |text: &str| {
        std::fs::write(&rules, text).unwrap();
        homes.eve.args(["approve", "--at", &scene.desk, "--policy", rules.to_str().unwrap()])
    };
    approve("ask = true").fails(2, "no terminal");
    approve("\n[[rule]]\nallow = 3").fails(120, "rules.toml: line 3");
    approve("[[rule]]\nrequesters = ['zoe']\nservices = ['*/*']").fails(120, "`zoe`");
    homes.eve.run("approve --at x/y --policy /nowhere").fails(120, "/nowhere");
    scene.ask(&[], &["uname", "-s"]).fails(122, "not registered");
}
