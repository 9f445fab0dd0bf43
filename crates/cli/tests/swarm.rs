//! Sharing with options, and the end of transfers.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::get::{Fixed, Getting, assert_same};
use crate::support::{Home, eventually, exit_code, own_loopback, signal};

/// The command, without the capabilities by which root reads files that its permissions do not
/// allow it to read.
fn without_overrides(command: &Command) -> Command {
    let mut bounded = Command::new("setpriv");
    bounded.arg("--bounding-set=-dac_override,-dac_read_search");
    bounded.arg(command.get_program()).args(command.get_args());
    bounded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bounded.stdin(Stdio::null());
    bounded
}

fn configure(home: &Home, more: &str) {
    let config = format!(
        "listen = \"{}:5382\"\nhttp = \"127.0.0.1:0\"\nannounce = false\n{more}",
        own_loopback()
    );
    fs::write(home.path().join("config.toml"), config).unwrap();
}

#[test]
fn a_file_without_read_permission_is_not_shared() {
    let home = Home::new();
    configure(&home, "");
    let secret = home.path().join("secret");
    fs::write(&secret, b"secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    let mut command = home.command(["share", secret.to_str().unwrap()]);
    if File::open(&secret).is_ok() {
        let bounded = without_overrides(&Command::new("true")).status();
        if !bounded.is_ok_and(|status| status.success()) {
            eprintln!("skipped: this user reads all files, and cannot give up that right");
            return;
        }
        command = without_overrides(&command);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(120), "{text}");
    assert!(text.contains("secret: Permission denied"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn names_of_devices_are_not_shared() {
    let home = Home::new();
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let device = folder.join("aux.txt");
    fs::write(&device, b"1").unwrap();
    let _node = home.up("--name well");
    for path in [&device, &folder] {
        home.args(["share", path.to_str().unwrap()]).fails(120, "Windows reserves");
    }
    assert_eq!(home.json("swarm ls")["shares"], serde_json::json!([]));
}

#[test]
fn a_share_in_the_foreground_ends_and_the_node_goes_on() {
    let well = Fixed::new(100_000);
    let _node = well.up();
    let printed = well.home.path().join("ticket");
    let mut command = well.home.command(["share", well.film.to_str().unwrap(), "--foreground"]);
    command.stdout(File::create(&printed).unwrap()).stderr(Stdio::null());
    let mut sharing = command.spawn().unwrap();
    let ticket = || fs::read_to_string(&printed).unwrap();
    eventually("the ticket is printed", || ticket().ends_with('\n'));
    let alice = Home::new();
    let target = alice.path().join("out");
    let get = || alice.args(["get", ticket().trim(), "-o", target.to_str().unwrap()]);
    get().ok();
    assert_same(&well.film, &target);
    assert!(sharing.try_wait().unwrap().is_none());
    signal(sharing.id(), "INT");
    assert_eq!(exit_code(&mut sharing), 128 + 2);
    assert_eq!(well.home.json("swarm ls")["shares"], serde_json::json!([]));
    fs::remove_file(&target).unwrap();
    get().denied("revoked");
    // Also if it is killed.
    let mut sharing = command.spawn().unwrap();
    eventually("it is shared", || {
        well.home.json("swarm ls")["shares"].as_array().unwrap().len() == 1
    });
    sharing.kill().unwrap();
    sharing.wait().unwrap();
    eventually("it has ended", || well.home.json("swarm ls")["shares"] == serde_json::json!([]));
}

/// And says how to go on; the owner sees who it is.
#[test]
fn an_interrupted_download_goes_on_by_the_same_command() {
    let well = Fixed::new(1_000_000);
    let node = well.up();
    let ticket = well.share(&["--upload-limit", "50K"]);
    let alice = Home::new();
    let invitation = node.invite("--name alice");
    alice.args(["join", &invitation, "--as", "well"]).ok();
    let [target, printed] = ["out", "printed"].map(|name| alice.path().join(name));
    let mut command = alice.command(["get", &ticket, "-o", target.to_str().unwrap()]);
    command.stdout(Stdio::null()).stderr(File::create(&printed).unwrap());
    let mut getting = command.spawn().unwrap();
    eventually("it has a part", || well.home.json("swarm status 1")["served"]["sent"] != 0);
    let peer = well.home.json("swarm status 1")["served"]["peers"][0].clone();
    assert_eq!((&peer["name"], &peer["identity"]), (&"alice".into(), &alice.identity().into()));
    assert!(well.home.run("swarm status 1").ok().contains("\nalice (lv"));
    // By the second one, the first is stored.
    eventually("a second one has left", || {
        well.home.json("swarm status 1")["served"]["sent"].as_u64() > Some(65_536)
    });
    signal(getting.id(), "INT");
    assert_eq!(exit_code(&mut getting), 128 + 2);
    let said = fs::read_to_string(&printed).unwrap();
    assert!(said.ends_with("run the same command again to go on.\n"), "{said}");
    let again = Getting::start(&alice, &ticket, &target, &[]);
    eventually("it goes on with what it has", || again.most("started", "have") > 0);
}

#[test]
fn a_single_replica_is_warned_of() {
    let well = Fixed::new(1000);
    let _node = well.up();
    let share = |replicas: &str| {
        let film = well.film.to_str().unwrap();
        let ran = well.home.args(["share", film, "--mode", "mediated", "--replicas", replicas]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stderr
    };
    let warning = "--replicas 1: a chunk is read again when the only peer that keeps it leaves";
    assert!(share("1").contains(warning));
    assert!(!share("2").contains("--replicas"));
}

/// A download that takes minutes, of which a part is there.
fn begun(home: &Home, ticket: &str, target: &Path) -> Getting {
    let getting = Getting::start(home, ticket, target, &[]);
    eventually("a part is there", || getting.most("progress", "received") > 0);
    getting
}

#[test]
fn a_running_transfer_ends_with_its_ticket_and_with_its_share() {
    let well = Fixed::new(6_000_000);
    let _node = well.up();
    let options = ["--chunk", "16Ki", "--upload-limit", "50K"];
    let tickets = [(); 2].map(|()| well.share(&options));
    let homes = [Home::new(), Home::new()];
    let [first, second] = [0, 1].map(|number| {
        let home = &homes[number];
        begun(home, &tickets[number], &home.path().join("out"))
    });
    let shown = well.home.args(["swarm", "status", "1"]).ok();
    let provider = homes[0].identity();
    let line = shown.lines().find(|line| line.starts_with(&provider)).unwrap();
    assert!(line.contains(" provider "), "{shown}");
    let served = well.home.json("swarm status 1")["served"].take();
    assert!(served["sent_rate"].as_u64().unwrap() > 0, "{served}");

    let ended = well.home.args(["swarm", "revoke", &tickets[0], "--json"]).ok();
    assert!(ended.contains("\"ended\":1") || ended.contains("\"ended\": 1"), "{ended}");
    assert_eq!(first.wait().0, 121);
    let peers = || well.home.json("swarm status 1")["served"]["peers"].as_array().unwrap().len();
    eventually("one peer is left", || peers() == 1);
    well.home.run("swarm stop 1").ok();
    let (code, events) = second.wait();
    assert_eq!(code, 121);
    let last = events.iter().rfind(|event| event["event"] == "progress").unwrap();
    assert!(last["received"].as_u64().unwrap() < 6_000_000);
    assert!(last["from_node"].is_u64() && last["top_peers"].is_object(), "{last}");
}

/// A node that accepts two connections serves three peers, and a fourth is one too many for the
/// shares.
#[test]
fn peers_of_shares_have_a_limit_of_their_own() {
    let well = Fixed::new(6_000_000);
    fs::write(
        well.home.path().join("config.toml"),
        "[limits]\nconnections = 2\n[swarm]\npeers = 3\n",
    )
    .unwrap();
    let node = well.up();
    let ticket = well.share(&["--chunk", "16Ki", "--upload-limit", "100K"]);
    let homes = [(); 4].map(|()| Home::new());
    let guest = Home::new();
    node.welcome(&guest, "well");
    let target = |home: &Home| home.path().join("out");
    let running: Vec<Getting> =
        homes[..3].iter().map(|home| begun(home, &ticket, &target(home))).collect();
    let get = ["get", &ticket, "-o", target(&homes[3]).to_str().unwrap()].map(str::to_owned);
    homes[3].args(&get).denied("as many peers as it allows");
    // Connections of others are still possible, and end no transfer.
    guest.run("query well").ok();
    let peers = || well.home.json("swarm status 1")["served"]["peers"].as_array().unwrap().len();
    assert_eq!(peers(), 3);
    drop(running);
    eventually("the peers are gone", || peers() == 0);
    let again = begun(&homes[3], &ticket, &target(&homes[3]));
    assert_eq!(peers(), 1);
    drop(again);
}
