//! `levada service`: the units of systemd. A program in place of systemctl records its calls: no
//! systemd runs where the tests run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Home, Ran};

const RELOAD: &str = "--user daemon-reload\n";
const ENABLE: &str = "--user enable --quiet levada.service\n";
const IS_ACTIVE: &str = "--user is-active --quiet levada.service\n";

/// A user whose systemctl writes its arguments to a file, and fails for the verb in another file.
struct User {
    home: Home,
}

impl User {
    fn new() -> Self {
        let user = Self { home: Home::new() };
        fs::create_dir(user.file("bin")).unwrap();
        let script = "#!/bin/sh\ncd \"$(dirname \"$0\")/..\"\necho \"$@\" >>calls\n\
            for word; do if [ \"$word\" = \"$(cat fails 2>/dev/null)\" ]; then\n\
            echo \"no bus\" >&2; exit 1; fi; done\n";
        let source = user.file("systemctl.sh");
        fs::write(&source, script).unwrap();
        // By another process: a fork of another test could still have a copy that is open for
        // writing here, and such a program cannot be started (ETXTBSY).
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(source).arg(user.file("bin/systemctl"));
        assert!(install.status().unwrap().success());
        user
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn unit(&self) -> PathBuf {
        self.file(".config/systemd/user/levada.service")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.home.command(line.split_whitespace());
        let path = format!("{}:{}", self.file("bin").display(), std::env::var("PATH").unwrap());
        command.env("HOME", self.home.path()).env("PATH", path);
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        command
    }

    fn run(&self, line: &str) -> Ran {
        self.command(line).output().unwrap().into()
    }

    /// Returns the calls of systemctl since the last time.
    fn calls(&self) -> String {
        let calls = fs::read_to_string(self.file("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.file("calls"));
        calls
    }
}

#[test]
fn install_writes_and_starts_a_unit_and_remove_undoes_it() {
    let user = User::new();
    user.run("service install --user").ok();
    let unit = fs::read_to_string(user.unit()).unwrap();
    let program = env!("CARGO_BIN_EXE_levada");
    assert!(unit.contains(&format!("\nExecStart={program} up\n")), "{unit}");
    let home = user.home.path().display();
    assert!(unit.contains(&format!("\nEnvironment=LEVADA_HOME={home}\n")), "{unit}");
    let restart = "--user restart levada.service\n";
    assert_eq!(user.calls(), [RELOAD, ENABLE, IS_ACTIVE, restart].concat());

    user.run("service install --user").ok();
    assert_eq!(fs::read_to_string(user.unit()).unwrap(), unit);
    let start = "--user start levada.service\n";
    assert_eq!(user.calls(), [RELOAD, ENABLE, IS_ACTIVE, start].concat());

    user.run("service remove --user").ok();
    assert!(!user.unit().exists());
    let disable = "--user disable --quiet --now levada.service\n";
    assert_eq!(user.calls(), [RELOAD, disable, RELOAD].concat());
    let again = user.run("service remove --user");
    assert!(again.stderr.contains("has written no"), "{}", again.stderr);
    assert_eq!((again.code, user.calls().as_str()), (0, ""));
}

#[test]
fn a_unit_of_other_means_is_left_as_it_is() {
    let user = User::new();
    fs::create_dir_all(user.unit().parent().unwrap()).unwrap();
    fs::write(user.unit(), "[Service]\nExecStart=/bin/true\n").unwrap();
    for verb in ["install", "remove"] {
        let ran = user.run(&format!("service {verb} --user"));
        ran.fails(120, "was not written by `levada service install`");
    }
    assert_eq!(fs::read_to_string(user.unit()).unwrap(), "[Service]\nExecStart=/bin/true\n");
    assert_eq!(user.calls(), "");
}

#[test]
fn without_systemd_it_prints_what_to_do() {
    let user = User::new();
    fs::write(user.file("fails"), "daemon-reload").unwrap();
    let ran = user.run("service install --user");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let next = "systemctl --user daemon-reload && systemctl --user enable --now levada.service";
    assert!(ran.stderr.contains("no bus") && ran.stderr.contains(next), "{}", ran.stderr);
    assert!(user.unit().exists());
    user.run("service remove --user").ok();
    assert!(!user.unit().exists());
    assert_eq!(user.calls(), RELOAD.repeat(2));
}

#[test]
fn a_node_that_fails_or_runs_already_is_reported() {
    let user = User::new();
    fs::write(user.file("fails"), "restart").unwrap();
    user.run("service install --user").fails(120, "journalctl --user -u levada.service");
    fs::write(user.file("fails"), "is-active").unwrap();
    let node = user.home.up("--name well --no-announce");
    let process = format!("runs already (process {})", node.process());
    user.run("service install --user").fails(120, &process);
}

#[test]
fn the_unit_of_the_machine_is_not_for_every_home_and_program() {
    let user = User::new();
    let (code, text) = match fs::metadata("/proc/self").unwrap() {
        own if own.uid() == 0 => (2, "unset LEVADA_HOME"),
        _ => (120, "needs root"),
    };
    user.run("service install --system").fails(code, text);
    user.run("service install --system --user").fails(2, "cannot be used with");
}
