//! A node in this process, whose policy changes without its tickets being made void: judging a peer
//! does not rely on that.

use super::*;
use crate::node::Node;
use levada_client::{Client, ClientError, RequestSpec, Target};
use levada_core::{Clock, SystemClock};
use std::sync::Arc;

struct Scene {
    _folder: tempfile::TempDir,
    node: Arc<Node>,
    guest: Client,
    target: Target,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = |name| Home::at(&folder.path().join(name)).unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let overrides =
            Overrides { listen: vec![loopback], http: Some(loopback), ..Overrides::default() };
        let assembled =
            assemble::assemble(&home("node"), &Config::default(), &overrides, &[]).unwrap();
        let node = assembled.node;
        for listener in assembled.listeners {
            tokio::spawn(crate::server::serve(node.clone(), listener));
        }
        let guest = Client::new(&home("guest")).unwrap();
        let target = Target::typed(node.identity(), &node.listening[0].to_string());
        Self { _folder: folder, node, guest, target }
    }

    /// Whether a new connection was resumed, and what a request got on it. It is the node that is
    /// asked: one who is turned away may learn of it before its connection counts as made.
    async fn request(&self) -> (bool, Result<(), ClientError>) {
        self.guest.close();
        let resumed = self.node.metrics.handshakes(true);
        let before = resumed.get();
        let spec = RequestSpec { service: "clock".into(), ..RequestSpec::default() };
        let verdict = self.guest.request(&self.target, spec).await.map(drop);
        (resumed.get() > before, verdict)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_connection_is_judged_like_any_other() {
    let scene = Scene::new();
    let (store, who, now) = (&scene.node.store, scene.guest.identity(), SystemClock.now());
    store.allow(&who, None, now).unwrap();
    assert!(matches!(scene.request().await, (false, Ok(()))));
    assert!(matches!(scene.request().await, (true, Ok(()))));

    store.block(&who, now).unwrap();
    let (resumed, verdict) = scene.request().await;
    assert!(resumed && verdict.unwrap_err().to_string().contains("blocked"));

    store.unblock(&who, now).unwrap();
    assert!(matches!(scene.request().await, (_, Ok(()))));
    store.disallow(&who, now).unwrap();
    let (resumed, verdict) = scene.request().await;
    assert!(resumed && verdict.unwrap_err().to_string().contains("may not request"));
}
