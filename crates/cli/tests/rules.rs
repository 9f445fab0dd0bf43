//! `[[rule]]` of `config.toml`: requests and starts at a real node; `access test`, `explain`.

mod ask;
mod check;
mod groups;
mod list;

use crate::support::{Home, Node, eventually};

/// A home with a node that has rules, and three clients that have pinned it.
struct Scene {
    well: Home,
    alice: Home,
    bob: Home,
    carol: Home,
}

impl Scene {
    fn new() -> Self {
        Self { well: Home::new(), alice: Home::new(), bob: Home::new(), carol: Home::new() }
    }

    /// Writes the configuration; `ALICE`, `BOB` and `CAROL` stand for identities.
    fn configure(&self, text: &str) {
        let text = text
            .replace("ALICE", &self.alice.identity())
            .replace("BOB", &self.bob.identity())
            .replace("CAROL", &self.carol.identity());
        std::fs::write(self.well.path().join("config.toml"), text).unwrap();
    }

    fn up(&self, text: &str) -> Node<'_> {
        self.configure(text);
        let node = self.well.up("--demo --name well");
        for home in [&self.alice, &self.bob, &self.carol] {
            home.args(["peers", "add", "well", &node.at()]).ok();
        }
        node
    }

    /// Lets the node read another configuration.
    fn reload(&self, node: &Node<'_>, text: &str) {
        let reloads = || node.log().matches("policy read again").count();
        let before = reloads();
        self.configure(text);
        node.signal("HUP");
        eventually("the rules are read again", || reloads() > before);
    }
}

/// Alice may run `uname` with one option.
const UNAME: &str = "[[rule]]\nrequesters = ['ALICE']\nservices = ['exec']\n\
                     args = ['uname', '-[sr]']\n";
/// Bob may not use `exec`.
const DENY_BOB: &str = "[[rule]]\nrequesters = ['BOB']\nservices = ['ex*']\nallow = false\n";

#[test]
fn the_first_rule_that_matches_decides_and_without_one_allow_does() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let deny = "[[rule]]\nrequesters = ['*']\nservices = ['echo']\nallow = false\n";
    let open = "[[rule]]\nrequesters = ['*']\nservices = ['clock']\nuses = 2\n";
    let _node = scene.up(&format!("allow = ['BOB']\n{UNAME}{DENY_BOB}{deny}{open}"));

    assert_eq!(alice.run("run well/exec -- uname -s").ok(), "Linux");
    // Other arguments, open arguments, more uses.
    for line in [
        "run well/exec -- uname -a",
        "run well/exec -- uname",
        "request well/exec",
        "request well/exec --uses 2 -- uname -s",
        "request well/exec --pty -- uname -s",
    ] {
        alice.run(line).denied("may not request `exec`");
    }
    // A rule that denies comes before `allow`, and one for everyone is for unknown identities, too.
    bob.run("run well/exec -- uname -s").denied("a rule of the node's owner denies");
    for home in [alice, bob, carol] {
        home.run("run well/echo").denied("a rule of the node's owner denies");
        home.run("run well/clock").ok();
    }
    carol.run("request well/clock --uses 3").denied("may not request `clock`");
    carol.run("run well/exec -- uname -s").denied("may not request `exec` here, only clock");
    // The owner.
    scene.well.run("run well/echo").ok();
}

#[test]
fn a_start_is_decided_by_the_rules_of_that_time() {
    let scene = Scene::new();
    let Scene { alice, bob, carol, .. } = &scene;
    let more = UNAME.replace("args", "uses = 9\nargs");
    let node = scene.up(&more);
    let own = alice.run("request well/exec --uses 9 -- uname -s").ok();
    let of_bob = alice.args(["grant", &own, "--to", &bob.identity(), "--rights", "xd"]).ok();
    let of_carol = bob.args(["grant", &of_bob, "--to", &carol.identity(), "--rights", "x"]).ok();
    let starts = [(alice, &own), (bob, &of_bob), (carol, &of_carol)];
    for (home, capability) in starts {
        assert_eq!(home.args(["connect", capability]).ok(), "Linux");
    }

    // A rule against Bob denies him and the holders after him.
    scene.reload(&node, &format!("{more}{DENY_BOB}"));
    alice.args(["connect", &own]).ok();
    bob.args(["connect", &of_bob]).denied("denies this session to its holder");
    carol.args(["connect", &of_carol]).denied("denies this session to its holder");

    // A rule against the requester.
    scene.reload(&node, &DENY_BOB.replace("BOB", "ALICE"));
    alice.args(["connect", &own]).denied("denies this session to its requester");
    bob.args(["connect", &of_bob]).denied("denies this session to its requester");

    // Without the rule that has given it, the session is given by nothing, until `allow` does.
    scene.reload(&node, "");
    bob.args(["connect", &of_bob]).denied("no rule permits it");
    scene.reload(&node, "allow = ['ALICE']\n");
    bob.args(["connect", &of_bob]).ok();
    // One that `allow` has given stays startable, as before.
    let given = alice.run("request well/exec --uses 2 -- uname -s").ok();
    scene.reload(&node, "");
    alice.args(["connect", &given]).ok();
    alice.args(["connect", &own]).denied("no rule permits it");
}

#[test]
fn parameters_that_were_open_at_the_request_do_not_lead_past_a_rule() {
    let scene = Scene::new();
    let Scene { alice, bob, .. } = &scene;
    // Without `parameters`, a terminal is not permitted.
    let node = scene.up(UNAME);
    let capability = alice.run("request well/exec -- uname -s").ok();
    let to_bob = ["--to", &bob.identity(), "--rights", "x"];
    let narrow = |words: &[&str], more: &[&str]| {
        alice.args([&["grant"], words, &to_bob[..], more].concat()).ok()
    };
    let with_terminal = narrow(&[&capability], &["--pty"]);
    bob.args(["connect", &with_terminal]).denied("no rule permits it with these parameters");
    assert_eq!(bob.args(["connect", &narrow(&[&capability], &[])]).ok(), "Linux");

    // `allow` gives a session whose arguments are open; a rule decides when they are set.
    let deny_uname = "[[rule]]\nrequesters = ['ALICE']\nservices = ['exec']\n\
                      args = ['date', '-u']\nuses = 9\n\
                      [[rule]]\nrequesters = ['ALICE']\nservices = ['exec']\nallow = false\n";
    scene.reload(&node, "allow = ['ALICE']\n");
    let open = alice.run("request well/exec --uses 9").ok();
    scene.reload(&node, &format!("allow = ['ALICE']\n{deny_uname}"));
    alice.run("request well/exec --uses 9").denied("a rule of the node's owner denies");
    let [date, uname] =
        [&["--", "date", "-u"], &["--", "uname", "-s"]].map(|words| narrow(&[&open], words));
    bob.args(["connect", &date]).ok();
    bob.args(["connect", &uname]).denied("denies this session to its requester");
}

#[test]
fn a_rotated_key_does_not_leave_a_rule_behind() {
    let scene = Scene::new();
    let node = scene.up(DENY_BOB);
    let code = node.invite("--name guest");
    scene.bob.args(["join", &code]).ok();
    scene.bob.run("run well/clock").ok();
    scene.bob.run("run well/exec -- uname -s").denied("a rule of the node's owner denies");
    scene.bob.run("id rotate --yes").ok();
    // The right of the invitation follows the key, and so does the rule.
    scene.bob.run("run well/clock").ok();
    scene.bob.run("run well/exec -- uname -s").denied("a rule of the node's owner denies");
}

#[test]
fn a_shell_must_be_named_and_the_own_identity_has_no_rules() {
    let scene = Scene::new();
    let all = "[[rule]]\nrequesters = ['ALICE']\nservices = ['*']\n";
    let node = scene.up(&format!("shell = true\n{all}"));
    scene.alice.run("request well/clock").ok();
    scene.alice.run("request well/shell").denied("may not request `shell`");
    let named = all.replace("'*'", "'shell'");
    scene.reload(&node, &format!("shell = true\n{named}"));
    let explain = || scene.well.args(["access", "explain", &scene.alice.identity(), "shell"]);
    assert!(explain().ok().starts_with("yes: "));
    let nothing = "[[rule]]\nrequesters = ['*']\nservices = ['*']\nallow = false\n";
    scene.reload(&node, nothing);
    scene.alice.run("request well/shell").denied("a rule of the node's owner denies");
    scene.well.run("run well/clock").ok();
    // Not for others, either.
    let bob = scene.bob.identity();
    scene.well.args(["request", "well/clock", "--for", &bob]).denied("a rule of the node's owner");
}

#[test]
fn a_wrong_rule_prevents_a_start_and_leaves_the_old_rules() {
    let scene = Scene::new();
    let node = scene.up(UNAME);
    scene.configure("[[rule]]\nrequesters = ['nemo']\nservices = ['exec']\n");
    node.signal("HUP");
    eventually("the error is logged", || node.log().contains("config.toml:2"));
    assert_eq!(scene.alice.run("run well/exec -- uname -s").ok(), "Linux");
    drop(node);
    let started = scene.well.run("up --check");
    started.fails(120, "config.toml:2: key `rule[0].requesters[0]`");
    scene.configure("[[rule]]\nrequesters = ['*']\nservices = ['exec']\nargs = ['(']\n");
    scene.well.run("up --check").fails(120, "config.toml:4: key `rule[0].args[0]`");
}
