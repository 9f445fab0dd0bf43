//! Import of folders into a catalogue, and export of a catalogue to a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{RETHINK, files, publish, serve};
use crate::support::{Home, eventually};

#[test]
fn an_imported_folder_is_exported_unchanged() {
    let home = Home::new();
    let other = Home::new();
    let ran = home.args(["catalogue", "import", RETHINK]);
    assert!(ran.stderr.contains("skipped") && ran.stderr.contains("BadJson"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    // Some objects of the folder have no package.
    ran.fails(1, "there is no package");
    // A second import publishes nothing.
    let again = home.args(["catalogue", "import", RETHINK]);
    assert!(again.stderr.contains("published 0"), "{}", again.stderr);
    let export = other.path().join("export").display().to_string();
    home.args(["catalogue", "export", &export]).ok();
    home.args(["catalogue", "export", &export]).fails(120, "is not empty");
    other.args(["catalogue", "import", &export]).ok();
    let node = serve(&home, "");
    let copied = serve(&other, "");
    for path in [
        "/.well-known/hyperty",
        "/.well-known/hyperty/Connector",
        "/.well-known/sourcepackage/Connector",
    ] {
        assert_eq!(node.http(path), copied.http(path), "{path}");
        assert_eq!(node.http(path).0, 200, "{path}");
    }
    home.args(["catalogue", "import", "/nowhere"]).fails(120, "/nowhere");
}

#[test]
fn an_export_holds_every_version_and_can_be_imported() {
    let home = Home::new();
    let other = Home::new();
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        publish(&home, &format!("hyperty/One@{version}"), &[]).ok();
    }
    publish(&home, "service/Two@1.0.0", &["--unsigned"]).ok();
    home.run("catalogue yank hyperty/One@2.0.0").ok();
    home.run("catalogue yank service/Two@1.0.0").ok();
    let export = home.path().join("export");
    let folder = export.display().to_string();
    let ran = home.args(["catalogue", "export", &folder]);
    assert!(ran.stderr.contains("versions written: 4"), "{}", ran.stderr);
    ran.ok();
    for _ in 0..2 {
        other.args(["catalogue", "import", &folder]).ok();
    }
    let versions = |home: &Home, object: &str| {
        let listed = home.json(&format!("catalogue ls {object}"))["objects"].take();
        listed.as_array().unwrap().iter().map(without_catalogue_fields).collect::<Vec<_>>()
    };
    for (object, count) in [("hyperty/One", 3), ("service/Two", 1)] {
        let found = versions(&home, object);
        assert_eq!(found.len(), count);
        assert_eq!(found, versions(&other, object));
    }
    assert_eq!(versions(&other, "hyperty/One")[2]["yanked"], true);
    let me = home.identity();
    let target = other.path().join("got.js").display().to_string();
    let words = ["catalogue", "get", "hyperty/One", "--signed-by", &me, "--package", &target];
    other.args(words).ok();
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/One@1.1.0");
    // An object that was altered after the export is skipped.
    let third = Home::new();
    fs::write(export.join("hyperty/One/1.1.0/descriptor.json"), "{}").unwrap();
    let ran = third.args(["catalogue", "import", &folder]);
    ran.fails(1, "published 3, unchanged 0, skipped 1");
    // Exported versions are immutable and signed: `--replace` is refused.
    other.args(["catalogue", "import", &folder, "--replace"]).fails(2, "exported");
}

#[test]
fn a_running_node_imports_and_exports_for_its_owner() {
    let home = Home::new();
    let other = Home::new();
    for version in ["1.0.0", "1.1.0"] {
        publish(&home, &format!("hyperty/One@{version}"), &[]).ok();
    }
    let before = home.path().join("before");
    let after = home.path().join("after");
    home.args(["catalogue".as_ref(), "export".as_ref(), before.as_os_str()]).ok();
    let node = serve(&other, "");
    let ran = other.args(["catalogue".as_ref(), "import".as_ref(), before.as_os_str()]);
    assert!(ran.stderr.contains("published 2, unchanged 0, skipped 0"), "{}", ran.stderr);
    ran.ok();
    let latest = || node.http("/v1/objects/hyperty/One/latest").1;
    eventually("the index has it", || latest().contains("about One"));
    other.args(["catalogue".as_ref(), "export".as_ref(), after.as_os_str()]).ok();
    for folder in ["hyperty", "packages"] {
        let before = tree(&before.join(folder));
        let after = tree(&after.join(folder));
        assert!(before.len() >= 2);
        assert!(before == after, "{before:?}, and not {after:?}");
    }
}

#[test]
fn an_export_that_needs_several_batches_is_imported_unchanged() {
    let home = Home::new();
    let other = Home::new();
    publish(&home, "hyperty/Early@1.0.0", &[]).ok();
    home.run("catalogue yank hyperty/Early@1.0.0").ok();
    let source = home.path().join("source");
    for number in 0..70 {
        let folder = source.join(format!("dataschema/{number}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("description.json"), schema(number)).unwrap();
        fs::write(folder.join("sourcePackage.json"), package(number)).unwrap();
    }
    let ran = home.args(["catalogue".as_ref(), "import".as_ref(), source.as_os_str()]);
    assert!(ran.stderr.contains("published 70, unchanged 0, skipped 0"), "{}", ran.stderr);
    // This package exceeds the size of a batch, and is in the middle of the others.
    let (descriptor, package) = files(&home, "Long", &vec![b'x'; 1_200_000]);
    let words = ["catalogue", "publish", "hyperty/Long@1.0.0", &descriptor, "--package", &package];
    home.args(words).ok();
    publish(&home, "hyperty/After@1.0.0", &[]).ok();
    let before = home.path().join("before");
    let after = home.path().join("after");
    home.args(["catalogue".as_ref(), "export".as_ref(), before.as_os_str()]).ok();
    assert_eq!(order(&before).len(), 73);
    other.args(["catalogue".as_ref(), "import".as_ref(), before.as_os_str()]).ok();
    other.args(["catalogue".as_ref(), "export".as_ref(), after.as_os_str()]).ok();
    assert!(tree(&before) == tree(&after));
    assert_eq!(order(&before), order(&after));
    // An altered package is skipped; the other objects are imported.
    let fields = description(&before.join("dataschema/Schema9/1.0.9"));
    let digest = fields["package"]["digest"].as_str().unwrap().trim_start_matches("sha256:");
    fs::write(before.join("packages").join(digest), [b'y'; 6]).unwrap();
    let third = Home::new();
    let ran = third.args(["catalogue".as_ref(), "import".as_ref(), before.as_os_str()]);
    ran.fails(1, "published 72, unchanged 0, skipped 1");
    // The same for a missing package.
    fs::remove_file(before.join("packages").join(digest)).unwrap();
    let ran = third.args(["catalogue".as_ref(), "import".as_ref(), before.as_os_str()]);
    ran.fails(1, "missing or truncated");
}

/// Writes object `number` with the description `about`, in reTHINK's format.
fn write_schema(folder: &Path, number: u32, about: &str) {
    let object = folder.join(format!("dataschema/{number}"));
    fs::create_dir_all(&object).unwrap();
    let description = schema(number).replace(&format!("of {number}"), about);
    fs::write(object.join("description.json"), description).unwrap();
    fs::write(object.join("sourcePackage.json"), package(number)).unwrap();
}

#[test]
fn import_replace_follows_a_folder() {
    let home = Home::new();
    let folder = home.path().join("objects");
    let path = folder.display().to_string();
    let import = |more: &[&str]| home.args([&["catalogue", "import", &path], more].concat());
    let imported = |more: &[&str]| -> Value {
        serde_json::from_str(&import(&[more, &["--json"]].concat()).ok()).unwrap()
    };
    let shown = |number: u32| home.json(&format!("catalogue get dataschema/Schema{number}"));
    for number in [1, 2] {
        write_schema(&folder, number, "first");
    }
    assert_eq!(imported(&["--dry-run"])["published"], 2);
    home.run("catalogue ls").fails(120, "has no catalogue");
    assert_eq!(imported(&[])["published"], 2);
    // The content changes under the same version.
    write_schema(&folder, 1, "second");
    for options in [&[][..], &["--dry-run"]] {
        let ran = import(options);
        assert!(ran.stderr.contains("dataschema/Schema1@1.0.1"), "{}", ran.stderr);
        ran.fails(1, "changed 1");
    }
    let replaced = serde_json::json!(["dataschema/Schema1@1.0.1+1"]);
    let planned = imported(&["--replace", "--dry-run"]);
    assert_eq!((&planned["replaced"], shown(1)["version"].as_str()), (&replaced, Some("1.0.1")));
    let done = imported(&["--replace"]);
    assert_eq!(
        (&done["replaced"], &done["there"], &done["dry_run"]),
        (&replaced, &1.into(), &false.into())
    );
    assert_eq!(shown(1)["version"], "1.0.1+1");
    assert_eq!(shown(1)["descriptor"]["description"], "second");
    let again = imported(&["--replace"]);
    assert_eq!((&again["there"], &again["published"]), (&2.into(), &0.into()));
    // Back to the first content, and again to the second.
    write_schema(&folder, 1, "first");
    assert_eq!(imported(&["--replace"])["yanked"][0], "dataschema/Schema1@1.0.1+1");
    assert_eq!(shown(1)["version"], "1.0.1");
    write_schema(&folder, 1, "second");
    assert_eq!(imported(&["--replace"])["replaced"], replaced);
    assert_eq!(shown(1)["version"], "1.0.1+1");
    // A missing package is reported. A removed object is yanked, but no object of another type.
    fs::remove_file(folder.join("dataschema/2/sourcePackage.json")).unwrap();
    import(&[]).fails(1, "no package");
    fs::remove_dir_all(folder.join("dataschema/2")).unwrap();
    publish(&home, "service/Kept@1.0.0", &[]).ok();
    assert_eq!(imported(&["--replace"])["yanked"][0], "dataschema/Schema2@1.0.2");
    home.run("catalogue get dataschema/Schema2").fails(1, "yanked");
    home.run("catalogue get service/Kept").ok();
    // An empty folder does not yank everything.
    fs::remove_dir_all(folder.join("dataschema/1")).unwrap();
    import(&["--replace"]).fails(1, "no object");
    assert_eq!(shown(1)["version"], "1.0.1+1");
}

/// The versions of an export, in the order of their publication.
pub fn order(export: &Path) -> Vec<String> {
    order_of(export, |_| true)
}

/// The same, of the versions that `keep` selects by their description.
pub fn order_of(export: &Path, keep: impl Fn(&Value) -> bool) -> Vec<String> {
    let mut all = Vec::new();
    for kind in ["dataschema", "hyperty"] {
        for object in fs::read_dir(export.join(kind)).unwrap() {
            for version in fs::read_dir(object.unwrap().path()).unwrap() {
                let fields = description(&version.unwrap().path());
                if !keep(&fields) {
                    continue;
                }
                let place = (fields["published"].as_u64(), fields["revision"].as_u64());
                all.push((place, fields["object"].as_str().unwrap().to_owned()));
            }
        }
    }
    all.sort();
    all.into_iter().map(|(_, object)| object).collect()
}

fn schema(number: u32) -> String {
    format!(
        r#"{{"cguid": "c{number}", "type": "t", "version": "1.0.{number}", "language": "json",
            "objectName": "Schema{number}", "description": "of {number}"}}"#
    )
}

/// The package of object `number`; that of number 9 differs from the others, at the same length.
fn package(number: u32) -> String {
    let code = if number == 9 { "code 9" } else { "code 0" };
    format!(r#"{{"sourceCodeClassname": "Class{number}", "sourceCode": "{code}"}}"#)
}

/// The content of `version.json`, which describes a version in an export.
fn description(version: &Path) -> Value {
    serde_json::from_slice(&fs::read(version.join("version.json")).unwrap()).unwrap()
}

/// The description of a version without the fields that each catalogue sets itself.
fn without_catalogue_fields(fields: &Value) -> Value {
    let mut fields = fields.clone();
    for key in ["published", "revision"] {
        fields[key].take();
    }
    fields
}

/// Every file below a folder.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = PathBuf::from(entry.file_name());
        let path = entry.path();
        if path.is_dir() {
            files.extend(tree(&path).into_iter().map(|(below, bytes)| (name.join(below), bytes)));
        } else if name == Path::new("version.json") {
            files.insert(name, without_catalogue_fields(&description(folder)).to_string().into());
        } else {
            files.insert(name, fs::read(&path).unwrap());
        }
    }
    files
}
