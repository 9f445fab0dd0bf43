//! What NODE stands for: every verb that names one takes this, and asks the person at the terminal before a
//! name stands for a key.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use levada_node::address::shown;
use levada_node::client::{Client, Stranger, Target, Verdict};

/// How names are treated that are used for the first time.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Names {
    /// Accept the key of a node whose name is new here without asking
    #[arg(long)]
    accept_new: bool,
}

impl Names {
    /// The node that was named: found, and asked about if its name is new.
    ///
    /// # Errors
    /// [`Failure`] 121 if its key is not accepted, 122 if it does not answer.
    pub async fn resolve(self, client: &Client, node: &str) -> Result<Target, Failure> {
        Ok(client.resolve(node, |stranger| self.judge(stranger)).await?)
    }

    /// As [`Self::resolve`], for a node that is only spoken of: one that is known here is not called.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn identify(self, client: &Client, node: &str) -> Result<Target, Failure> {
        Ok(client.identify(node, |stranger| self.judge(stranger)).await?)
    }

    fn judge(self, stranger: &Stranger) -> Verdict {
        let Stranger { name, identity, addresses } = stranger;
        if self.accept_new {
            output::note(format_args!("`{name}` is new here, and is taken to be {identity}"));
            return Verdict::Accept;
        }
        if !output::is_attended() {
            return Verdict::Unasked;
        }
        let addresses: Vec<&str> = addresses.iter().map(|one| shown(one)).collect();
        let addresses = addresses.join(", ");
        output::note(format_args!("`{name}` is new here. A node at {addresses} says that it is"));
        output::note(format_args!("  {identity}"));
        output::note("Anybody can say so: compare this with what `levada id` prints there.");
        match output::ask(&format!("Shall `{name}` stand for this key from now on?")) {
            Some(true) => Verdict::Accept,
            Some(false) => Verdict::Refuse,
            None => Verdict::Unasked,
        }
    }
}
