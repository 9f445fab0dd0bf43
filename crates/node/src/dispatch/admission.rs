//! Admits peers to shares: sessions of the service for shares, which tickets and the catalogue
//! give.

use std::sync::{Arc, Weak};

use levada_capability::{LinkBody, Rights, SWARM};
use levada_core::wire::{Granted, Reason, Refusal};
use levada_core::{Clock, Framing, Identity, Params, UnixTime};
use levada_services::catalogue::ADMISSION_TIME;
use levada_services::swarm::Admission;

use crate::store::Store;

use super::grant::Grant;

/// How often a reader that was admitted may start its session: again, if the connection fails
/// meanwhile.
const USES: u32 = 3;

/// Admits readers of the catalogue's packages.
pub(crate) struct Admissions {
    pub(crate) node: Identity,
    /// The node closes its store although its services are still there.
    pub(crate) store: Weak<Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Admission for Admissions {
    fn admit(&self, holder: Identity, root: &[u8; 32]) -> Result<Granted, String> {
        let store = self.store.upgrade().ok_or("the node is stopping")?;
        let now = store.now(self.clock.now()).time;
        let expires = now.after(ADMISSION_TIME);
        let grant = peer_grant((self.node, now), holder, (root, None), (expires, USES));
        let grant = grant.map_err(|refusal| refusal.text)?;
        let created = store.create_session(&grant.new_session(), now);
        created.map_err(|error| {
            tracing::error!(%error, "cannot admit a reader to the swarm of a package");
            "the node cannot store the admission: see its log".to_owned()
        })?;
        Ok(grant.granted())
    }
}

/// A session of `holder` for the content with this root, and the share with this number, which
/// cannot be passed on. `limits` are its expiry and its uses.
pub(super) fn peer_grant(
    issuer: (Identity, UnixTime),
    holder: Identity,
    (root, share): (&[u8; 32], Option<i64>),
    limits: (UnixTime, u32),
) -> Result<Grant, Refusal> {
    let framing = Framing::default();
    let mut params = Params::new();
    let added = params
        .add(Params::FRAMING, framing.to_string().into_bytes())
        .and_then(|()| params.add(Params::ROOT, root.to_vec()))
        .and_then(|()| match share {
            Some(number) => params.add(Params::SHARE, number.to_be_bytes().to_vec()),
            None => Ok(()),
        });
    added.map_err(|error| Refusal::new(Reason::Parameters, error.to_string()))?;
    let (expires, uses) = limits;
    let rights = Rights::EXECUTE;
    let body = LinkBody { identity: holder, rights, expires, uses, max_run: None, params };
    Grant::mint(issuer, SWARM, framing, holder, body)
}
