//! What the configured catalogues know of services, and of the nodes that have them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::Kind;
use levada_core::Identity;
use levada_core::wire::{Service, catalogue::Detail};
use levada_node::catalogue::service_of;
use levada_node::client::{Client, RequestSpec, Running, Verdict};
use levada_services::catalogue::{Caller, Item, of_stream};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::commands::query::describe;
use crate::failure::Failure;
use crate::output::plain;
use crate::service_target::ServiceTarget;

/// As long as the look at the network takes.
const LIMIT: Duration = Duration::from_millis(1850);
/// Catalogues that are read.
const MOST: usize = 16;
/// Services that are taken from one.
const MOST_SERVICES: u64 = 1000;

/// A node as a catalogue has it: each service was signed with the node's key when it was published.
pub struct Catalogued {
    /// The catalogue, as it is configured.
    pub catalogue: String,
    /// The node's key.
    pub node: Identity,
    /// What it calls itself.
    pub name: String,
    /// Where it said that it can be reached.
    pub addresses: Vec<String>,
    /// Its services.
    pub services: Vec<Service>,
}

/// What all catalogues said.
#[derive(Default)]
pub struct Found {
    /// In the order of the configuration, then by key.
    pub nodes: Vec<Catalogued>,
    /// Catalogues that were not read, or not to their end, and why.
    pub trouble: Vec<(String, String)>,
}

impl Catalogued {
    /// As `--json` shows it.
    pub fn describe(&self) -> Value {
        json!({
            "catalogue": self.catalogue,
            "name": self.name,
            "identity": self.node.to_string(),
            "addresses": self.addresses,
            "services": self.services.iter().map(describe).collect::<Vec<_>>(),
        })
    }

    /// As a row of the table.
    pub fn row(&self) -> Vec<String> {
        let names = self.services.iter().map(|service| plain(&service.name));
        let address = self.addresses.first().map_or_else(|| "-".into(), |text| plain(text));
        vec![
            plain(&self.name),
            "published".into(),
            self.node.short(),
            address,
            names.collect::<Vec<_>>().join(", "),
            self.catalogue.clone(),
        ]
    }
}

/// Reads all catalogues at once. None of them is asked about at the terminal: a node that is not pinned is not called.
pub async fn read(client: &Arc<Client>, places: &[String]) -> Found {
    let end = Instant::now() + LIMIT;
    let mut tasks = JoinSet::new();
    for (number, place) in places.iter().take(MOST).cloned().enumerate() {
        let client = client.clone();
        tasks.spawn(async move {
            let answer = match timeout_at(end, ask(&client, &place)).await {
                Ok(answer) => answer.map_err(|error| error.text().to_owned()),
                Err(_) => Err("it does not answer".to_owned()),
            };
            (number, place, answer)
        });
    }
    let mut answers = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        // Every question ends in time.
        if let Ok((number, place, answer)) = done {
            answers.insert(number, (place, answer));
        }
    }
    let mut found = Found::default();
    for (place, answer) in answers.into_values() {
        match answer {
            Ok((nodes, more)) => {
                found.nodes.extend(nodes);
                if more {
                    let text = format!("only its first {MOST_SERVICES} services were read");
                    found.trouble.push((place, text));
                }
            }
            Err(text) => found.trouble.push((place, format!("it was not read: {text}"))),
        }
    }
    for place in places.iter().skip(MOST) {
        let text = format!("it was not read: no more than {MOST} are");
        found.trouble.push((place.clone(), text));
    }
    found
}

/// The nodes that it knows, and whether it has more services than are read.
async fn ask(client: &Client, text: &str) -> Result<(Vec<Catalogued>, bool), Failure> {
    let place: ServiceTarget = text.parse().map_err(Failure::local)?;
    let target = client.resolve(&place.node, |_| Verdict::Unasked).await?;
    let spec = RequestSpec { service: place.service, uses: 1, ..RequestSpec::default() };
    let Running { stream, connection, .. } = client.request_and_start(&target, spec).await?;
    let mut caller = Caller::new(of_stream(stream));
    let (mut nodes, mut count) = (BTreeMap::new(), 0);
    let each = |item: Item| {
        count += 1;
        if count > MOST_SERVICES {
            return Ok::<_, Failure>(());
        }
        if let Some((node, about)) = item.newest.as_ref().and_then(service_of) {
            let entry = nodes.entry(node).or_insert_with(|| Catalogued {
                catalogue: text.to_owned(),
                node,
                name: about.node_name.clone(),
                addresses: about.addresses.clone(),
                services: Vec::new(),
            });
            entry.services.push(about.service());
        }
        Ok(())
    };
    caller.list(Some(Kind::Service), "", MOST_SERVICES + 1, Detail::Full, each).await?;
    caller.finish().await;
    drop(connection);
    Ok((nodes.into_values().collect(), count > MOST_SERVICES))
}
