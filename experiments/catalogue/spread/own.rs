//! One who publishes at a node, over its control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use levada_catalogue::model::Draft;
use levada_client::control::open_catalogue;
use levada_home::Home;
use levada_services::catalogue::{CatalogueClient, Source, of_bytes};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// The time limit for one publication.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// A conversation with a node.
pub struct Publisher {
    runtime: Runtime,
    client: CatalogueClient,
}

impl Publisher {
    /// Opens one with the node of this home.
    pub fn connect(home: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (read, write) = open_catalogue(&Home::at(home)?).await?;
            anyhow::Ok(CatalogueClient::new(of_bytes(read, write)))
        })?;
        Ok(Self { runtime, client })
    }

    /// Publishes; returns when it is acknowledged.
    ///
    /// # Errors
    /// The node refuses; the conversation can then not be used any more.
    pub fn publish(&mut self, draft: &Draft) -> anyhow::Result<()> {
        self.publish_with(draft, &mut io::empty())
    }

    /// Publishes all, none of which has a package.
    ///
    /// # Errors
    /// As there; some may be published.
    pub fn publish_all(&mut self, drafts: Vec<Draft>) -> anyhow::Result<()> {
        let drafts: Vec<_> = drafts.into_iter().map(|draft| (draft, Vec::new())).collect();
        let publishing = self.client.publish_all(&drafts);
        let limited = self.runtime.block_on(async { timeout(PUBLISH_TIMEOUT, publishing).await });
        for outcome in limited.context("a publication took too long")?? {
            outcome?;
        }
        Ok(())
    }

    /// As [`Self::publish`], with a package.
    ///
    /// # Errors
    /// As there.
    pub fn publish_with(&mut self, draft: &Draft, package: &mut dyn Source) -> anyhow::Result<()> {
        let publishing = self.client.publish(draft, package, |_| {});
        let limited = self.runtime.block_on(async { timeout(PUBLISH_TIMEOUT, publishing).await });
        limited.context("a publication took too long")??;
        Ok(())
    }
}
