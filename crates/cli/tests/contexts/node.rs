//! A node that carries sessions of others.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use super::{Parties, Service, curl};
use crate::support::{Home, Ran, eventually};

fn configure(home: &Home, text: &str) {
    std::fs::write(home.path().join("config.toml"), format!("[middlebox]\n{text}")).unwrap();
}

#[test]
fn a_node_is_a_middlebox_and_ends_what_it_carries_when_it_stops() {
    let parties = Parties::new();
    let file = parties.definition(["request-head=r,response-head=rw", ""], false);
    let node = parties.node.up(&format!("--service {file} --allow {}", parties.client.identity()));
    let at = node.address();
    let home = &parties.hops[0];
    configure(
        home,
        &format!("listen = '127.0.0.1:0'\nnext = '{at}'\nadd_response = 'X-Checked: yes'\n"),
    );
    let office = home.up("");
    let address = home.json("status")["middlebox"]["listening"].as_str().unwrap().to_owned();
    assert!(office.log().contains(&format!("lead through {}@{address}", home.identity())));
    let via = format!("{}@{address}:request-head=r,response-head=rw", home.identity());
    let target = format!("{}@{at}/web", parties.node.identity());
    let http = Service::start(&parties.client, &["http", "--via", &via, &target]);
    let page = curl(&["--include", &http.address]);
    assert!(page.contains("x-checked: yes\r\n") && page.ends_with("the page"), "{page}");

    let logged = || {
        let log = office.log();
        log.contains("holds request-head=r,response-head=rw") && log.contains("response 0:")
    };
    eventually("the node's log has what passed", logged);
    let status = home.json("status");
    assert_eq!(status["middlebox"]["sessions"], 1, "{status}");
    assert_eq!(status["middlebox"]["next"][0], at.as_str());
    let text = home.run("status").ok();
    assert!(text.contains(&format!("{address} to {at}; sessions: 1")), "{text}");
    let report = home.run("doctor").stdout;
    assert!(report.contains(&format!("its middlebox listens on {address}")), "{report}");

    // The same node under an address that is not listed.
    let other =
        format!("{}@localhost:{}/web", parties.node.identity(), at.rsplit(':').next().unwrap());
    parties.client.args(["http", "--via", &via, &other]).fails(123, "its policy refuses this");
    let refused = || office.log().contains("is not a listed next party");
    eventually("the log has the refusal", refused);

    home.run("stop").ok();
    assert_eq!(office.wait(), 0);
    assert!(TcpStream::connect(&address).is_err());
    let page = curl(&["--include", &http.address]);
    assert!(page.starts_with("HTTP/1.1 502"), "{page}");
}

#[test]
fn an_error_in_the_configuration_of_a_middlebox_names_its_key() {
    let home = Home::new();
    configure(&home, "listen = '127.0.0.1:0'\nnext = 'box.example'\n");
    let up = "up --listen 127.0.0.1:0 --http 127.0.0.1:0";
    home.run(up).fails(120, "config.toml:3: key `middlebox.next`: expected HOST:PORT");
    configure(&home, "listen = '127.0.0.1:0'\nnext = 'a:1'\nserver = 'unknown'\n");
    home.run(up).fails(120, "config.toml:4: key `middlebox.server`");
    let report = home.run("doctor");
    assert!(report.code == 1 && report.stdout.contains("`middlebox.server`"), "{report:?}");

    configure(&home, "listen = '127.0.0.1:0'\nnext = 'a:1'\n");
    let mut doctor = Command::new("sh");
    doctor.args(["-c", "ulimit -n 2000; exec \"$0\" doctor", env!("CARGO_BIN_EXE_levada")]);
    let report = Ran::from(doctor.env("LEVADA_HOME", home.path()).output().unwrap());
    assert!(report.code == 1 && report.stdout.contains("may need 3584"), "{report:?}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    configure(&home, &format!("listen = '{address}'\nnext = 'a:1'\n"));
    home.run(up).fails(120, &format!("cannot listen on {address} as a middlebox"));
    let report = home.run("doctor");
    let problem = format!("wrong  ports: {address}");
    assert!(report.code == 1 && report.stdout.contains(&problem), "{report:?}");
}
