//! Attack: peers at many sources send successions of keys that the node does not know.

use std::net::Ipv4Addr;
use std::sync::Arc;

use levada_core::wire::operation::Operation;
use levada_core::{Clock, SecretKey, Succession, SystemClock, SystemRandom};

use super::peer::{connect_as_new_identity, repeat, request, spawn_all};
use super::victim::Target;

/// The number of source addresses, from 127.1.0.0 on.
const SOURCES: usize = 400;

/// Attacks until dropped; counts answers.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
    let one = |number: usize| {
        let target = target.clone();
        let source = Ipv4Addr::from(first + number as u32);
        async move { repeat(async || send_successions(&target, source).await).await }
    };
    spawn_all(SOURCES, one).await;
    Ok(())
}

/// Successions per connection: the burst that a node accepts from one source.
const AT_ONCE: usize = 32;

async fn send_successions(target: &Target, source: Ipv4Addr) -> anyhow::Result<()> {
    let connection = connect_as_new_identity(target, source).await?;
    for _ in 0..AT_ONCE {
        let [old, new] = [SecretKey::generate(&SystemRandom)?, SecretKey::generate(&SystemRandom)?];
        let succession = Succession::sign(&old, &new.identity(), SystemClock.now());
        request(&connection, Operation::Succession(succession.to_wire())).await?;
        target.count();
    }
    Ok(())
}
