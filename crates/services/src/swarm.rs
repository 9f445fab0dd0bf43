//! The swarm: sessions of peers with the shares of a node. It has no service type: the node offers
//! it to the bearers of its tickets only.

mod join;
pub mod peer_network;
mod peer_slots;
mod share_key;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use levada_core::wire::Granted;
use levada_core::{Identity, Params};
use levada_service::{Invocation, Over, Prepared, Refused, Service, ServiceError};
use levada_session::Stream;
use levada_swarm::content::Source;
use levada_swarm::driver::{Link, Share, ShareOptions};
use tokio::time::timeout;

use peer_slots::PeerSlots;
use share_key::ShareKey;

pub use join::{JoinError, Joined, join, join_first, join_over_udp};

/// How long a peer may take to open the stream for chunks.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives identities capabilities for shares, without a ticket.
pub trait Admission: Send + Sync {
    /// A capability of `holder` for the share with this root, which expires soon. It waits for the
    /// disk.
    ///
    /// # Errors
    /// The problem in one line.
    fn admit(&self, holder: Identity, root: &[u8; 32]) -> Result<Granted, String>;
}

/// The shares that a node serves.
pub struct Shares {
    running: Mutex<BTreeMap<ShareKey, Running>>,
    slots: Arc<PeerSlots>,
}

enum Running {
    /// Until it is stopped.
    Lasting(Arc<Share>),
    /// As long as it is used.
    Used(Weak<Share>),
}

impl Running {
    fn share(&self) -> Option<Arc<Share>> {
        match self {
            Self::Lasting(share) => Some(share.clone()),
            Self::Used(share) => share.upgrade(),
        }
    }
}

impl Shares {
    /// No shares yet; `peers` may be served at a time, of all shares together. An identity counts
    /// once in each share.
    pub fn new(peers: usize) -> Self {
        Self { running: Mutex::default(), slots: PeerSlots::new(peers) }
    }

    /// Serves `source` as the share with this number, unless it is served already. It needs a
    /// runtime.
    pub fn start(&self, number: i64, source: Source, options: ShareOptions) {
        self.lock()
            .entry(ShareKey::Number(number))
            .or_insert_with(|| Running::Lasting(Arc::new(Share::start(Arc::new(source), options))));
    }

    /// Serves `source` until no session and no holder of the result uses it, unless it is served in
    /// this way already. It needs a runtime.
    pub fn start_while_used(&self, source: Source, options: ShareOptions) -> Arc<Share> {
        let key = ShareKey::Root(source.id().root);
        let mut running = self.lock();
        if let Some(share) = running.get(&key).and_then(Running::share) {
            return share;
        }
        running.retain(|_, one| one.share().is_some());
        let share = Arc::new(Share::start(Arc::new(source), options));
        running.insert(key, Running::Used(Arc::downgrade(&share)));
        share
    }

    /// Ends a share. Its sessions end, too.
    pub fn stop(&self, number: i64) {
        self.lock().remove(&ShareKey::Number(number));
    }

    /// The running share with this number.
    pub fn get(&self, number: i64) -> Option<Arc<Share>> {
        self.find(ShareKey::Number(number))
    }

    /// The running share of a package with this root.
    pub fn of_package(&self, root: &[u8; 32]) -> Option<Arc<Share>> {
        self.find(ShareKey::Root(*root))
    }

    /// The number of shares that are served, without packages.
    pub fn count(&self) -> usize {
        self.lock().values().filter(|one| matches!(one, Running::Lasting(_))).count()
    }

    /// The bytes of their contents.
    pub fn bytes(&self) -> u64 {
        let running = self.lock();
        let lasting = running.values().filter(|one| matches!(one, Running::Lasting(_)));
        lasting.filter_map(Running::share).map(|share| share.id().geometry.length()).sum()
    }

    /// The number of peers of all shares and packages. An identity counts once in each.
    pub fn peers(&self) -> usize {
        self.slots.count()
    }

    fn find(&self, key: ShareKey) -> Option<Arc<Share>> {
        self.lock().get(&key).and_then(Running::share)
    }

    /// The share that a session of an earlier version names by its root: a package, or the oldest
    /// share of this content.
    fn by_root(&self, root: [u8; 32]) -> Option<(ShareKey, Arc<Share>)> {
        let running = self.lock();
        let package = running.get_key_value(&ShareKey::Root(root));
        let shared = running.iter().filter(|(key, _)| matches!(key, ShareKey::Number(_)));
        let all = package.into_iter().chain(shared);
        let mut all = all.filter_map(|(key, one)| Some((*key, one.share()?)));
        all.find(|(_, share)| share.id().root == root)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShareKey, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a node's shares. The parameter [`Params::SHARE`] of a session names the share;
/// without it, [`Params::ROOT`] does.
pub struct Swarm(pub Arc<Shares>);

impl Service for Swarm {
    fn category(&self) -> &'static str {
        "files"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (Params::ROOT, "the BLAKE3 hash of the content, 32 bytes"),
            (Params::SHARE, "the number of the share, 8 bytes"),
        ]
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let known = |key: &str| matches!(key, Params::FRAMING | Params::ROOT | Params::SHARE);
        if let Some((key, _)) = params.iter().find(|(key, _)| !known(key)) {
            return Err(Refused::Unknown(key.to_owned()));
        }
        let root = params.value(Params::ROOT).ok_or(Refused::Missing(Params::ROOT))?;
        let root: [u8; 32] =
            root.try_into().map_err(|_| Refused::Malformed(Params::ROOT.to_owned()))?;
        let found = match params.value(Params::SHARE) {
            None => self.0.by_root(root),
            Some(number) => {
                let malformed = |_| Refused::Malformed(Params::SHARE.to_owned());
                let number = i64::from_be_bytes(number.try_into().map_err(malformed)?);
                let key = ShareKey::Number(number);
                let share = self.0.find(key).filter(|share| share.id().root == root);
                share.map(|share| (key, share))
            }
        };
        let (key, share) = found.ok_or_else(|| {
            Refused::NotAccepted(
                "the node does not serve this share now; its owner can see why".into(),
            )
        })?;
        let slots = self.0.slots.clone();
        if slots.are_taken() {
            return Err(full());
        }
        Ok(Prepared::stream(move |invocation, stream| async move {
            let _slot = slots.enter(key, invocation.holder).ok_or_else(full)?;
            serve(&share, invocation, stream).await
        }))
    }

    fn summary(&self, params: &Params) -> Option<String> {
        let root = params.value(Params::ROOT)?.get(..8)?;
        Some(root.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn full() -> Refused {
    Refused::NotAccepted("the node serves as many peers as it allows; try again later".into())
}

/// Serves one peer: the stream of the session is for control messages, and the peer opens one for
/// chunks.
async fn serve(share: &Share, invocation: Invocation, control: Stream) -> Result<(), ServiceError> {
    let Invocation { holder, mut streams, .. } = invocation;
    let data = timeout(OPEN_TIMEOUT, streams.accept()).await.map_err(|_| ServiceError::Gone)?;
    Ok(share.serve(holder, Link { control, data }).await?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use levada_swarm::ChunkSize;
    use levada_swarm::mode::Mode;

    use super::*;

    #[tokio::test]
    async fn a_session_names_its_share_by_number_or_as_earlier_versions_by_root() {
        let folder = tempfile::tempdir().unwrap();
        let source = |bytes: &str| {
            let path = folder.path().join("file");
            fs::write(&path, bytes).unwrap();
            Source::open(&[path], ChunkSize::DEFAULT).unwrap()
        };
        let options = |name: &str| ShareOptions {
            name: name.into(),
            mode: Mode::Direct,
            udp: None,
            upload_limit: None,
            seed: 1,
        };
        let shares = Arc::new(Shares::new(9));
        shares.start(1, source("other"), options("other"));
        shares.start(2, source("same"), options("first"));
        shares.start(3, source("same"), options("second"));
        let [other, same] = ["other", "same"].map(|bytes| source(bytes).id().root);
        assert_eq!(shares.by_root(same).unwrap().0, ShareKey::Number(2));
        let swarm = Swarm(shares.clone());
        let prepare = |root: [u8; 32], number: Option<i64>| {
            let mut params = Params::new();
            params.add(Params::ROOT, root.to_vec()).unwrap();
            if let Some(number) = number {
                params.add(Params::SHARE, number.to_be_bytes().to_vec()).unwrap();
            }
            swarm.prepare(&params, Over::Stream).map(drop)
        };
        for (root, number) in [(same, None), (same, Some(2)), (same, Some(3)), (other, Some(1))] {
            assert!(prepare(root, number).is_ok(), "{number:?}");
        }
        for (root, number) in [(other, Some(2)), (same, Some(4)), ([0; 32], None)] {
            assert!(prepare(root, number).is_err(), "{number:?}");
        }
        shares.stop(2);
        assert_eq!(shares.by_root(same).unwrap().0, ShareKey::Number(3));
    }
}
