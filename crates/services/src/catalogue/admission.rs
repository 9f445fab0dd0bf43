//! Admits the readers of a package to the swarm in which other nodes provide it.

use std::sync::Arc;

use levada_catalogue::model::{Package, digest_text};
use levada_catalogue::store::Outboard;
use levada_core::wire::catalogue::{self as wire, Cause, Failed, answer::Answer as Response};
use levada_core::wire::encode;
use levada_core::{Identity, Random, SystemRandom};
use levada_swarm::driver::{Share, ShareOptions};
use levada_swarm::mode::Mode;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::blocking::HandleError;
use super::handle::CatalogueHandle;
use super::message::{self, invalid, unknown};
use super::offer::{self, ADMISSION_TIME, MIN_PACKAGE, SwarmOffer};
use super::rules::Right;
use super::session::{RequestError, Session};

impl Session<'_> {
    /// Whether the package can be fetched through the swarm.
    pub(super) fn offers(&self, package: Option<&Package>) -> bool {
        let is_long = package.is_some_and(|package| package.length >= MIN_PACKAGE);
        // The owner reads the store itself.
        is_long && self.principal.identity.is_some() && self.handle.swarm().is_some()
    }

    /// The right to read the package is checked here for each transfer, as for [`Self::fetch`].
    pub(super) async fn admit(&mut self, call: wire::Admit) -> Result<(), RequestError> {
        let key = message::key(&call.key)?;
        let version = message::version(&call.version)?;
        self.check_right(Right::Read, &key)?;
        let name = format!("{key} {version}");
        let found = self.handle.with(move |store| store.get(&key, &version)).await?;
        let found = found.ok_or_else(|| unknown(&format!("there is no {name}")))?;
        let (Some(package), Some(offer), Some(reader)) =
            (found.package, self.handle.swarm(), self.principal.identity)
        else {
            return Err(invalid("this catalogue does not offer it through the swarm").into());
        };
        if package.length < MIN_PACKAGE {
            return Err(invalid("the package is too short for the swarm").into());
        }
        let package = Arc::new(package);
        let read = package.clone();
        let tree = self.handle.with(move |store| offer::hash_tree(store, &read)).await?;
        let tree = tree.ok_or_else(|| damaged(&package))?;
        let share = offer.shares.of_package(&tree.root);
        let providers = match &share {
            Some(share) => providers(share, &reader).await,
            None => 0,
        };
        let root = tree.root;
        let mut granted = Vec::new();
        if providers > 0 || call.provide {
            let busy =
                || Failed::new(Cause::Busy, "too many transfers were begun: try again later");
            let recent = offer.count(reader).ok_or_else(busy)?;
            let share = match share {
                Some(share) => share,
                None => share_package(self.handle, &package, tree, offer).await?,
            };
            granted = grant(offer, reader, root).await?;
            tokio::spawn(async move {
                sleep(ADMISSION_TIME).await;
                drop((share, recent));
            });
        }
        let admitted = wire::Admitted { providers, root: root.to_vec(), granted };
        Ok(self.respond(Response::Admitted(admitted)).await?)
    }
}

async fn share_package(
    handle: &CatalogueHandle,
    package: &Arc<Package>,
    tree: Outboard,
    offer: &SwarmOffer,
) -> Result<Arc<Share>, RequestError> {
    let opened = package.clone();
    let source = handle.with(move |store| offer::open(store, &opened, &tree.hashes)).await?;
    let source = source.ok_or_else(|| damaged(package))?;
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    let seed = u64::from_be_bytes(seed);
    let options = ShareOptions {
        name: offer::name(package).into(),
        mode: Mode::Direct,
        udp: None,
        upload_limit: None,
        seed,
    };
    Ok(offer.shares.start_while_used(source, options))
}

async fn grant(
    offer: &SwarmOffer,
    reader: Identity,
    root: [u8; 32],
) -> Result<Vec<u8>, RequestError> {
    let admission = offer.admission.clone();
    let granted = spawn_blocking(move || admission.admit(reader, &root)).await;
    match granted.map_err(|_| HandleError::Closing)? {
        Ok(granted) => Ok(encode(&granted)),
        Err(text) => Err(Failed::new(Cause::Busy, text).into()),
    }
}

/// How many peers others than `reader` can connect to.
async fn providers(share: &Share, reader: &Identity) -> u32 {
    let status = share.status().await;
    let others = status.reachable.iter().filter(|one| *one != reader).count();
    u32::try_from(others).unwrap_or(u32::MAX)
}

fn damaged(package: &Package) -> Failed {
    let digest = digest_text(&package.digest);
    Failed::new(Cause::Broken, format!("the package {digest} is damaged in the catalogue"))
}
