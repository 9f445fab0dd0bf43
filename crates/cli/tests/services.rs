//! The service `exec`: input, output and environment of programs, and the end of all their
//! processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use crate::support::{Home, Node, eventually};

const SHELL: &str = r#"
name = "sh"
type = "exec"
directory = "/usr"
client_environment = ["COLOUR"]
inherit_environment = ["PATH"]
environment = { FIXED = "by the node" }
[[command]]
program = "sh"
args = '[\s\S]*'
"#;

fn node_with<'a>(home: &'a Home, service: &str) -> Node<'a> {
    let file = home.path().join("service.toml");
    fs::write(&file, service).unwrap();
    home.up(&format!("--name well --service {}", file.display()))
}

fn in_shell<'a>(options: &[&'a str], text: &'a str) -> Vec<&'a str> {
    [&["run", "well/sh"], options, &["--", "sh", "-c", text]].concat()
}

/// Starts a client and waits for the first line of its program: the client, its output, and the
/// line.
fn started(home: &Home, options: &[&str], text: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut command = home.command(in_shell(options, text));
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (client, output, line)
}

/// Waits until none of these processes exists, not even as a zombie.
fn wait_until_gone(processes: &str) {
    for process in processes.split_whitespace() {
        eventually("the process is gone", || !Path::new("/proc").join(process).exists());
    }
}

#[test]
fn outputs_exit_codes_and_signals_are_reported() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    for (text, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255)] {
        assert_eq!(home.args(in_shell(&[], text)).code, code, "{text}");
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let text = format!("kill -s {signal} $$");
        assert_eq!(home.args(in_shell(&[], &text)).code, code, "{signal}");
    }
    let text = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 9";
    let ran = home.args(in_shell(&[], text));
    assert_eq!(ran.stdout, "out 1\nout 2\nout 3\n");
    assert_eq!(ran.stderr, "err 1\nerr 2\nerr 3\n");
    assert_eq!(ran.code, 9);
}

#[test]
fn the_node_sets_environment_and_directory() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    let ran = home.args(in_shell(&[], "pwd; echo $FIXED,$COLOUR,$LEVADA_HOME,$NO_COLOR"));
    assert_eq!(ran.ok(), "/usr\nby the node,,,");
    let ran = home.args(in_shell(&["--env", "COLOUR=deep blue"], "echo $COLOUR"));
    assert_eq!(ran.ok(), "deep blue");
    for variable in ["FIXED=mine", "PATH=/tmp", "LD_PRELOAD=x", "TERM=xterm"] {
        let (name, _) = variable.split_once('=').unwrap();
        home.args(in_shell(&["--env", variable], "true")).denied(name);
    }
    // The request is refused, so that no unusable capability exists.
    let ran = home.run("request well/sh --env PATH=/tmp -- sh");
    assert_eq!(ran.stdout, "");
    ran.denied("PATH");
}

#[test]
fn pty_works_without_a_local_terminal() {
    let home = Home::new();
    let node = node_with(&home, SHELL);
    let text = "tty -s && stty size && echo err >&2; exit 5";
    let ran = home.args(in_shell(&["--pty"], text));
    assert_eq!((ran.stdout.as_str(), ran.code), ("24 80\r\nerr\r\n", 5));
    assert_eq!(home.args(in_shell(&[], "tty -s")).code, 1);
    drop(node);
    let _node = node_with(&home, &format!("pty = false\n{SHELL}"));
    home.args(in_shell(&["--pty"], "true")).denied("terminal");
}

#[test]
fn a_killed_client_leaves_no_process() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    let texts = [
        // A process group that ignores SIGHUP.
        "trap '' HUP; sleep 1000 & echo $$ $!; wait; sleep 1000",
        // A process in another session (setsid).
        "setsid sleep 1000 & echo $$ $!; wait",
        // A stopped process, which cannot handle signals.
        "sleep 1000 & echo $$ $!; kill -s STOP $$",
    ];
    for options in [&[][..], &["--pty"]] {
        for text in texts {
            let (mut client, _output, line) = started(&home, options, text);
            assert_eq!(line.split_whitespace().count(), 2, "{line}");
            client.kill().unwrap();
            client.wait().unwrap();
            wait_until_gone(&line);
            eventually("no session runs", || home.json("status")["running_sessions"] == 0);
        }
    }
}

#[test]
fn an_ended_program_leaves_no_process() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    // The background process keeps the output open; the client does not wait for it.
    let ran = home.args(in_shell(&[], "sleep 1000 & echo $!; exit 4"));
    assert_eq!(ran.code, 4);
    wait_until_gone(&ran.stdout);
}

/// As [`node_with`], with control groups or without them.
fn node_that_groups<'a>(home: &'a Home, groups: &str) -> Node<'a> {
    let file = home.path().join("service.toml");
    fs::write(&file, SHELL).unwrap();
    let words = format!("--name well --service {}", file.display());
    let line = format!("up --listen 127.0.0.1:0 --http 127.0.0.1:0 {words}");
    home.up_in(&line, &[("LEVADA_CGROUP", groups)])
}

/// Ways to start a process that outlives its parent.
#[test]
fn daemonised_processes_end_with_their_session() {
    let stay = r#"sh -c "echo \$\$ >&3; exec sleep 1000 3>&-""#;
    let texts = [
        format!("setsid {stay} &"),
        format!("({stay} &)"),
        format!("setsid sh -c '({stay} &)'"),
        format!("nohup {stay} >/dev/null 2>&1 &"),
        format!("setsid sh -c 'cd /; exec <&- >&- 2>&-; trap \"\" HUP TERM INT; {stay} & exit'"),
    ];
    for groups in ["on", "off"] {
        let home = Home::new();
        let _node = node_that_groups(&home, groups);
        for text in &texts {
            let file = home.path().join("process");
            let options = ["--pty"];
            for options in [&[][..], &options] {
                let _ = fs::remove_file(&file);
                let name = file.display();
                let whole = format!(
                    "exec 3>{name}; {text}\nuntil [ -s {name} ]; do sleep 0.01; done; exit 4"
                );
                assert_eq!(home.args(in_shell(options, &whole)).code, 4);
                let process = fs::read_to_string(&file).unwrap();
                // No waiting: all processes have ended when the client has its exit code.
                let process = Path::new("/proc").join(process.trim());
                assert!(!process.exists(), "{groups}, {options:?}: {text}");
            }
        }
    }
}

#[test]
fn a_killed_node_leaves_no_program() {
    for groups in ["on", "off"] {
        let home = Home::new();
        let mut node = node_that_groups(&home, groups);
        let text = "trap '' HUP; setsid sleep 1000 & (sleep 1000 &) ; echo $$ $!; wait; sleep 1000";
        let (mut client, _output, line) = started(&home, &[], text);
        node.child.kill().unwrap();
        wait_until_gone(&line);
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
fn the_double_dash_is_optional_unless_the_first_argument_is_an_option() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    let print = "echo $@";
    let ran = home.args(["run", "well/sh", "sh", "-c", print, "x", "-l", "--", "--pty", "--env"]);
    assert_eq!(ran.ok(), "-l -- --pty --env");
    let ran = home.args(["run", "well/sh", "--", "sh", "-c", print, "x", "--", "-l"]);
    assert_eq!(ran.ok(), "-- -l");
    let ran = home.args([
        "run",
        "well/sh",
        "--pty",
        "--env",
        "COLOUR=a",
        "sh",
        "-c",
        "tty -s && echo $COLOUR",
    ]);
    assert_eq!(ran.ok().trim_end(), "a");
    home.args(["run", "well/sh", "-c"]).fails(2, "-c");
    let capability = home.args(["request", "well/sh", "sh", "-c", "exit 3"]).ok();
    assert_eq!(home.args(["connect", &capability]).code, 3);
}

#[test]
fn a_service_of_another_type_is_refused_before_anything_is_started() {
    let home = Home::new();
    let _node = home.up("--name well");
    let capability = home.run("request well/clock").ok();
    for place in ["well/clock", &capability] {
        let verbs = [
            &["show", place, "--", "sleep", "1000"][..],
            &["input", place, "--events", "-"],
            &["catalogue", "ls", "--at", place],
            &["forward", place, "--listen", "127.0.0.1:0", "--", "127.0.0.1:1"],
        ];
        for verb in verbs {
            home.args(verb).fails(2, "`clock` is of type `clock`");
        }
    }
    home.run("show well/nothing -- sleep 1000").fails(1, "nothing");
    // Nothing but the capability was requested, and no program is kept.
    assert_eq!(home.json("sessions")["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(home.json("show --list")["shows"].as_array().unwrap().len(), 0);
    assert_eq!(home.args(["connect", &capability]).code, 0, "the capability was not used");
}

#[test]
fn input_arrives_unchanged_at_every_size() {
    let home = Home::new();
    let _node = node_with(&home, SHELL);
    for size in [0, 1, 65_535, 65_536, 65_537, 1_000_000] {
        let input: Vec<u8> = (0..size).map(|at| u8::try_from(at % 127).unwrap()).collect();
        let mut command = home.command(in_shell(&[], "cat; echo end >&2"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let mut stdin = client.stdin.take().unwrap();
        let sent = input.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
        let output = client.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.stdout == input && output.stderr == b"end\n", "{size}");
    }
    let quoted = "run well/sh -- sh -c exec${IFS}<&-;exit${IFS}6";
    assert_eq!(home.with_input(quoted, &vec![0; 1_000_000]).code, 6);
}

#[test]
fn a_missing_program_is_reported_at_startup_and_stops_no_other_service() {
    let home = Home::new();
    let text = "[[service]]\nname = 'sh'\ntype = 'exec'\ndirectory = '/no/such/folder'\n\
                [[service.command]]\nprogram = 'true'\n[[service]]\nname = 'other'\ntype = 'exec'\n\
                [[service.command]]\nprogram = 'true'\n[[service.command]]\nprogram = 'no-such'\n";
    fs::write(home.path().join("config.toml"), text).unwrap();
    let node = home.up("--name well");
    let errors = ["config.toml:4: key `directory`", "config.toml:13: key `program`", "`no-such`"];
    eventually("the log has the errors", || errors.iter().all(|text| node.log().contains(text)));
    assert_eq!(home.run("run well/other true").code, 0);
    home.run("run well/other no-such").fails(120, "not installed");
    home.run("run well/sh true").fails(120, "/no/such/folder");
    let doctor = home.run("doctor");
    assert_eq!(doctor.code, 1);
    assert!(errors.iter().all(|text| doctor.stdout.contains(text)), "{}", doctor.stdout);
}

#[test]
fn a_shell_is_offered_if_configured() {
    let home = Home::new();
    let node = home.up("--name well");
    home.run("run well/shell --pty").fails(1, "shell");
    drop(node);
    fs::write(home.path().join("config.toml"), "shell = true\n").unwrap();
    let node = home.up("--name well");
    home.run("run well/shell").denied("--pty");
    home.run("run well/shell --pty -- ls").denied("arguments");
    let typed = b"echo is $0 at $PWD; tty -s && exit 6\n";
    let ran = home.with_input("run well/shell --pty", typed);
    assert_eq!(ran.code, 6, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("is -"), "a login shell: {}", ran.stdout);
    // The other default services stay available.
    assert_eq!(home.run("run well/clock").code, 0);
    // The right to use every service does not include the shell.
    let guest = Home::new();
    node.welcome(&guest, "well");
    guest.run("run well/clock").ok();
    guest.run("run well/shell --pty").denied("may not request");
    let code = node.invite("--service shell");
    guest.args(["join", &code, "--as", "well"]).ok();
    assert_eq!(guest.with_input("run well/shell --pty", typed).code, 6);
}

#[test]
fn a_wrong_service_definition_stops_the_node_and_is_located() {
    let home = Home::new();
    let file = home.path().join("service.toml");
    let line = format!("up --listen 127.0.0.1:0 --http 127.0.0.1:0 --service {}", file.display());
    for (text, place) in [
        ("name = 'sh'\ntype = 'exec'\n", "service.toml:1: key `service`"),
        ("name = 'sh'\ntype = 'sell'\n", "service.toml:2: key `type`"),
        ("name = 's h'\ntype = 'echo'\n", "service.toml:1: key `name`"),
        ("name = 'e'\ntype = 'echo'\nframing = 'block:1'\n", "service.toml:3: key `framing`"),
        ("name = 'e'\ntype = 'echo'\ncolour = 1\n", "service.toml:3: key `colour`"),
        ("name = 'sh'\ntype = 'exec'\n[[command]]\nprogram = 'sh'\nargs = '('\n", "service.toml:5"),
        ("name = 'sh'\n\ntype = exec\n", "service.toml:3"),
    ] {
        fs::write(&file, text).unwrap();
        home.run(&line).fails(120, place);
    }
    home.run("up --service nowhere.toml").fails(120, "nowhere.toml");
}
