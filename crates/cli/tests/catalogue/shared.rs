//! A catalogue that several nodes share: what goes into it and out of it, and its backups, with a
//! real engine of three servers.

#[path = "../../../catalogue/tests/cluster/engine.rs"]
#[expect(dead_code, reason = "the tests of the catalogue use more of it")]
mod engine;

use std::fs;
use std::path::{Path, PathBuf};

use super::import::{order, order_of, tree};
use super::{files, publish, serve};
use crate::support::{Home, Ran};
use engine::{Engine, until};

/// Gives a home the catalogue `name` of the engine.
fn share(home: &Home, engine: &Engine, name: &str) {
    let servers = engine.options(name).servers;
    let text = format!(
        "[catalogue]\nservices = false\nstore = {servers:?}\n[catalogue.engine]\nname = '{name}'\n"
    );
    fs::write(home.path().join("config.toml"), text).unwrap();
    until("the engine has a leader", || home.run("catalogue ls").code == 0);
}

/// Publishes versions that are signed, unsigned, yanked, and one whose package is sent alone.
fn fill(home: &Home) {
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        publish(home, &format!("hyperty/One@{version}"), &[]).ok();
    }
    publish(home, "dataschema/Two@1.0.0", &["--unsigned"]).ok();
    let (descriptor, package) = files(home, "Long", &vec![b'x'; 1_200_000]);
    let words = ["catalogue", "publish", "hyperty/Long@1.0.0", &descriptor, "--package", &package];
    home.args(words).ok();
    home.run("catalogue yank hyperty/One@2.0.0").ok();
    home.run("catalogue yank dataschema/Two@1.0.0").ok();
}

fn import(home: &Home, folder: &Path, more: &[&str]) -> Ran {
    let folder = folder.display().to_string();
    home.args([&["catalogue", "import", &folder], more].concat())
}

fn export(home: &Home, name: &str) -> PathBuf {
    let folder = home.path().join(name);
    home.args(["catalogue", "export", &folder.display().to_string()]).ok();
    folder
}

/// Asserts that two exports have the same versions, signatures, yanks and packages, in the same
/// order of publication.
fn assert_equal(one: &Path, other: &Path) {
    assert!(tree(one) == tree(other));
    // The revision of a version that was yanked is that of the yank.
    let order = |export| order_of(export, |fields| fields["yanked"] != true);
    assert_eq!(order(one), order(other));
}

fn restore(home: &Home, file: &str) -> Ran {
    home.with_passphrase("open sesame", &format!("restore {file} --force"))
}

#[test]
fn a_shared_catalogue_is_imported_exported_backed_up_and_restored() {
    let engine = Engine::start();
    let home = Home::new();
    fill(&home);
    let before = export(&home, "before");
    assert_eq!(order(&before).len(), 5);
    // The catalogue that a node had for itself is published in the shared one, once.
    share(&home, &engine, "a");
    let own = home.path().join("catalogue");
    import(&home, &own, &["--replace"]).fails(2, "bound to its versions");
    import(&home, &own, &[]).fails(0, "published 5, unchanged 0, skipped 0");
    import(&home, &own, &[]).fails(0, "published 0, unchanged 5, skipped 0");
    let shared = export(&home, "shared");
    assert_equal(&before, &shared);
    // And back into one of a node alone.
    let alone = Home::new();
    import(&alone, &shared, &[]).fails(0, "published 5");
    assert_equal(&before, &export(&alone, "after"));

    let node = serve(&home, "");
    let [online, offline] = ["online", "offline"].map(|name| {
        let file = home.path().join(format!("{name}.age"));
        file.display().to_string()
    });
    let backup = |file: &str| home.with_passphrase("open sesame", &format!("backup {file}"));
    backup(&online).fails(0, "had for itself");
    publish(&home, "hyperty/Later@1.0.0", &[]).ok();
    drop(node);
    backup(&offline).ok();

    // A restored home follows the engine, which has more than the backup.
    let other = Home::new();
    restore(&other, &online).fails(0, "levada catalogue import");
    let restored = other.path().join("catalogue/restored");
    assert!(restored.join("catalogue.db").is_file());
    assert!(!other.path().join("catalogue/catalogue.db").exists());
    let later = export(&other, "later");
    assert_eq!(order(&later).len(), 6);
    assert_equal(&later, &export(&home, "later"));
    import(&other, &restored, &["--dry-run"]).fails(0, "published 0, unchanged 5");
    // A new engine is filled from the backup.
    fs::remove_dir_all(other.path().join("catalogue/replica")).unwrap();
    share(&other, &engine, "b");
    assert_eq!(other.run("catalogue ls").ok(), "");
    import(&other, &restored, &[]).fails(0, "published 5, unchanged 0, skipped 0");
    assert_equal(&before, &export(&other, "filled"));
    // The other backup was made without a node. Its catalogue is also one for a node alone, and the
    // restore has left the own one in place.
    restore(&home, &offline).ok();
    let third = Home::new();
    import(&third, &own.join("restored"), &[]).fails(0, "published 6");
    assert_equal(&later, &export(&third, "after"));
    import(&home, &own, &[]).fails(0, "published 0, unchanged 5");
}

#[test]
fn a_backup_without_the_engine_has_what_the_node_has() {
    let mut engine = Engine::start();
    let home = Home::new();
    share(&home, &engine, "away");
    publish(&home, "hyperty/One@1.0.0", &[]).ok();
    publish(&home, "dataschema/Two@1.0.0", &[]).ok();
    let before = export(&home, "before");
    (0..3).for_each(|number| engine.kill(number));
    let file = home.path().join("home.age").display().to_string();
    home.with_passphrase("open sesame", &format!("backup {file}")).ok();
    // A package that the node's cache lacks is missing in the backup, which says so.
    let digests = fs::read_dir(before.join("packages")).unwrap();
    let mut names: Vec<_> =
        digests.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let cached = home.path().join("catalogue/replica/blobs").join(&names[0][..2]);
    fs::remove_file(cached.join(&names[0][2..])).unwrap();
    let second = home.path().join("second.age").display().to_string();
    let ran = home.with_passphrase("open sesame", &format!("backup {second}"));
    ran.fails(0, &format!("sha256:{} is missing", names[0]));
    let alone = Home::new();
    restore(&home, &file).ok();
    import(&alone, &home.path().join("catalogue/restored"), &[]).fails(0, "published 2");
    assert_equal(&before, &export(&alone, "after"));
}
