//! Checks of the ports and of multicast.

use std::io;

use levada_config::Config;
use levada_core::Identity;
use levada_node::Overrides;
use levada_node::ports::{self, Port};
use serde_json::Value;

use crate::commands::doctor::node::Node;
use crate::commands::doctor::report::Check;
use crate::output;

/// The ports are free, or used by the node of this home. All are bound at the same time, as a start
/// does.
pub fn ports(config: &Config, node: &Node) -> Vec<Check> {
    let (mut checks, own) = match node {
        Node::Runs(status) => (running(status), ports::of_running(status)),
        _ => (Vec::new(), Vec::new()),
    };
    let wanted = ports::wanted(config, &Overrides::default());
    let repeated: Vec<_> = ports::repeated(&wanted).collect();
    let mut bound = Vec::new();
    for port in &wanted {
        if own.iter().any(|own| ports::overlap(*own, port.address)) {
            continue;
        }
        if let Some((_, error)) = repeated.iter().find(|(again, _)| *again == port) {
            // The configuration reports the others: the node does not start.
            if port.is_of_forward() {
                checks.push(Check::wrong("ports", error, "change one of them in config.toml"));
            }
            continue;
        }
        match port.bind() {
            Ok(one) => {
                bound.push(one);
                if own.is_empty() {
                    checks.push(Check::fine("ports", format!("{} is free", shown(port))));
                }
            }
            Err(error) => checks.push(taken(port, error, !own.is_empty())),
        }
    }
    checks
}

/// The addresses at which the running node listens.
fn running(status: &Value) -> Vec<Check> {
    let list = status["listening"].as_array().map(Vec::as_slice).unwrap_or_default();
    let list: Vec<&str> = list.iter().filter_map(|address| address.as_str()).collect();
    let mut checks = vec![Check::fine("ports", format!("the node listens on {}", list.join(", ")))];
    if let Some(address) = status["middlebox"]["listening"].as_str() {
        checks.push(Check::fine("ports", format!("its middlebox listens on {address}")));
    }
    checks
}

fn shown(port: &Port) -> String {
    let address = port.address;
    if port.is_udp { format!("{address} (UDP)") } else { address.to_string() }
}

/// A port that cannot be bound. While a node runs, that concerns its next start.
fn taken(port: &Port, error: io::Error, runs: bool) -> Check {
    let text = format!("{}: {error}", shown(port));
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse if port.is_replaceable => {
            return Check::note("ports", text, "the node takes a free port, and announces it");
        }
        io::ErrorKind::AddrInUse => {
            let options = if port.is_udp { "-lunp" } else { "-ltnp" };
            let number = port.address.port();
            format!(
                "`ss {options} 'sport = {number}'` shows the process; else change `{}` in config.toml",
                port.key
            )
        }
        _ => "give an address of this machine, and a port you may use".to_owned(),
    };
    let effect = match (port.is_of_forward(), runs) {
        (true, _) => "; the forward is not open before",
        (false, true) => "; the next start fails",
        (false, false) => "",
    };
    Check::wrong("ports", text, remedy + effect)
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
