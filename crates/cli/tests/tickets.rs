//! Tickets: exchanged at a running node for a capability of the bearer's identity.

use std::time::Duration;

use levada_capability::{Capability, Invitation, Rights, Ticket, TicketTerms};
use levada_client::{Client, ClientError};
use levada_core::{Clock, Identity, Params, SystemClock, SystemRandom, UnixTime};
use levada_node::store::{NewShare, NewTicket, Store};

use tokio::task::JoinSet;

use crate::support::{Home, Node, in_full};

const ROOT: [u8; 32] = [0x60; 32];
/// Bearers that exchange a ticket at once.
const MANY: usize = 200;

/// A ticket before its node runs: its secret, and what it permits.
struct Issued {
    secret: [u8; 16],
    terms: TicketTerms,
}

fn in_an_hour() -> UnixTime {
    SystemClock.now().after(Duration::from_secs(3600))
}

/// Stores a share and its tickets in the home of a node that does not run, each for `peers` of its
/// terms.
fn issue(home: &Home, all: &[(u32, UnixTime, Option<Identity>)]) -> Vec<Issued> {
    let store = Store::open(&home.path().join("node.db")).unwrap();
    let now = SystemClock.now();
    let new = NewShare { name: "film", paths: "[]", root: ROOT, length: 9, settings: "{}" };
    let share = store.add_share(&new, now).unwrap();
    let add = |&(peers, expires, bound): &(u32, UnixTime, Option<Identity>)| {
        let secret = *Ticket::generate_secret(&SystemRandom).unwrap();
        let new = NewTicket { hash: Ticket::hash(&secret), share, expires, peers, bound };
        store.add_ticket(&new, now).unwrap();
        Issued { secret, terms: TicketTerms { root: ROOT, length: 9, expires, peers, bound } }
    };
    all.iter().map(add).collect()
}

impl Issued {
    /// The ticket, with the node's identity and addresses, which an invitation has, too.
    fn at(&self, node: &Node) -> Ticket {
        let line = node.invite("");
        let code = line.split_whitespace().find(|word| word.starts_with("lvinv1")).unwrap();
        let invitation = Invitation::from_text(code).unwrap();
        let addresses = invitation.addresses().to_vec();
        Ticket::new(invitation.node(), self.secret.into(), self.terms, addresses).unwrap()
    }
}

fn client(home: &Home) -> Client {
    Client::new(&levada_home::Home::at(home.path()).unwrap()).unwrap()
}

pub fn exchange(home: &Home, ticket: &Ticket) -> Result<Capability, ClientError> {
    let client = client(home);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let capability = runtime.block_on(client.exchange(ticket));
    client.close();
    capability
}

/// The text of a denial.
#[track_caller]
fn denied(home: &Home, ticket: &Ticket) -> String {
    match exchange(home, ticket) {
        Err(ClientError::Denied(text)) => text,
        other => panic!("not denied: {other:?}"),
    }
}

#[test]
fn a_bearer_receives_a_capability_of_its_own() {
    let [home, alice, bob] = [Home::new(), Home::new(), Home::new()];
    let issued = issue(&home, &[(1, in_an_hour(), None)]);
    let node = home.up("--name well");
    let ticket = issued[0].at(&node);
    let capability = exchange(&alice, &ticket).unwrap();
    assert_eq!(capability.holder().to_string(), alice.identity());
    assert_eq!((capability.node(), capability.service()), (ticket.node(), "swarm"));
    assert_eq!(capability.params().value(Params::ROOT), Some(ROOT.as_slice()));
    assert_eq!(capability.expires(), ticket.terms().expires);
    // It cannot be passed on: the ticket counts identities.
    assert_eq!(capability.rights(), Rights::EXECUTE);
    let again = exchange(&alice, &ticket).unwrap();
    assert_eq!(again.to_text(), capability.to_text());
    assert!(denied(&bob, &ticket).contains("used up"));

    // The node keeps what it has exchanged.
    drop(node);
    let node = home.up("--name well");
    let ticket = issued[0].at(&node);
    assert_eq!(exchange(&alice, &ticket).unwrap().session(), capability.session());
    assert!(denied(&bob, &ticket).contains("used up"));
    home.args(["revoke", &capability.session().to_string()]).ok();
    assert!(denied(&alice, &ticket).contains("revoked"));
}

#[test]
fn a_ticket_says_why_it_is_refused() {
    let [home, alice, bob] = [Home::new(), Home::new(), Home::new()];
    let past = UnixTime(1);
    let for_bob = bob.identity().parse().unwrap();
    let issued = issue(&home, &[(9, past, None), (9, in_an_hour(), Some(for_bob))]);
    let node = home.up("--name well");
    assert!(denied(&alice, &issued[0].at(&node)).contains("expired"));
    assert!(denied(&alice, &issued[1].at(&node)).contains("for another identity"));
    exchange(&bob, &issued[1].at(&node)).unwrap();
}

/// Behind one address: an exchange is no guess while it runs, and a right ticket takes back no
/// wrong one.
#[test]
fn many_exchanges_at_once_are_all_served() {
    let home = Home::new();
    let tickets = vec![(MANY as u32, in_an_hour(), None); if in_full() { 10 } else { 1 }];
    let issued = issue(&home, &tickets);
    let node = home.up("--name well");
    let homes: Vec<Home> = (0..MANY).map(|_| Home::new()).collect();
    let mut clients: Vec<Client> = homes.iter().map(client).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for issued in &issued {
        let ticket = issued.at(&node);
        let mut running = JoinSet::new();
        for client in clients.drain(..) {
            let ticket = ticket.clone();
            let exchanged = async move { (client.exchange(&ticket).await.map(drop), client) };
            running.spawn_on(exchanged, runtime.handle());
        }
        for (exchanged, client) in runtime.block_on(running.join_all()) {
            exchanged.unwrap();
            clients.push(client);
        }
    }
    clients.iter().for_each(Client::close);
    let unknown = Issued { secret: [1; 16], terms: issued[0].terms }.at(&node);
    for said in ["has not issued", "has not issued", "has not issued", "try again in"] {
        assert!(denied(&homes[0], &unknown).contains(said), "{said}");
        let _ = exchange(&homes[1], &issued[0].at(&node));
    }
}

/// A node with a share and one without answer the same, and a guess counts as that of an
/// invitation.
#[test]
fn an_unknown_ticket_learns_nothing() {
    let [with, without, alice] = [Home::new(), Home::new(), Home::new()];
    issue(&with, &[(9, in_an_hour(), None)]);
    let terms = TicketTerms { root: ROOT, length: 9, expires: in_an_hour(), peers: 9, bound: None };
    let unknown = Issued { secret: [1; 16], terms };
    let answers = [&with, &without].map(|home| {
        let node = home.up("--name well");
        let ticket = unknown.at(&node);
        let answers: Vec<String> = (0..4).map(|_| denied(&alice, &ticket)).collect();
        let invitation = node.invite("");
        alice.args(["join", &invitation]).denied("try again in");
        answers
    });
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0][0].contains("has not issued"), "{answers:?}");
    assert!(answers[0][3].contains("try again in 10 minutes"), "{answers:?}");
}
