//! The nodes of this network: announcements, and the answers of pinned nodes.
//!
//! Only pinned nodes are queried, with the identity of this home, at their pinned addresses and
//! where their pinned key is announced. Other nodes are listed as announced; nothing is sent to
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Identity, wire};
use levada_database::DatabaseError as StoreError;
use levada_discovery::{BrowseResult, Neighbour, Targets, browse};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::resolve::{merged, texts};
use super::{Client, ClientError, Target};
use levada_home::address::shown;
use levada_home::known::{Known, Pin};

/// The time for all queries, which is below the two seconds that [`Client::list`] promises.
const QUERY_TIME: Duration = Duration::from_millis(1850);
/// Maximum number of pinned nodes that are queried.
const MAX_QUERIED: usize = 256;

/// How the name of a node relates to the pins and to other announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The name is pinned to this key.
    Pinned,
    /// One key claims the name, and no key is pinned to it.
    New,
    /// Another key claims the name or is pinned to it, or the key was rotated away.
    Conflicting,
}

/// A node of this network, or a pinned one.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its nickname, or the name that it announces if it is not pinned.
    pub name: String,
    /// Its key; proven only if the node is pinned and answered.
    pub identity: Identity,
    /// The addresses at which it answered; otherwise those that it announces; otherwise those of
    /// its pin.
    pub addresses: Vec<String>,
    /// The state of its name.
    pub standing: Standing,
    /// Its services; `None` if it was not queried or did not answer.
    pub services: Option<Vec<wire::Service>>,
    /// Whether it is pinned, is not announced, and did not answer.
    pub away: bool,
    /// Whether it is pinned, and has denied the query: it blocks this identity.
    pub denied: bool,
    /// Why a pinned node gave no answer.
    pub trouble: Option<String>,
}

/// The result of [`Client::list`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The nodes, sorted by name; the pinned one first among those of the same name.
    pub nodes: Vec<Listed>,
    /// Whether more nodes are announced than are listed.
    pub more: bool,
    /// Why this network could not be browsed, if it could not.
    pub blind: Option<String>,
}

impl Client {
    /// Lists the nodes of this network, and all pinned nodes. Takes at most two seconds.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read. A machine without multicast is not an
    /// error.
    pub async fn list(self: &Arc<Self>) -> Result<Listing, ClientError> {
        let pins = self.with_known(Known::names).await?;
        let mut queries = Queries::new(self);
        queries.query_pinned(&pins);
        let targets = Targets {
            names: pins.iter().map(|pin| pin.name.clone()).collect(),
            keys: pins.iter().map(|pin| pin.identity).collect(),
        };
        let (BrowseResult { neighbours, truncated: more }, blind) = match browse(targets).await {
            Ok(seen) => (seen, None),
            Err(error) => (BrowseResult::default(), Some(error.to_string())),
        };
        queries.query_announced(&pins, &neighbours);
        let answers = queries.finish().await;
        let announced: Vec<Identity> = neighbours.iter().map(|one| one.identity).collect();
        let keys = self.with_known(move |known| Keys::read(known, &announced)).await?;
        Ok(Listing { nodes: classify(&pins, &keys, &answers, &neighbours), more, blind })
    }
}

/// The keys in known.db after the queries: a queried node may have proven that its key was rotated.
struct Keys {
    pins: Vec<Pin>,
    /// The announced keys that were rotated away.
    rotated: HashSet<Identity>,
}

impl Keys {
    fn read(known: &Known, announced: &[Identity]) -> Result<Self, StoreError> {
        let mut rotated = HashSet::new();
        for identity in announced {
            if known.successor(identity)?.is_some() {
                rotated.insert(*identity);
            }
        }
        Ok(Self { pins: known.names()?, rotated })
    }
}

/// Combines the pins that were `queried` with their answers, the announcements, and the pins after
/// the queries.
fn classify(
    queried: &[Pin],
    keys: &Keys,
    answers: &Answers,
    neighbours: &[Neighbour],
) -> Vec<Listed> {
    let Keys { pins, rotated } = keys;
    let mut nodes = Vec::new();
    for pin in queried {
        let Some(now) = pins.iter().find(|now| now.name == pin.name) else { continue };
        nodes.push(pinned(now, answers.get(&pin.identity), neighbours));
    }
    let contested = contested(pins, neighbours);
    let pinned_keys: HashSet<Identity> = pins.iter().map(|pin| pin.identity).collect();
    for neighbour in neighbours.iter().filter(|one| !pinned_keys.contains(&one.identity)) {
        let is_rotated = rotated.contains(&neighbour.identity);
        let conflicting = is_rotated || contested.contains(neighbour.name.as_str());
        nodes.push(unknown(neighbour, conflicting));
    }
    nodes.sort_by(|a, b| (&a.name, a.standing, a.identity).cmp(&(&b.name, b.standing, b.identity)));
    nodes
}

/// The names that more than one key is pinned to or claims.
fn contested<'a>(pins: &'a [Pin], neighbours: &'a [Neighbour]) -> HashSet<&'a str> {
    let pinned = pins.iter().map(|pin| (pin.name.as_str(), pin.identity));
    let announced = neighbours.iter().map(|one| (one.name.as_str(), one.identity));
    let mut owners: HashMap<&str, Identity> = HashMap::new();
    let claims = pinned.chain(announced);
    claims
        .filter(|(name, identity)| *owners.entry(*name).or_insert(*identity) != *identity)
        .map(|(name, _)| name)
        .collect()
}

fn pinned(pin: &Pin, answer: Option<&Answer>, neighbours: &[Neighbour]) -> Listed {
    let announced = neighbours.iter().find(|neighbour| neighbour.identity == pin.identity);
    let (services, answered_at, trouble) = match answer {
        Some(Ok((services, addresses))) => (Some(services.clone()), Some(addresses.clone()), None),
        Some(Err(error)) => (None, None, Some(error)),
        None => (None, None, None),
    };
    let denied = matches!(trouble, Some(ClientError::Denied(_)));
    let addresses = answered_at.or_else(|| announced.map(texts));
    let addresses = addresses.unwrap_or_else(|| pin.addresses.clone());
    Listed {
        name: pin.name.clone(),
        identity: pin.identity,
        addresses: addresses.iter().map(|text| shown(text).to_owned()).collect(),
        standing: Standing::Pinned,
        away: announced.is_none() && services.is_none() && !denied,
        denied,
        services,
        trouble: trouble.map(ToString::to_string),
    }
}

fn unknown(neighbour: &Neighbour, conflicting: bool) -> Listed {
    Listed {
        name: neighbour.name.clone(),
        identity: neighbour.identity,
        addresses: texts(neighbour).iter().map(|text| shown(text).to_owned()).collect(),
        standing: if conflicting { Standing::Conflicting } else { Standing::New },
        services: None,
        away: false,
        denied: false,
        trouble: None,
    }
}

/// The services of a node, and the addresses at which it was reached.
type Answer = Result<(Vec<wire::Service>, Vec<String>), ClientError>;
/// The answers by the requested key.
type Answers = HashMap<Identity, Answer>;

/// Concurrent queries.
struct Queries {
    client: Arc<Client>,
    end: Instant,
    tasks: JoinSet<(Target, Result<Vec<wire::Service>, ClientError>)>,
    answers: Answers,
}

impl Queries {
    fn new(client: &Arc<Client>) -> Self {
        Self {
            client: client.clone(),
            end: Instant::now() + QUERY_TIME,
            tasks: JoinSet::new(),
            answers: HashMap::new(),
        }
    }

    fn query_pinned(&mut self, pins: &[Pin]) {
        // A key may have two nicknames.
        let targets: BTreeMap<Identity, Target> =
            pins.iter().map(|pin| (pin.identity, Target::from(pin))).collect();
        for (index, target) in targets.into_values().enumerate() {
            if index < MAX_QUERIED {
                self.query(target, false);
            } else {
                let text = format!("it was not queried: at most {MAX_QUERIED} nodes are");
                self.answers.insert(target.identity, Err(ClientError::Unreachable(text)));
            }
        }
    }

    /// Queries the pinned nodes that have not answered and are announced at new addresses. Each
    /// announcement has its own query, so that a node that announces a key falsely cannot hide the
    /// one that has it.
    fn query_announced(&mut self, pins: &[Pin], neighbours: &[Neighbour]) {
        while let Some(Ok((target, answer))) = self.tasks.try_join_next() {
            self.record(&target, answer);
        }
        let mut targets = Vec::new();
        for neighbour in neighbours {
            let known: Vec<&Pin> =
                pins.iter().filter(|pin| pin.identity == neighbour.identity).collect();
            let mut addresses = texts(neighbour);
            addresses.retain(|address| !known.iter().any(|pin| pin.addresses.contains(address)));
            let answered = matches!(self.answers.get(&neighbour.identity), Some(Ok(_)));
            if !known.is_empty() && !answered && !addresses.is_empty() {
                targets.push(Target { identity: neighbour.identity, addresses });
            }
        }
        for target in targets.into_iter().take(MAX_QUERIED) {
            self.query(target, true);
        }
    }

    fn query(&mut self, mut target: Target, is_claimed: bool) {
        let client = self.client.clone();
        let end = self.end;
        self.tasks.spawn(async move {
            let answer = match timeout_at(end, client.query_dedicated(&target)).await {
                Ok(Ok((services, address))) => {
                    // Of announced addresses, only the one that answered is proven.
                    let others: &[String] = if is_claimed { &[] } else { &target.addresses };
                    target.addresses = merged(&[address], others);
                    Ok(services)
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(ClientError::Unreachable("it does not answer".into())),
            };
            (target, answer)
        });
    }

    async fn finish(mut self) -> Answers {
        while let Some(done) = self.tasks.join_next().await {
            // Each query has a timeout.
            if let Ok((target, answer)) = done {
                self.record(&target, answer);
            }
        }
        self.answers
    }

    /// Stores an answer: the first success, otherwise the last error.
    fn record(&mut self, target: &Target, answer: Result<Vec<wire::Service>, ClientError>) {
        if matches!(self.answers.get(&target.identity), Some(Ok(_))) {
            return;
        }
        let answer = answer.map(|services| (services, target.addresses.clone()));
        self.answers.insert(target.identity, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::{SecretKey, Succession, SystemRandom, UnixTime};

    const NOW: UnixTime = UnixTime(1_000_000);

    fn key() -> SecretKey {
        SecretKey::generate(&SystemRandom).unwrap()
    }

    fn neighbour(name: &str, identity: Identity) -> Neighbour {
        let addresses = vec!["192.0.2.1:7".parse().unwrap()];
        Neighbour { name: name.into(), identity, addresses }
    }

    struct Fixture {
        _folder: tempfile::TempDir,
        known: Known,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let known = Known::open(&folder.path().join("known.db")).unwrap();
            Self { _folder: folder, known }
        }

        fn pin(&self, name: &str, identity: Identity) {
            self.known.pin(name, &identity, &["192.0.2.9:9".into()], NOW).unwrap();
        }

        fn classify(&self, answers: &Answers, neighbours: &[Neighbour]) -> Vec<Listed> {
            let announced: Vec<Identity> = neighbours.iter().map(|one| one.identity).collect();
            let keys = Keys::read(&self.known, &announced).unwrap();
            classify(&keys.pins, &keys, answers, neighbours)
        }
    }

    fn short(nodes: &[Listed]) -> Vec<(&str, Standing, bool)> {
        nodes.iter().map(|node| (node.name.as_str(), node.standing, node.away)).collect()
    }

    #[test]
    fn classifies_names_as_pinned_new_or_conflicting() {
        let fixture = Fixture::new();
        let [pinned, gone, impostor, new, one, two] = [(); 6].map(|()| key().identity());
        fixture.pin("well", pinned);
        fixture.pin("gone", gone);
        let neighbours = [
            neighbour("well", pinned),
            neighbour("well", impostor),
            neighbour("new", new),
            neighbour("twins", one),
            neighbour("twins", two),
        ];
        let nodes = fixture.classify(&Answers::new(), &neighbours);
        use Standing::{Conflicting, New, Pinned};
        assert_eq!(
            short(&nodes),
            [
                ("gone", Pinned, true),
                ("new", New, false),
                ("twins", Conflicting, false),
                ("twins", Conflicting, false),
                ("well", Pinned, false),
                ("well", Conflicting, false),
            ]
        );
        assert_eq!(nodes[0].addresses, ["192.0.2.9:9"]);
        assert_eq!((nodes[4].identity, nodes[5].identity), (pinned, impostor));
        assert!(nodes.iter().all(|node| node.services.is_none()));
    }

    #[test]
    fn a_pinned_node_is_listed_by_its_nickname_with_its_answer() {
        let fixture = Fixture::new();
        let [pinned, silent] = [(); 2].map(|()| key().identity());
        fixture.pin("cellar", pinned);
        fixture.pin("silent", silent);
        let services = vec![wire::Service { name: "echo".into(), ..wire::Service::default() }];
        let answers = Answers::from([
            (pinned, Ok((services.clone(), vec!["192.0.2.5:5".into()]))),
            (silent, Err(ClientError::Unreachable("it does not answer".into()))),
        ]);
        let nodes = fixture.classify(&answers, &[neighbour("well", pinned)]);
        assert_eq!(
            short(&nodes),
            [("cellar", Standing::Pinned, false), ("silent", Standing::Pinned, true)]
        );
        assert_eq!(nodes[0].addresses, ["192.0.2.5:5"]);
        assert_eq!(nodes[0].services.as_ref(), Some(&services));
        assert!(nodes[1].trouble.as_ref().unwrap().contains("does not answer"));
        // The name that a pinned node announces is contested if another key announces it, too.
        let other = key().identity();
        let nodes =
            fixture.classify(&answers, &[neighbour("well", pinned), neighbour("well", other)]);
        assert_eq!(nodes[2].standing, Standing::Conflicting);
    }

    #[test]
    fn a_rotated_key_is_conflicting() {
        let fixture = Fixture::new();
        let old = key();
        let new = key();
        fixture.pin("well", old.identity());
        let succession = Succession::sign(&old, &new.identity(), NOW);
        fixture.known.follow(&succession).unwrap();
        let nodes = fixture.classify(&Answers::new(), &[neighbour("other", old.identity())]);
        assert_eq!(
            short(&nodes),
            [("other", Standing::Conflicting, false), ("well", Standing::Pinned, true)]
        );
        assert_eq!(nodes[1].identity, new.identity());
    }
}
