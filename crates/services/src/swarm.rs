//! The swarm: sessions of peers with the shares of a node. It has no service type: the node offers it to the bearers of its tickets only.

mod join;
mod peer_slots;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use levada_core::wire::Granted;
use levada_core::{Identity, Params};
use levada_service::{Invocation, PreparedRun, Refused, Service, ServiceError};
use levada_session::Stream;
use levada_swarm::content::Source;
use levada_swarm::driver::{Link, Share, ShareOptions};
use tokio::time::timeout;

use peer_slots::PeerSlots;

pub use join::{JoinError, Joined, join, join_first, join_over_udp};

/// How long a peer may take to open the stream for chunks.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives identities capabilities for shares, without a ticket.
pub trait Admission: Send + Sync {
    /// A capability of `holder` for the share with this root, which expires soon. It waits for the disk.
    ///
    /// # Errors
    /// The problem in one line.
    fn admit(&self, holder: Identity, root: &[u8; 32]) -> Result<Granted, String>;
}

/// The shares that a node serves, by their roots.
pub struct Shares {
    running: Mutex<HashMap<[u8; 32], Running>>,
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
    /// No shares yet; `peers` may be served at a time, of all shares together. An identity counts once in each
    /// share.
    pub fn new(peers: usize) -> Self {
        Self { running: Mutex::default(), slots: PeerSlots::new(peers) }
    }

    /// Serves `source`, unless a content with its root is served already. It needs a runtime.
    pub fn start(&self, source: Source, options: ShareOptions) {
        let root = source.id().root;
        let mut running = self.lock();
        let share = running.get(&root).and_then(Running::share);
        let share = share.unwrap_or_else(|| Arc::new(Share::start(Arc::new(source), options)));
        running.insert(root, Running::Lasting(share));
    }

    /// Serves `source` until no session and no holder of the result uses it, unless a content with its root is served already.
    /// It needs a runtime.
    pub fn start_while_used(&self, source: Source, options: ShareOptions) -> Arc<Share> {
        let root = source.id().root;
        let mut running = self.lock();
        if let Some(share) = running.get(&root).and_then(Running::share) {
            return share;
        }
        running.retain(|_, one| one.share().is_some());
        let share = Arc::new(Share::start(Arc::new(source), options));
        running.insert(root, Running::Used(Arc::downgrade(&share)));
        share
    }

    /// Ends a share. Its sessions end, too.
    pub fn stop(&self, root: &[u8; 32]) {
        self.lock().remove(root);
    }

    /// The running share of this root.
    pub fn get(&self, root: &[u8; 32]) -> Option<Arc<Share>> {
        self.lock().get(root).and_then(Running::share)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a node's shares. The parameter [`Params::ROOT`] of a session names the share.
pub struct Swarm(pub Arc<Shares>);

impl Service for Swarm {
    fn category(&self) -> &'static str {
        "files"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[(Params::ROOT, "the BLAKE3 hash of the content, 32 bytes")]
    }

    fn prepare(&self, params: &Params) -> Result<PreparedRun, Refused> {
        let known = |key: &str| matches!(key, Params::FRAMING | Params::ROOT);
        if let Some((key, _)) = params.iter().find(|(key, _)| !known(key)) {
            return Err(Refused::Unknown(key.to_owned()));
        }
        let root = params.value(Params::ROOT).ok_or(Refused::Missing(Params::ROOT))?;
        let root: [u8; 32] =
            root.try_into().map_err(|_| Refused::Malformed(Params::ROOT.to_owned()))?;
        let share = self.0.get(&root).ok_or_else(|| {
            Refused::NotAccepted(
                "the node does not serve this share now; its owner can see why".into(),
            )
        })?;
        let slots = self.0.slots.clone();
        if slots.are_taken() {
            return Err(full());
        }
        Ok(PreparedRun::new(move |invocation, stream| async move {
            let _slot = slots.enter(root, invocation.holder).ok_or_else(full)?;
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

/// Serves one peer: the stream of the session is for control messages, and the peer opens one for chunks.
async fn serve(share: &Share, invocation: Invocation, control: Stream) -> Result<(), ServiceError> {
    let Invocation { holder, mut streams, .. } = invocation;
    let data = timeout(OPEN_TIMEOUT, streams.accept()).await.map_err(|_| ServiceError::Gone)?;
    Ok(share.serve(holder, Link { control, data }).await?)
}
