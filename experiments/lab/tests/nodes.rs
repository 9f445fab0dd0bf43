//! Nodes, links and programs without emulation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use levada_lab::{Backend, Change, Lab, LabError, Link, Node, Options};

#[test]
fn nodes_reach_each_other_and_nothing_else() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let a = lab.node("a").unwrap();
    let b = lab.node("b").unwrap();
    let link = lab.link(&a, &b, &Link::new()).unwrap();
    assert_eq!(link.backend(), Backend::Bare);
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
fn multicast_reaches_all_nodes_of_a_segment() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    let mut lab = Lab::new(Options::default()).unwrap();
    let nodes = ["a", "b", "c"].map(|name| lab.node(name).unwrap());
    let outsider = lab.node("d").unwrap();
    let segment = lab.segment(&nodes.each_ref()).unwrap();
    assert_eq!(segment.address(&outsider), None);
    let addresses = nodes.each_ref().map(|node| segment.address(node).unwrap());
    let sockets = nodes.each_ref().map(|node| {
        let std::net::IpAddr::V4(own) = segment.address(node).unwrap() else { panic!() };
        let socket = node.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 4747))).unwrap().unwrap();
        node.run(|| socket.join_multicast_v4(&GROUP, &own)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    });
    let speaker = nodes[0].run(|| UdpSocket::bind((addresses[0], 0))).unwrap().unwrap();
    speaker.send_to(b"all", (GROUP, 4747)).unwrap();
    for socket in &sockets[1..] {
        let mut packet = [0; 8];
        let (length, from) = socket.recv_from(&mut packet).unwrap();
        assert_eq!((&packet[..length], from.ip()), (&b"all"[..], addresses[0]));
    }
    let listener = nodes[2].run(|| TcpListener::bind((addresses[2], 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    nodes[1].run(|| TcpStream::connect(at)).unwrap().unwrap();
    assert_eq!(listener.accept().unwrap().1.ip(), addresses[1]);
    assert!(outsider.run(|| TcpStream::connect(at)).unwrap().is_err());
    let foreign = Lab::new(Options::default()).unwrap().node("foreign").unwrap();
    assert!(matches!(lab.segment(&[&foreign]), Err(LabError::Invalid(_))));
}

/// It connects to others, as a host behind a router with address translation does.
#[test]
fn a_node_that_refuses_connections_and_one_that_is_cut_off() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let nodes = ["a", "b"].map(|name| lab.node(name).unwrap());
    let star = lab.star(&nodes.each_ref(), 100_000_000).unwrap();
    star.limit_uplink(&nodes[0], 10_000_000).unwrap();
    let [a, b] = nodes.each_ref().map(|node| {
        let address = star.address(node).unwrap();
        node.run(|| TcpListener::bind((address, 0))).unwrap().unwrap()
    });
    let connect = |from: &Node, to: &TcpListener, millis| {
        let at = to.local_addr().unwrap();
        let limit = Duration::from_millis(millis);
        from.run(|| TcpStream::connect_timeout(&at, limit)).unwrap()
    };
    connect(&nodes[1], &a, 30_000).unwrap();
    star.refuse_connections(&nodes[0]).unwrap();
    connect(&nodes[0], &b, 30_000).unwrap();
    assert_eq!(connect(&nodes[1], &a, 300).unwrap_err().kind(), ErrorKind::TimedOut);
    star.cut(&nodes[0], true).unwrap();
    assert_eq!(connect(&nodes[0], &b, 300).unwrap_err().kind(), ErrorKind::TimedOut);
    star.cut(&nodes[0], false).unwrap();
    connect(&nodes[0], &b, 30_000).unwrap();
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

#[test]
fn invalid_links_and_nodes_are_refused() {
    let mut lab = Lab::new(Options::default()).unwrap();
    let mut other = Lab::new(Options::default()).unwrap();
    let a = lab.node("a").unwrap();
    let b = lab.node("b").unwrap();
    let foreign = other.node("foreign").unwrap();
    for (from, to) in [(&a, &a), (&a, &foreign)] {
        let error = lab.link(from, to, &Link::new()).unwrap_err();
        assert!(matches!(error, LabError::Invalid(_)), "{error}");
    }
    assert!(matches!(lab.attest(&a, &b), Err(LabError::NoPath(..))));
    let link = lab.link(&a, &b, &Link::new()).unwrap();
    assert!(matches!(link.measures(), Err(LabError::Backend { .. })));
    assert!(matches!(link.change(&Change::default()), Err(LabError::Backend { .. })));
    let unknown = Options { congestion: Some("none such".into()), ..Options::default() };
    assert!(Lab::new(unknown).unwrap().node("a").is_err());
}

#[test]
fn settings_apply_to_every_node_and_measures_are_reset() {
    let options = Options {
        backend: Some(Backend::User),
        congestion: Some("reno".into()),
        tcp_wmem: Some([4096, 20_000, 300_000]),
        ..Options::default()
    };
    let mut lab = Lab::new(options).unwrap();
    let nodes = lab.chain(2, &Link::new().mtu(1400)).unwrap();
    for node in &nodes {
        for (name, value) in lab.settings().iter().filter(|(name, _)| name != "emulator") {
            let read = || std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap();
            let found = node.run(read).unwrap();
            assert_eq!(found.split_whitespace().collect::<Vec<_>>().join(" "), *value, "{name}");
        }
    }
    assert!(lab.settings().iter().any(|(name, _)| name == "emulator"));
    let found = lab.attest(&nodes[0], &nodes[2]).unwrap();
    assert_eq!(found.nodes, ("n0".to_owned(), "n2".to_owned()));
    let there = lab.measures().unwrap().there;
    assert!(there.delivered >= 2 * 31, "each packet over two links: {there:?}");
    assert_eq!(lab.links().len(), 2);
    assert!(lab.links()[1].measures().unwrap().lateness.packets >= 2 * 31);
    lab.reset_measures().unwrap();
    assert_eq!(lab.measures().unwrap(), levada_lab::Measures::default());
}
