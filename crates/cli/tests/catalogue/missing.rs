//! A home without a catalogue.

use super::publish;
use crate::support::Home;

#[test]
fn a_reading_verb_makes_no_catalogue() {
    let home = Home::new();
    let target = home.path().join("exported");
    let export = target.display();
    let import = super::RETHINK;
    // Some objects of the folder are not valid.
    home.run(&format!("catalogue import {import} --dry-run")).fails(1, "would be: published 45");
    publish(&home, "hyperty/Connector@1.0.0", &["--dry-run"]).ok();
    let verbs = [
        "ls",
        "ls hyperty/Connector",
        "search connector",
        "log",
        "watch --once",
        "get hyperty/Connector",
        "verify",
        "gc",
        "yank hyperty/Connector@1.0.0",
        &format!("export {export}"),
    ];
    let remedy = "has no catalogue: `levada catalogue publish`";
    for verb in verbs {
        let ran = home.run(&format!("catalogue {verb}"));
        assert!(ran.stderr.contains(&home.path().display().to_string()), "{}", ran.stderr);
        ran.fails(120, remedy);
    }
    assert!(!home.path().join("catalogue").exists());
    assert!(!target.exists());
    // So the node serves none.
    let node = home.up("--name well");
    home.run("catalogue ls").fails(120, "the running node has no catalogue");
    assert!(!home.path().join("catalogue").exists());
    drop(node);
    // A verb that publishes makes it.
    publish(&home, "hyperty/Connector@1.0.0", &[]).ok();
    assert!(home.run("catalogue ls").ok().contains("Connector"));
}
