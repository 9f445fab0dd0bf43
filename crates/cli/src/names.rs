//! Resolves the argument NODE. A name that is not pinned is pinned to a key only after a
//! confirmation at the terminal, or with `--accept-new`.

use crate::abbreviation::expand;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use levada_client::{Client, Target, UnpinnedNode, Verdict};
use levada_home::address::shown;

/// How names that are used for the first time are treated.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Names {
    /// Accept the key of a node whose name is new here without asking
    #[arg(long)]
    accept_new: bool,
}

impl Names {
    /// The node that `node` names; asks for confirmation if the name is new.
    ///
    /// # Errors
    /// [`Failure`] 121 if its key is not accepted, 122 if it does not answer.
    pub async fn resolve(self, client: &Client, node: &str) -> Result<Target, Failure> {
        let node = expand(node).await?;
        Ok(client.resolve(&node, |unpinned| self.confirm(unpinned)).await?)
    }

    /// As [`Self::resolve`], without browsing the network for a node that has known addresses.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn resolve_at_known(self, client: &Client, node: &str) -> Result<Target, Failure> {
        let node = expand(node).await?;
        Ok(client.resolve_at_known(&node, |unpinned| self.confirm(unpinned)).await?)
    }

    /// As [`Self::resolve`], without a connection to a node whose name is pinned: for a node that
    /// is only named to another one.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn identify(self, client: &Client, node: &str) -> Result<Target, Failure> {
        let node = expand(node).await?;
        Ok(client.identify(&node, |unpinned| self.confirm(unpinned)).await?)
    }

    fn confirm(self, unpinned: &UnpinnedNode) -> Verdict {
        let UnpinnedNode { name, identity, addresses } = unpinned;
        if self.accept_new {
            output::note(format_args!("`{name}` is new here, and is now pinned to {identity}"));
            return Verdict::Accept;
        }
        if !output::is_attended() {
            return Verdict::Unasked;
        }
        let addresses: Vec<&str> = addresses.iter().map(|one| shown(one)).collect();
        let addresses = addresses.join(", ");
        output::note(format_args!("`{name}` is new here. A node at {addresses} presents the key"));
        output::note(format_args!("  {identity}"));
        output::note(
            "Its name is not verified: compare the key with the output of `levada id` there.",
        );
        match output::ask(&format!("Shall `{name}` stand for this key from now on?")) {
            Some(true) => Verdict::Accept,
            Some(false) => Verdict::Refuse,
            None => Verdict::Unasked,
        }
    }
}
