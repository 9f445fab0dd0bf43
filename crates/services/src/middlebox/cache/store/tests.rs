use hyper::Method;
use levada_core::{SecretKey, SystemRandom};

use super::*;
use crate::http::RequestHead;

const SIZE: usize = 1 << 20;

fn server() -> Identity {
    SecretKey::generate(&SystemRandom).unwrap().identity()
}

fn realm(server: Identity, number: u8) -> Realm {
    Realm { server, realm: [number; 16] }
}

fn target(text: &str) -> Target {
    Target { host: None, target: text.to_owned() }
}

fn fields(text: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in text {
        fields.append(*name, HeaderValue::from_static(value));
    }
    fields
}

fn entry(body: usize, vary: Vec<(HeaderName, Vec<HeaderValue>)>) -> Entry {
    let lifetime = Duration::from_secs(86_400);
    let age = Duration::ZERO;
    let fresh = Freshness { lifetime, age, for_all: false };
    Entry { fields: HeaderMap::new(), body: vec![7; body], vary, fresh, arrived: Instant::now() }
}

fn rules() -> RequestRules {
    let head =
        RequestHead { method: Method::GET, target: "/".parse().unwrap(), fields: HeaderMap::new() };
    RequestRules::of(&head).unwrap()
}

fn put(
    cache: &Arc<Cache>,
    realm: Realm,
    target: &Target,
    request: &HeaderMap,
    entry: Entry,
) -> bool {
    let pending = cache.expect(realm, target.clone());
    cache.store(&pending, request, entry).is_ok()
}

fn found(cache: &Cache, realm: Realm, text: &str, request: &HeaderMap) -> Option<usize> {
    let found = cache.find(realm, &target(text), (&rules(), request), Instant::now());
    found.map(|entry| entry.body.len())
}

#[test]
fn an_answer_is_found_only_by_its_server_realm_host_and_target_while_it_is_fresh() {
    let cache = Cache::new(SIZE);
    let own = realm(server(), 1);
    let none = HeaderMap::new();
    assert!(put(&cache, own, &target("/a"), &none, entry(10, Vec::new())));
    assert_eq!(found(&cache, own, "/a", &none), Some(10));
    assert_eq!(found(&cache, own, "/a?", &none), None);
    assert_eq!(found(&cache, realm(own.server, 2), "/a", &none), None);
    assert_eq!(found(&cache, realm(server(), 1), "/a", &none), None);
    let host = Some(HeaderValue::from_static("other"));
    let other = Target { host, ..target("/a") };
    assert!(cache.find(own, &other, (&rules(), &none), Instant::now()).is_none());
    let later = Instant::now() + Duration::from_secs(86_401);
    assert!(cache.find(own, &target("/a"), (&rules(), &none), later).is_none());
    put(&cache, own, &target("/a"), &none, entry(20, Vec::new()));
    assert_eq!(found(&cache, own, "/a", &none), Some(20));
    cache.invalidate(own, &target("/a"));
    assert_eq!((found(&cache, own, "/a", &none), cache.bytes()), (None, 0));
    assert!(cache.lock().servers.is_empty());
}

#[test]
fn an_answer_is_used_only_for_the_fields_that_it_varies_by() {
    let cache = Cache::new(SIZE);
    let own = realm(server(), 1);
    let name = HeaderName::from_static("accept");
    let mut stored = 0;
    for request in [&[][..], &[("accept", "a")], &[("accept", "a"), ("accept", "b")]] {
        let request = fields(request);
        stored += 1;
        let vary = vec![(name.clone(), values(&request, &name))];
        assert!(put(&cache, own, &target("/"), &request, entry(stored, vary)));
    }
    assert_eq!(found(&cache, own, "/", &fields(&[("other", "a")])), Some(1));
    assert_eq!(found(&cache, own, "/", &fields(&[("accept", "a")])), Some(2));
    assert_eq!(found(&cache, own, "/", &fields(&[("accept", "a"), ("accept", "b")])), Some(3));
    assert_eq!(found(&cache, own, "/", &fields(&[("accept", "b")])), None);
    // A target keeps few variants, the last used ones.
    for number in 0..100 {
        let value = HeaderValue::from_str(&number.to_string()).unwrap();
        let vary = vec![(name.clone(), vec![value.clone()])];
        let mut request = HeaderMap::new();
        request.append(&name, value);
        assert!(put(&cache, own, &target("/"), &request, entry(4, vary)));
        assert!(found(&cache, own, "/", &request).is_some());
    }
    let variants = cache.lock().servers[&own.server].realms[&own.realm].targets[&target("/")].len();
    assert_eq!(variants, MAX_VARIANTS);
}

#[test]
fn of_several_variants_that_match_the_most_recent_is_used() {
    let cache = Cache::new(SIZE);
    let own = realm(server(), 1);
    let [foo, bar] = ["foo", "bar"].map(HeaderName::from_static);
    let stored = |request: &[(&'static str, &'static str)], name: &HeaderName, body, age| {
        let request = fields(request);
        let vary = vec![(name.clone(), values(&request, name))];
        let mut entry = entry(body, vary);
        entry.fresh.age = Duration::from_secs(age);
        assert!(put(&cache, own, &target("/"), &request, entry));
    };
    let both = fields(&[("foo", "1"), ("bar", "x")]);
    stored(&[("foo", "1")], &foo, 1, 0);
    stored(&[("foo", "2"), ("bar", "x")], &bar, 2, 0);
    assert_eq!(found(&cache, own, "/", &both), Some(2));
    // One that arrived later, and was made earlier.
    stored(&[("foo", "3"), ("bar", "x")], &bar, 3, 60);
    assert_eq!(found(&cache, own, "/", &both), Some(1));
}

#[test]
fn the_size_is_never_exceeded_and_the_least_recently_used_answer_goes() {
    let cache = Cache::new(SIZE);
    let own = realm(server(), 1);
    let none = HeaderMap::new();
    assert!(!put(&cache, own, &target("/long"), &none, entry(SIZE / 8 + 1, Vec::new())));
    assert!(put(&cache, own, &target("/kept"), &none, entry(SIZE / 8, Vec::new())));
    for number in 0..200 {
        let name = format!("/{number}");
        assert!(put(&cache, own, &target(&name), &none, entry(50_000, Vec::new())));
        assert!(cache.bytes() <= SIZE);
        assert!(found(&cache, own, "/kept", &none).is_some(), "used at {number}");
    }
    assert!(found(&cache, own, "/199", &none).is_some());
    assert!(found(&cache, own, "/0", &none).is_none());
    // The tables agree.
    let contents = cache.lock();
    let answers = &contents.servers[&own.server].realms[&own.realm];
    assert_eq!(answers.by_use.len(), answers.targets.values().map(Vec::len).sum::<usize>());
    assert_eq!(contents.bytes, answers.bytes);
}

#[test]
fn no_server_and_no_realm_uses_up_the_place_of_others() {
    let cache = Cache::new(SIZE);
    let quiet = realm(server(), 1);
    let none = HeaderMap::new();
    let beside = realm(quiet.server, 2);
    for own in [quiet, beside] {
        assert!(put(&cache, own, &target("/"), &none, entry(100_000, Vec::new())));
    }
    // One server with many answers in one realm, and then in many realms.
    let busy = server();
    for number in 0..200u8 {
        for own in [realm(busy, 1), realm(busy, number), realm(quiet.server, 3)] {
            put(&cache, own, &target(&number.to_string()), &none, entry(50_000, Vec::new()));
        }
    }
    for own in [quiet, beside] {
        assert!(found(&cache, own, "/", &none).is_some());
    }
}

#[test]
fn realms_and_servers_are_bounded() {
    let cache = Cache::new(16 << 20);
    let busy = server();
    let none = HeaderMap::new();
    for number in 0..200u8 {
        assert!(put(&cache, realm(busy, number), &target("/"), &none, entry(1, Vec::new())));
    }
    assert_eq!(cache.lock().servers[&busy].realms.len(), MAX_REALMS);
    assert!(found(&cache, realm(busy, 199), "/", &none).is_some());
    for _ in 0..MAX_SERVERS + 10 {
        assert!(put(&cache, realm(server(), 1), &target("/"), &none, entry(1, Vec::new())));
    }
    let contents = cache.lock();
    assert_eq!(contents.servers.len(), MAX_SERVERS);
    assert_eq!(contents.bytes, contents.servers.values().map(|server| server.bytes).sum::<usize>());
}

#[test]
fn what_is_being_received_is_bounded_for_all_and_for_one_server() {
    let cache = Cache::new(SIZE);
    let one = server();
    let two = server();
    let three = server();
    let mut all: Vec<Reservation> = [one, one, two, three].map(|own| cache.reserve(own)).into();
    assert!(all[0].grow(SIZE / 16) && all[1].grow(SIZE / 16) && !all[1].grow(1));
    assert!(all[2].grow(SIZE / 8) && !all[3].grow(1));
    drop(all.remove(0));
    assert!(all.pop().unwrap().grow(SIZE / 16));
    drop(all);
    assert!(cache.lock().servers.is_empty() && cache.lock().receiving == 0);
}
