//! Groups that a node fetches from another one.

use levada_core::GroupSet;

use super::{configure, reload};
use crate::support::{Home, eventually};

#[test]
fn a_node_takes_over_the_groups_of_another_and_who_leaves_loses_them() {
    let [admin, home, other, anna] = [Home::new(), Home::new(), Home::new(), Home::new()];
    configure(&admin, &format!("[groups]\nreaders = ['{}']\n", home.identity()));
    let source = admin.up("--name admin");
    let of_anna = anna.identity();
    admin.args(["group", "add", "staff", &of_anna]).ok();
    admin.args(["peers", "add", "anna", &of_anna]).ok();
    for node in [&home, &other] {
        node.args(["peers", "add", "admin", &source.at()]).ok();
        configure(node, "allow = ['group:staff']\n[groups]\nfrom = 'admin'\n");
    }
    let well = home.up("--name well");
    let far = other.up("--name far");
    let unreachable = |home: &Home, text: &str| {
        let status = home.json("status");
        status["groups"]["unreachable"].as_str().is_some_and(|error| error.contains(text))
    };
    eventually("there is no set", || unreachable(&home, "has signed no groups"));
    eventually("it is refused", || unreachable(&other, "may not read groups"));
    assert!(other.run("doctor").stdout.contains("may not read groups"));

    let text = admin.run("group export staff --expires 2d").ok();
    let (set, signer) = GroupSet::verify(&format!("{text}\n")).unwrap();
    assert_eq!(signer.to_string(), admin.identity());
    assert!(text.contains(&format!("{of_anna} # anna")), "{text}");
    admin.run("group export nowhere").fails(1, "no group has the name `nowhere`");
    reload(&well);
    let clock = format!("run {}/clock", well.at());
    eventually("the groups are taken over", || anna.run(&clock).code == 0);
    assert_eq!(home.json("status")["groups"]["version"], set.version);
    anna.run(&format!("run {}/clock", far.at())).denied("may not request");

    // The node signs a changed group again, without a further export.
    admin.args(["group", "remove", "staff", "anna"]).ok();
    reload(&well);
    eventually("the change is taken over", || anna.run(&clock).code == 121);
    assert!(home.json("status")["groups"]["version"].as_u64().unwrap() > set.version);
    let file = home.path().join("old.groups");
    std::fs::write(&file, format!("{text}\n")).unwrap();
    home.args(["group", "import", file.to_str().unwrap()]).fails(1, "was taken before");
    anna.run(&clock).denied("may not request");
}
