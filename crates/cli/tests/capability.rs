//! Requests to an entity for a capability, through the service `capability`: four identities, real
//! processes.

use std::process::Child;

use crate::support::entity::{Approver, Person, begin, ended};
use crate::support::{Home, Node, Ran, eventually};

/// Four homes: the hub with the service, the well with the program, the entity Eve, and the
/// requester Alice.
struct Homes {
    hub: Home,
    well: Home,
    eve: Home,
    alice: Home,
}

/// Both nodes, and their services as NODE/SERVICE.
struct Scene<'a> {
    homes: &'a Homes,
    hub: Node<'a>,
    well: Node<'a>,
    /// The service that relays questions.
    mediator: String,
    /// The requested service.
    exec: String,
    eve: String,
}

const SERVICE: &str = "name = 'capability'\ntype = 'capability'\n";
/// Any requester may run `uname -s`, once.
const UNAME: &str =
    "[[rule]]\nrequesters = ['*']\nservices = ['well/exec']\nargs = ['uname', '-s']\n";

impl Homes {
    fn new() -> Self {
        Self { hub: Home::new(), well: Home::new(), eve: Home::new(), alice: Home::new() }
    }

    /// Eve has pinned the well and may request there; Alice may not.
    fn scene(&self, service: &str) -> Scene<'_> {
        let well = self.well.up("--demo --name well");
        well.welcome(&self.eve, "well");
        let file = self.hub.path().join("capability.toml");
        std::fs::write(&file, service).unwrap();
        let eve = self.eve.identity();
        let alice = self.alice.identity();
        let allow = format!("--allow {eve} --allow {alice}");
        let hub = self.hub.up(&format!("--name hub --service {} {allow}", file.display()));
        let mediator = format!("{}/capability", hub.at());
        let exec = format!("{}/exec", well.at());
        Scene { homes: self, hub, well, mediator, exec, eve }
    }
}

impl Scene<'_> {
    fn words<'b>(&'b self, options: &[&'b str], params: &[&'b str]) -> Vec<&'b str> {
        let words = ["ask", &self.mediator, "--entity", &self.eve, "--service", &self.exec];
        [&words[..], options, &["--"], params].concat()
    }

    /// Runs `levada ask` as Alice.
    fn ask(&self, options: &[&str], params: &[&str]) -> Ran {
        self.homes.alice.args(self.words(options, params))
    }

    /// Starts `levada ask` as Alice.
    fn asks(&self, options: &[&str], params: &[&str]) -> Child {
        begin(&self.homes.alice, self.words(options, params))
    }
}

#[test]
fn a_capability_that_the_policy_allows_is_usable_by_its_requester_only() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let approver = Approver::start(&homes.eve, &scene.mediator, UNAME);
    let run = ["run", &scene.exec, "--", "uname", "-s"];
    homes.alice.args(run).denied("may not request");
    let capability = scene.ask(&[], &["uname", "-s"]).ok();
    assert!(capability.starts_with("lvcap1") && !capability.contains(['\n', ' ']), "{capability}");
    assert!(approver.log().contains("Allowed"), "{}", approver.log());
    // The mediator, the entity and an uninvolved identity cannot use it.
    for other in [&homes.hub, &homes.eve, &Home::new()] {
        other.args(["connect", &capability]).denied("bound to another identity");
        other.args(["terminate", &capability]).denied("bound to another identity");
    }
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    homes.alice.args(["connect", &capability]).denied("used up");
    // The requester may terminate it.
    let another = scene.ask(&[], &["uname", "-s"]).ok();
    homes.alice.args(["terminate", &another]).ok();
    homes.alice.args(["connect", &another]).denied("terminated");
    // The well records the requester and the holder.
    let sessions = homes.well.json("sessions");
    let session = &sessions["sessions"][0];
    assert_eq!(session["requester"], scene.eve);
    assert_eq!(session["holder"], homes.alice.identity());
}

#[test]
fn a_request_outside_the_policy_is_denied() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let approver = Approver::start(&homes.eve, &scene.mediator, UNAME);
    scene.ask(&[], &["uname", "-a"]).fails(1, "refused: no rule allows it");
    scene.ask(&["--uses", "2"], &["uname", "-s"]).fails(1, "refused");
    scene.ask(&[], &[]).fails(1, "refused");
    assert_eq!(approver.log().matches("Denied by the policy").count(), 3);
    assert_eq!(homes.well.json("sessions")["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn the_capability_has_the_requested_limits() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = UNAME.replace("args", "expires = '1h'\nuses = 5\nargs");
    let _approver = Approver::start(&homes.eve, &scene.mediator, &rules);
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
fn a_person_sees_the_question_and_decides() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
    let asked = scene.asks(&["--uses", "2"], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    let screen = person.screen();
    let alice = homes.alice.identity();
    let requester = format!("an identity without a name here ({alice})");
    let node = format!("well ({})", homes.well.identity());
    let uses = format!("{:11} 2", "uses");
    for part in [requester.as_str(), "exec", &node, r#"args = ["uname","-s"]"#, &uses] {
        assert!(screen.contains(part), "`{part}` is not in: {screen}");
    }
    person.types("yes 1");
    let capability = ended(asked).ok();
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    // Any other answer denies.
    for (number, word) in [(2, ""), (3, "y"), (4, "no")] {
        let asked = scene.asks(&[], &["uname", "-s"]);
        person.sees(&format!("Type `yes {number}`"));
        person.types(word);
        ended(asked).fails(1, "refused");
    }
}

#[test]
fn questions_are_shown_one_at_a_time() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
    let first = scene.asks(&[], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    let second = scene.asks(&[], &["date", "-u"]);
    // The service has relayed the second question when it runs two sessions of Alice's.
    eventually("both have asked", || homes.hub.json("status")["running_sessions"] == 3);
    assert!(!person.screen().contains("\"date\""));
    // This answers a question that is not shown.
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
fn a_policy_may_leave_other_requests_to_a_person() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = homes.eve.path().join("rules.toml");
    std::fs::write(&rules, format!("ask = true\n{UNAME}")).unwrap();
    let person = Person::start(&homes.eve, &scene.mediator, &["--policy", rules.to_str().unwrap()]);
    scene.ask(&[], &["uname", "-s"]).ok();
    assert!(!person.screen().contains("Question"));
    let asked = scene.asks(&[], &["date", "-u"]);
    person.sees("Type `yes 1`");
    person.types("yes 1");
    ended(asked).ok();
}

#[test]
fn an_unregistered_entity_is_unreachable() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    scene.ask(&[], &["uname", "-s"]).fails(122, "the entity is not registered here");
    let approver = Approver::start(&homes.eve, &scene.mediator, UNAME);
    scene.ask(&[], &["uname", "-s"]).ok();
    drop(approver);
    eventually("the registration has ended", || homes.hub.json("status")["running_sessions"] == 0);
    scene.ask(&[], &["uname", "-s"]).fails(122, "the entity is not registered here");
    // A name that Alice has not pinned, and a service of another type.
    let words = ["ask", &scene.mediator, "--entity", "carol", "--service", &scene.exec];
    homes.alice.args(words).fails(2, "no identity is known here as `carol`");
    let echo = format!("{}/echo", scene.hub.at());
    let words = ["ask", &echo, "--entity", &scene.eve, "--service", &scene.exec];
    homes.alice.args(words).denied("there is no parameter \"role\"");
}

#[test]
fn a_request_fails_when_the_entity_is_killed() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
    // Without the kill it would wait an hour.
    let asked = scene.asks(&["--wait", "1h"], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    person.kill();
    ended(asked).fails(122, "the entity went away before it replied");
}

#[test]
fn a_request_fails_when_the_service_is_killed() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
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
fn a_request_waits_no_longer_than_its_limit() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
    // The entity drops the question of a requester that has gone.
    let mut asked = scene.asks(&[], &["uname", "-s"]);
    person.sees("Type `yes 1`");
    asked.kill().unwrap();
    asked.wait().unwrap();
    person.sees("Question 1 was withdrawn");
    // This question may or may not be shown before it is withdrawn.
    scene.ask(&["--wait", "2s"], &["uname", "-s"]).fails(122, "did not reply within 2s");
    scene.ask(&["--wait", "2h"], &["uname", "-s"]).fails(2, "1h");
}

#[test]
fn an_entity_reports_why_an_allowed_request_failed() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let rules = "[[rule]]\nrequesters = ['*']\nservices = ['*/*']\nargs = ['.*', '.*']\n";
    let approver = Approver::start(&homes.eve, &scene.mediator, rules);
    scene.ask(&[], &["rm", "-rf"]).denied("allowed it, but its request failed");
    let nothing = format!("{}/nothing", scene.well.at());
    let ask = |place: &str| {
        let words = ["ask", &scene.mediator, "--entity", &scene.eve, "--service", place, "--"];
        homes.alice.args([&words[..], &["a", "b"]].concat())
    };
    ask(&nothing).fails(1, "offers no service");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ask(&format!("{}@{free}/exec", Home::new().identity())).fails(122, "was not reached");
    // The requested key decides, not the address: another node answers there.
    ask(&format!("{}@{}/exec", Home::new().identity(), scene.well.address()))
        .denied("its request failed");
    assert_eq!(approver.log().matches("the request failed").count(), 4);
}

#[test]
fn the_requester_need_not_reach_the_node_of_the_service() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    scene.well.welcome(&homes.alice, "well");
    let _approver = Approver::start(&homes.eve, &scene.mediator, UNAME);
    let Scene { hub, well, mediator, eve, .. } = scene;
    well.kill();
    let words = ["ask", &mediator, "--entity", &eve, "--service", "well/exec", "--", "uname", "-s"];
    // The entity reports the failure; the requester does not try the node itself.
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
    let _eve = Approver::start(&homes.eve, &scene.mediator, UNAME);
    let date = UNAME.replace("'uname', '-s'", "'date', '-u'");
    let _other = Approver::start(&other, "hub/capability", &date);
    let entity = other.identity();
    let asks = |entity: &str, params: &[&str]| {
        let words = ["ask", &scene.mediator, "--entity", entity, "--service", &scene.exec, "--"];
        begin(&homes.alice, [&words[..], params].concat())
    };
    let uname = ["uname", "-s"];
    let utc = ["date", "-u"];
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
fn a_second_registration_of_an_entity_replaces_the_first() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let older = Approver::start(&homes.eve, &scene.mediator, "");
    let same = homes.eve.copy();
    let _newer = Approver::start(&same, &scene.mediator, UNAME);
    scene.ask(&[], &["uname", "-s"]).ok();
    assert!(older.log().contains("Registered"));
    assert_eq!(older.wait(), 121);
}

#[test]
fn configured_limits_apply() {
    let homes = Homes::new();
    let scene = homes.scene(&format!("{SERVICE}questions_per_requester = 1\nentities = 1\n"));
    let person = Person::start(&homes.eve, &scene.mediator, &[]);
    let _asked = Killed(scene.asks(&[], &["uname", "-s"]));
    person.sees("Type `yes 1`");
    scene.ask(&[], &["uname", "-s"]).fails(122, "your limit of questions");
    let rules = homes.alice.path().join("rules.toml");
    std::fs::write(&rules, "").unwrap();
    let words = ["approve", "--at", &scene.mediator, "--policy", rules.to_str().unwrap()];
    homes.alice.args(words).fails(122, "limit of registered entities");
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_identity_without_the_right_can_neither_register_nor_ask() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    let outsider = Home::new();
    let words = ["ask", &scene.mediator, "--entity", &scene.eve, "--service", &scene.exec];
    outsider.args(words).denied("may not request");
    let rules = outsider.path().join("rules.toml");
    std::fs::write(&rules, "").unwrap();
    let words = ["approve", "--at", &scene.mediator, "--policy", rules.to_str().unwrap()];
    outsider.args(words).denied("may not request");
}

#[test]
fn approve_does_not_register_without_a_terminal_or_with_wrong_rules() {
    let homes = Homes::new();
    let scene = homes.scene(SERVICE);
    homes.eve.args(["approve", "--at", &scene.mediator]).fails(2, "no terminal");
    let rules = homes.eve.path().join("rules.toml");
    let approve = |text: &str| {
        std::fs::write(&rules, text).unwrap();
        homes.eve.args(["approve", "--at", &scene.mediator, "--policy", rules.to_str().unwrap()])
    };
    approve("ask = true").fails(2, "no terminal");
    approve("\n[[rule]]\nallow = 3").fails(120, "rules.toml:3: key `rule[0].allow`");
    approve("[[rule]]\nrequesters = ['zoe']\nservices = ['*/*']").fails(120, "`zoe`");
    homes.eve.run("approve --at x/y --policy /nowhere").fails(120, "/nowhere");
    scene.ask(&[], &["uname", "-s"]).fails(122, "not registered");
}
