//! Who is on this network: announcements, and what pinned nodes answer.
//!
//! Only pinned nodes are asked, under our identity, and only where their pinned key was found before or is
//! announced now. All others are shown as they announce themselves; nothing is sent to them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Identity, wire};
use levada_discovery::{BrowseResult, Neighbour, Targets, browse};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::resolve::{merged, texts};
use super::{Client, ClientError, Target};
use crate::address::shown;
use crate::known::Pin;

/// How long all of it takes at most: within two seconds whoever asked has an answer.
const LIMIT: Duration = Duration::from_millis(1850);
/// Pinned nodes that are asked.
const MOST_ASKED: usize = 256;

/// What we know of a node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It stands for this key here.
    Pinned,
    /// One key claims it, and none is pinned to it.
    New,
    /// Another key claims it, too, or is pinned to it; or the key is dead.
    Conflicting,
}

/// A node of this network, or a pinned one.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its nickname, or the name that it gives itself if it is not pinned.
    pub name: String,
    /// Its key; proven only if it is pinned and answered.
    pub identity: Identity,
    /// Where it answered, or else says that it is, or else was found last.
    pub addresses: Vec<String>,
    /// What we know of the name.
    pub standing: Standing,
    /// What it offers; `None` if it was not asked or did not answer.
    pub services: Option<Vec<wire::Service>>,
    /// It is pinned, is not announced, and does not answer.
    pub away: bool,
    /// Why a pinned node gave no answer.
    pub trouble: Option<String>,
}

/// All that was found within two seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The nodes, by name; under one name the pinned one first.
    pub nodes: Vec<Listed>,
    /// More nodes are announced than are shown.
    pub more: bool,
    /// Why nobody could be looked for, if so.
    pub blind: Option<String>,
}

impl Client {
    /// The nodes of this network, and those that are pinned, wherever they are. Takes two seconds at most.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read. That this machine has no multicast is no error.
    pub async fn list(self: &Arc<Self>) -> Result<Listing, ClientError> {
        let pins = self.known.names().map_err(ClientError::local)?;
        let mut asking = Asking::new(self);
        asking.ask_where_pinned(&pins);
        let targets = Targets {
            names: pins.iter().map(|pin| pin.name.clone()).collect(),
            keys: pins.iter().map(|pin| pin.identity).collect(),
        };
        let (BrowseResult { neighbours, truncated: more }, blind) = match browse(targets).await {
            Ok(seen) => (seen, None),
            Err(error) => (BrowseResult::default(), Some(error.to_string())),
        };
        asking.ask_where_announced(&pins, &neighbours);
        let answers = asking.finish().await;
        let nodes = self.judge(&pins, &answers, &neighbours)?;
        Ok(Listing { nodes, more, blind })
    }

    fn judge(
        &self,
        asked: &[Pin],
        answers: &Answers,
        neighbours: &[Neighbour],
    ) -> Result<Vec<Listed>, ClientError> {
        // Who was asked may have proven that his key was rotated.
        let pins = self.known.names().map_err(ClientError::local)?;
        let mut nodes = Vec::new();
        for pin in asked {
            let Some(now) = pins.iter().find(|now| now.name == pin.name) else { continue };
            nodes.push(pinned(now, answers.get(&pin.identity), neighbours));
        }
        let (keys, contested) = (pinned_keys(&pins), contested(&pins, neighbours));
        for neighbour in neighbours.iter().filter(|one| !keys.contains(&one.identity)) {
            let dead = self.known.successor(&neighbour.identity).map_err(ClientError::local)?;
            let conflicting = dead.is_some() || contested.contains(neighbour.name.as_str());
            nodes.push(unknown(neighbour, conflicting));
        }
        nodes.sort_by(|a, b| {
            (&a.name, a.standing, a.identity).cmp(&(&b.name, b.standing, b.identity))
        });
        Ok(nodes)
    }
}

fn pinned_keys(pins: &[Pin]) -> HashSet<Identity> {
    pins.iter().map(|pin| pin.identity).collect()
}

/// The names that more than one key has or claims.
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
        Some(Err(error)) => (None, None, Some(error.to_string())),
        None => (None, None, None),
    };
    let addresses = answered_at.or_else(|| announced.map(texts));
    let addresses = addresses.unwrap_or_else(|| pin.addresses.clone());
    Listed {
        name: pin.name.clone(),
        identity: pin.identity,
        addresses: addresses.iter().map(|text| shown(text).to_owned()).collect(),
        standing: Standing::Pinned,
        away: announced.is_none() && services.is_none(),
        services,
        trouble,
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
        trouble: None,
    }
}

/// What a node offers, and the addresses by which it was reached.
type Answer = Result<(Vec<wire::Service>, Vec<String>), ClientError>;
/// By the key that was asked for.
type Answers = HashMap<Identity, Answer>;

/// Questions under way, all at once.
struct Asking {
    client: Arc<Client>,
    end: Instant,
    tasks: JoinSet<(Target, Result<Vec<wire::Service>, ClientError>)>,
    answers: Answers,
}

impl Asking {
    fn new(client: &Arc<Client>) -> Self {
        Self {
            client: client.clone(),
            end: Instant::now() + LIMIT,
            tasks: JoinSet::new(),
            answers: HashMap::new(),
        }
    }

    fn ask_where_pinned(&mut self, pins: &[Pin]) {
        // A key may have two nicknames.
        let targets: BTreeMap<Identity, Target> =
            pins.iter().map(|pin| (pin.identity, Target::from(pin))).collect();
        for (place, target) in targets.into_values().enumerate() {
            if place < MOST_ASKED {
                self.ask(target, false);
            } else {
                let text = format!("it was not asked: no more than {MOST_ASKED} nodes are");
                self.answers.insert(target.identity, Err(ClientError::Unreachable(text)));
            }
        }
    }

    /// Asks who has not answered yet and is announced somewhere else than where he was pinned; each claim by
    /// itself, because who announces a key that is not his must not hide who has it.
    fn ask_where_announced(&mut self, pins: &[Pin], neighbours: &[Neighbour]) {
        while let Some(Ok((target, answer))) = self.tasks.try_join_next() {
            self.note(&target, answer);
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
        for target in targets.into_iter().take(MOST_ASKED) {
            self.ask(target, true);
        }
    }

    fn ask(&mut self, mut target: Target, is_claimed: bool) {
        let (client, end) = (self.client.clone(), self.end);
        self.tasks.spawn(async move {
            let answer = match timeout_at(end, client.query_there(&target)).await {
                Ok(Ok((services, address))) => {
                    // What else was announced is not proven.
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
            // Every question ends in time.
            if let Ok((target, answer)) = done {
                self.note(&target, answer);
            }
        }
        self.answers
    }

    /// A good answer stands; of others the last.
    fn note(&mut self, target: &Target, answer: Result<Vec<wire::Service>, ClientError>) {
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
    use crate::home::Home;
    use levada_core::{SecretKey, Succession, SystemRandom, UnixTime};

    const NOW: UnixTime = UnixTime(1_000_000);

    fn someone() -> SecretKey {
        SecretKey::generate(&SystemRandom).unwrap()
    }

    fn neighbour(name: &str, identity: Identity) -> Neighbour {
        let addresses = vec!["192.0.2.1:7".parse().unwrap()];
        Neighbour { name: name.into(), identity, addresses }
    }

    struct Scene {
        _folder: tempfile::TempDir,
        client: Client,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let client = Client::new(&Home::at(folder.path()).unwrap()).unwrap();
            Self { _folder: folder, client }
        }

        fn pin(&self, name: &str, identity: Identity) {
            self.client.known.pin(name, &identity, &["192.0.2.9:9".into()], NOW).unwrap();
        }

        fn judge(&self, answers: &Answers, neighbours: &[Neighbour]) -> Vec<Listed> {
            let pins = self.client.known.names().unwrap();
            self.client.judge(&pins, answers, neighbours).unwrap()
        }
    }

    fn short(nodes: &[Listed]) -> Vec<(&str, Standing, bool)> {
        nodes.iter().map(|node| (node.name.as_str(), node.standing, node.away)).collect()
    }

    #[test]
    fn names_are_pinned_new_or_conflicting() {
        let scene = Scene::new();
        let [pinned, gone, thief, new, one, two] = [(); 6].map(|()| someone().identity());
        scene.pin("well", pinned);
        scene.pin("gone", gone);
        let neighbours = [
            neighbour("well", pinned),
            neighbour("well", thief),
            neighbour("new", new),
            neighbour("twins", one),
            neighbour("twins", two),
        ];
        let nodes = scene.judge(&Answers::new(), &neighbours);
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
        assert_eq!((nodes[4].identity, nodes[5].identity), (pinned, thief));
        assert!(nodes.iter().all(|node| node.services.is_none()));
    }

    #[test]
    fn a_pinned_node_is_shown_by_its_nickname_and_with_what_it_answered() {
        let scene = Scene::new();
        let [pinned, silent] = [(); 2].map(|()| someone().identity());
        scene.pin("cellar", pinned);
        scene.pin("silent", silent);
        let services = vec![wire::Service { name: "echo".into(), ..wire::Service::default() }];
        let answers = Answers::from([
            (pinned, Ok((services.clone(), vec!["192.0.2.5:5".into()]))),
            (silent, Err(ClientError::Unreachable("it does not answer".into()))),
        ]);
        let nodes = scene.judge(&answers, &[neighbour("well", pinned)]);
        assert_eq!(
            short(&nodes),
            [("cellar", Standing::Pinned, false), ("silent", Standing::Pinned, true)]
        );
        assert_eq!(nodes[0].addresses, ["192.0.2.5:5"]);
        assert_eq!(nodes[0].services.as_ref(), Some(&services));
        assert!(nodes[1].trouble.as_ref().unwrap().contains("does not answer"));
        // What it calls itself, nobody else can claim without being told.
        let other = someone().identity();
        let nodes = scene.judge(&answers, &[neighbour("well", pinned), neighbour("well", other)]);
        assert_eq!(nodes[2].standing, Standing::Conflicting);
    }

    #[test]
    fn a_dead_key_is_not_new() {
        let scene = Scene::new();
        let (old, new) = (someone(), someone());
        scene.pin("well", old.identity());
        let succession = Succession::sign(&old, &new.identity(), NOW);
        scene.client.known.follow(&succession).unwrap();
        let nodes = scene.judge(&Answers::new(), &[neighbour("other", old.identity())]);
        assert_eq!(
            short(&nodes),
            [("other", Standing::Conflicting, false), ("well", Standing::Pinned, true)]
        );
        assert_eq!(nodes[1].identity, new.identity());
    }
}
