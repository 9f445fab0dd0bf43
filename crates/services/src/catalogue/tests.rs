use super::*;
use std::io::Cursor;
use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Kind, Package, Version};
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_core::wire::catalogue::{self as wire, Cause, Detail};
use levada_core::{Identity, SecretKey, SystemClock, SystemRandom, sha256};
use levada_service::Registry;
use levada_service::testing::{context, definition, params};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A store in a temporary folder.
struct Fixture {
    folder: TempDir,
    handle: Arc<CatalogueHandle>,
}

const ALICE: Identity = Identity::from_bytes([7; 32]);

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let handle = Arc::new(CatalogueHandle::new(Arc::new(store), Arc::new(SystemClock)));
        Self { folder, handle }
    }

    fn connect(
        &self,
        principal: Principal,
    ) -> (CatalogueClient, JoinHandle<Result<(), ServeError>>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(far);
        let handle = self.handle.clone();
        let served =
            tokio::spawn(async move { serve(&handle, &principal, of_bytes(read, write)).await });
        let (read, write) = tokio::io::split(near);
        (CatalogueClient::new(of_bytes(read, write)), served)
    }

    fn owner(&self) -> CatalogueClient {
        self.connect(Principal::owner()).0
    }

    fn alice(&self, rules: &[&str]) -> CatalogueClient {
        self.connect(principal(rules)).0
    }
}

fn principal(rules: &[&str]) -> Principal {
    let rights = Rights::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    Principal { identity: Some(ALICE), rights, max_package: 1 << 20 }
}

fn draft(key: &str, version: &str, code: Option<&[u8]>) -> Draft {
    let package = code.map(|code| Package {
        digest: sha256(&[code]),
        length: code.len() as u64,
        media_type: "text/javascript".into(),
        description: b"{}".to_vec(),
    });
    Draft {
        key: key.parse().unwrap(),
        version: version.parse().unwrap(),
        descriptor: format!("{{\"about\":\"{key}\"}}").into_bytes(),
        package,
        signatures: Vec::new(),
    }
}

async fn publish(
    client: &mut CatalogueClient,
    draft: &Draft,
    code: &[u8],
) -> Result<ChangeOutcome, CatalogueError> {
    client.publish(draft, &mut Cursor::new(code.to_vec()), |_| {}).await
}

#[track_caller]
fn cause<T: std::fmt::Debug>(result: Result<T, CatalogueError>) -> Cause {
    match result {
        Err(CatalogueError::Failed { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

async fn keys(
    client: &mut CatalogueClient,
    kind: Option<Kind>,
    prefix: &str,
    limit: u64,
) -> Vec<String> {
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(item.key.to_string());
        Ok::<_, CatalogueError>(())
    };
    client.list(kind, prefix, limit, Detail::Keys, each).await.unwrap();
    found
}

#[tokio::test]
async fn published_versions_are_found_and_their_packages_returned() {
    let fixture = Fixture::new();
    let mut client = fixture.owner();
    let code: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = draft("hyperty/Connector", "1.2.3", Some(&code));
    assert!(publish(&mut client, &whole, &code).await.unwrap().is_new);
    // Publishing the same version again changes nothing; other content is a conflict.
    assert!(!publish(&mut client, &whole, &code).await.unwrap().is_new);
    let other = Draft { descriptor: b"{}".to_vec(), ..whole.clone() };
    assert_eq!(cause(publish(&mut client, &other, &code).await), Cause::Conflict);
    publish(&mut client, &draft("hyperty/Connector", "2.0.0", None), b"").await.unwrap();

    let newest = client.get(&whole.key, "").await.unwrap();
    assert_eq!((newest.version, newest.package), (Version::new(2, 0, 0), None));
    let found = client.get(&whole.key, "^1").await.unwrap();
    assert_eq!((&found.descriptor, &found.package), (&whole.descriptor, &whole.package));
    assert_eq!(found.publisher, None);
    assert_eq!(cause(client.get(&whole.key, ">=3").await), Cause::Unknown);
    for offset in [0, 1, 65_536, 799_999, 800_000] {
        let mut back = Vec::new();
        client.fetch(&found, offset as u64, &mut back, |_| {}).await.unwrap();
        assert!(back == code[offset..], "{offset}");
    }
    let mut versions = Vec::new();
    let each = |one: levada_catalogue::model::Published| {
        versions.push(one.version.to_string());
        Ok::<_, CatalogueError>(())
    };
    client.versions(&whole.key, each).await.unwrap();
    assert_eq!(versions, ["1.2.3", "2.0.0"]);
    assert!(client.yank(&whole.key, &Version::new(2, 0, 0), true).await.unwrap().is_new);
    assert_eq!(client.get(&whole.key, "latest").await.unwrap().version, Version::new(1, 2, 3));
    let finding = |text: String| -> Result<(), CatalogueError> { panic!("{text}") };
    let verified = client.verify(finding).await.unwrap();
    assert_eq!((verified.versions, verified.packages, verified.findings), (2, 1, 0));
}

#[tokio::test]
async fn watchers_are_notified_if_the_publishing_future_is_dropped() {
    let fixture = Fixture::new();
    let mut changes = fixture.handle.changes();
    {
        let drafts = vec![draft("hyperty/a", "1.0.0", None)];
        let mut publishing = std::pin::pin!(fixture.handle.publish_all(drafts, Vec::new(), None));
        // The work starts at the first poll.
        tokio::select! { biased; _ = &mut publishing => {}, () = async {} => {} }
    }
    timeout(Duration::from_secs(60), changes.changed()).await.unwrap().unwrap();
}

#[tokio::test]
async fn publishing_again_repairs_a_damaged_or_missing_package() {
    let fixture = Fixture::new();
    let mut client = fixture.owner();
    let code = vec![5; 100_000];
    let whole = draft("runtime/Frail", "1.0.0", Some(&code));
    publish(&mut client, &whole, &code).await.unwrap();
    let digest: String = sha256(&[&code]).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = fixture.folder.path().join("blobs").join(&digest[..2]).join(&digest[2..]);
    let damage: [fn(&std::path::Path); 2] = [
        |path| std::fs::write(path, vec![6; 100_000]).unwrap(),
        |path| std::fs::remove_file(path).unwrap(),
    ];
    for damage in damage {
        damage(&path);
        assert_eq!(client.verify(|_| Ok::<_, CatalogueError>(())).await.unwrap().findings, 1);
        let mut uploaded = 0;
        let mut source = Cursor::new(code.clone());
        let again = client.publish(&whole, &mut source, |at| uploaded = at).await.unwrap();
        assert!(!again.is_new && uploaded == 100_000);
        assert_eq!(client.verify(|_| Ok::<_, CatalogueError>(())).await.unwrap().findings, 0);
    }
    // The package of a conflicting draft is not uploaded.
    let other = draft("runtime/Frail", "1.0.0", Some(b"other"));
    let mut uploaded = false;
    let mut source = Cursor::new(b"other".to_vec());
    let refused = client.publish(&other, &mut source, |_| uploaded = true).await;
    assert_eq!((cause(refused), uploaded), (Cause::Conflict, false));
}

#[tokio::test]
async fn rules_limit_what_a_session_reads_and_changes() {
    let fixture = Fixture::new();
    let mut owner = fixture.owner();
    for key in ["hyperty/acme.one", "hyperty/acme.two", "hyperty/other", "runtime/acme.one"] {
        publish(&mut owner, &draft(key, "1.0.0", None), b"").await.unwrap();
    }
    let rules = ["read hyperty/acme.*", "write hyperty/acme.*", "yank hyperty/acme.one"];
    let mut alice = fixture.alice(&rules);
    assert_eq!(keys(&mut alice, None, "", 0).await, ["hyperty/acme.one", "hyperty/acme.two"]);
    assert_eq!(keys(&mut alice, Some(Kind::Runtime), "", 0).await, [""; 0]);
    assert_eq!(keys(&mut alice, None, "", 1).await, ["hyperty/acme.one"]);
    let other: Key = "hyperty/other".parse().unwrap();
    assert_eq!(cause(alice.get(&other, "").await), Cause::Denied);
    let mine = draft("hyperty/acme.three", "1.0.0", None);
    publish(&mut alice, &mine, b"").await.unwrap();
    assert_eq!(owner.get(&mine.key, "").await.unwrap().publisher, Some(ALICE));
    let theirs = draft("hyperty/other", "2.0.0", None);
    assert_eq!(cause(publish(&mut alice, &theirs, b"").await), Cause::Denied);
    assert_eq!(cause(alice.yank(&mine.key, &mine.version, true).await), Cause::Denied);
    let one: Key = "hyperty/acme.one".parse().unwrap();
    assert!(alice.yank(&one, &mine.version, true).await.unwrap().is_new);
    assert_eq!(cause(alice.collect(Duration::ZERO).await), Cause::Denied);
    assert_eq!(cause(alice.audit(0, |_| Ok(())).await), Cause::Denied);
    // The log names the identity of each change. Refused requests are not in it.
    let mut log = Vec::new();
    let each = |entry: wire::Logged| {
        log.push((entry.action, entry.key, entry.identity.is_empty()));
        Ok::<_, CatalogueError>(())
    };
    owner.audit(2, each).await.unwrap();
    let entry = |action: &str, key: &str| (action.to_owned(), key.to_owned(), false);
    assert_eq!(log, [entry("yank", "hyperty/acme.one"), entry("publish", "hyperty/acme.three")]);
}

#[tokio::test]
async fn an_interrupted_upload_is_resumed() {
    let fixture = Fixture::new();
    let code = vec![9; 300_000];
    let whole = draft("runtime/Long", "1.0.0", Some(&code));
    let (mut client, served) = fixture.connect(principal(&["write */*"]));
    // A source that ends early simulates a client that is killed.
    let short = publish(&mut client, &whole, &code[..200_000]).await;
    assert!(matches!(short, Err(CatalogueError::Package(_))), "{short:?}");
    drop(client);
    assert!(served.await.unwrap().is_ok());
    let mut offsets = Vec::new();
    let mut client = fixture.alice(&["write */*"]);
    let mut source = Cursor::new(code.clone());
    client.publish(&whole, &mut source, |at| offsets.push(at)).await.unwrap();
    assert_eq!((offsets.first(), offsets.last()), (Some(&196_608), Some(&300_000)));
    // The resumed upload is the whole package.
    let mut owner = fixture.owner();
    let mut back = Vec::new();
    let found = owner.get(&whole.key, "").await.unwrap();
    owner.fetch(&found, 0, &mut back, |_| {}).await.unwrap();
    assert!(back == code);
}

#[tokio::test]
async fn rejects_invalid_drafts_and_stores_nothing() {
    let fixture = Fixture::new();
    let mut alice = fixture.alice(&["read */*", "write */*"]);
    let code = b"code".as_slice();
    let good = draft("hyperty/One", "1.0.0", Some(code));
    assert_eq!(cause(publish(&mut alice, &good, b"edoc").await), Cause::Invalid);
    let list = Draft { descriptor: b"[]".to_vec(), ..good.clone() };
    assert_eq!(cause(publish(&mut alice, &list, code).await), Cause::Invalid);
    let mut large = good.clone();
    large.package.as_mut().unwrap().length = (1 << 20) + 1;
    assert_eq!(cause(publish(&mut alice, &large, code).await), Cause::Invalid);
    // A signature for another version.
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut signed = good.clone();
    signed.sign(&key);
    signed.version = Version::new(2, 0, 0);
    assert_eq!(cause(publish(&mut alice, &signed, code).await), Cause::Invalid);
    assert_eq!(keys(&mut alice, None, "", 0).await, [""; 0]);
    // The session continues.
    assert!(publish(&mut alice, &good, code).await.unwrap().is_new);
}

#[tokio::test]
async fn a_batch_has_an_outcome_for_each_object() {
    let fixture = Fixture::new();
    let mut alice = fixture.alice(&["write hyperty/*"]);
    let object = |key: &str, code: &[u8]| (draft(key, "1.0.0", Some(code)), code.to_vec());
    let there = object("hyperty/there", b"code");
    publish(&mut alice, &there.0, &there.1).await.unwrap();
    let mut conflict = there.clone();
    conflict.0.descriptor = b"{}".to_vec();
    let mut changed = object("hyperty/changed", b"announced");
    changed.1 = b"different".to_vec();
    let mut short = object("hyperty/short", b"code");
    short.0.package.as_mut().unwrap().length = 3;
    let list =
        (Draft { descriptor: b"[]".to_vec(), ..draft("hyperty/list", "1.0.0", None) }, Vec::new());
    let drafts = [
        object("hyperty/new", &[7; 200_000]),
        there,
        conflict,
        changed,
        object("runtime/denied", b"other"),
        short,
        list,
        object("hyperty/twin", &[7; 200_000]),
        (draft("hyperty/bare", "1.0.0", None), Vec::new()),
    ];
    let outcomes = alice.publish_all(&drafts).await.unwrap();
    let results: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(changed) => Ok(changed.is_new),
            Err(CatalogueError::Failed { cause, .. }) => Err(cause),
            Err(error) => panic!("{error}"),
        })
        .collect();
    let expected = [
        Ok(true),
        Ok(false),
        Err(Cause::Conflict),
        Err(Cause::Invalid),
        Err(Cause::Denied),
        Err(Cause::Invalid),
        Err(Cause::Invalid),
        Ok(true),
        Ok(true),
    ];
    assert_eq!(results, expected);
    let mut owner = fixture.owner();
    let names = ["bare", "new", "there", "twin"].map(|name| format!("hyperty/{name}"));
    assert_eq!(keys(&mut owner, None, "", 0).await, names);
    let finding = |text: String| -> Result<(), CatalogueError> { panic!("{text}") };
    assert_eq!(owner.verify(finding).await.unwrap().packages, 2);
    let many = vec![(draft("hyperty/new", "2.0.0", None), Vec::new()); MAX_BATCH + 1];
    assert_eq!(cause(alice.publish_all(&many).await), Cause::Invalid);
    assert!(alice.publish_all(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn watch_follows_changes_and_resumes_after_a_revision() {
    let fixture = Fixture::new();
    let mut owner = fixture.owner();
    publish(&mut owner, &draft("hyperty/a", "1.0.0", None), b"").await.unwrap();
    publish(&mut owner, &draft("runtime/a", "1.0.0", None), b"").await.unwrap();
    let mut seen = Vec::new();
    let each = |change: wire::Changed| {
        seen.push((change.key, change.revision));
        Ok::<_, CatalogueError>(())
    };
    let last = fixture.owner().watch(Some(0), (None, ""), false, each).await.unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].1, last);
    let mut watcher = fixture.alice(&["read hyperty/*"]);
    let follow = async {
        let mut count = 0;
        let each = |change: wire::Changed| {
            assert_eq!(change.key, "hyperty/b");
            count += 1;
            if count == 2 { Err(CatalogueError::Unexpected) } else { Ok(()) }
        };
        let ended = watcher.watch(Some(last), (None, ""), true, each).await;
        assert!(matches!(ended, Err(CatalogueError::Unexpected)));
    };
    let change = async {
        publish(&mut owner, &draft("runtime/b", "1.0.0", None), b"").await.unwrap();
        let whole = draft("hyperty/b", "1.0.0", None);
        publish(&mut owner, &whole, b"").await.unwrap();
        owner.yank(&whole.key, &whole.version, true).await.unwrap();
    };
    tokio::join!(follow, change);
    let long = "x".repeat(256);
    let listed = fixture.owner().list(None, &long, 0, Detail::Keys, |_| Ok(())).await;
    assert_eq!(cause(listed), Cause::Invalid);
    let ahead = fixture.owner().watch(Some(1_000_000), (None, ""), false, |_| Ok(())).await;
    assert_eq!(cause(ahead), Cause::Compacted);
}

#[tokio::test]
async fn search_finds_words_of_descriptors() {
    let fixture = Fixture::new();
    let mut owner = fixture.owner();
    for key in ["hyperty/first", "hyperty/second", "runtime/first"] {
        publish(&mut owner, &draft(key, "1.0.0", None), b"").await.unwrap();
    }
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(item.newest.unwrap().key.to_string());
        Ok::<_, CatalogueError>(())
    };
    owner.search("first", Some(Kind::Hyperty), 0, each).await.unwrap();
    assert_eq!(found, ["hyperty/first"]);
    let long = "x".repeat(2000);
    assert_eq!(cause(owner.search(&long, None, 0, |_| Ok(())).await), Cause::Invalid);
}

fn service(fixture: &Fixture, options: &str) -> Catalogue {
    let text = format!("name = 'catalogue'\ntype = 'catalogue'\n{options}");
    let handle = Some(fixture.handle.clone());
    let definition = definition(service_type(handle.clone()), &text).unwrap();
    let options = definition.read_options().unwrap();
    Catalogue::new(&definition, &context(), handle, options).unwrap()
}

#[tokio::test]
async fn the_rules_of_a_session_are_limited_by_the_configuration() {
    let fixture = Fixture::new();
    let service = service(&fixture, "rules = ['write hyperty/acme.*']\n");
    let args = |rules: &[&str]| params(&[(Params::ARGS, &levada_core::encode_list(rules))]);
    for inside in [&["read */*"][..], &["read service/x", "write hyperty/acme.a*"], &[]] {
        assert!(service.prepare(&args(inside), Over::Stream).is_ok(), "{inside:?}");
    }
    let beyond = service.check(&args(&["write hyperty/*"]));
    let text = "the right \"write hyperty/*\" is more than this service grants";
    assert_eq!(beyond.unwrap_err().to_string(), text);
    let text = "\"x\" is not a rule: expected `read`, `write` or `yank`, a space, and TYPE/NAME, or `admin */*`";
    assert_eq!(service.check(&args(&["x"])).unwrap_err().to_string(), text);
    let pty = params(&[("pty", b"")]);
    assert_eq!(service.check(&pty), Err(Refused::Unknown("pty".into())));

    let (near, far) = levada_session::testing::pair().await.unwrap();
    let one = levada_core::encode_list(&["write hyperty/acme.one"]);
    let session = levada_service::testing::run(&service, &[(Params::ARGS, &one)], far);
    let requests = async {
        let mut client = CatalogueClient::new(of_stream(near));
        let mine = draft("hyperty/acme.one", "1.0.0", Some(b"code"));
        publish(&mut client, &mine, b"code").await.unwrap();
        let other = draft("hyperty/acme.two", "1.0.0", None);
        assert_eq!(cause(publish(&mut client, &other, b"").await), Cause::Denied);
        // The configuration allows reading, but the rules of the session do not.
        assert_eq!(cause(client.get(&mine.key, "").await), Cause::Denied);
        client.finish().await;
    };
    let (ended, ()) = tokio::join!(session, requests);
    ended.unwrap();
}

#[test]
fn rejects_a_definition_without_a_store_or_with_an_invalid_rule() {
    let plain = Definition::plain("catalogue", "catalogue");
    let built = Registry::new(vec![service_type(None)]).build(&plain, &context());
    assert!(matches!(built, Err(DefinitionError::Machine { .. })));
    let wrong = "name = 'c'\ntype = 'catalogue'\nopen = false\nrules = ['write all']\n";
    let error = definition(service_type(None), wrong).unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains("rule"), "{error}");
}
