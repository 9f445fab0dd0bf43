//! Nodes, links and programs, nothing emulated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use levada_lab::{Backend, Lab, LabError, Link, Options};

#[test]
fn nodes_reach_each_other_and_nothing_else() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let joint = lab.link(&a, &b, &Link::new()).unwrap();
    assert_eq!(joint.backend(), Backend::Bare);
    let listener = b.run(|| TcpListener::bind((b.address(), 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    assert!(TcpStream::connect(at).is_err(), "the host has no way there");
    let mut stream = a.run(|| TcpStream::connect(at)).unwrap().unwrap();
    let (mut other, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), a.address());
    stream.write_all(b"hello").unwrap();
    drop(stream);
    let mut text = String::new();
    other.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    drop(lab);
    assert!(matches!(a.run(|| ()), Err(LabError::Gone)));
}

#[test]
fn every_node_of_a_chain_reaches_every_other() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let nodes = lab.chain(3, &Link::new()).unwrap();
    for to in &nodes {
        let listener = to.run(|| TcpListener::bind((to.address(), 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        for from in &nodes {
            from.run(|| TcpStream::connect(at)).unwrap().unwrap();
            assert_eq!(listener.accept().unwrap().1.ip(), from.address());
        }
    }
}

#[test]
fn programs_run_in_the_namespace_and_end_with_the_lab() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let node = lab.node("a").unwrap();
    let output = |script: &str| {
        let child = node.spawn("sh", |command| {
            command.args(["-c", script]).stdout(std::process::Stdio::piped());
        });
        child.unwrap().wait_with_output().unwrap()
    };
    let text = String::from_utf8(output("ip -o address").stdout).unwrap();
    assert!(text.contains(&node.address().to_string()), "{text}");
    assert_eq!(output("exit 7").status.code(), Some(7));
    let mut child = node
        .spawn("sleep", |command| {
            command.arg("600");
        })
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(lab);
    assert!(!child.wait().unwrap().success());
}
