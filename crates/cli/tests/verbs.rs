//! Properties of every verb: exit codes, `--json`, closed outputs, logs, and databases of newer
//! versions.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Home, Ran};
use serde_json::Value;

const UP: &str = "up --name well --listen 127.0.0.1:0 --http 127.0.0.1:0";

#[test]
fn every_verb_that_reads_prints_one_object_with_its_schema() {
    let home = Home::new();
    let _node = home.up("--name well");
    let capability = home.run("request well/clock").ok();
    let inspect = format!("inspect {capability}");
    for line in [
        "id",
        "query well",
        "query well/clock",
        "ls",
        "peers ls",
        "status",
        "sessions",
        "sessions --log",
        "access",
        "invite ls",
        "group ls",
        "doctor",
        &inspect,
    ] {
        let printed = home.run(&format!("{line} --json")).ok();
        assert_eq!(printed.lines().count(), 1, "{line}: {printed}");
        let object: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(object["schema"], 2, "{line}");
        assert!(object.as_object().unwrap().len() > 1, "{line}: {printed}");
    }
    assert_eq!(home.json("id")["identity"], home.identity());
}

#[test]
fn standard_output_holds_results_only() {
    let home = Home::new();
    let _node = home.up("--name well");
    let capability = home.run("request well/clock --uses 2").ok();
    let granted = home.args(["grant", &capability, "--to", &home.identity(), "--rights", "x"]).ok();
    for text in [&capability, &granted] {
        assert!(text.starts_with("lvcap1") && !text.contains(['\n', ' ']), "{text}");
    }
    let invitation = home.run("invite").ok();
    assert!(invitation.starts_with("levada join lvinv1") && !invitation.contains('\n'));
}

#[test]
fn levada_alone_and_help_print_an_overview() {
    let home = Home::new();
    let overview = home.run("").ok();
    assert!(overview.lines().count() <= 14 && overview.contains("invite"), "{overview}");
    assert_eq!(home.run("help").ok(), overview);
    assert!(home.run("help run").ok().contains("levada run"));
    assert!(home.run("help --all").ok().contains("terminate"));
    home.run("help rnu").fails(1, "did you mean `run`?");
    home.run("man rnu").fails(1, "did you mean `run`?");
}

#[test]
fn a_refusal_lists_what_is_open() {
    let home = Home::new();
    let _node = home.up("--name well --demo");
    home.run("run well/exce").fails(1, "open to this identity: clock, echo, exec");
    home.run("run well/exec -- rm x").fails(121, "is not allowed, only ");
    let guest = Home::new();
    let invitation = home.run("invite --service clock").ok();
    let code = invitation.trim_start_matches("levada join ").trim();
    guest.args(["join", code]).ok();
    guest.run("run well/exec -- date").fails(121, "only clock");
    // Programs are shown to those who may request them.
    let programs = "the program and its arguments: uname, date, cat";
    assert!(home.run("query well/exec").ok().contains(programs));
    assert!(!guest.run("query well/exec").ok().contains("uname"));
}

#[test]
fn exit_codes_name_the_kind_of_failure() {
    let home = Home::new();
    let _node = home.up("--name well");
    home.run("query well/nothing").fails(1, "offers no service `nothing`");
    for (wrong, text) in [
        ("fly", "unrecognized subcommand 'fly'"),
        ("rnu", "Did you mean `run`?"),
        ("ssh well", "levada run NODE/shell"),
        ("run wel/clock", "Did you mean `well`?"),
        ("run", "required arguments were not provided"),
        ("run well", "NODE/SERVICE"),
        ("grant x", "required arguments were not provided"),
        ("up --listen here", "invalid value 'here'"),
        ("sessions --limit 0", "invalid value '0'"),
    ] {
        home.run(wrong).fails(2, text);
    }
    home.run("inspect @/nowhere").fails(120, "/nowhere");
    home.run("query unknown").fails(2, "unknown");
    let invitation = home.run("invite").ok();
    for garbled in ["lvcap1abc", "@up.log", &invitation[12..40]] {
        let not_revocable =
            if garbled.starts_with("lvinv1") { "no identity is known" } else { "not a capability" };
        for (line, text) in [
            (format!("inspect {garbled}"), "not a capability"),
            (format!("connect {garbled}"), "not a capability"),
            (format!("terminate {garbled}"), "not a capability"),
            (format!("revoke {garbled}"), not_revocable),
            (format!("join {garbled}"), "not an invitation"),
            (format!("grant {garbled} --to {} --rights x", home.identity()), "not a capability"),
        ] {
            let mut command = home.command(line.split_whitespace());
            Ran::from(command.current_dir(home.path()).output().unwrap()).fails(2, text);
        }
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = format!("{}@{free}", Home::new().identity());
    for line in
        [format!("query {place}"), format!("run {place}/clock"), format!("request {place}/clock")]
    {
        home.run(&line).fails(122, "unreachable");
    }
}

#[test]
fn a_wrong_configuration_stops_the_node_and_names_file_line_and_key() {
    let home = Home::new();
    let file = home.path().join("config.toml");
    for (text, place) in [
        ("nome = 'a'\n", "config.toml:1: key `nome`: it is unknown; did you mean `name`?"),
        ("\n\nallow = ['lvx']\n", "config.toml:3: key `allow[0]`"),
        ("[limits]\nhalf_open = -1\n", "config.toml:2: key `limits.half_open`"),
        ("session_expires = 5\n", "config.toml:1: key `session_expires`"),
        ("[[service]]\nname = 'e'\ntype = 'ech'\n", "config.toml:3: key `type`"),
        ("name = \n", "config.toml:1:"),
    ] {
        fs::write(&file, text).unwrap();
        home.run(UP).fails(120, place);
    }
}

/// Files that were valid for `doctor`, and that `up` refused.
#[test]
fn doctor_and_up_refuse_the_same_configurations() {
    let home = Home::new();
    let file = home.path().join("config.toml");
    let service = |text: &str| format!("[[service]]\nname = 'a'\n{text}");
    let hop = "type = 'http'\norigin = '127.0.0.1:1'\n[[service.middlebox]]\n";
    let identity = Home::new().identity();
    for (text, place) in [
        (service("type = 'ech'"), "ech"),
        (service("type = 'forward'\nallow = ['a b']"), "a b"),
        (service("type = 'forward'\nallow = ['127.0.0.1:99999']"), "99999"),
        (service(&format!("{hop}identity = 'unpinned'")), "`unpinned`"),
        (service(&format!("{hop}identity = '{identity}'\nallow = 'heads=r'")), "heads"),
        (service("type = 'http'\norigin = 'http://127.0.0.1:1'"), "without `http://`"),
        (service("type = 'catalogue'\nrules = ['rule']"), "rule"),
        (service("type = 'invoke'\nstart = ['nowhere/exec']"), "nowhere"),
        ("[http]\n".to_owned(), "http"),
        ("http_tls = { cert = 'absent.pem', key = 'absent.key' }\n".to_owned(), "absent.pem"),
        ("allow = ['unpinned']\n".to_owned(), "unpinned"),
        (
            "[middlebox]\nlisten = '127.0.0.1:0'\nnext = 'a:1'\nserver = 'unpinned'\n".to_owned(),
            "unpinned",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        home.run(UP).fails(120, place);
        home.run("up --check").fails(120, place);
        let doctor = home.run("doctor");
        assert!(doctor.code == 1 && doctor.stdout.contains(place), "{text}: {doctor:?}");
    }
    fs::write(&file, service("type = 'exec'\n[[service.command]]\nprogram = 'absent-program'\n"))
        .unwrap();
    let checked = home.run("up --check");
    assert!(checked.stderr.contains("absent-program"), "{checked:?}");
    assert_eq!(checked.ok().trim(), "the configuration is valid");
    // A check creates nothing.
    let new = Home::new();
    new.run("up --check").ok();
    let files = fs::read_dir(new.path()).unwrap().map(|one| one.unwrap().file_name());
    assert_eq!(files.filter(|name| name != "run").count(), 0);
}

/// Writes the schema version (`user_version`) in the header of an SQLite file: the previous one.
fn set_version(database: &Path, version: u32) -> u32 {
    const USER_VERSION: u64 = 60; // https://sqlite.org/fileformat2.html section 1.3
    let mut file = OpenOptions::new().read(true).write(true).open(database).unwrap();
    let mut before = [0; 4];
    file.seek(SeekFrom::Start(USER_VERSION)).unwrap();
    file.read_exact(&mut before).unwrap();
    file.seek(SeekFrom::Start(USER_VERSION)).unwrap();
    file.write_all(&version.to_be_bytes()).unwrap();
    u32::from_be_bytes(before)
}

#[test]
fn databases_of_a_newer_version_are_refused_and_stay_as_they_are() {
    let home = Home::new();
    drop(home.up("--name well"));
    let node = home.up("--name well");
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    let node_db = home.path().join("node.db");
    let known_db = home.path().join("known.db");
    let newest = set_version(&node_db, 99);
    let before = fs::read(&node_db).unwrap();
    home.run(UP).fails(120, "node.db");
    home.run(UP).fails(120, "99");
    let report = home.run("doctor");
    assert_eq!(report.code, 1);
    let remedies: Vec<&str> =
        report.stdout.lines().filter(|line| line.contains("remedy")).collect();
    assert!(remedies.iter().any(|line| line.contains("or a later one")), "{}", report.stdout);
    assert!(!remedies.iter().any(|line| line.contains("levada restore")), "{}", report.stdout);
    home.with_passphrase("p", "backup home.age").fails(120, "99");
    assert!(fs::read(&node_db).unwrap() == before);
    set_version(&node_db, newest);
    drop(home.up_with(UP));
    set_version(&known_db, 99);
    home.run("query well").fails(120, "known.db");
    home.run(UP).fails(120, "known.db");
}

#[test]
fn a_closed_output_is_no_error_for_any_verb() {
    let home = Home::new();
    let _node = home.up("--name well");
    for line in [
        "id",
        "id --json",
        "status",
        "sessions",
        "query well",
        "peers ls",
        "completions bash",
        "man",
        "--help",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = home.command(line.split_whitespace());
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn verbose_clients_log_to_standard_error() {
    let home = Home::new();
    let node = home.up("--name well");
    let plain = home.run("run well/clock");
    assert_eq!(plain.stderr, "");
    let time = plain.ok();
    for options in ["-v run well/clock", "run -v well/clock", "run well/clock --verbose"] {
        let ran = home.run(options);
        assert!(ran.stderr.contains("DEBUG"), "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains("operation=\"start\""), "{options}: {}", ran.stderr);
        assert_eq!(
            ran.ok().lines().count(),
            time.lines().count(),
            "the log is not on standard output"
        );
    }
    let mut command = home.command(["query", "well"]);
    let ran = Ran::from(command.env("RUST_LOG", "levada_client=debug").output().unwrap());
    assert!(ran.stderr.contains("operation=\"query\""), "{}", ran.stderr);
    let mut command = home.command(["query", "well"]);
    let ran = Ran::from(command.env("RUST_LOG", "a=b=c").output().unwrap());
    assert!(ran.stderr.contains("nothing is logged"), "{}", ran.stderr);
    ran.ok();

    // A line of the node's log names service and session.
    let capability = home.run("request well/clock").ok();
    let session = home.json(&format!("inspect {capability}"))["session"].take();
    let session = format!("service=\"clock\" session={}", session.as_str().unwrap());
    home.args(["connect", &capability]).ok();
    for operation in ["request", "connect"] {
        let line = format!("operation=\"{operation}\" {session}");
        support::eventually(&line, || node.log().contains(&line));
    }
}

#[test]
fn the_audit_log_holds_programs_and_targets() {
    let home = Home::new();
    let web = home.path().join("web.toml");
    let rule = "name = 'web'\ntype = 'forward'\nallow = ['127.0.0.1:9']\n";
    fs::write(&web, rule).unwrap();
    let _node = home.up(&format!("--name well --demo --service {}", web.display()));
    let capability = home.run("request well/exec -- uname -s").ok();
    home.args(["connect", &capability]).ok();
    home.run("request well/web -- 127.0.0.1:9").ok();
    let link = home.json(&format!("inspect {capability}"))["links"][0]["id"].take();
    let log = home.json("sessions --log")["log"].take();
    let entry = |operation: &str, service: &str| {
        let fits = |one: &&Value| one["operation"] == operation && one["service"] == service;
        log.as_array().unwrap().iter().find(fits).unwrap().clone()
    };
    for operation in ["request", "connect"] {
        let entry = entry(operation, "exec");
        // The program, without its arguments.
        assert_eq!((&entry["text"], &entry["capability"]), (&"uname".into(), &link));
    }
    assert_eq!(entry("request", "web")["text"], "127.0.0.1:9");
    let table = home.run("sessions --log").ok();
    assert!(table.contains(&link.as_str().unwrap()[..16]) && table.contains("uname"), "{table}");
}

#[test]
fn printed_commands_can_be_pasted() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("my $HOME; it's");
    fs::create_dir(&folder).unwrap();
    let home = Home::new();
    let service = home.path().join("time.toml");
    fs::write(&service, "name = 'time'\ntype = 'clock'\n").unwrap();
    // The name of a service does not imply its type.
    let config = "[[service]]\nname = 'clock'\ntype = 'forward'\nallow = ['127.0.0.1:9']\n";
    fs::write(folder.join("config.toml"), config).unwrap();
    let mut up = home.command(["up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    up.args(["--name", "pasted", "--service"]).arg(&service).env("LEVADA_HOME", &folder);
    let log = home.path().join("log");
    let mut node = up.stdout(fs::File::create(&log).unwrap()).spawn().unwrap();
    let pasted = |ends: &str| {
        let mut line = None;
        support::eventually(ends, || {
            let text = fs::read_to_string(&log).unwrap();
            line = text.lines().find(|line| line.ends_with(ends)).map(str::to_owned);
            line.is_some()
        });
        Ran::from(Command::new("sh").args(["-c", &line.unwrap()]).output().unwrap()).ok()
    };
    let invitation = pasted(" invite");
    pasted(" run pasted/time");
    let joined = Home::new().args(["join", &invitation]);
    node.kill().unwrap();
    node.wait().unwrap();
    let hint = "Try it:  levada forward pasted/clock --listen 8080 -- 127.0.0.1:9";
    assert!(joined.stderr.contains(hint), "{}", joined.stderr);
    joined.ok();
}

#[test]
fn completions_and_manual_pages_are_printed() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.run(&format!("completions {shell}")).ok().contains("levada"), "{shell}");
    }
    assert!(home.run("man").ok().contains(".TH levada"));
    for verb in ["up", "run", "grant", "restore"] {
        assert!(home.run(&format!("man {verb}")).ok().contains(verb), "{verb}");
    }
    home.run("completions tcsh").fails(2, "invalid value 'tcsh'");
}
