//! `forward --stdio`, and the forwards that a node maintains by its configuration.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::forward::*;
use crate::support::{self, Home, Ran, eventually, in_full, own_loopback};
use serde_json::Value;

/// Runs `levada forward --stdio` with this input.
fn stdio(home: &Home, target: &str, input: &[u8]) -> Ran {
    home.with_input(&format!("forward --stdio well/forward -- {target}"), input)
}

#[test]
fn stdio_forwards_one_connection() {
    let home = Home::new();
    let (listener, target) = listener();
    let (gone, refuses) = support::forward::listener();
    drop(gone);
    let _node = home.up_forwarding(&[&target, &refuses]);
    // The first connection is echoed after its end. The second gets more than any buffer holds. The
    // third is reset.
    let large = noise(3, 3_000_000);
    let serving = std::thread::spawn(move || {
        let mut first = accept(&listener);
        let read = read_all(&mut first);
        first.write_all(&read).unwrap();
        drop(first);
        let mut second = accept(&listener);
        second.write_all(&noise(3, 3_000_000)).unwrap();
        drop(second);
        let mut third = accept(&listener);
        third.write_all(b"cut").unwrap();
        third.read_exact(&mut [0]).unwrap();
        reset(third);
        listener
    });
    assert_eq!(stdio(&home, &target, b"question").ok(), "question");
    // It ends with the target, although its own input is open.
    let mut command = home.command(["forward", "--stdio", "well/forward", "--", &target]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes == large, "{} bytes", bytes.len());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // A reset is not an end: it is an error.
    let mut command = home.command(["forward", "--stdio", "well/forward", "--", &target]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut cut = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut cut).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    Ran::from(child.wait_with_output().unwrap()).fails(122, "reset");
    let _listener = serving.join().unwrap();
    stdio(&home, &refuses, b"").fails(122, "Connection refused");
    stdio(&home, "127.0.0.1:1", b"").fails(121, "not allowed");
    home.args(["forward", "--stdio", "well/forward", "--listen", "1", "--", &target])
        .fails(2, "cannot be used with '--listen");
}

/// A server process; killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn git(folder: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=well", "-c", "user.email=well@example"]);
    git.args(["-c", "protocol.ext.allow=always"]).args(args);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder).stdin(Stdio::null());
    git
}

/// A repository `one` with one commit.
fn repository(folder: &Path) {
    fs::create_dir(folder.join("one")).unwrap();
    for words in [
        &["init", "--quiet"][..],
        &["commit", "--quiet", "--allow-empty", "--message", "fresh water"],
    ] {
        Ran::from(git(&folder.join("one"), words).output().unwrap()).ok();
    }
}

fn subject(clone: &Path) -> String {
    Ran::from(git(clone, &["log", "--format=%s"]).output().unwrap()).ok()
}

#[test]
fn git_clones_over_stdio() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let host = own_loopback();
    let base = format!("--base-path={}", folder.path().display());
    let listen = format!("--listen={host}");
    // `git daemon` would start this program as a child, and leave it behind when killed.
    let programs = Ran::from(git(folder.path(), &["--exec-path"]).output().unwrap()).ok();
    let mut daemon = Command::new(Path::new(&programs).join("git-daemon"));
    daemon.args(["--export-all", "--reuseaddr", "--port=9418", &base, &listen]);
    daemon.env("HOME", folder.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let _daemon = Server(daemon.spawn().unwrap());
    eventually("the daemon listens", || TcpStream::connect((host.as_str(), 9418)).is_ok());
    let target = format!("{host}:9418");
    let _node = home.up_forwarding(&[&target]);
    let levada = env!("CARGO_BIN_EXE_levada");
    let url = format!("ext::{levada} forward --stdio well/forward -- {target} %G/one");
    let mut clone = git(folder.path(), &["clone", "--quiet", &url, "two"]);
    Ran::from(clone.env("LEVADA_HOME", home.path()).output().unwrap()).ok();
    assert_eq!(subject(&folder.path().join("two")), "fresh water");
}

/// Against OpenSSH, with `LEVADA_TEST_FULL` (`scripts/test --all` installs it).
#[test]
fn ssh_uses_stdio_as_a_proxy_command() {
    if !in_full() {
        eprintln!("skipped: needs sshd");
        return;
    }
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])
            .output();
        Ran::from(made.unwrap()).ok();
    }
    let host = own_loopback();
    let port = TcpListener::bind((host.as_str(), 0)).unwrap().local_addr().unwrap().port();
    let config = format!(
        "ListenAddress {host}\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n",
        path("host"),
        path("user.pub")
    );
    fs::write(path("sshd_config"), config).unwrap();
    // sshd requires this folder when it runs as root.
    let _ = fs::create_dir_all("/run/sshd");
    let log = fs::File::create(path("sshd.log")).unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f", &path("sshd_config")]).stdin(Stdio::null()).stderr(log);
    let _sshd = Server(sshd.spawn().unwrap());
    let log = || fs::read_to_string(path("sshd.log")).unwrap();
    eventually("sshd listens", || log().contains("Server listening"));
    let target = format!("{host}:{port}");
    let _node = home.up_forwarding(&[&target]);
    let proxy = format!(
        "ProxyCommand={} forward --stdio well/forward -- %h:%p",
        env!("CARGO_BIN_EXE_levada")
    );
    let options = [
        "-F",
        "none",
        "-i",
        &path("user"),
        "-p",
        &port.to_string(),
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
        "-o",
    ]
    .map(str::to_owned);
    let mut ssh = Command::new("ssh");
    ssh.args(&options).args([&proxy, &host, "cat"]).env("LEVADA_HOME", home.path());
    ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ssh.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"fresh water").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "fresh water"), "{}{}", ran.stderr, log());
    let command = format!("ssh {} '{proxy}'", options.join(" "));
    let url = format!("ssh://{host}:{port}{}", path("one"));
    let mut clone = git(folder.path(), &["clone", "--quiet", &url, "two"]);
    clone.env("LEVADA_HOME", home.path()).env("GIT_SSH_COMMAND", command);
    Ran::from(clone.output().unwrap()).ok();
    assert_eq!(subject(&folder.path().join("two")), "fresh water");
}

/// The only forward in `levada status`.
fn forward_of(home: &Home) -> Value {
    let status = home.run("status --json");
    let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
    status["forwards"][0].clone()
}

#[test]
fn a_node_maintains_its_configured_forwards() {
    let home = Home::new();
    let other = Home::new();
    let (listener, target) = listener();
    serve(listener, echo);
    // A port that stays free while the other node is down.
    let service = other.forward_service(&[&target]);
    let up =
        format!("up --name well --http 127.0.0.1:0 --listen {}:5382 {service}", own_loopback());
    let node = other.up_with(&up);
    node.welcome(&home, "well");
    let own = own_loopback();
    let text = format!(
        "[[forward]]\nservice = 'well/forward'\ntarget = '{target}'\nlisten = '{own}:5432'\n"
    );
    fs::write(home.path().join("config.toml"), text).unwrap();
    let client = home.up("--name client");
    let is = |state: &str| eventually(state, || forward_of(&home)["state"] == state);
    let echoes = || {
        let mut stream = with_timeouts(TcpStream::connect((own.as_str(), 5432)).unwrap());
        stream.write_all(b"water").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream) == b"water"
    };
    is("open");
    assert!(echoes());
    let forward = forward_of(&home);
    assert_eq!(forward["listening"], serde_json::json!([format!("{own}:5432")]));
    assert_eq!(
        (&forward["service"], &forward["target"]),
        (&"well/forward".into(), &target.clone().into())
    );
    assert!(home.run("status").ok().contains("well/forward"));
    // The other node is down for a while.
    node.kill();
    is("waiting");
    let doctor = home.run("doctor");
    assert!(doctor.stdout.contains("forward well/forward"), "{}", doctor.stdout);
    let _node = other.up_with(&up);
    is("open");
    assert!(echoes());
    // A missing right is a separate state.
    let config = home.path().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&target, "127.0.0.1:1")).unwrap();
    client.signal("HUP");
    is("refused");
    assert!(forward_of(&home)["text"].as_str().unwrap().contains("not allowed"));
    fs::write(&config, "").unwrap();
    client.signal("HUP");
    eventually("the forward is removed", || {
        home.json("status")["forwards"] == serde_json::json!([])
    });
    assert!(TcpStream::connect((own.as_str(), 5432)).is_err());
    home.run("stop").ok();
    assert_eq!(client.wait(), 0);
}
