//! Peers at many sources tell the node of successors of keys that it does not know.

use std::net::Ipv4Addr;
use std::sync::Arc;

use levada_core::wire::operation::Operation;
use levada_core::{Clock, SecretKey, Succession, SystemClock, SystemRandom};

use super::peer::{ask, forever, meet, together};
use super::victim::Target;

/// Sources, from 127.1.0.0 on.
const SOURCES: usize = 400;

/// Attacks until it is dropped; counts answers.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
    let one = |number: usize| {
        let target = target.clone();
        let source = Ipv4Addr::from(first + number as u32);
        async move { forever(async || tell(&target, source).await).await }
    };
    together(SOURCES, one).await;
    Ok(())
}

/// As many as one source could have stored at once.
const AT_ONCE: usize = 32;

async fn tell(target: &Target, source: Ipv4Addr) -> anyhow::Result<()> {
    let connection = meet(target, source).await?;
    for _ in 0..AT_ONCE {
        let [old, new] = [SecretKey::generate(&SystemRandom)?, SecretKey::generate(&SystemRandom)?];
        let succession = Succession::sign(&old, &new.identity(), SystemClock.now());
        ask(&connection, Operation::Succession(succession.to_wire())).await?;
        target.count();
    }
    Ok(())
}
