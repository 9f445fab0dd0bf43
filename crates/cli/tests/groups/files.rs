//! Signed sets of groups from files: what a node takes, and what it refuses.

use std::path::PathBuf;

use levada_core::{Clock, GroupSet, Identity, SecretKey, SystemClock, SystemRandom, UnixTime};

use super::{configure, log};
use crate::support::{Home, eventually};

const DAY: u64 = 24 * 60 * 60;

fn key() -> SecretKey {
    SecretKey::generate(&SystemRandom).unwrap()
}

/// A set whose group `staff` has these members, and that is valid for a week.
fn set(version: u64, staff: &[&Home]) -> GroupSet {
    let now = SystemClock.now();
    let members = staff.iter().map(|home| (home.identity().parse().unwrap(), None)).collect();
    GroupSet {
        set: "default".into(),
        version,
        time: now,
        expires: UnixTime(now.0 + 7 * DAY),
        groups: [("staff".to_owned(), members)].into(),
    }
}

fn file(home: &Home, text: &str) -> PathBuf {
    let file = home.path().join("set.groups");
    std::fs::write(&file, text).unwrap();
    file
}

fn import(home: &Home, text: &str) -> crate::support::Ran {
    let file = file(home, text);
    home.args(["group", "import", file.to_str().unwrap()])
}

#[test]
fn old_changed_foreign_and_oversized_sets_are_refused_and_shown() {
    let [admin, thief] = [key(), key()];
    let [home, anna, bob] = [Home::new(), Home::new(), Home::new()];
    let text = format!("allow = ['group:staff']\n[groups]\nfrom = '{}'\n", admin.identity());
    configure(&home, &text);
    let node = home.up("--name well");
    let clock = format!("run {}/clock", node.at());
    anna.run(&clock).denied("may not request");
    let sign = |set: GroupSet| set.sign(&admin).unwrap();
    let fifth = sign(set(5, &[&anna]));
    import(&home, &fifth).ok();
    anna.run(&clock).ok();
    let again = import(&home, &fifth);
    assert!(again.code == 0 && again.stderr.contains("in effect already"), "{}", again.stderr);
    let capability = anna.run(&format!("request {}/clock --uses 3", node.at())).ok();

    let both = [&anna, &bob];
    let valid = sign(set(6, &both));
    let member = bob.identity();
    let future = UnixTime(SystemClock.now().0 + DAY);
    let many = "x".repeat(GroupSet::MAX_BYTES + 1);
    let attacks = [
        (sign(set(4, &both)), "it is version 4, and version 5 was taken before"),
        (sign(set(5, &both)), "another set of version 5 was taken before"),
        (set(6, &both).sign(&thief).unwrap(), "has signed it"),
        (valid.replace("version 6", "version 7"), "does not verify"),
        (valid.replace(&member, &thief.identity().to_string()), "was changed"),
        (valid.replace(&member, "group:staff"), "malformed"),
        (valid[..valid.len() - 9].to_owned(), "not a group set"),
        (sign(GroupSet { set: "other".into(), ..set(6, &both) }), "it is the set `other`"),
        (sign(GroupSet { time: future, ..set(6, &both) }), "signed in the future"),
        (many, "at most 163840 bytes"),
    ];
    let refused = |home: &Home| {
        let log = log(home);
        log.iter().filter(|entry| entry["outcome"] == "refused").count()
    };
    for (number, (text, message)) in attacks.iter().enumerate() {
        import(&home, text).fails(1, message);
        assert_eq!(refused(&home), number + 1, "{message}");
        let doctor = home.run("doctor");
        assert!(doctor.code == 1 && doctor.stdout.contains(message), "{}", doctor.stdout);
        bob.run(&clock).denied("may not request");
    }
    anna.run(&clock).ok();
    // The version is remembered by the next run, and by one with another source in between.
    drop(node);
    let node = home.up("--name well");
    import(&home, &attacks[0].0).fails(1, "version 5 was taken before");
    let clock = format!("run {}/clock", node.at());
    anna.run(&clock).ok();
    configure(&home, "");
    super::reload(&node);
    import(&home, &attacks[0].0).fails(2, "takes over no groups");
    configure(&home, &text);
    super::reload(&node);
    import(&home, &attacks[0].0).fails(1, "version 5 was taken before");
    anna.run(&clock).ok();

    import(&home, &sign(set(6, &[&bob]))).ok();
    bob.run(&clock).ok();
    anna.run(&clock).denied("may not request");
    anna.args(["connect", &capability]).denied("has ended");
    assert_eq!(home.json("status")["groups"]["version"], 6);
}

#[test]
fn after_the_expiry_nothing_starts_and_what_runs_goes_on() {
    let admin = key();
    let [home, anna, bob] = [Home::new(), Home::new(), Home::new()];
    let text = format!(
        "allow = ['group:staff', '{}']\nblock = ['group:bad']\n[groups]\nfrom = '{}'\n",
        bob.identity(),
        admin.identity()
    );
    configure(&home, &text);
    let node = home.up("--name well --demo");
    let of_bob: Identity = bob.identity().parse().unwrap();
    let sign = |version: u64, expires: u64| {
        let mut set = GroupSet { expires: UnixTime(expires), ..set(version, &[&anna]) };
        set.groups.insert("bad".to_owned(), [(of_bob, Some("bob".to_owned()))].into());
        set.sign(&admin).unwrap()
    };
    let now = SystemClock.now().0;
    // The first set must be valid.
    import(&home, &sign(1, now - 1)).fails(1, "it has expired");
    bob.run(&format!("run {}/clock", node.at())).ok();
    import(&home, &sign(1, now + DAY)).ok();
    let exec = format!("{}/exec", node.at());
    let capability = anna.args(["request", &exec, "--uses", "9", "--", "uname"]).ok();
    let mut running = anna.spawn(&["run", &exec, "--", "cat"]);
    eventually("the session runs", || home.json("status")["running_sessions"] == 1);

    // A later version counts, also if it has expired.
    import(&home, &sign(2, now - 1)).ok();
    anna.args(["run", &exec, "--", "uname"]).denied("may not request");
    anna.args(["connect", &capability]).denied("has ended");
    let status = home.json("status");
    assert_eq!(
        (&status["groups"]["expired"], &status["running_sessions"]),
        (&true.into(), &1.into())
    );
    assert!(home.run("status").ok().contains("expired since"), "{status}");
    let doctor = home.run("doctor");
    assert!(doctor.code == 1 && doctor.stdout.contains("has expired at"), "{}", doctor.stdout);
    // A block does not end with the set.
    bob.run(&format!("run {}/clock", node.at())).denied("blocked");

    import(&home, &sign(3, now + DAY)).ok();
    anna.args(["connect", &capability]).ok();
    drop(running.stdin.take());
    assert_eq!(running.wait().unwrap().code(), Some(0));
}

#[test]
fn a_group_of_this_node_takes_precedence_over_one_of_another() {
    let admin = key();
    let [home, anna, bob] = [Home::new(), Home::new(), Home::new()];
    let text = format!("allow = ['group:staff']\n[groups]\nfrom = '{}'\n", admin.identity());
    configure(&home, &text);
    let node = home.up("--name well");
    home.args(["group", "add", "staff", &anna.identity()]).ok();
    import(&home, &set(1, &[&bob]).sign(&admin).unwrap()).ok();
    let clock = format!("run {}/clock", node.at());
    anna.run(&clock).ok();
    bob.run(&clock).denied("may not request");
    assert!(home.run("group ls").ok().contains("not used"));
    drop(node);
    // It does not prevent a start either.
    let node = home.up("--name well");
    anna.run(&format!("run {}/clock", node.at())).ok();
}
