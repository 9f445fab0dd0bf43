//! Records of the log that cannot be applied: by an operator's mistake, a restored engine, or a
//! later version.

use std::path::Path;

use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{NOW, draft, publish};
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::wire::catalogue::record::{self as wire, Record as Message};
use levada_core::wire::catalogue::{Publish, Record};
use levada_core::wire::encode;

use super::engine::{Engine, Setup, until};

const NAME: &str = "poisoned";

/// Writes a record as another node would, without what it expects of earlier ones.
fn write(options: &Options, record: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(&options.servers[..]).await.unwrap();
        let stream = async_nats::jetstream::new(client);
        let subject = format!("levada.{NAME}.log.audit");
        stream.publish(subject, record.into()).await.unwrap().await.unwrap();
    });
}

fn published(key: &str, descriptor: &str, format: u32) -> Vec<u8> {
    let version = Publish {
        key: key.to_owned(),
        version: "1.0.0".to_owned(),
        descriptor: descriptor.into(),
        ..Publish::default()
    };
    let author = Some(wire::Author { identity: Vec::new(), time: 7 });
    let record = Message::Published(wire::Published { version: Some(version), author });
    encode(&Record { format, record: Some(record) })
}

fn node(folder: &Path, number: usize, options: &Options) -> ClusterStore {
    ClusterStore::open(&folder.join(number.to_string()), options).unwrap()
}

/// The entries of the audit log about records that were not applied.
fn rejected(store: &ClusterStore) -> Vec<String> {
    let all = store.audit(100, None).unwrap();
    let conflicts = all.into_iter().filter(|entry| entry.outcome == "conflict");
    conflicts.map(|entry| entry.text).collect()
}

#[test]
fn a_record_that_cannot_be_applied_is_a_conflict_and_the_log_goes_on() {
    let engine = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let options = engine.options(NAME);
    let [a, b] = [0, 1].map(|number| node(folder.path(), number, &options));
    let first = draft("hyperty/a", "1.0.0", r#"{"a":1}"#);
    publish(&a, &first);
    // The same version with another descriptor, and bytes that are no record of this format.
    write(&options, published("hyperty/a", r#"{"a":2}"#, 1));
    write(&options, b"no record".to_vec());
    write(&options, encode(&Record { format: 1, record: None }));
    let later = draft("hyperty/later", "1.0.0", "{}");
    publish(&a, &later);
    let c = node(folder.path(), 2, &options);
    for store in [&a, &b, &c] {
        until("it has what follows", || store.get(&later.key, &later.version).unwrap().is_some());
        let kept = store.get(&first.key, &first.version).unwrap().unwrap();
        assert_eq!(kept.descriptor, first.descriptor);
        let lag = store.lag().unwrap();
        assert!(lag.rejected == 3 && lag.to_string().contains("3 records"), "{lag}");
        let texts = rejected(store);
        assert!(
            texts.len() == 3 && texts.iter().all(|text| text.contains("not applied")),
            "{texts:?}"
        );
        assert_eq!(texts, rejected(&a));
    }
    // It is known after a restart.
    drop(b);
    assert_eq!(node(folder.path(), 1, &options).lag().unwrap().rejected, 3);
}

#[test]
fn a_record_of_a_later_version_stops_writing_and_not_reading() {
    let engine = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let options = engine.options(NAME);
    let store = node(folder.path(), 0, &options);
    let first = draft("hyperty/a", "1.0.0", "{}");
    publish(&store, &first);
    write(&options, published("hyperty/b", "{}", 2));
    until("it has stopped", || store.lag().unwrap().fault.is_some());
    let fault = store.lag().unwrap().fault.unwrap();
    assert!(fault.contains("format 2"), "{fault}");
    let next = draft("hyperty/c", "1.0.0", "{}");
    for refused in [
        store.publish(&next, None, NOW).map(drop),
        store.yank(&first.key, &first.version, true, None, NOW).map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Newer(2))), "{refused:?}");
    }
    assert!(store.get(&first.key, &first.version).unwrap().is_some());
    assert!(matches!(
        store.publish(&first, None, NOW),
        Err(StoreError::Newer(2)) | Ok(Outcome::Same)
    ));
    // A new node says why it cannot answer.
    let patient = Options { connect_timeout: std::time::Duration::from_secs(1), ..options };
    let error = ClusterStore::open(&folder.path().join("new"), &patient).err().unwrap();
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn an_engine_that_takes_no_records_is_refused_without_waiting() {
    let configuration = "max_payload: 1MB".to_owned();
    let engine = Engine::start_as(Setup { configuration, ..Setup::single() });
    let folder = tempfile::tempdir().unwrap();
    let options = engine.options("short");
    // Longer than any test may take.
    let options = Options { connect_timeout: std::time::Duration::from_secs(86_400), ..options };
    let error = ClusterStore::open(&folder.path().join("0"), &options).err().unwrap();
    assert!(error.to_string().contains("`max_payload` is 1048576 bytes; set it to 2MB"), "{error}");
}
