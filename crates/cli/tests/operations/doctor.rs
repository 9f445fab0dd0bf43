//! `levada doctor`: it agrees with `levada up`, and no remedy destroys anything.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use crate::support::{Home, Ran};

const UP: &str = "up --name well --listen 127.0.0.1:0 --http 127.0.0.1:0";

/// A user without privileges.
const USER: u32 = 65_534;

/// Runs a verb as a user to whom permissions apply, which they do not to root.
pub fn without_privileges(home: &Home, line: &str) -> Ran {
    let mut command = home.command(line.split_whitespace());
    if rustix::process::geteuid().is_root() {
        for file in fs::read_dir(home.path()).unwrap() {
            chown(file.unwrap().path(), Some(USER), Some(USER)).unwrap();
        }
        chown(home.path(), Some(USER), Some(USER)).unwrap();
        command.uid(USER).gid(USER);
    }
    command.output().unwrap().into()
}

/// The lines of one check, with their remedies.
pub fn check(ran: &Ran, name: &str) -> String {
    let mut lines = ran.stdout.lines().skip_while(|line| !line.contains(&format!(" {name}: ")));
    let first = lines.next().unwrap_or_default().to_owned();
    let remedy = lines.next().filter(|line| line.starts_with("       remedy"));
    first + remedy.unwrap_or_default()
}

#[test]
fn doctor_says_of_a_service_what_up_does() {
    let home = Home::new();
    let exec = |more: &str, program: &str| {
        let text = format!(
            "[[service]]\nname = 'a'\ntype = 'exec'\n{more}[[service.command]]\n\
             program = '{program}'\n"
        );
        fs::write(home.path().join("config.toml"), text).unwrap();
    };
    // A definition that cannot be built prevents the start.
    exec("nonsense = 1\n", "true");
    let report = home.run("doctor");
    let configuration = check(&report, "configuration");
    assert!(configuration.contains("config.toml:4: key `nonsense`"), "{}", report.stdout);
    assert!(configuration.contains("`levada up` does not start"), "{}", report.stdout);
    assert!(!report.stdout.contains("without this service"), "{}", report.stdout);
    home.run(UP).fails(120, "config.toml:4: key `nonsense`");
    // A missing program does not.
    exec("", "no-such-program");
    let report = home.run("doctor");
    assert!(check(&report, "services").contains("the node starts"), "{}", report.stdout);
    drop(home.up_with(UP));
}

#[test]
fn doctor_names_a_missing_permission_and_its_remedy() {
    let home = Home::new();
    drop(home.up_with(UP));
    home.run("peers ls").ok();
    let files = [
        ("node.db", "database", "chmod u+rw "),
        ("known.db", "names", "chmod u+rw "),
        ("identity.key", "key", "chmod u+r "),
        ("node.lock", "node", "chmod u+rw "),
    ];
    for (file, name, remedy) in files {
        let path = home.path().join(file);
        let content = fs::read(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        let report = without_privileges(&home, "doctor");
        let found = check(&report, name);
        assert!(found.starts_with("wrong"), "{file}: {}", report.stdout);
        assert!(found.contains("no permission to read"), "{file}: {}", report.stdout);
        assert!(found.contains(&format!("{remedy}{}", path.display())), "{}", report.stdout);
        for word in ["restore", "mv ", "move"] {
            assert!(!report.stdout.contains(word), "{file}: {}", report.stdout);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if file != "node.lock" {
            assert_eq!(fs::read(&path).unwrap(), content, "{file}");
        }
    }
    assert_eq!(check(&without_privileges(&home, "doctor"), "database"), "fine   database: intact");
}

#[test]
fn doctor_keeps_a_copy_of_a_damaged_database() {
    let home = Home::new();
    drop(home.up_with(UP));
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(home.path().join(format!("node.db{end}")));
    }
    fs::write(home.path().join("node.db"), [7; 8192]).unwrap();
    let found = check(&home.run("doctor"), "database");
    let copy = format!("cp -a {0} {0}.copy", home.path().display());
    let kept = found.find(&copy);
    let replaced = found.find("levada restore");
    assert!(found.starts_with("wrong") && kept.is_some() && kept < replaced, "{found}");
}
