//! Registered connections that do nothing.

use super::connection::{Target, connect_all, identity};
use super::{questions, say};
use crate::limits::allow_sockets;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many
    count: usize,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    allow_sockets()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // They all prove the same identity.
        let identities = vec![identity()?; arguments.count];
        let connections = connect_all(&arguments.target, identities).await?;
        let mut questions = questions();
        say("ready")?;
        // Pings are answered meanwhile.
        while questions.recv().await.is_some() {}
        drop(connections);
        Ok(())
    })
}
