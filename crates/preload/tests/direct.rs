//! Connections that the kernel does not know (`LEVADA_FAST_DIRECT=1`), between real processes.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use crate::library::{compiled, with_library};

/// The sockets of a program.
#[derive(Clone, Copy, PartialEq)]
enum Sockets {
    Plain,
    Fast,
    Direct,
}

/// A program of these tests, which ends with the test.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &PathBuf, arguments: &[&str], sockets: Sockets) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        if sockets != Sockets::Plain {
            with_library(&mut command);
        }
        if sockets == Sockets::Direct {
            command.env("LEVADA_FAST_DIRECT", "1");
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads lines until there were so many that `is_wanted` accepts. Returns all of them.
    fn lines_until(&mut self, count: usize, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.iter().filter(|line: &&String| is_wanted(line)).count() < count {
            let line = self.line();
            assert!(!line.is_empty() && lines.len() < 1_000_000, "it has ended after {lines:?}");
            lines.push(line);
        }
        lines
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; returns the rest of its output.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections of one client and one server; returns how many the kernel does not know.
fn direct_of(way: &str, count: usize, server: Sockets, client: Sockets) -> usize {
    let program = compiled("probes/direct.c", &[]);
    let number = count.to_string();
    let mut running = Running::start(&program, &["server", way, &number], server);
    let port = running.line();
    let output = Running::start(&program, &["client", way, &number, &port], client).end();
    running.end();
    output.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn connections_are_made_without_the_kernel() {
    for way in ["blocking", "nonblocking", "select", "level", "edge"] {
        let direct = direct_of(way, 30, Sockets::Direct, Sockets::Direct);
        // The kernel makes the first ones: until the server has accepted one, and its client has
        // asked for the listener.
        assert!(direct >= 20, "{way}: {direct} of 30");
    }
}

#[test]
fn without_the_option_at_both_ends_the_kernel_makes_all() {
    for (server, client) in [
        (Sockets::Fast, Sockets::Direct),
        (Sockets::Direct, Sockets::Fast),
        (Sockets::Plain, Sockets::Direct),
        (Sockets::Direct, Sockets::Plain),
    ] {
        assert_eq!(direct_of("blocking", 5, server, client), 0);
    }
}

/// A server of `rules.c` and its port.
fn server(port: &str, way: &str, sockets: Sockets) -> (Running, String) {
    let mut server = Running::start(&rules(), &["echo", port, way], sockets);
    let port = server.line();
    (server, port)
}

fn rules() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("probes/rules.c", &["-pthread"])).clone()
}

fn client(port: &str, way: &str) -> Running {
    Running::start(&rules(), &["client", port, way], Sockets::Direct)
}

/// A client of `edges.c`.
fn edges(port: &str, more: &[&str]) -> Running {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compiled("probes/edges.c", &["-pthread"]));
    Running::start(program, &[&[port], more].concat(), Sockets::Direct)
}

/// The client of a server that is killed, and started again without the library, gets the new one:
/// no connection is made to a dead process.
#[test]
fn a_server_that_is_started_again_without_the_library_gets_its_clients() {
    let (mut first, port) = server("0", "plain", Sockets::Direct);
    let mut client = client(&port, "plain");
    client.lines_until(20, |line| line == "direct f");
    first.kill();
    let (mut second, _) = server(&port, "plain", Sockets::Plain);
    let lines = client.lines_until(20, |line| line == "kernel p");
    assert!(!lines.iter().any(|line| line == "direct p"), "{lines:?}");
    second.kill();
    let (_third, _) = server(&port, "plain", Sockets::Direct);
    client.lines_until(20, |line| line == "direct f");
}

/// Clients that are killed at any step keep no other client from the server.
#[test]
fn clients_that_are_killed_keep_no_other_from_the_server() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    for _ in 0..20 {
        let mut killed: Vec<Running> = (0..2).map(|_| client(&port, "plain")).collect();
        // At a step of the next one.
        killed.iter_mut().for_each(|one| drop(one.lines_until(4, |_| true)));
        killed.iter_mut().for_each(Running::kill);
    }
    client(&port, "plain").lines_until(20, |line| line == "direct f");
}

#[test]
fn what_is_unusual_is_made_by_the_kernel() {
    for way in ["reuseport", "fastopen", "inherited"] {
        let (_server, port) = server("0", way, Sockets::Direct);
        let lines = client(&port, "plain").lines_until(30, |_| true);
        assert!(lines.iter().all(|line| line == "kernel f"), "{way}: {lines:?}");
    }
    let (_server, port) = server("0", "plain", Sockets::Direct);
    client(&port, "plain").lines_until(5, |line| line == "direct f");
    let lines = client(&port, "bound").lines_until(30, |_| true);
    assert!(lines.iter().all(|line| line == "kernel f"), "{lines:?}");
}

#[test]
fn what_bypasses_the_library_or_has_no_way_back_fails() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    let mut client = client(&port, "limits");
    assert_eq!(client.line(), "done");
}

#[test]
fn a_program_gets_all_descriptors_that_it_may_have() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    let mut client = client(&port, "descriptors");
    assert_eq!(client.line(), "done");
}

/// At the limit of descriptors, the program gets that of the library's stock, too, and as many as
/// the library leaves to each program.
#[test]
fn a_server_accepts_until_no_descriptor_is_left() {
    let (mut server, port) = server("0", "full", Sockets::Direct);
    let mut clients = edges(&port, &["many"]);
    let count: usize = server.line().parse().unwrap();
    // Of 200, the library has 20 at most.
    assert!((170..197).contains(&count), "{count}");
    assert_eq!(clients.line(), "done");
    drop(clients);
    client(&port, "plain").lines_until(5, |line| line == "direct f");
}

#[test]
fn a_listener_that_a_message_has_given_away_is_served_by_the_kernel() {
    let (_server, port) = server("0", "passed", Sockets::Direct);
    let lines = client(&port, "plain").lines_until(3, |line| line == "kernel c");
    assert!(lines.iter().all(|line| line.starts_with("kernel ")), "{lines:?}");
}

#[test]
fn connections_in_another_namespace_are_made_by_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let server = rules();
    let mut both = edges("4100", &["namespace", server.to_str().unwrap()]);
    let lines = both.lines_until(30, |_| true);
    assert!(lines.iter().all(|line| line == "kernel f"), "{lines:?}");
}

#[test]
fn a_program_without_the_library_finds_no_connection() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    let mut other = edges(&port, &["exec"]);
    assert_eq!(other.line(), "done");
}

/// A child has the last descriptor of a connection when its parent has closed it.
#[test]
fn a_child_goes_on_with_a_connection_of_its_parent() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    assert_eq!(edges(&port, &["children"]).line(), "done");
}

/// Segments of a killed child are free again while its parent lives.
#[test]
fn the_segments_of_killed_children_are_used_again() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    assert_eq!(edges(&port, &["orphans"]).line(), "done");
}

/// A client that writes anything into its pool neither ends the server nor keeps another client
/// from it.
#[test]
fn a_hostile_client_harms_no_other_connection() {
    let (mut server, port) = server("0", "plain", Sockets::Direct);
    let mut honest = client(&port, "plain");
    honest.lines_until(5, |line| line == "direct f");
    let mut hostile = edges(&port, &["attack"]);
    assert_eq!(hostile.line(), "done");
    // It goes on for as long as these take.
    honest.lines_until(20, |line| line == "direct f");
    hostile.kill();
    honest.lines_until(20, |line| line == "direct f");
    assert!(server.child.try_wait().unwrap().is_none());
    client(&port, "plain").lines_until(20, |line| line == "direct f");
}

/// A signal that comes while the other process is looked at does not end a connection.
#[test]
fn signals_end_no_connection() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    client(&port, "signals").lines_until(500, |line| line == "direct f");
}

/// Threads that wait in accept(2) or epoll_wait(2) before the queue exists accept from it.
#[test]
fn all_threads_of_a_server_accept() {
    for way in ["threads", "epoll"] {
        let (server, port) = server("0", way, Sockets::Direct);
        let mut client = edges(&port, &["several"]);
        assert_eq!(client.line(), "done", "{way}");
        drop(client);
        server.end();
    }
}

/// Processes that have a listener since a fork take its connections together: one that is stopped
/// or killed leaves them to the others.
#[test]
fn processes_accept_from_one_listener() {
    let (_server, port) = server("0", "forked", Sockets::Direct);
    client(&port, "plain").lines_until(20, |line| line == "direct f");
    let (mut forked, port) = server("0", "prefork", Sockets::Direct);
    let pids = [(); 2].map(|()| Pid::from_raw(forked.line().parse().unwrap()).unwrap());
    client(&port, "plain").lines_until(20, |line| line.starts_with("direct "));
    // Other clients: the process may have a connection when it is stopped.
    kill_process(pids[0], Signal::STOP).unwrap();
    client(&port, "plain").lines_until(20, |line| line == "direct b");
    kill_process(pids[0], Signal::CONT).unwrap();
    kill_process(pids[1], Signal::KILL).unwrap();
    client(&port, "plain").lines_until(20, |line| line == "direct a");
}

/// As TCP shows it: a process that is killed before it has read all resets its connections.
#[test]
fn a_killed_server_resets_what_it_has_not_read() {
    for (of_server, of_client, found) in [("silent", "unread", "reset"), ("plain", "read", "end")] {
        let (mut server, port) = server("0", of_server, Sockets::Direct);
        let mut client = edges(&port, &[of_client]);
        assert_eq!(client.line(), "ready");
        server.kill();
        assert_eq!(client.line(), found, "{of_server}");
    }
}

/// The parent of a killed child, which had the connection too, lives.
#[test]
fn a_killed_child_resets_what_it_has_not_read() {
    let ways = [("silent-workers", "unread", "reset"), ("workers", "read", "end")];
    for (of_server, of_client, found) in ways {
        let (mut server, port) = server("0", of_server, Sockets::Direct);
        let mut client = edges(&port, &[of_client]);
        let child = Pid::from_raw(server.line().parse().unwrap()).unwrap();
        assert_eq!(client.line(), "ready");
        kill_process(child, Signal::KILL).unwrap();
        assert_eq!(client.line(), found, "{of_server}");
    }
}

#[test]
fn options_of_an_accepted_connection_are_those_of_no_other() {
    let (_server, port) = server("0", "options", Sockets::Direct);
    assert_eq!(edges(&port, &["options"]).line(), "done");
}

#[test]
fn a_new_socket_has_nothing_of_the_one_before() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    assert_eq!(edges(&port, &["spares"]).line(), "done");
}

#[test]
fn an_epoll_with_direct_connections_can_be_watched() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    assert_eq!(edges(&port, &["nested"]).line(), "done");
}

/// A server that may have few descriptors, or little memory, takes no client that it could not
/// wake, or whose pool it could not map: the kernel connects them.
#[test]
fn a_server_without_room_for_a_client_loses_no_connection() {
    for limit in ["-n 128", "-v 250000"] {
        let command = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        let program = rules();
        let arguments = ["-c", &command, program.to_str().unwrap(), "echo", "0", "plain"];
        let mut server = Running::start(&PathBuf::from("/bin/sh"), &arguments, Sockets::Direct);
        let port = server.line();
        let mut clients: Vec<_> = (0..4).map(|_| client(&port, "timeout")).collect();
        clients.iter_mut().for_each(|client| drop(client.lines_until(30, |_| true)));
    }
}

#[test]
fn a_quiet_connection_stays_while_no_descriptor_is_left() {
    let (_server, port) = server("0", "plain", Sockets::Direct);
    assert_eq!(edges(&port, &["limit"]).line(), "done");
}

/// The numbers of its processes mean nothing to the server.
#[test]
fn a_client_in_another_namespace_of_processes_has_direct_connections() {
    let mut command = Command::new("unshare");
    if !command.args(["-rpf", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no namespaces of users");
        return;
    }
    let (_server, port) = server("0", "plain", Sockets::Direct);
    let program = rules();
    let arguments = ["-rpf", program.to_str().unwrap(), "client", &port, "plain"];
    let mut client = Running::start(&PathBuf::from("unshare"), &arguments, Sockets::Direct);
    client.lines_until(20, |line| line == "direct f");
}
