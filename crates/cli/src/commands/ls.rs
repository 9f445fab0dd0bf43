//! `levada ls`: lists the nodes of this network, and those in the configured catalogues.

mod catalogues;

use crate::commands::query::describe;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Cell, Wide, plain};
use crate::seen::note_services;
use catalogues::Found;
use clap::Args;
use levada_client::{Client, Listed, Listing, Standing};
use levada_config::Config;
use levada_core::MIN_ABBREVIATION;
use levada_home::Home;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// List the nodes of this network, and those that are pinned here, wherever they are
///
/// Takes at most two seconds. A node is *pinned* if its name stands for its key here, *new* if it
/// does not yet, and *conflicting* if more than one key claims the name. Pinned nodes are queried
/// for their services; one that is *away* neither answers nor announces itself, and one that has
/// *denied* the query blocks this identity. Nothing is sent to other nodes. The list also has the
/// services that are *published* in the catalogues of the configuration (`catalogues`).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada ls
  levada ls --type exec
  levada ls --json")]
pub struct Arguments {
    /// Show only services of this type, and only nodes that are known to offer one
    #[arg(long = "type", value_name = "T")]
    kind: Option<String>,

    #[command(flatten)]
    wide: Wide,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HEADING: &[&str] = &["name", "state", "identity", "address", "services"];
/// The column `from` of nodes of the network; shown only if there are nodes of catalogues.
const NETWORK: &str = "network";
/// Maximum number of conflicting names that are explained.
const MAX_EXPLAINED: usize = 8;
/// Maximum number of keys that are listed for each.
const MAX_KEYS: usize = 4;

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    // An invalid configuration prevents a node from starting, but not this query.
    let config = Config::load(&home.config_file()).unwrap_or_else(|error| {
        output::note(format_args!("note: no catalogues are read: {error}"));
        Config::default()
    });
    let client = Arc::new(Client::new(&home)?);
    let (listing, mut found) =
        tokio::join!(client.list(), catalogues::read(&client, &config.catalogues));
    let mut listing = listing?;
    client.close();
    let answered = listing.nodes.iter().filter_map(|node| {
        let services = node.services.as_deref()?;
        Some((&node.identity, services))
    });
    note_services(&home, answered);
    let unasked = match &arguments.kind {
        Some(kind) => {
            keep_published(&mut found, kind);
            keep_type(&mut listing, kind)
        }
        None => 0,
    };
    if arguments.json {
        let nodes: Vec<Value> = listing.nodes.iter().map(node).collect();
        let Listing { more, blind, .. } = &listing;
        let published: Vec<Value> = found.nodes.iter().map(|node| node.describe()).collect();
        output::json(json!({
            "nodes": nodes,
            "more": more,
            "blind": blind,
            "published": published,
        }))?;
    } else {
        print(&listing, &found, arguments.wide)?;
    }
    explain(&listing, unasked);
    for (catalogue, problem) in &found.problems {
        let problem = plain(problem);
        output::note(format_args!("note: the catalogue `{catalogue}`: {problem}"));
    }
    Ok(0)
}

fn print(listing: &Listing, found: &Found, wide: Wide) -> Result<(), Failure> {
    let mut rows: Vec<Vec<Cell>> = listing.nodes.iter().map(row).collect();
    if found.nodes.is_empty() {
        return if rows.is_empty() { Ok(()) } else { output::columns(HEADING, &rows, wide) };
    }
    rows.iter_mut().for_each(|row| row.push(NETWORK.into()));
    rows.extend(found.nodes.iter().map(|node| node.row()));
    output::columns(&[HEADING, &["from"]].concat(), &rows, wide)
}

/// Keeps services of this type.
fn keep_published(found: &mut Found, kind: &str) {
    for node in &mut found.nodes {
        node.services.retain(|service| service.r#type == kind);
    }
    found.nodes.retain(|node| !node.services.is_empty());
}

/// Keeps nodes that are known to have such a service; returns the number of nodes whose services
/// are unknown.
fn keep_type(listing: &mut Listing, kind: &str) -> usize {
    let is_unasked = |node: &&Listed| node.services.is_none() && !node.away;
    let unasked = listing.nodes.iter().filter(is_unasked).count();
    for services in listing.nodes.iter_mut().filter_map(|node| node.services.as_mut()) {
        services.retain(|service| service.r#type == kind);
    }
    listing
        .nodes
        .retain(|node| node.services.as_ref().is_some_and(|services| !services.is_empty()));
    unasked
}

fn state(standing: Standing) -> &'static str {
    match standing {
        Standing::Pinned => "pinned",
        Standing::New => "new",
        Standing::Conflicting => "conflicting",
    }
}

fn node(node: &Listed) -> Value {
    let services = node.services.as_ref();
    json!({
        "name": node.name,
        "identity": node.identity.to_string(),
        "addresses": node.addresses,
        "services": services.map(|services| services.iter().map(describe).collect::<Vec<_>>()),
        "state": state(node.standing),
        "away": node.away,
        "denied": node.denied,
        "trouble": node.trouble,
    })
}

fn row(node: &Listed) -> Vec<Cell> {
    let services = match &node.services {
        Some(services) => {
            let names = services.iter().map(|service| plain(&service.name));
            names.collect::<Vec<_>>().join(", ")
        }
        None => "-".into(),
    };
    let address = node.addresses.first().map_or_else(|| "-".into(), |address| plain(address));
    let state = match node {
        Listed { away: true, .. } => "away",
        Listed { denied: true, .. } => "denied",
        _ => state(node.standing),
    };
    // The short form suffices to distinguish identities; `--wide` and `--json` have the full one.
    let key = Cell::key(&node.identity.to_string(), Some(MIN_ABBREVIATION));
    vec![plain(&node.name).into(), Cell::state(state), key, address.into(), services.into()]
}

/// Prints notes on limitations, errors and conflicts.
fn explain(listing: &Listing, unasked: usize) {
    if let Some(reason) = &listing.blind {
        output::note(format_args!("note: only pinned nodes are shown: {reason}"));
    } else if listing.nodes.is_empty() && unasked == 0 {
        output::note("note: no node announces itself here, and none is pinned");
    }
    if unasked > 0 {
        output::note(format_args!(
            "note: nodes that were not queried or did not answer: {unasked}"
        ));
    }
    if listing.more {
        output::note("note: there are more nodes than are shown");
    }
    for node in listing.nodes.iter().filter(|node| !node.away) {
        if let Some(trouble) = &node.trouble {
            let name = plain(&node.name);
            let trouble = plain(trouble);
            output::note(format_args!("note: `{name}` did not answer: {trouble}"));
        }
    }
    let conflicts = conflicts(&listing.nodes);
    for line in conflicts.iter().take(MAX_EXPLAINED) {
        output::note(line);
    }
    if conflicts.len() > MAX_EXPLAINED {
        let more = conflicts.len() - MAX_EXPLAINED;
        output::note(format_args!("conflict: {more} more names are claimed by several keys"));
    }
}

/// A line for each name that is announced under keys that it does not stand for.
fn conflicts(nodes: &[Listed]) -> Vec<String> {
    let mut claims: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.standing == Standing::Conflicting) {
        claims.entry(&node.name).or_default().push(node);
    }
    let pin = |name: &str| {
        nodes.iter().find(|node| node.name == name && node.standing == Standing::Pinned)
    };
    let line = |(name, claims): (&str, Vec<&Listed>)| {
        let mut keys: Vec<String> = claims.iter().take(MAX_KEYS).map(|node| claim(node)).collect();
        if claims.len() > MAX_KEYS {
            keys.push(format!("{} more", claims.len() - MAX_KEYS));
        }
        let name = plain(name);
        let keys = keys.join(", ");
        match pin(&name) {
            Some(pin) => format!(
                "conflict: `{name}` stands for {} here; nothing was sent to {keys}, which also announce it",
                pin.identity
            ),
            None if claims.len() > 1 => format!(
                "conflict: `{name}` is announced under {} different keys; nothing was sent to {keys}. \
                 Write IDENTITY@host:port for the one you mean",
                claims.len()
            ),
            None => format!(
                "conflict: nothing was sent to {keys}, which announces `{name}`: a node with another key \
                 also has that name, or its own key was rotated away"
            ),
        }
    };
    claims.into_iter().map(line).collect()
}

fn claim(node: &Listed) -> String {
    let address = node.addresses.first().map(|address| plain(address)).unwrap_or_default();
    format!("{} at {address}", node.identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::Identity;
    use levada_core::wire::Service;

    fn listed(name: &str, byte: u8, standing: Standing) -> Listed {
        Listed {
            name: name.into(),
            identity: Identity::from_bytes([byte; 32]),
            addresses: vec!["192.0.2.1:7".into(), "192.0.2.2:7".into()],
            standing,
            services: None,
            away: false,
            denied: false,
            trouble: None,
        }
    }

    fn service(name: &str, kind: &str) -> Service {
        Service { name: name.into(), r#type: kind.into(), ..Service::default() }
    }

    #[test]
    fn a_row_has_name_state_key_address_and_services() {
        let mut node = listed("well", 1, Standing::Pinned);
        node.services = Some(vec![service("a\u{1b}b", "echo"), service("clock", "clock")]);
        let key = Cell::key(&node.identity.to_string(), Some(10));
        let expected = [
            "well".into(),
            Cell::state("pinned"),
            key,
            "192.0.2.1:7".into(),
            "a\\u{1b}b, clock".into(),
        ];
        assert_eq!(row(&node), expected);
        let new = listed("new", 2, Standing::New);
        assert_eq!(row(&new)[1], Cell::state("new"));
        assert_eq!(row(&new)[4], Cell::text("-"));
        assert_eq!(row(&Listed { away: true, ..node })[1], Cell::state("away"));
    }

    #[test]
    fn a_type_keeps_nodes_that_are_known_to_offer_it() {
        let mut both = listed("both", 1, Standing::Pinned);
        both.services = Some(vec![service("echo", "echo"), service("run", "exec")]);
        let mut other = listed("other", 2, Standing::Pinned);
        other.services = Some(vec![service("echo", "echo")]);
        let mut away = listed("away", 3, Standing::Pinned);
        away.away = true;
        let nodes = vec![both, other, away, listed("new", 4, Standing::New)];
        let mut listing = Listing { nodes, ..Listing::default() };
        assert_eq!(keep_type(&mut listing, "exec"), 1);
        let [node] = listing.nodes.as_slice() else { panic!("{:?}", listing.nodes) };
        assert_eq!(node.services.as_ref().unwrap(), &[service("run", "exec")]);
    }

    #[test]
    fn conflicts_name_pin_and_claims() {
        let mut nodes = vec![
            listed("well", 1, Standing::Pinned),
            listed("well", 2, Standing::Conflicting),
            listed("new", 3, Standing::New),
        ];
        nodes.extend((4..100).map(|byte| listed("twins", byte, Standing::Conflicting)));
        let lines = conflicts(&nodes);
        let [twins, well] = lines.as_slice() else { panic!("{lines:?}") };
        let key = |byte| Identity::from_bytes([byte; 32]).to_string();
        assert!(well.contains(&format!("stands for {} here", key(1))), "{well}");
        assert!(well.contains(&format!("{} at 192.0.2.1:7", key(2))), "{well}");
        assert!(twins.contains("96 different keys") && twins.contains("92 more"), "{twins}");
        assert!(twins.contains(&key(4)) && twins.len() < 1000, "{twins}");
        let lines = conflicts(&[listed("old", 5, Standing::Conflicting)]);
        assert!(lines[0].contains("rotated away") && lines[0].contains(&key(5)), "{lines:?}");
    }
}
