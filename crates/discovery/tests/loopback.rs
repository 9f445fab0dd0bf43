//! Announcing and browsing by multicast DNS on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use levada_core::{Identity, SecretKey, SystemRandom};
use levada_discovery::testing::{Claim, MulticastSender};
use levada_discovery::{
    Announcement, Announcer, MAX_ADDRESSES, MAX_NEIGHBOURS, Neighbour, Targets, browse, find,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a step may take before its test fails: far more than it needs on a loaded machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// All tests use the same network, so they run one at a time.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

fn random_identity() -> Identity {
    SecretKey::generate(&SystemRandom).unwrap().identity()
}

fn announce(name: &str, identity: Identity, port: u16) -> Announcer {
    let listening = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    Announcer::start(Announcement { name: name.into(), identity, listening }).unwrap()
}

fn wanted(identities: &[Identity]) -> Targets {
    Targets { keys: identities.iter().copied().collect(), ..Targets::default() }
}

async fn neighbours(identities: &[Identity]) -> Vec<Neighbour> {
    let mut seen = browse(wanted(identities)).await.unwrap().neighbours;
    seen.retain(|neighbour| identities.contains(&neighbour.identity));
    seen
}

/// Repeats `attempt` until it returns a value.
async fn eventually<T, F: Future<Output = Option<T>>>(mut attempt: impl FnMut() -> F) -> T {
    let trying = async {
        loop {
            if let Some(result) = attempt().await {
                return result;
            }
        }
    };
    timeout(STEP_TIMEOUT, trying).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_found_until_its_goodbye() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let announcer = announce("well", identity, 4711);
    let found = eventually(|| async { find(&identity).await.unwrap() }).await;
    let addresses = vec!["127.0.0.1:4711".parse().unwrap()];
    assert_eq!(found, Neighbour { name: "well".into(), identity, addresses });
    let looked = eventually(|| async { neighbours(&[identity]).await.pop() }).await;
    assert_eq!(looked, found);
    announcer.goodbye().await;
    eventually(|| async { neighbours(&[identity]).await.is_empty().then_some(()) }).await;
    assert_eq!(find(&identity).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_announcer_sends_a_goodbye() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let announcer = announce("well", identity, 4711);
    eventually(|| async { find(&identity).await.unwrap() }).await;
    drop(announcer);
    eventually(|| async { find(&identity).await.unwrap().is_none().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_machine_are_distinguished() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identities: Vec<Identity> = (0..8).map(|_| random_identity()).collect();
    // The last two have the name of the first.
    let name = |number: usize| format!("node-{}", if number < 6 { number } else { 0 });
    let announcers: Vec<Announcer> = (4000..)
        .zip(&identities)
        .enumerate()
        .map(|(number, (port, identity))| announce(&name(number), *identity, port))
        .collect();
    let found = eventually(|| async {
        let found = neighbours(&identities).await;
        (found.len() == identities.len()).then_some(found)
    });
    for neighbour in found.await {
        let number = identities.iter().position(|one| *one == neighbour.identity).unwrap();
        assert_eq!(neighbour.name, name(number));
        let expected = format!("127.0.0.1:{}", 4000 + number);
        assert_eq!(neighbour.addresses, [expected.parse().unwrap()]);
    }
    drop(announcers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_two_ports_is_one_neighbour() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let listening: Vec<SocketAddr> =
        ["127.0.0.1:4001", "127.0.0.2:4002"].map(|text| text.parse().unwrap()).to_vec();
    let announcement = Announcement { name: "well".into(), identity, listening: listening.clone() };
    let _announcer = Announcer::start(announcement).unwrap();
    let found = eventually(|| async {
        let found = neighbours(&[identity]).await;
        found.into_iter().find(|neighbour| neighbour.addresses.len() == 2)
    });
    assert_eq!(found.await.addresses, listening);
}

/// Sends packets repeatedly, as a hostile neighbour, until the returned sender is dropped.
fn flood(packets: Vec<Vec<u8>>) -> std::sync::mpsc::Sender<()> {
    let (stop, stopped) = std::sync::mpsc::channel();
    let voice = MulticastSender::new(Ipv4Addr::LOCALHOST).unwrap();
    std::thread::spawn(move || {
        while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            for packet in &packets {
                // A full send buffer drops the packet; it is sent again.
                let _ = voice.send(packet);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    stop
}

/// Packets that are malformed, truncated or altered.
fn garbage() -> Vec<Vec<u8>> {
    let good =
        Claim::new("g", "g", &random_identity().to_string(), Ipv4Addr::LOCALHOST, 9).packet();
    let mut packets = vec![vec![], vec![0; 11], vec![0xff; 9000], vec![0xc0; 600]];
    packets.extend((0..good.len()).map(|end| good[..end].to_vec()));
    packets.extend((0..good.len()).map(|at| {
        let mut packet = good.clone();
        packet[at] ^= 0xff;
        packet
    }));
    // A name that points at itself (RFC 1035 section 4.1.4).
    packets.push([&good[..12], &[0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 120, 0, 2, 0xc0, 12]].concat());
    packets
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_dropped_and_the_others_are_still_found() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let _announcer = announce("well", identity, 4711);
    eventually(|| async { find(&identity).await.unwrap() }).await;
    let claim = |name: &str, key: &str, address, port| {
        Claim::new(&format!("evil-{name}-{port}"), name, key, address, port).packet()
    };
    let key = random_identity().to_string();
    let away = Ipv4Addr::new(192, 0, 2, 1);
    let mut packets = garbage();
    packets.extend([
        claim("\u{1b}[2J", &key, away, 1),
        claim("two words", &key, away, 1),
        claim(&key, &key, away, 1),
        claim("no-key", "lvx", away, 1),
        claim("no-port", &key, away, 0),
        claim("nowhere", &key, Ipv4Addr::UNSPECIFIED, 1),
        claim("everywhere", &key, Ipv4Addr::BROADCAST, 1),
        claim("group", &key, Ipv4Addr::new(224, 0, 0, 251), 1),
        claim("plausible", &key, away, 1),
    ]);
    let flooding = flood(packets);
    let seen = eventually(|| async {
        let seen = browse(wanted(&[identity])).await.unwrap().neighbours;
        let both = ["plausible", "well"].map(|name| seen.iter().any(|one| one.name == name));
        (both == [true; 2]).then_some(seen)
    });
    // All other claims of that key were refused.
    let seen = seen.await;
    let claimed = seen.iter().filter(|neighbour| neighbour.identity.to_string() == key);
    assert_eq!(claimed.map(|one| one.name.as_str()).collect::<Vec<_>>(), ["plausible"]);
    assert!(seen.iter().all(|neighbour| levada_core::check_name(&neighbour.name).is_ok()));
    drop(flooding);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_names_neither_hide_a_wanted_node_nor_block_browsing() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let _announcer = announce("well", identity, 4711);
    eventually(|| async { find(&identity).await.unwrap() }).await;
    let packets = (0..3000_u16).map(|number| {
        let name = format!("crowd-{number}");
        // A thousand of them are addresses of one host.
        let instance = if number < 1000 { "host" } else { name.as_str() };
        let [high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(198, 18, high, low);
        Claim::new(instance, &name, &random_identity().to_string(), address, 1).packet()
    });
    let flooding = flood(packets.collect());
    let seen = eventually(|| async {
        let seen = browse(wanted(&[identity])).await.unwrap().neighbours;
        seen.iter().any(|one| one.name.starts_with("crowd-")).then_some(seen)
    });
    let seen = seen.await;
    assert!(seen.len() <= MAX_NEIGHBOURS + 1, "{}", seen.len());
    assert!(seen.iter().all(|one| one.addresses.len() <= MAX_ADDRESSES));
    eventually(|| async { find(&identity).await.unwrap() }).await;
    drop(flooding);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_under_a_known_name_is_listed_too() {
    let _exclusive = EXCLUSIVE.lock().await;
    let identity = random_identity();
    let other = random_identity();
    let _announcer = announce("well", identity, 4711);
    eventually(|| async { find(&identity).await.unwrap() }).await;
    // One claim has the instance name of the real announcement.
    let instance = format!("well-{}", &identity.to_string()[2..10]);
    let key = other.to_string();
    let claims = [
        Claim::new(&instance, "well", &key, Ipv4Addr::LOCALHOST, 9),
        Claim::new("other", "well", &key, Ipv4Addr::LOCALHOST, 9),
    ];
    let flooding = flood(claims.iter().map(Claim::packet).collect());
    let names = BTreeSet::from(["well".to_owned()]);
    eventually(|| async {
        let wanted = Targets { names: names.clone(), keys: BTreeSet::from([identity]) };
        let seen = browse(wanted).await.unwrap().neighbours;
        let keys: BTreeSet<Identity> =
            seen.iter().filter(|one| one.name == "well").map(|one| one.identity).collect();
        keys.is_superset(&BTreeSet::from([identity, other])).then_some(())
    })
    .await;
    drop(flooding);
}
