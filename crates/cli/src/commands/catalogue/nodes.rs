//! The option `--at`, and the nodes that it names: a request goes to one of them, and to the next one if that node fails.

use std::collections::VecDeque;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use levada_client::Client;
use levada_client::home::Home;
use levada_core::{SystemRandom, shuffle};
use tokio::time::timeout;

use super::connection::{CatalogueConnection, open};
use crate::destination::Destination;
use crate::failure::{Failure, LOCAL, NO, PROTOCOL, UNREACHABLE};
use crate::names::Names;
use crate::output::{self, plain};

/// How long the start of a session may take at a node, as long as there is another one to ask.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The option `--at`, for commands that any node of a catalogue can execute.
#[derive(Debug, Args)]
pub struct At {
    /// The catalogue of another node, or a capability for it (text, @file or -); this home's own if not given. For a catalogue on several
    /// nodes a list: one of them is asked at random, and the next one if that one fails
    #[arg(long, value_name = "NODE/CATALOGUE[,…]")]
    at: Vec<Destinations>,

    #[command(flatten)]
    names: Names,
}

/// The option `--at`, for commands that concern what one node stores.
#[derive(Debug, Args)]
pub struct AtOne {
    /// The catalogue of another node, or a capability for it (text, @file or -); this home's own if not given
    #[arg(long, value_name = "NODE/CATALOGUE", value_parser = one)]
    at: Option<Destination>,

    #[command(flatten)]
    names: Names,
}

/// One capability, or services that are separated by commas.
#[derive(Clone, Debug)]
struct Destinations(Vec<Destination>);

/// The nodes of a catalogue, in the order in which they are asked: random at first, then with those last that failed last.
pub struct Nodes {
    /// `None` is the catalogue of this home.
    order: VecDeque<Option<Destination>>,
    names: Names,
}

impl FromStr for Destinations {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The name of a file with a capability may have commas.
        if let Ok(one @ Destination::Capability(_)) = text.parse() {
            return Ok(Self(vec![one]));
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

fn one(text: &str) -> Result<Destination, &'static str> {
    let Destinations(mut list) = text.parse()?;
    match (list.pop(), list.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err("this concerns what one node stores: expected one NODE/SERVICE"),
    }
}

impl AtOne {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits.
    pub async fn open(&self) -> Result<CatalogueConnection, Failure> {
        open(self.at.as_ref(), self.names).await
    }
}

impl At {
    /// The services, separated by commas, unless it is this home's own catalogue or a capability.
    pub fn services(&self) -> Option<String> {
        let service = |one: &Destination| match one {
            Destination::Service(target) => Some(target.to_string()),
            Destination::Capability(_) => None,
        };
        let services: Option<Vec<String>> = self.destinations().map(service).collect();
        services.filter(|services| !services.is_empty()).map(|services| services.join(","))
    }

    /// The nodes, in random order, so that the reads of many clients spread over them.
    ///
    /// # Errors
    /// [`Failure`] if one of several names is new here and is not accepted: that does not depend on the order.
    pub async fn nodes(&self) -> Result<Nodes, Failure> {
        let mut order: Vec<_> = self.destinations().cloned().map(Some).collect();
        match order.len() {
            0 => order.push(None),
            1 => {}
            _ => self.identify().await?,
        }
        shuffle(&mut order, &SystemRandom);
        Ok(Nodes { order: order.into(), names: self.names })
    }

    /// Connects to one of the nodes.
    ///
    /// # Errors
    /// As for [`Nodes::run`].
    pub async fn open(&self) -> Result<CatalogueConnection, Failure> {
        self.nodes().await?.open().await
    }

    /// As [`Nodes::run`].
    ///
    /// # Errors
    /// As for [`Nodes::run`].
    pub async fn run<T>(
        &self,
        request: impl AsyncFnMut(&mut CatalogueConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.nodes().await?.run(request).await
    }

    fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.at.iter().flat_map(|list| &list.0)
    }

    /// Pins the names that are new here. Nodes with a pinned name are not contacted.
    async fn identify(&self) -> Result<(), Failure> {
        let client = Client::new(&Home::open()?)?;
        for destination in self.destinations() {
            let Destination::Service(target) = destination else { continue };
            match self.names.identify(&client, &target.node).await {
                Err(failure) if !failure.is_of_node() => return Err(failure),
                // If it does not answer, it fails when it is its turn.
                _ => {}
            }
        }
        client.close();
        Ok(())
    }
}

impl Nodes {
    /// Whether the catalogue is reached over the network, also if it is at this home's node.
    pub fn are_remote(&self) -> bool {
        self.order.iter().all(Option::is_some)
    }

    /// The node that is asked next, or has answered last.
    pub fn first(&self) -> String {
        match self.order.front() {
            Some(Some(destination)) => plain(&destination.to_string()),
            _ => "this home".to_owned(),
        }
    }

    /// Asks the first node last from now on.
    pub fn put_first_last(&mut self) {
        self.order.rotate_left(1);
    }

    /// Connects to the first node that accepts a session.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn open(&mut self) -> Result<CatalogueConnection, Failure> {
        self.try_each(async |connection| Ok(connection)).await
    }

    /// Sends `request` to the first node, and again to the next one if a node cannot be reached, is unavailable or does not have what is
    /// requested. It must be safe to repeat: a node that fails may have executed it.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits. If no node succeeds, it names each, and why; its code is 123 if one of them broke
    /// the protocol, otherwise 1 if one of them answered that it does not have it. Any other answer, such as *denied*, is final: it is not the state of one node.
    pub async fn run<T>(
        &mut self,
        mut request: impl AsyncFnMut(&mut CatalogueConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.try_each(async |mut connection| {
            let answer = request(&mut connection).await;
            connection.close().await;
            answer
        })
        .await
    }

    async fn try_each<T>(
        &mut self,
        mut attempt: impl AsyncFnMut(CatalogueConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut failures = Vec::new();
        for left in (0..self.order.len()).rev() {
            let answer = match self.open_first(left > 0).await {
                Ok(connection) => attempt(connection).await,
                Err(failure) => Err(failure),
            };
            let node = self.first();
            match answer {
                Err(failure) if failure.is_of_node() => {
                    self.put_first_last();
                    if left > 0 {
                        let (text, next) = (plain(failure.text()), self.first());
                        output::note(format_args!("note: {node}: {text}; asking {next}"));
                    }
                    failures.push((node, failure));
                }
                Err(failure) if self.order.len() > 1 => return Err(at_node(&node, failure)),
                answer => return answer,
            }
        }
        Err(combined(failures))
    }

    async fn open_first(&self, has_others: bool) -> Result<CatalogueConnection, Failure> {
        let destination = self.order.front().and_then(Option::as_ref);
        let opened = open(destination, self.names);
        if !has_others {
            return opened.await;
        }
        timeout(OPEN_TIMEOUT, opened).await.unwrap_or_else(|_| {
            Err(Failure::new(UNREACHABLE, "unreachable: it does not answer").of_node())
        })
    }
}

/// Adds the node to a failure, unless that is of this machine, or a closed pipe.
fn at_node(node: &str, failure: Failure) -> Failure {
    match failure.code() {
        0 | LOCAL => failure,
        code => Failure::new(code, format!("{node}: {}", failure.text())),
    }
}

/// The failure of all nodes. That of a single one is unchanged.
fn combined(mut failures: Vec<(String, Failure)>) -> Failure {
    if failures.len() == 1
        && let Some((_, failure)) = failures.pop()
    {
        return failure;
    }
    let has = |code| failures.iter().any(|(_, failure)| failure.code() == code);
    // A wrong answer says more than none; that a version is missing says more than that a node is away.
    let code = [PROTOCOL, NO, UNREACHABLE].into_iter().find(|code| has(*code));
    let code = code.or(failures.first().map(|(_, failure)| failure.code())).unwrap_or(UNREACHABLE);
    let texts = failures.iter().map(|(node, failure)| format!("{node}: {}", failure.text()));
    Failure::new(code, texts.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_and_a_capability_is_not() {
        let read = |text: &str| {
            let list = text.parse::<Destinations>().ok()?;
            Some(list.0.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("a/catalogue").unwrap(), ["a/catalogue"]);
        assert_eq!(read("a/x,lvb@[::1]:7/y").unwrap(), ["a/x", "lvb@[::1]:7/y"]);
        assert_eq!(read("@a,b.cap").unwrap(), ["@a,b.cap"]);
        for text in ["", "a", "a/x,", ",a/x", "a/x,b", "a/x,,b/y"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_failure_of_all_nodes_names_each() {
        let failed = |code: u8, text: &str| Failure::new(code, text).of_node();
        let all = |failures: &[(&str, u8, &str)]| {
            let failures =
                failures.iter().map(|(node, code, text)| ((*node).to_owned(), failed(*code, text)));
            let failure = combined(failures.collect());
            (failure.code(), failure.text().to_owned())
        };
        assert_eq!(all(&[("a", NO, "there is none")]), (NO, "there is none".into()));
        assert_eq!(
            all(&[("a", UNREACHABLE, "it is away"), ("b", NO, "there is none")]),
            (NO, "a: it is away; b: there is none".into())
        );
        assert_eq!(
            all(&[("a", PROTOCOL, "cut"), ("b", UNREACHABLE, "away"), ("c", LOCAL, "full")]),
            (PROTOCOL, "a: cut; b: away; c: full".into())
        );
        assert_eq!(all(&[("a", NO, "there is none"), ("b", PROTOCOL, "cut")]).0, PROTOCOL);
        assert_eq!(all(&[("a", LOCAL, "full"), ("b", UNREACHABLE, "away")]).0, UNREACHABLE);
        assert_eq!(all(&[("a", LOCAL, "full"), ("b", LOCAL, "damaged")]).0, LOCAL);
    }
}
