//! The verbs that need neither a node nor a network.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use crate::support::{Permit, shared};
use levada_capability::{Capability, Chain, LinkBody, Rights, SessionId, mint};
use levada_core::{Identity, Params, SecretKey, SystemRandom, UnixTime, encode_list};
use serde_json::Value;
use tempfile::TempDir;

/// One identity on this machine.
struct Home {
    folder: TempDir,
    _permit: Option<Arc<Permit>>,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), _permit: shared() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(arguments).env("LEVADA_HOME", self.path()).stdin(Stdio::null());
        for variable in ["LEVADA_PASSPHRASE", "RUST_LOG"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    #[track_caller]
    fn bad(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        errors(&output)
    }

    fn identity(&self) -> Identity {
        self.good(&["id"]).parse().unwrap()
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn random_identity() -> Identity {
    SecretKey::generate(&SystemRandom).unwrap().identity()
}

/// A capability of a node that does not run.
fn capability(holder: Identity, rights: Rights, expires: UnixTime) -> String {
    let mut params = Params::new();
    params.add(Params::ARGS, encode_list(&["cat", "a\x1bb"])).unwrap();
    let body = LinkBody { identity: holder, rights, expires, uses: 2, max_run: None, params };
    let session = SessionId::from_bytes([7; 16]);
    let (link, secret) = mint(&[9; 32], &body, random_identity(), session).unwrap();
    let chain = Chain::decode(vec![link], &[[0; 64]; 0]).unwrap();
    let capability = Capability::new(chain, secret, "exec".into(), vec!["[::1]:1".into()]);
    capability.unwrap().to_text().to_string()
}

#[test]
fn an_identity_is_made_once() {
    let home = Home::new();
    let identity = home.good(&["id"]);
    let object: Value = serde_json::from_str(&home.good(&["id", "--json"])).unwrap();
    assert_eq!(object["identity"], identity);
    assert_eq!(object["schema"], 2);
    let key = fs::metadata(home.path().join("identity.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_key_readable_by_others_is_refused_with_a_remedy() {
    let home = Home::new();
    home.good(&["id"]);
    let key = home.path().join("identity.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(home.bad(120, &["id"]).contains("chmod 600"));
    assert!(home.run(&["doctor"]).status.code() == Some(1));
}

#[test]
fn a_rotation_without_a_node_changes_the_identity() {
    let home = Home::new();
    let old = home.good(&["id"]);
    assert!(home.bad(2, &["id", "rotate"]).contains("--yes"));
    assert_eq!(home.good(&["id"]), old);
    let new = home.good(&["id", "rotate", "--yes"]);
    assert_ne!(new, old);
    assert_eq!(home.good(&["id"]), new);
}

#[test]
fn wrong_usage_exits_with_2() {
    let home = Home::new();
    let text = capability(home.identity(), Rights::ALL, UnixTime::NEVER);
    let to = random_identity().to_string();
    for (arguments, expected) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (&["request", "alpha"], "alpha"),
        (&["request", "alpha/exec", "--expires", "1y"], "1y"),
        (&["request", "alpha/exec", "--framing", "block:63"], "block:63"),
        (&["grant", &text, "--to", "lvx", "--rights", "x"], "lvx"),
        (&["grant", &text, "--to", &to, "--rights", "xx"], "each once"),
    ] {
        let error = home.bad(2, arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn grant_narrows_a_capability() {
    let holder = Home::new();
    let other = random_identity();
    let text = capability(holder.identity(), Rights::ALL, UnixTime::NEVER);
    let to = other.to_string();
    let granted = holder.good(&["grant", &text, "--to", &to, "--rights", "x", "--uses", "1"]);
    let shown: Value =
        serde_json::from_str(&holder.good(&["inspect", &granted, "--json"])).unwrap();
    assert_eq!(shown["schema"], 2);
    assert_eq!(shown["holder"], to);
    assert_eq!(shown["rights"], serde_json::json!(["execute"]));
    assert_eq!(shown["uses"], 1);
    assert_eq!(shown["parameters"]["args"], serde_json::json!(["cat", "a\x1bb"]));
    assert_eq!(shown["links"].as_array().unwrap().len(), 2);
}

#[test]
fn grant_refuses_what_verification_would_refuse() {
    let holder = Home::new();
    let mine = holder.identity();
    let to = random_identity().to_string();
    let grant = |text: &str, more: &[&str]| {
        holder.bad(121, &[&["grant", text, "--to", &to, "--rights", "xtd"], more].concat())
    };
    let foreign = capability(random_identity(), Rights::ALL, UnixTime::NEVER);
    assert!(grant(&foreign, &[]).contains("bound to another identity"));
    let narrow = capability(mine, Rights::EXECUTE | Rights::DISTRIBUTE, UnixTime::NEVER);
    assert!(grant(&narrow, &[]).contains("wider"));
    let last = capability(mine, Rights::EXECUTE, UnixTime::NEVER);
    assert!(grant(&last, &[]).contains("distribute"));
    let full = capability(mine, Rights::ALL, UnixTime::NEVER);
    assert!(grant(&full, &["--", "date"]).contains("already set"));
    assert!(grant(&full, &["--uses", "3"]).contains("more uses"));
    let expired = capability(mine, Rights::ALL, UnixTime(1));
    assert!(grant(&expired, &[]).contains("expired"));
    let mut garbled = full.into_bytes();
    garbled[20] = if garbled[20] == b'a' { b'b' } else { b'a' };
    let garbled = String::from_utf8(garbled).unwrap();
    let refused = holder.bad(2, &["grant", &garbled, "--to", &to, "--rights", "x"]);
    assert!(refused.contains("checksum"), "{refused}");
}

#[test]
fn a_capability_comes_as_text_from_a_file_or_from_standard_input() {
    let home = Home::new();
    let text = capability(random_identity(), Rights::EXECUTE, UnixTime::NEVER);
    let direct = home.good(&["inspect", &text]);
    assert!(direct.contains("execute") && !direct.contains('\x1b'));
    let file = home.path().join("cap");
    fs::write(&file, format!("{text}\n")).unwrap();
    assert_eq!(home.good(&["inspect", &format!("@{}", file.display())]), direct);
    assert!(home.bad(120, &["inspect", "@/nowhere"]).contains("/nowhere"));
    let mut child = home
        .command(&["inspect", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{text}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), direct);
}

#[test]
fn verbs_that_need_the_node_say_how_to_start_one() {
    let home = Home::new();
    for verb in ["status", "sessions", "stop", "invite"] {
        assert!(home.bad(120, &[verb]).contains("levada up"), "{verb}");
    }
    assert!(home.bad(120, &["revoke", &"0".repeat(32)]).contains("levada up"));
    assert!(home.bad(2, &["join", "lvinv1nonsense"]).contains("not an invitation"));
    assert!(home.bad(2, &["join", "nonsense"]).contains("lvinv1"));
    assert!(home.bad(2, &["query", "alpha/echo"]).contains("alpha"));
}

#[test]
fn a_wrong_configuration_names_file_line_and_key() {
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "name = \"a\"\nlisten = [\"x\"]\n").unwrap();
    let text = home.bad(120, &["up"]);
    assert!(text.contains("config.toml:2: key `listen[0]`"), "{text}");
    assert_eq!(home.run(&["doctor"]).status.code(), Some(1));
}

#[test]
fn doctor_finds_a_new_home_healthy() {
    let home = Home::new();
    home.good(&["id"]);
    let report: Value = serde_json::from_str(&home.good(&["doctor", "--json"])).unwrap();
    assert_eq!(report["schema"], 2);
    assert_eq!(report["healthy"], true, "{report}");
    home.good(&["doctor", "--accept-clock"]);
}

#[test]
fn completions_and_manual_pages_are_made() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.good(&["completions", shell]).contains("levada"));
    }
    assert!(home.good(&["man"]).contains(".TH levada"));
    assert!(home.good(&["man", "run"]).contains("NODE/SERVICE"));
    assert!(home.bad(1, &["man", "frobnicate"]).contains("frobnicate"));
    let folder = home.path().join("man");
    home.good(&["man", "--dir", folder.to_str().unwrap()]);
    assert!(folder.join("levada.1").exists() && folder.join("levada-grant.1").exists());
    let page = fs::read_to_string(folder.join("levada-catalogue-publish.1")).unwrap();
    assert!(page.contains(".TH levada-catalogue-publish"), "{page}");
    assert_eq!(home.good(&["man", "catalogue", "publish"]), page.trim_end());
    for page in ["levada-peers-add.1", "levada-id-rotate.1", "levada-catalogue-gc.1"] {
        assert!(folder.join(page).exists(), "{page}");
    }
    // Examples keep their lines, and no verb is left without a page.
    let page = fs::read_to_string(folder.join("levada-run.1")).unwrap();
    let examples = page.split_once(".SH EXAMPLES\n.EX\n").unwrap().1;
    let lines: Vec<&str> = examples.lines().collect();
    let clock = lines.iter().position(|line| line.contains("levada run alpha/clock")).unwrap();
    assert!(lines[clock + 1].contains("levada run alpha/exec"), "{examples}");
    assert!(home.bad(1, &["man", "catalogue", "frobnicate"]).contains("frobnicate"));
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let home = Home::new();
    let mut child = home
        .command(&["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", errors(&output));
}

mod backup {
    use super::*;

    fn with_passphrase(home: &Home, passphrase: &str, arguments: &[&str]) -> Output {
        home.command(arguments).env("LEVADA_PASSPHRASE", passphrase).output().unwrap()
    }

    #[test]
    fn restore_brings_back_a_home() {
        let home = Home::new();
        let new = Home::new();
        let identity = home.good(&["id"]);
        fs::write(home.path().join("config.toml"), "name = \"alpha\"\n").unwrap();
        let file = home.path().join("home.age");
        let file = file.to_str().unwrap();
        let output = with_passphrase(&home, "right", &["backup", file]);
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read(file).unwrap().starts_with(b"age-encryption.org/v1\n-> scrypt "));

        let again = with_passphrase(&home, "right", &["backup", file]);
        assert_eq!(again.status.code(), Some(120), "an existing file is kept");
        let wrong = with_passphrase(&new, "wrong", &["restore", file]);
        assert_eq!(wrong.status.code(), Some(120));
        assert!(errors(&wrong).contains("passphrase"));
        assert!(!new.path().join("identity.key").exists(), "nothing has changed");

        let restored = with_passphrase(&new, "right", &["restore", file]);
        assert!(restored.status.success(), "{}", errors(&restored));
        assert_eq!(new.good(&["id"]), identity);
        assert_eq!(
            fs::read_to_string(new.path().join("config.toml")).unwrap(),
            "name = \"alpha\"\n"
        );
        let left: Vec<_> = fs::read_dir(new.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("restore"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn restoring_over_another_identity_needs_force() {
        let home = Home::new();
        let other = Home::new();
        let identity = home.good(&["id"]);
        let before = other.good(&["id"]);
        let secret = home.path().join("passphrase");
        fs::write(&secret, "a b c\nsecond line\n").unwrap();
        let secret = secret.to_str().unwrap();
        let file = home.path().join("home.age");
        let file = file.to_str().unwrap();
        home.good(&["backup", file, "--passphrase-file", secret]);
        let refused = with_passphrase(&other, "a b c", &["restore", file]);
        assert_eq!(refused.status.code(), Some(120));
        assert_eq!(other.good(&["id"]), before);
        let forced = with_passphrase(&other, "a b c", &["restore", file, "--force"]);
        assert!(forced.status.success(), "{}", errors(&forced));
        assert_eq!(other.good(&["id"]), identity);
    }

    #[test]
    fn without_a_passphrase_nothing_is_written() {
        let home = Home::new();
        home.good(&["id"]);
        let file = home.path().join("home.age");
        assert!(home.bad(120, &["backup", file.to_str().unwrap()]).contains("passphrase"));
        assert!(!file.exists());
    }

    #[test]
    fn a_file_that_is_no_backup_is_refused() {
        let home = Home::new();
        let file = home.path().join("other");
        fs::write(&file, "something else").unwrap();
        let output = with_passphrase(&home, "x", &["restore", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(120));
        assert!(errors(&output).contains("not a backup"), "{}", errors(&output));
    }
}
