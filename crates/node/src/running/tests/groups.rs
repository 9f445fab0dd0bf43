//! Groups of another node: rotations of its key, and sets that this node signs of them.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::rotate::rotate;
use crate::store::{GroupExport, Store};
use levada_core::{GroupSet, Identity, SecretKey, Succession, SystemRandom};

const BAD: [u8; 32] = [7; 32];

fn parse(text: &str) -> Config {
    Config::parse(Path::new("config.toml"), text).unwrap()
}

/// A node that blocks the members of a group that `from` signs.
fn blocking(from: &str) -> Config {
    parse(&format!("block = ['group:bad']\n[groups]\nfrom = '{from}'\n"))
}

/// A valid set whose group `bad` has these members.
fn set(key: &SecretKey, version: u64, bad: &[Identity]) -> String {
    set_until(key, version, bad, UnixTime(SystemClock.now().0 + 1000))
}

fn set_until(key: &SecretKey, version: u64, bad: &[Identity], expires: UnixTime) -> String {
    let members = bad.iter().map(|identity| (*identity, None)).collect();
    let set = GroupSet {
        set: "default".into(),
        version,
        time: SystemClock.now(),
        expires,
        groups: [("bad".to_owned(), members)].into(),
    };
    set.sign(key).unwrap()
}

impl Scene {
    fn take(&self, text: &str) -> bool {
        self.node.take_groups(&self.node.rights.store, text).is_ok_and(|taken| taken.is_some())
    }

    fn is_blocked(&self, identity: [u8; 32]) -> bool {
        self.node.rights.policy.blocks(&Identity::from_bytes(identity))
    }

    async fn reload(&self, config: &Config) {
        self.node.reload_policy(config, &Overrides::default()).await.unwrap();
    }

    /// Rotates the key of `home`, and presents the statement to the node. Returns the new key.
    async fn rotate(&self, home: &Home) -> SecretKey {
        rotate(home, &Store::open(&home.node_db()).unwrap(), &[]).unwrap();
        let client = Client::new(home).unwrap();
        let refused = client.announce_successions(&self.target).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        home.key().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_of_the_signer_keeps_the_blocks_and_versions_of_its_groups() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Home::at(folder.path()).unwrap();
    let first = signer.key().unwrap();
    let config = blocking(&first.identity().to_string());
    let scene = Scene::with(&config);
    assert!(scene.take(&set(&first, 5, &[Identity::from_bytes(BAD)])));
    assert!(scene.is_blocked(BAD));

    let second = scene.rotate(&signer).await;
    assert!(scene.is_blocked(BAD));
    assert!(!scene.take(&set(&first, 6, &[])), "the old key signs nothing any longer");
    assert!(!scene.take(&set(&second, 5, &[])), "the versions go on");
    // The key in the file is the old one.
    scene.reload(&config).await;
    assert!(scene.is_blocked(BAD));
    assert!(scene.take(&set(&second, 6, &[Identity::from_bytes([8; 32])])));
    assert!(!scene.is_blocked(BAD) && scene.is_blocked([8; 32]));
}

/// A client of the node's user, and the node's own connections, follow the rotation of a node. It
/// need not have presented its statement here.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_of_the_signer_that_only_the_pins_have_followed_keeps_the_blocks() {
    let [first, second] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    let scene = Scene::with(&blocking(&first.identity().to_string()));
    assert!(scene.take(&set(&first, 5, &[Identity::from_bytes(BAD)])));
    let known = scene.node.client.known();
    let now = SystemClock.now();
    known.pin("signer", &first.identity(), &[], now).unwrap();
    known.follow(&Succession::sign(&first, &second.identity(), now)).unwrap();
    scene.reload(&blocking("signer")).await;
    assert!(scene.is_blocked(BAD));
    assert!(!scene.take(&set(&second, 5, &[])), "the versions go on");
    assert!(scene.take(&set(&second, 6, &[])));
    assert!(!scene.is_blocked(BAD));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_in_the_lists_follow_a_rotation_without_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let anna = Home::at(folder.path()).unwrap();
    let old = anna.key().unwrap().identity();
    let scene = Scene::with(&Config::default());
    scene.node.client.known().pin("anna", &old, &[], SystemClock.now()).unwrap();
    let text = "allow = ['anna', 'group:family']\n[groups]\nreaders = ['anna']\n\
                [[group]]\nname = 'family'\nmembers = ['anna']\n";
    scene.reload(&parse(text)).await;
    assert_eq!(scene.node.rights.policy.lists().of(&old).count(), 2);

    let new = scene.rotate(&anna).await.identity();
    let policy = &scene.node.rights.policy;
    let lists = policy.lists();
    assert_eq!((lists.of(&old).count(), lists.of(&new).count()), (0, 2));
    assert!(policy.is_reader(&new) && !policy.is_reader(&old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_a_group_of_the_node_keeps_its_rights_when_its_key_is_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let anna = Home::at(folder.path()).unwrap();
    let old = anna.key().unwrap().identity();
    let scene = Scene::with(&Config::default());
    let node = &scene.node;
    let members = [levada_config::Member::Identity(old)];
    node.add_to_group(&node.rights.store, "family", &members).unwrap();
    scene.reload(&parse("allow = ['group:family']\n")).await;
    let new = scene.rotate(&anna).await.identity();
    let lists = node.rights.policy.lists();
    assert_eq!((lists.of(&old).count(), lists.of(&new).count()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_group_of_the_node_is_created_over_one_of_another() {
    let signer = SecretKey::generate(&SystemRandom).unwrap();
    let scene = Scene::with(&blocking(&signer.identity().to_string()));
    assert!(scene.take(&set(&signer, 5, &[Identity::from_bytes(BAD)])));
    let add = |name: &str| scene.node.add_to_group(&scene.node.rights.store, name, &[]);
    let refused = add("bad").unwrap_err().to_string();
    assert!(refused.contains(&signer.identity().to_string()), "{refused}");
    assert!(scene.is_blocked(BAD));
    add("other").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_signed_again_keeps_members_whose_rights_have_expired() {
    let signer = SecretKey::generate(&SystemRandom).unwrap();
    let scene = Scene::with(&blocking(&signer.identity().to_string()));
    let store = &scene.node.rights.store;
    let bad = [Identity::from_bytes(BAD)];
    assert!(scene.take(&set(&signer, 5, &bad)));
    let lifetime = Duration::from_secs(9000);
    let groups = vec!["bad".to_owned()];
    let first = scene.node.export_groups(store, "onward", groups, lifetime).unwrap();
    let current = || scene.node.current_export(store, "onward").unwrap().unwrap();
    let passed = UnixTime(SystemClock.now().0 - 1);
    assert!(scene.take(&set_until(&signer, 6, &bad, passed)));
    let expired = current();
    let (content, _) = GroupSet::verify(&expired.text).unwrap();
    assert!(expired.version > first.version && content.expires == passed);
    assert_eq!(content.groups["bad"].keys().copied().collect::<Vec<_>>(), bad);
    assert_eq!(current(), expired, "it is not signed again for each reader");
    // Once the other node has signed its groups again, they are valid here, too.
    assert!(scene.take(&set(&signer, 7, &bad)));
    let (content, _) = GroupSet::verify(&current().text).unwrap();
    assert!(content.expires > passed.after(lifetime / 18));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_was_signed_in_the_future_is_signed_again() {
    let scene = Scene::new();
    let node = &scene.node;
    let store = &node.rights.store;
    node.add_to_group(store, "family", &[]).unwrap();
    let lifetime = Duration::from_secs(10_000);
    let last = node.export_groups(store, "own", vec!["family".to_owned()], lifetime).unwrap();
    let (content, _) = GroupSet::verify(&last.text).unwrap();
    // Other nodes accept clocks that differ by 300 s.
    for (version, ahead, is_kept) in [(1, 60, true), (2, 3600, false)] {
        let version = last.version + version;
        let signed = UnixTime(last.signed.0 + ahead);
        let expires = signed.after(lifetime);
        let set = GroupSet { version, time: signed, expires, ..content.clone() };
        let text = set.sign(&node.key).unwrap();
        let export = GroupExport { version, text, signed, ..last.clone() };
        store.add_group_export(&export, last.signed).unwrap();
        let current = node.current_export(store, "own").unwrap().unwrap();
        assert_eq!(current == export, is_kept, "{ahead} s");
        assert!(is_kept || current.version > version && current.signed < signed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_stored_before_an_expired_right_of_a_group_is_refused() {
    let signer = SecretKey::generate(&SystemRandom).unwrap();
    let text = format!("allow = ['group:bad']\n[groups]\nfrom = '{}'\n", signer.identity());
    for is_start in [false, true] {
        let scene = Scene::with(&parse(&text));
        let members = [scene.guest.identity()];
        assert!(scene.take(&set(&signer, 5, &members)));
        let spec = RequestSpec { service: "clock".into(), uses: 9, ..RequestSpec::default() };
        let capability = scene.guest.request(&scene.target, spec).await.unwrap();
        let expires = UnixTime(SystemClock.now().0 + 1);
        assert!(scene.take(&set_until(&signer, 6, &members, expires)));
        while SystemClock.now() <= expires {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let is_refused = match is_start {
            true => scene.guest.connect(&capability).await.is_err(),
            false => scene.request().await.1.is_err(),
        };
        assert!(is_refused && scene.stored_time() >= expires, "{is_start}");
    }
}
