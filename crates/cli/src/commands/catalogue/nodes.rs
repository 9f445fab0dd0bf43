//! The nodes of a catalogue: a request goes to one of them, and to the next one if that node fails.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use levada_core::{SystemRandom, shuffle};
use tokio::time::timeout;

use super::connection::{CatalogueConnection, open};
use super::own_store::Missing;
use crate::destination::{Destination, Search};
use crate::failure::{Failure, LOCAL, NO, PROTOCOL, UNREACHABLE};
use crate::names::Names;
use crate::output::{self, plain};

/// The time limit for a node to answer at a known address, before the next node is tried.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// The same, with a search for the node on this network.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The nodes of a catalogue, in the order in which they are asked: random at first, then with those
/// last that failed last.
pub struct Nodes {
    /// Empty for the catalogue of this home.
    destinations: Vec<Destination>,
    /// Indices of `destinations`.
    order: VecDeque<usize>,
    names: Names,
    missing: Missing,
}

/// Why a node has failed.
struct NodeFailure {
    failure: Failure,
    /// Whether a session was started: a search for the node would lead to the same answer.
    has_answered: bool,
}

impl Nodes {
    /// The nodes in random order, so that the reads of many clients spread over them.
    pub fn new(destinations: Vec<Destination>, names: Names) -> Self {
        let mut order: Vec<usize> = (0..destinations.len().max(1)).collect();
        shuffle(&mut order, &SystemRandom);
        Self { destinations, order: order.into(), names, missing: Missing::Refuse }
    }

    /// Sets the treatment of a home without a catalogue, which is an error otherwise.
    pub fn with_missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// Whether the catalogue is reached over the network, also if it is at this home's node.
    pub fn are_remote(&self) -> bool {
        !self.destinations.is_empty()
    }

    /// The node that is asked next, or has answered last.
    pub fn first(&self) -> String {
        self.label(self.order.front().copied().unwrap_or_default())
    }

    fn label(&self, index: usize) -> String {
        let destination = self.destinations.get(index);
        destination.map_or_else(|| "this home".to_owned(), |one| plain(&one.to_string()))
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

    /// Sends `request` to the first node, and again to the next one if a node cannot be reached, is
    /// unavailable or does not have what is requested. It must be safe to repeat: a node that fails
    /// may have executed it.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits. If no node succeeds, it names each, and why; its
    /// code is 123 if one of them broke the protocol or cut the connection, otherwise 1 if one of
    /// them answered that it does not have it. Any other answer, such as *denied*, is final: it is
    /// not the state of one node.
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
        let mut failures = BTreeMap::new();
        for search in self.searches() {
            if let Some(last) = self.try_each_at(*search, &mut failures, &mut attempt).await {
                return last;
            }
        }
        let failures = failures.into_iter();
        Err(combined(failures.map(|(index, failed)| (self.label(index), failed.failure)).collect()))
    }

    /// The network is searched last: that takes longer than another node.
    fn searches(&self) -> &'static [Search] {
        match self.order.len() {
            1 => &[Search::Network],
            _ => &[Search::Known, Search::Network],
        }
    }

    /// Tries each node that has not answered yet. `None` if all have failed.
    async fn try_each_at<T>(
        &mut self,
        search: Search,
        failures: &mut BTreeMap<usize, NodeFailure>,
        attempt: &mut impl AsyncFnMut(CatalogueConnection) -> Result<T, Failure>,
    ) -> Option<Result<T, Failure>> {
        if failures.values().any(|failed| !failed.has_answered) {
            output::note("note: searching this network for the nodes that do not answer");
        }
        for index in self.order.clone() {
            if failures.get(&index).is_some_and(|failed| failed.has_answered) {
                self.put_first_last();
                continue;
            }
            let (answer, is_open) = match self.open_at(index, search).await {
                Ok(connection) => (attempt(connection).await, true),
                Err(failure) => (Err(failure), false),
            };
            let failure = match answer {
                Err(failure) if failure.is_of_node() => failure,
                Err(failure) if self.order.len() > 1 => {
                    return Some(Err(at_node(&self.label(index), failure)));
                }
                answer => return Some(answer),
            };
            self.put_first_last();
            if failures.len() + 1 < self.order.len() {
                let node = self.label(index);
                let text = plain(failure.text());
                output::note(format_args!("note: {node}: {text}; asking {}", self.first()));
            }
            failures.insert(index, NodeFailure { failure, has_answered: is_open });
        }
        None
    }

    async fn open_at(&self, index: usize, search: Search) -> Result<CatalogueConnection, Failure> {
        let destination = self.destinations.get(index);
        let opened = open(destination, (self.names, search), self.missing);
        let limit = match search {
            _ if self.order.len() == 1 => return opened.await,
            Search::Known => KNOWN_TIMEOUT,
            Search::Network => SEARCH_TIMEOUT,
        };
        timeout(limit, opened).await.unwrap_or_else(|_| {
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
    // A wrong answer says more than none; that a version is missing says more than that a node is
    // away.
    let code = [PROTOCOL, NO, UNREACHABLE].into_iter().find(|code| has(*code));
    let code = code.or(failures.first().map(|(_, failure)| failure.code())).unwrap_or(UNREACHABLE);
    let texts = failures.iter().map(|(node, failure)| format!("{node}: {}", failure.text()));
    Failure::new(code, texts.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

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
