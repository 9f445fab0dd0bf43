//! Checks of the ports and of multicast.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use levada_core::Identity;
use levada_node::config::{Config, Http};

use crate::commands::doctor::node::Node;
use crate::commands::doctor::report::Check;
use crate::output;

const PORT: u16 = 5382;
const HTTP_PORT: u16 = 5383;

/// The ports are free, or used by the node of this home.
pub fn ports(config: &Config, node: &Node) -> Vec<Check> {
    if let Node::Runs(status) = node {
        let list = status["listening"].as_array().map(Vec::as_slice).unwrap_or_default();
        let list: Vec<&str> = list.iter().filter_map(|address| address.as_str()).collect();
        let mut checks =
            vec![Check::fine("ports", format!("the node listens on {}", list.join(", ")))];
        if let Some(address) = status["middlebox"]["listening"].as_str() {
            checks.push(Check::fine("ports", format!("its middlebox listens on {address}")));
        }
        return checks;
    }
    let mut checks = Vec::new();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    match &config.listen {
        Some(list) => checks.extend(list.iter().map(|address| port(*address, true))),
        None => checks.push(port(any, false)),
    }
    match config.http {
        Http::At(address) => checks.push(port(address, true)),
        Http::Standard => {
            checks.push(port(SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT)), false))
        }
        Http::Off => {}
    }
    checks.extend(config.middlebox.iter().map(|middlebox| port(middlebox.listen, true)));
    checks
}

fn port(address: SocketAddr, configured: bool) -> Check {
    let error = match TcpListener::bind(address) {
        Ok(_) => return Check::fine("ports", format!("{address} is free")),
        Err(error) => error,
    };
    let text = format!("{address}: {error}");
    match error.kind() {
        io::ErrorKind::AddrInUse if !configured => {
            Check::note("ports", text, "the node takes a free port, and announces it")
        }
        io::ErrorKind::AddrInUse => {
            let remedy = format!("`ss -ltnp 'sport = {}'` shows the process", address.port());
            Check::wrong("ports", text, remedy)
        }
        _ => Check::wrong("ports", text, "give an address of this machine, and a port you may use"),
    }
}

/// Multicast works: nodes can be found by name, and the node of this home is.
pub async fn multicast(config: &Config, node: &Node) -> Check {
    let name = "multicast";
    let usable = match levada_discovery::usable_interfaces() {
        Ok(usable) => usable,
        Err(error) => {
            let remedy = "not needed where nodes are named by IDENTITY@host:port";
            return Check::note(name, error, remedy);
        }
    };
    let names: Vec<String> =
        usable.iter().map(|interface| output::plain(&interface.name)).collect();
    let names = names.join(", ");
    if config.announce && cannot_be_found(node).await {
        let text = format!("the node does not receive its own announcement on {names}");
        let remedy = "wait if it has just started; else check for --no-announce, and for a \
                      firewall that drops UDP port 5353";
        return Check::note(name, text, remedy);
    }
    if usable.iter().all(|interface| interface.is_loopback) {
        let remedy = "join nodes of other machines by invitation, or write IDENTITY@host:port";
        return Check::note(
            name,
            format!("names are found on this machine only ({names})"),
            remedy,
        );
    }
    Check::fine(name, format!("names are announced and found on {names}"))
}

/// Whether the node runs but a query for it finds nothing.
async fn cannot_be_found(node: &Node) -> bool {
    let Node::Runs(status) = node else { return false };
    let identity = status["identity"].as_str().and_then(|text| text.parse::<Identity>().ok());
    match identity {
        Some(identity) => !matches!(levada_discovery::find(&identity).await, Ok(Some(_))),
        None => false,
    }
}
