use super::*;
use std::io::Cursor;
use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Kind, Package, Version};
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_core::wire::catalogue::{self as wire, Cause, Detail};
use levada_core::{Identity, SecretKey, SystemClock, SystemRandom, sha256};
use levada_service::Registry;
use levada_service::testing::{context, definition, invocation, params};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A store in a folder of its own.
struct Scene {
    folder: TempDir,
    handle: Arc<CatalogueHandle>,
}

const ALICE: Identity = Identity::from_bytes([7; 32]);

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let handle = Arc::new(CatalogueHandle::new(Arc::new(store), Arc::new(SystemClock)));
        Self { folder, handle }
    }

    fn speak(&self, visitor: Visitor) -> (Caller, JoinHandle<Result<(), ServeError>>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(far);
        let handle = self.handle.clone();
        let served =
            tokio::spawn(async move { serve(&handle, &visitor, of_bytes(read, write)).await });
        let (read, write) = tokio::io::split(near);
        (Caller::new(of_bytes(read, write)), served)
    }

    fn owner(&self) -> Caller {
        self.speak(Visitor::owner()).0
    }

    fn alice(&self, rules: &[&str]) -> Caller {
        self.speak(visitor(rules)).0
    }
}

fn visitor(rules: &[&str]) -> Visitor {
    let rights = Rights::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    Visitor { identity: Some(ALICE), rights, max_package: 1 << 20 }
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

async fn publish(caller: &mut Caller, draft: &Draft, code: &[u8]) -> Result<Changed, CallerError> {
    caller.publish(draft, &mut Cursor::new(code.to_vec()), |_| {}).await
}

#[track_caller]
fn cause<T: std::fmt::Debug>(result: Result<T, CallerError>) -> Cause {
    match result {
        Err(CallerError::Failed { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

async fn keys(caller: &mut Caller, kind: Option<Kind>, prefix: &str, limit: u64) -> Vec<String> {
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(item.key.to_string());
        Ok::<_, CallerError>(())
    };
    caller.list(kind, prefix, limit, Detail::Keys, each).await.unwrap();
    found
}

#[tokio::test]
async fn what_is_published_is_found_and_its_package_comes_back() {
    let scene = Scene::new();
    let mut caller = scene.owner();
    let code: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = draft("hyperty/Connector", "1.2.3", Some(&code));
    assert!(publish(&mut caller, &whole, &code).await.unwrap().is_new);
    // Again, the same is no change; another is none either.
    assert!(!publish(&mut caller, &whole, &code).await.unwrap().is_new);
    let other = Draft { descriptor: b"{}".to_vec(), ..whole.clone() };
    assert_eq!(cause(publish(&mut caller, &other, &code).await), Cause::Conflict);
    publish(&mut caller, &draft("hyperty/Connector", "2.0.0", None), b"").await.unwrap();

    let newest = caller.get(&whole.key, "").await.unwrap();
    assert_eq!((newest.version, newest.package), (Version::new(2, 0, 0), None));
    let found = caller.get(&whole.key, "^1").await.unwrap();
    assert_eq!((&found.descriptor, &found.package), (&whole.descriptor, &whole.package));
    assert_eq!(found.publisher, None);
    assert_eq!(cause(caller.get(&whole.key, ">=3").await), Cause::Unknown);
    for offset in [0, 1, 65_536, 799_999, 800_000] {
        let mut back = Vec::new();
        caller.fetch(&found, offset as u64, &mut back, |_| {}).await.unwrap();
        assert!(back == code[offset..], "{offset}");
    }
    let mut versions = Vec::new();
    let each = |one: levada_catalogue::model::Published| {
        versions.push(one.version.to_string());
        Ok::<_, CallerError>(())
    };
    caller.versions(&whole.key, each).await.unwrap();
    assert_eq!(versions, ["1.2.3", "2.0.0"]);
    assert!(caller.yank(&whole.key, &Version::new(2, 0, 0), true).await.unwrap().is_new);
    assert_eq!(caller.get(&whole.key, "latest").await.unwrap().version, Version::new(1, 2, 3));
    let finding = |text: String| -> Result<(), CallerError> { panic!("{text}") };
    let verified = caller.verify(finding).await.unwrap();
    assert_eq!((verified.versions, verified.packages, verified.findings), (2, 1, 0));
}

#[tokio::test]
async fn those_who_watch_hear_of_what_nobody_waits_for() {
    let scene = Scene::new();
    let mut changes = scene.handle.changes();
    {
        let drafts = vec![draft("hyperty/a", "1.0.0", None)];
        let mut publishing = std::pin::pin!(scene.handle.publish_all(drafts, Vec::new(), None));
        // It begins when it is polled first.
        tokio::select! { biased; _ = &mut publishing => {}, () = async {} => {} }
    }
    timeout(Duration::from_secs(60), changes.changed()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_package_that_is_damaged_or_lost_is_healed_by_publishing_it_again() {
    let scene = Scene::new();
    let mut caller = scene.owner();
    let code = vec![5; 100_000];
    let whole = draft("runtime/Frail", "1.0.0", Some(&code));
    publish(&mut caller, &whole, &code).await.unwrap();
    let digest: String = sha256(&[&code]).iter().map(|byte| format!("{byte:02x}")).collect();
    let place = scene.folder.path().join("blobs").join(&digest[..2]).join(&digest[2..]);
    let damage: [fn(&std::path::Path); 2] = [
        |place| std::fs::write(place, vec![6; 100_000]).unwrap(),
        |place| std::fs::remove_file(place).unwrap(),
    ];
    for damage in damage {
        damage(&place);
        assert_eq!(caller.verify(|_| Ok::<_, CallerError>(())).await.unwrap().findings, 1);
        let mut uploaded = 0;
        let mut source = Cursor::new(code.clone());
        let again = caller.publish(&whole, &mut source, |at| uploaded = at).await.unwrap();
        assert!(!again.is_new && uploaded == 100_000);
        assert_eq!(caller.verify(|_| Ok::<_, CallerError>(())).await.unwrap().findings, 0);
    }
    // What is a conflict anyway is not uploaded.
    let other = draft("runtime/Frail", "1.0.0", Some(b"other"));
    let mut uploaded = false;
    let mut source = Cursor::new(b"other".to_vec());
    let refused = caller.publish(&other, &mut source, |_| uploaded = true).await;
    assert_eq!((cause(refused), uploaded), (Cause::Conflict, false));
}

#[tokio::test]
async fn a_visitor_sees_and_changes_what_his_rules_name() {
    let scene = Scene::new();
    let mut owner = scene.owner();
    for key in ["hyperty/acme.one", "hyperty/acme.two", "hyperty/other", "runtime/acme.one"] {
        publish(&mut owner, &draft(key, "1.0.0", None), b"").await.unwrap();
    }
    let rules = ["read hyperty/acme.*", "write hyperty/acme.*", "yank hyperty/acme.one"];
    let mut alice = scene.alice(&rules);
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
    // The log knows who did what; what was refused is not in it.
    let mut log = Vec::new();
    let each = |entry: wire::Logged| {
        log.push((entry.action, entry.key, entry.identity.is_empty()));
        Ok::<_, CallerError>(())
    };
    owner.audit(2, each).await.unwrap();
    let entry = |action: &str, key: &str| (action.to_owned(), key.to_owned(), false);
    assert_eq!(log, [entry("yank", "hyperty/acme.one"), entry("publish", "hyperty/acme.three")]);
}

#[tokio::test]
async fn an_upload_that_was_cut_off_goes_on_where_it_stopped() {
    let scene = Scene::new();
    let code = vec![9; 300_000];
    let whole = draft("runtime/Long", "1.0.0", Some(&code));
    let (mut caller, served) = scene.speak(visitor(&["write */*"]));
    // A source that ends early stands for a client that is killed.
    let short = publish(&mut caller, &whole, &code[..200_000]).await;
    assert!(matches!(short, Err(CallerError::Package(_))), "{short:?}");
    drop(caller);
    assert!(served.await.unwrap().is_ok());
    let mut offsets = Vec::new();
    let mut caller = scene.alice(&["write */*"]);
    let mut source = Cursor::new(code.clone());
    caller.publish(&whole, &mut source, |at| offsets.push(at)).await.unwrap();
    assert_eq!((offsets.first(), offsets.last()), (Some(&196_608), Some(&300_000)));
    // Another's upload is none of ours.
    let mut owner = scene.owner();
    let mut back = Vec::new();
    let found = owner.get(&whole.key, "").await.unwrap();
    owner.fetch(&found, 0, &mut back, |_| {}).await.unwrap();
    assert!(back == code);
}

#[tokio::test]
async fn what_breaks_a_rule_is_refused_and_nothing_is_there() {
    let scene = Scene::new();
    let mut alice = scene.alice(&["read */*", "write */*"]);
    let code = b"code".as_slice();
    let good = draft("hyperty/One", "1.0.0", Some(code));
    assert_eq!(cause(publish(&mut alice, &good, b"edoc").await), Cause::Invalid);
    let list = Draft { descriptor: b"[]".to_vec(), ..good.clone() };
    assert_eq!(cause(publish(&mut alice, &list, code).await), Cause::Invalid);
    let mut large = good.clone();
    large.package.as_mut().unwrap().length = (1 << 20) + 1;
    assert_eq!(cause(publish(&mut alice, &large, code).await), Cause::Invalid);
    // A signature that was made for another version.
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut signed = good.clone();
    signed.sign(&key);
    signed.version = Version::new(2, 0, 0);
    assert_eq!(cause(publish(&mut alice, &signed, code).await), Cause::Invalid);
    assert_eq!(keys(&mut alice, None, "", 0).await, [""; 0]);
    // The conversation goes on all the same.
    assert!(publish(&mut alice, &good, code).await.unwrap().is_new);
}

#[tokio::test]
async fn many_are_published_in_one_go_and_each_has_its_outcome() {
    let scene = Scene::new();
    let mut alice = scene.alice(&["write hyperty/*"]);
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
    let told: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(changed) => Ok(changed.is_new),
            Err(CallerError::Failed { cause, .. }) => Err(cause),
            Err(error) => panic!("{error}"),
        })
        .collect();
    let wanted = [
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
    assert_eq!(told, wanted);
    let mut owner = scene.owner();
    let names = ["bare", "new", "there", "twin"].map(|name| format!("hyperty/{name}"));
    assert_eq!(keys(&mut owner, None, "", 0).await, names);
    let finding = |text: String| -> Result<(), CallerError> { panic!("{text}") };
    assert_eq!(owner.verify(finding).await.unwrap().packages, 2);
    let many = vec![(draft("hyperty/new", "2.0.0", None), Vec::new()); MAX_BATCH + 1];
    assert_eq!(cause(alice.publish_all(&many).await), Cause::Invalid);
    assert!(alice.publish_all(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn changes_come_as_they_happen_and_can_be_resumed() {
    let scene = Scene::new();
    let mut owner = scene.owner();
    publish(&mut owner, &draft("hyperty/a", "1.0.0", None), b"").await.unwrap();
    publish(&mut owner, &draft("runtime/a", "1.0.0", None), b"").await.unwrap();
    let mut seen = Vec::new();
    let each = |change: wire::Changed| {
        seen.push((change.key, change.revision));
        Ok::<_, CallerError>(())
    };
    let last = scene.owner().watch(Some(0), (None, ""), false, each).await.unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].1, last);
    let mut watcher = scene.alice(&["read hyperty/*"]);
    let follow = async {
        let mut count = 0;
        let each = |change: wire::Changed| {
            assert_eq!(change.key, "hyperty/b");
            count += 1;
            if count == 2 { Err(CallerError::Unexpected) } else { Ok(()) }
        };
        let ended = watcher.watch(Some(last), (None, ""), true, each).await;
        assert!(matches!(ended, Err(CallerError::Unexpected)));
    };
    let change = async {
        publish(&mut owner, &draft("runtime/b", "1.0.0", None), b"").await.unwrap();
        let whole = draft("hyperty/b", "1.0.0", None);
        publish(&mut owner, &whole, b"").await.unwrap();
        owner.yank(&whole.key, &whole.version, true).await.unwrap();
    };
    tokio::join!(follow, change);
    let long = "x".repeat(256);
    let listed = scene.owner().list(None, &long, 0, Detail::Keys, |_| Ok(())).await;
    assert_eq!(cause(listed), Cause::Invalid);
    let ahead = scene.owner().watch(Some(1_000_000), (None, ""), false, |_| Ok(())).await;
    assert_eq!(cause(ahead), Cause::Compacted);
}

#[tokio::test]
async fn search_finds_words_of_descriptors() {
    let scene = Scene::new();
    let mut owner = scene.owner();
    for key in ["hyperty/first", "hyperty/second", "runtime/first"] {
        publish(&mut owner, &draft(key, "1.0.0", None), b"").await.unwrap();
    }
    let mut found = Vec::new();
    let each = |item: Item| {
        found.push(item.newest.unwrap().key.to_string());
        Ok::<_, CallerError>(())
    };
    owner.search("first", Some(Kind::Hyperty), 0, each).await.unwrap();
    assert_eq!(found, ["hyperty/first"]);
    let long = "x".repeat(2000);
    assert_eq!(cause(owner.search(&long, None, 0, |_| Ok(())).await), Cause::Invalid);
}

fn service(scene: &Scene, options: &str) -> Catalogue {
    let text = format!("name = 'catalogue'\ntype = 'catalogue'\n{options}");
    let handle = Some(scene.handle.clone());
    let definition = definition(service_type(handle.clone()), &text).unwrap();
    let options = definition.read_options().unwrap();
    Catalogue::new(&definition, &context(), handle, options).unwrap()
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_parameters_within_the_configuration() {
    let scene = Scene::new();
    let service = service(&scene, "rules = ['write hyperty/acme.*']\n");
    let args = |rules: &[&str]| params(&[(Params::ARGS, &levada_core::encode_list(rules))]);
    for inside in [&["read */*"][..], &["read service/x", "write hyperty/acme.a*"], &[]] {
        assert_eq!(service.check(&args(inside), true), Ok(()), "{inside:?}");
    }
    let beyond = service.check(&args(&["write hyperty/*"]), false);
    assert_eq!(beyond, Err(Refused::Beyond("write hyperty/*".into())));
    assert_eq!(service.check(&args(&["x"]), false), Err(Refused::Rule("x".into())));
    let pty = params(&[("pty", b"")]);
    assert_eq!(service.check(&pty, false), Err(Refused::Unknown("pty".into())));

    let (near, far) = levada_session::testing::pair().await.unwrap();
    let one = levada_core::encode_list(&["write hyperty/acme.one"]);
    let session = service.run(invocation(&[(Params::ARGS, &one)]), far);
    let talk = async {
        let mut caller = Caller::new(of_stream(near));
        let mine = draft("hyperty/acme.one", "1.0.0", Some(b"code"));
        publish(&mut caller, &mine, b"code").await.unwrap();
        let other = draft("hyperty/acme.two", "1.0.0", None);
        assert_eq!(cause(publish(&mut caller, &other, b"").await), Cause::Denied);
        // The configuration leaves reading open, and the parameters do not.
        assert_eq!(cause(caller.get(&mine.key, "").await), Cause::Denied);
        caller.finish().await;
    };
    let (ended, ()) = tokio::join!(session, talk);
    ended.unwrap();
}

#[test]
fn without_a_store_there_is_no_such_service_and_rules_are_checked_at_the_start() {
    let plain = Definition::plain("catalogue", "catalogue");
    let built = Registry::new(vec![service_type(None)]).build(&plain, &context());
    assert!(matches!(built, Err(DefinitionError::Machine { .. })));
    let wrong = "name = 'c'\ntype = 'catalogue'\nopen = false\nrules = ['write all']\n";
    let error = definition(service_type(None), wrong).unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains("rule"), "{error}");
}
