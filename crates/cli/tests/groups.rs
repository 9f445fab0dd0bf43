//! Groups: of the configuration, of `levada group`, and of another node.

mod exchange;
mod files;

use serde_json::Value;

use crate::support::{Home, Node, eventually};

/// Writes the configuration of a home.
pub fn configure(home: &Home, text: &str) {
    std::fs::write(home.path().join("config.toml"), text).unwrap();
}

/// Reloads a node, and waits until it has read its configuration.
pub fn reload(node: &Node<'_>) {
    let count = || node.log().matches("policy read again").count();
    let before = count();
    node.signal("HUP");
    eventually("the configuration is read again", || count() > before);
}

/// The newest entries of the audit log.
pub fn log(home: &Home) -> Vec<Value> {
    home.json("sessions --log")["log"].as_array().unwrap().clone()
}

#[test]
fn members_of_a_group_have_its_rights_until_they_leave_it() {
    let [home, anna, bob] = [Home::new(), Home::new(), Home::new()];
    let write = |members: &str| {
        let text = format!(
            "allow = [{{ identity = 'group:family', services = ['clock'] }}]\n\
             [[group]]\nname = 'family'\nmembers = [{members}]\n\
             [[group]]\nname = 'others'\nmembers = ['{}']\n",
            bob.identity()
        );
        configure(&home, &text);
    };
    write(&format!("'{}', 'group:others'", anna.identity()));
    let node = home.up("--name well");
    let clock = format!("run {}/clock", node.at());
    anna.run(&clock).ok();
    bob.run(&clock).ok();
    bob.run(&format!("run {}/echo", node.at())).denied("may not request");
    let row = &home.json(&format!("access {}", bob.identity()))["access"][0];
    assert_eq!((&row["from"], &row["service"]), (&"group:family".into(), &"clock".into()));
    assert!(row["detail"].as_str().unwrap().ends_with("config.toml:1"), "{row}");
    let shown = home.run("access group:family").ok();
    assert!(shown.contains("group:family (") && shown.contains("config.toml:1"), "{shown}");

    let capability = bob.run(&format!("request {}/clock --uses 9", node.at())).ok();
    bob.args(["connect", &capability]).ok();
    write(&format!("'{}'", anna.identity()));
    reload(&node);
    anna.run(&clock).ok();
    bob.run(&clock).denied("may not request");
    // A session that the group has permitted is bound to it.
    bob.args(["connect", &capability])
        .denied("right by which this session was requested has ended");
    write("'group:others'");
    reload(&node);
    bob.args(["connect", &capability]).ok();
}

#[test]
fn a_cycle_and_a_deep_group_are_errors_and_the_old_file_stays() {
    let [home, anna] = [Home::new(), Home::new()];
    let first =
        format!("allow = ['group:a']\n[[group]]\nname = 'a'\nmembers = ['{}']\n", anna.identity());
    configure(&home, &first);
    let node = home.up("--name well");
    let clock = format!("run {}/clock", node.at());
    anna.run(&clock).ok();
    let groups = |number: usize, last: &str| {
        let group = |index: usize| {
            let next = format!("group:g{}", index + 1);
            let member = if index == number { last } else { &next };
            format!("[[group]]\nname = 'g{index}'\nmembers = ['{member}']\n")
        };
        (1..=number).map(group).collect::<String>()
    };
    for (text, message) in [
        (groups(2, "group:g1"), "config.toml:1: key `group[0]`: group:g1 → group:g2 → group:"),
        (groups(9, &anna.identity()), "more than 8 groups"),
        ("allow = ['group:none']\n".to_owned(), "config.toml:1: key `allow[0]`: no group has"),
        (groups(2, "group:g3"), "no group has the name `g3`"),
    ] {
        configure(&home, &text);
        node.signal("HUP");
        eventually("the file is refused", || node.log().contains(message));
        anna.run(&clock).ok();
        let checked = home.run("up --check");
        let is_known = message.contains("no group");
        // While the node runs, its own groups cannot be compared.
        assert_eq!(checked.code == 0, is_known, "{}", checked.stderr);
    }
    drop(node);
    home.run("up --check").fails(120, "no group has the name `g3`");
    home.run("up").fails(120, "no group has the name `g3`");
}

#[test]
fn the_owner_changes_groups_of_the_node_and_not_those_of_the_file() {
    let [home, anna, bob] = [Home::new(), Home::new(), Home::new()];
    let of_anna = anna.identity();
    configure(&home, &format!("[[group]]\nname = 'fixed'\nmembers = ['{of_anna}']\n"));
    let node = home.up("--name well --demo");
    home.args(["peers", "add", "bob", &bob.identity()]).ok();
    home.run("group add fixed bob").fails(2, "config.toml:1: change it there");
    home.run("group remove fixed").fails(2, "config.toml:1: change it there");
    home.run("group add family bob group:fixed").ok();
    home.run("group add fixed2 group:family").ok();
    home.run("group add family group:fixed2").fails(2, "a group must not contain itself");
    home.run("group add family group:nowhere").fails(2, "no group has the name `nowhere`");
    home.run("group add a/b bob").fails(2, "a name of 1 to 63");
    let clock = format!("run {}/clock", node.at());
    bob.run(&clock).denied("may not request");
    home.run("access allow group:nowhere").fails(1, "no group has the name `nowhere`");
    home.run("access allow group:family --uses 3").fails(2, "no number of uses");
    home.run("access allow group:family --service clock --expires 7d").ok();
    bob.run(&clock).ok();
    anna.run(&clock).ok();
    let row = &home.json("access bob")["access"][0];
    assert_eq!(row["from"], "group:family");
    assert!(row["until"].as_u64().unwrap() < u64::MAX / 2);
    let listed = home.json("group ls")["groups"].take();
    let of = |name: &str| {
        listed.as_array().unwrap().iter().find(|group| group["group"] == name).unwrap().clone()
    };
    assert!(of("fixed")["from"].as_str().unwrap().ends_with("config.toml:1"));
    assert_eq!((&of("family")["from"], &of("family")["identities"]), (&"node".into(), &2.into()));
    assert!(home.run("group ls").ok().contains("bob, group:fixed"));

    home.run("group remove family carol").fails(2, "carol");
    home.run("group remove family group:fixed").ok();
    anna.run(&clock).denied("may not request");
    home.run("group remove family group:fixed").fails(1, "is no member");
    home.run("group remove family").fails(2, "group:fixed2 refers to group:family");
    home.run("group remove fixed2").ok();
    home.run("access remove bob").fails(1, "group:family (levada access) still gives a right");
    home.run("access remove group:family --all").fails(2, "for one identity");
    home.run("access remove group:family").ok();
    bob.run(&clock).denied("may not request");
    home.run("access remove group:family").fails(1, "0 rights removed");
    home.run("access allow group:family").ok();
    home.run("group remove family").ok();
    bob.run(&clock).denied("may not request");
    // A group of this name that is added later has no rights.
    home.run("group add family bob").ok();
    bob.run(&clock).denied("may not request");
    drop(node);
    configure(&home, "[[group]]\nname = 'family'\nmembers = []\n");
    home.run("up").fails(120, "config.toml:1: key `group[0]`: the node keeps a group `family`");
}

#[test]
fn no_session_starts_after_the_removal_of_a_member_that_starts_them_in_a_loop() {
    let [home, anna] = [Home::new(), Home::new()];
    let node = home.up("--name well --demo");
    let identity = anna.identity();
    home.args(["group", "add", "family", &identity]).ok();
    home.run("access allow group:family --service exec").ok();
    let exec = format!("{}/exec", node.at());
    let capability = anna.args(["request", &exec, "--uses", "100000", "--", "uname"]).ok();
    let mut running = anna.spawn(&["run", &exec, "--", "cat"]);
    let starts = |log: &[Value]| {
        let starts = log.iter().filter(|entry| entry["operation"] == "connect");
        starts.filter_map(|entry| entry["id"].as_u64()).collect::<Vec<_>>()
    };
    eventually("the first session runs", || starts(&log(&home)).len() == 1);
    let request = ["run", exec.as_str(), "--", "uname"];
    let connect = ["connect", capability.as_str()];
    std::thread::scope(|scope| {
        // Each loop ends with the first refusal.
        let start = |words: &[&str]| while anna.args(words).code == 0 {};
        let loops = [scope.spawn(move || start(&request)), scope.spawn(move || start(&connect))];
        eventually("both loops run", || starts(&log(&home)).len() >= 5);
        let removed = home.args(["group", "remove", "family", &identity]);
        assert_eq!(removed.code, 0, "{}", removed.stderr);
        assert!(removed.stderr.contains("`levada revoke ID` ends one"), "{}", removed.stderr);
        for one in loops {
            one.join().unwrap();
        }
    });
    let log = home.json("sessions --log --limit 10000")["log"].as_array().unwrap().clone();
    let is_removal = |entry: &&Value| {
        entry["operation"] == "group" && entry["text"].as_str().unwrap().contains("removed")
    };
    let removal = log.iter().find(is_removal).unwrap()["id"].as_u64().unwrap();
    let later: Vec<u64> = starts(&log).into_iter().filter(|id| *id > removal).collect();
    assert!(later.is_empty(), "{later:?} {removal}");
    let requests = log.iter().filter(|entry| entry["operation"] == "request");
    assert!(requests.into_iter().all(|entry| entry["id"].as_u64().unwrap() < removal));
    // The running session goes on.
    assert_eq!(home.json("status")["running_sessions"], 1);
    home.args(["access", "remove", &identity, "--all"]).ok();
    assert_eq!(running.wait().unwrap().code(), Some(121));
}

#[test]
fn who_joins_a_blocked_group_is_disconnected() {
    let [home, anna] = [Home::new(), Home::new()];
    let identity = anna.identity();
    let text = "block = ['group:bad']\n[[group]]\nname = 'bad'\nmembers = []\n";
    configure(&home, text);
    let node = home.up(&format!("--name well --demo --allow {identity}"));
    home.run("group add added").ok();
    configure(&home, &text.replace("[]", "['group:added']"));
    reload(&node);
    let mut running = anna.spawn(&["run", &format!("{}/exec", node.at()), "--", "cat"]);
    eventually("the session runs", || home.json("status")["running_sessions"] == 1);
    home.args(["group", "add", "added", &identity]).ok();
    assert_eq!(running.wait().unwrap().code(), Some(121));
    anna.run(&format!("run {}/clock", node.at())).denied("blocked");
    home.args(["group", "remove", "added", &identity]).ok();
    anna.run(&format!("run {}/clock", node.at())).ok();
}
