//! TLS and credentials: a node that may use the engine does; another one is told why it may not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use levada_catalogue::store::cluster::{ClusterStore, Credentials, Options};
use levada_catalogue::store::conformance::{NOW, content, draft, draft_with, publish};
use levada_catalogue::store::{Store, StoreError};
use nkeys::KeyPair;
use zeroize::Zeroizing;

use super::engine::{Engine, Setup, until};

/// What `pkg/nats-server.conf` gives a node.
const PERMISSIONS: &str = "permissions: {
    publish: [ 'levada.catalogue.>', '$JS.API.>', '$JS.FC.>' ]
    subscribe: [ '_INBOX.>' ]
}";

fn openssl(folder: &Path, line: &str) {
    let mut command = Command::new("openssl");
    let output = command.current_dir(folder).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate authority, `{name}.pem` and `{name}.key`.
fn authority(folder: &Path, name: &str) -> PathBuf {
    let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(folder, &format!("{key} -subj /CN={name} -keyout {name}.key -out {name}.pem"));
    folder.join(format!("{name}.pem"))
}

/// Starts a server with a certificate of the authority `ca` for 127.0.0.1.
fn server(folder: &Path, users: &str) -> Engine {
    let request = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server";
    openssl(folder, &format!("{request} -keyout server.key -out server.csr"));
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let sign = "x509 -req -in server.csr -days 2 -CA ca.pem -CAkey ca.key -CAcreateserial";
    openssl(folder, &format!("{sign} -extfile names -out server.pem"));
    let file = |name: &str| folder.join(name).display().to_string();
    let tls = format!("cert_file: '{}', key_file: '{}'", file("server.pem"), file("server.key"));
    let configuration = format!("tls {{ {tls} }}\nauthorization {{ users: [ {users} ] }}");
    Engine::start_as(Setup { configuration, ..Setup::single() })
}

/// A new node cannot be opened, and an older one answers from its replica: both name what is wrong.
fn assert_refused(folder: &Path, options: &Options, what: &str) {
    let says_so = |text: &str| text.contains("no server of it is connected") && text.contains(what);
    // As long as it needs until the servers were tried.
    let mut connect_timeout = Duration::from_millis(200);
    until("the node names the fault", || {
        connect_timeout *= 2;
        let options = Options { connect_timeout, ..options.clone() };
        match ClusterStore::open(&folder.join("refused"), &options) {
            Err(StoreError::Unavailable(text)) => says_so(&text),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the engine accepted it: {what}"),
        }
    });
    let store = ClusterStore::open(&folder.join("accepted"), options).unwrap();
    let published = draft("hyperty/a", "1.0.0", "{}");
    assert!(store.get(&published.key, &published.version).unwrap().is_some());
    until("the node names the fault", || {
        store.lag().unwrap().fault.is_some_and(|fault| says_so(&fault))
    });
    match store.publish(&draft("hyperty/never", "1.0.0", "{}"), None, NOW) {
        Err(StoreError::Unavailable(text)) => assert!(says_so(&text), "{text}"),
        other => panic!("{other:?}"),
    }
}

fn assert_accepted(folder: &Path, options: &Options) {
    let store = ClusterStore::open(&folder.join("accepted"), options).unwrap();
    let version = draft_with(&store, "hyperty/a", "1.0.0", b"code");
    publish(&store, &version);
    // Another node has it only from the engine.
    let other = ClusterStore::open(&folder.join("other"), options).unwrap();
    assert_eq!(content(&other, &version.package.unwrap().digest).unwrap(), b"code");
    store.collect(Duration::ZERO, None, NOW).unwrap();
}

#[test]
fn a_node_needs_the_authority_and_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [ca, other_ca] = ["ca", "other"].map(|name| authority(folder, name));
    let [user, other] = [KeyPair::new_user(), KeyPair::new_user()];
    let seed = |key: &KeyPair| Credentials::Seed(Zeroizing::new(key.seed().unwrap()));
    let engine = server(folder, &format!("{{ nkey: {}, {PERMISSIONS} }}", user.public_key()));
    let options =
        Options { authorities: Some(ca), credentials: seed(&user), ..engine.options("catalogue") };
    assert_accepted(folder, &options);
    let refused = |options: Options, what: &str| assert_refused(folder, &options, what);
    let violation = "uthorization violation";
    refused(Options { credentials: seed(&other), ..options.clone() }, violation);
    refused(Options { credentials: Credentials::None, ..options.clone() }, violation);
    let malformed = Credentials::Seed(Zeroizing::new("SUNOSEED".to_owned()));
    refused(Options { credentials: malformed, ..options.clone() }, "nonce");
    refused(Options { authorities: Some(other_ca), ..options.clone() }, "UnknownIssuer");
    let missing = Some(folder.join("missing.pem"));
    refused(Options { authorities: missing, ..options.clone() }, "No such file");
    // The authorities of the system, if it has any.
    refused(Options { authorities: None, ..options }, "cert");
}

#[test]
fn a_node_needs_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ca = authority(folder, "ca");
    let engine = server(folder, &format!("{{ user: node, password: 'p w', {PERMISSIONS} }}"));
    let password = |user: &str, password: &str| {
        Credentials::Password(user.to_owned(), Zeroizing::new(password.to_owned()))
    };
    let options = Options {
        authorities: Some(ca),
        credentials: password("node", "p w"),
        ..engine.options("catalogue")
    };
    assert_accepted(folder, &options);
    for wrong in [password("node", "p"), password("other", "p w"), Credentials::None] {
        let options = Options { credentials: wrong, ..options.clone() };
        assert_refused(folder, &options, "uthorization violation");
    }
}
