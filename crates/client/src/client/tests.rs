use levada_capability::{Capability, LinkBody, Rights, mint};
use levada_core::{SystemRandom, wire};
use rusqlite::Connection as Database;
use tempfile::TempDir;

use super::*;

fn client() -> (TempDir, Home, Client) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::at(folder.path()).unwrap();
    let client = Client::new(&home).unwrap();
    (folder, home, client)
}

/// A capability of another node for `holder`.
fn capability(holder: Identity) -> Capability {
    let node = SecretKey::generate(&SystemRandom).unwrap().identity();
    let body = LinkBody {
        identity: holder,
        rights: Rights::ALL,
        expires: UnixTime::NEVER,
        uses: 1,
        max_run: None,
        params: Params::default(),
    };
    let (link, secret) = mint(&[1; 32], &body, node, SessionId::from_bytes([2; 16])).unwrap();
    let granted = wire::Granted { link, secret: secret.to_vec(), framing: String::new() };
    Capability::from_granted(granted, "clock".into(), Vec::new()).unwrap()
}

/// The runtime has one thread: if the client blocked it, the other task could not release the lock
/// before the busy timeout.
#[tokio::test(flavor = "current_thread")]
async fn other_tasks_run_while_the_client_waits_for_the_lock_of_known_db() {
    let (_folder, home, client) = client();
    let other = Database::open(home.known_db()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // It first runs when the operation waits.
    let release = tokio::spawn(async move { other.execute_batch("COMMIT").unwrap() });
    client.remember(&capability(client.identity())).await.unwrap();
    release.await.unwrap();
    let held = client.known.capabilities_held_elsewhere(&client.identity(), client.now());
    assert_eq!(held.unwrap(), 1);
}

#[tokio::test]
async fn a_panic_while_known_db_is_used_is_an_error() {
    let (_folder, _home, client) = client();
    let used = client.with_known(|_| -> Result<(), ClientError> { panic!("a fault") });
    let error = used.await.unwrap_err();
    assert!(matches!(&error, ClientError::Local(text) if text.contains("known.db")), "{error}");
    assert_eq!(client.with_known(Known::names).await.unwrap(), []);
}

#[tokio::test]
async fn a_client_is_idle_when_no_other_uses_its_known_db() {
    let (_folder, _home, client) = client();
    let other = client.unshared();
    assert!(!client.is_idle() && other.identity() == client.identity());
    drop(other);
    assert!(client.is_idle());
}
