//! The services in the configured catalogues, and their nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::Kind;
use levada_client::{Client, RequestSpec, Running, Verdict};
use levada_core::wire::{Service, catalogue::Detail};
use levada_core::{Identity, MIN_ABBREVIATION, SystemRandom, shuffle};
use levada_services::catalogue::descriptor::service_of;
use levada_services::catalogue::{CatalogueClient, Item, of_stream};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::commands::query::describe;
use crate::failure::Failure;
use crate::output::{Cell, plain};
use crate::service_target::ServiceTarget;

/// The duration of the query of the network, which runs at the same time.
const LIMIT: Duration = Duration::from_millis(1850);
/// How long the nodes of a catalogue that were asked have alone, before the next one is asked, too.
const STAGGER: Duration = Duration::from_millis(400);
/// Maximum number of catalogues that are read.
const MAX_CATALOGUES: usize = 16;
/// Maximum number of services that are read of one catalogue.
const MAX_SERVICES: u64 = 1000;

/// A node in a catalogue. Each service was signed with the node's key when it was published.
pub struct Catalogued {
    /// The catalogue, as it is configured.
    pub catalogue: String,
    /// The node's key.
    pub node: Identity,
    /// The node's own name.
    pub name: String,
    /// The addresses that the node published.
    pub addresses: Vec<String>,
    /// Its services.
    pub services: Vec<Service>,
}

/// The answers of all catalogues.
#[derive(Default)]
pub struct Found {
    /// In the order of the configuration, then by key.
    pub nodes: Vec<Catalogued>,
    /// Catalogues that were not read completely, and why.
    pub problems: Vec<(String, String)>,
}

impl Catalogued {
    /// The JSON for `--json`.
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
    pub fn row(&self) -> Vec<Cell> {
        let names = self.services.iter().map(|service| plain(&service.name));
        let address = self.addresses.first().map_or_else(|| "-".into(), |text| plain(text));
        vec![
            plain(&self.name).into(),
            Cell::state("published"),
            Cell::key(&self.node.to_string(), Some(MIN_ABBREVIATION)),
            address.into(),
            names.collect::<Vec<_>>().join(", ").into(),
            self.catalogue.as_str().into(),
        ]
    }
}

/// Reads all catalogues concurrently. A node that is not pinned is neither contacted nor asked
/// about at the terminal.
pub async fn read(client: &Arc<Client>, catalogues: &[String]) -> Found {
    let end = Instant::now() + LIMIT;
    let mut tasks = JoinSet::new();
    for (number, catalogue) in catalogues.iter().take(MAX_CATALOGUES).cloned().enumerate() {
        let client = client.clone();
        tasks.spawn(async move {
            let answer = match timeout_at(end, read_first(&client, &catalogue)).await {
                Ok(answer) => answer.map_err(|error| error.text().to_owned()),
                Err(_) => Err("it does not answer".to_owned()),
            };
            (number, catalogue, answer)
        });
    }
    let mut answers = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        if let Ok((number, catalogue, answer)) = done {
            answers.insert(number, (catalogue, answer));
        }
    }
    let mut found = Found::default();
    for (catalogue, answer) in answers.into_values() {
        match answer {
            Ok((nodes, more)) => {
                found.nodes.extend(nodes);
                if more {
                    let text = format!("only its first {MAX_SERVICES} services were read");
                    found.problems.push((catalogue, text));
                }
            }
            Err(text) => found.problems.push((catalogue, format!("it was not read: {text}"))),
        }
    }
    for catalogue in catalogues.iter().skip(MAX_CATALOGUES) {
        let text = format!("it was not read: only the first {MAX_CATALOGUES} catalogues are");
        found.problems.push((catalogue.clone(), text));
    }
    found
}

/// The nodes in one catalogue, and whether it has more services than are read.
type Answer = Result<(Vec<Catalogued>, bool), Failure>;

/// Reads a catalogue at one of its nodes: the first of them that answers. There is no time to wait
/// for each of them in turn.
async fn read_first(client: &Arc<Client>, catalogue: &str) -> Answer {
    let mut nodes: Vec<String> = catalogue.split(',').map(str::to_owned).collect();
    shuffle(&mut nodes, &SystemRandom);
    let mut tasks = JoinSet::new();
    for (number, node) in nodes.into_iter().enumerate() {
        let client = client.clone();
        let catalogue = catalogue.to_owned();
        tasks.spawn(async move {
            sleep(STAGGER * u32::try_from(number).unwrap_or(u32::MAX)).await;
            let answer = read_one(&client, &node, &catalogue).await;
            (node, answer)
        });
    }
    let mut failures = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok((_, Ok(answer))) => return Ok(answer),
            Ok((node, Err(failure))) => failures.push(format!("{node}: {}", failure.text())),
            Err(error) => failures.push(error.to_string()),
        }
    }
    Err(Failure::local(failures.join("; ")))
}

/// Reads the catalogue `text` at `node`.
async fn read_one(client: &Client, node: &str, text: &str) -> Answer {
    let catalogue: ServiceTarget = node.parse().map_err(Failure::local)?;
    let target = client.resolve(&catalogue.node, |_| Verdict::Unasked).await?;
    let spec = RequestSpec { service: catalogue.service, uses: 1, ..RequestSpec::default() };
    let Running { stream, connection, .. } = client.request_and_start(&target, spec).await?;
    let mut caller = CatalogueClient::new(of_stream(stream));
    let mut nodes = BTreeMap::new();
    let mut count = 0;
    let each = |item: Item| {
        count += 1;
        if count > MAX_SERVICES {
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
    caller.list(Some(Kind::Service), "", MAX_SERVICES + 1, Detail::Full, each).await?;
    caller.finish().await;
    drop(connection);
    Ok((nodes.into_values().collect(), count > MAX_SERVICES))
}
