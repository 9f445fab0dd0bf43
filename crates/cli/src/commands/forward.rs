//! `levada forward`: forwards connections to an address that a node connects to, or from one where
//! it listens.

mod stdio;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use levada_client::Client;
use levada_home::Home;
use levada_services::forward::Address;
use levada_services::forward::client::{
    ForwardError, Plan, Reconnector, Report, Reporter, Right, Stop, Words, listen_address,
};

use crate::attach::Signals;
use crate::failure::{Failure, Outcome, USAGE};
use crate::names::Names;
use crate::output::{data, note, plain};
use crate::secret_text;
use crate::service_target::ServiceTarget;

/// The type of the services that forward connections.
const FORWARD: &str = "forward";

/// Forward connections to an address that a node can reach
///
/// Listens here, prints the address, and forwards each connection to HOST:PORT, which the node
/// connects to. With --reverse the node listens, and this side connects. Runs until it is
/// interrupted; a lost connection to the node is re-established.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada forward alpha/forward --listen 5432 -- db.example:5432
  levada forward alpha/forward --listen unix:/tmp/db.sock -- unix:/run/db.sock
  levada forward alpha/forward --udp --listen 5353 -- 192.0.2.53:53
  levada forward alpha/forward --socks --listen 1080 -- '*.example:443'
  levada forward alpha/forward --reverse --listen 8080 -- 127.0.0.1:80
  levada request alpha/forward --for lv… -- db.example:5432 > db.cap
  levada forward @db.cap --listen 5432
  ssh -o ProxyCommand='levada forward --stdio alpha/forward -- %h:%p' box.example")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port; a capability is
    /// its text, @file, or -
    #[arg(value_name = "NODE/SERVICE|CAPABILITY")]
    via: Via,

    // Help text, not a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    /// Where to listen: [ADDRESS:]PORT or unix:/PATH; a free port of 127.0.0.1 if not given
    #[arg(long, value_name = "A:P", value_parser = listen_address)]
    listen: Vec<Address>,

    /// Forward datagrams (UDP), not connections
    #[arg(long, conflicts_with_all = ["reverse", "socks"])]
    udp: bool,

    /// Listen at the node, and connect to HOST:PORT from here
    #[arg(long, conflicts_with = "socks")]
    reverse: bool,

    /// Serve SOCKS 5: each program names the target of its connection
    #[arg(long)]
    socks: bool,

    /// Forward one connection between standard input and output and HOST:PORT; ends with it
    #[arg(long, conflicts_with_all = ["listen", "udp", "reverse", "socks"])]
    stdio: bool,

    #[command(flatten)]
    names: Names,

    /// HOST:PORT, or unix:/PATH; with --socks, patterns of the permitted targets
    #[arg(last = true, value_name = "TARGET")]
    target: Vec<String>,
}

/// The right by which connections are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Via {
    /// A session is requested at this service.
    Service(ServiceTarget),
    /// A session is started with this capability.
    Capability(String),
}

impl FromStr for Via {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // No name begins with an @, and no capability contains a slash.
        let service = if text.starts_with('@') { None } else { text.parse().ok() };
        Ok(service.map_or_else(|| Self::Capability(text.to_owned()), Self::Service))
    }
}

pub async fn run(arguments: Arguments) -> Outcome {
    let words = Words {
        listen: arguments.listen,
        udp: arguments.udp,
        reverse: arguments.reverse,
        socks: arguments.socks,
        target: arguments.target,
    };
    let stdio = arguments.stdio;
    let (client, right, plan) = match arguments.via {
        Via::Service(at) => {
            let plan = Plan::new(words)?;
            let client = Client::new(&Home::open()?)?;
            let target = arguments.names.resolve(&client, &at.node).await?;
            client.check_type(&target, &at.service, FORWARD).await?;
            (client, Right::Request { target, service: at.service }, plan)
        }
        Via::Capability(text) => {
            if !text.starts_with("lvcap") && !text.starts_with('@') && text != "-" {
                let text = "expected NODE/SERVICE, such as alpha/forward, or a capability";
                return Err(Failure::new(USAGE, text));
            }
            let capability = secret_text::read(&text)?;
            let client = Client::new(&Home::open()?)?;
            client.check_type_of(&capability, FORWARD).await?;
            let plan = Plan::within(words, capability.params())?;
            (client, Right::Capability(Box::new(capability)), plan)
        }
    };
    let report: Reporter = Arc::new(Terminal);
    if stdio {
        return stdio::run(client, right, plan, report).await;
    }
    let (interrupted, stop) = Stop::new();
    let mut signals = Signals::new()?;
    tokio::spawn(async move {
        signals.end().await;
        drop(interrupted);
    });
    let reconnector = Reconnector::new(Arc::new(client), right, plan, report, stop).await?;
    Ok(reconnector.run().await?)
}

/// Prints the listening addresses to standard output, and everything else to standard error.
struct Terminal;

impl Report for Terminal {
    fn listening(&self, at: &str) -> Result<(), ForwardError> {
        Ok(at.lines().try_for_each(|line| data(plain(line)))?)
    }

    fn note(&self, line: &str) {
        note(format_args!("levada: {}", plain(line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_a_service_from_a_capability() {
        let is_service = |text: &str| matches!(text.parse::<Via>(), Ok(Via::Service(_)));
        assert!(is_service("alpha/forward") && is_service("lvabc@[::1]:5382/forward"));
        for text in ["@folder/db.cap", "-", "lvcap1abc", "alpha"] {
            assert!(!is_service(text), "{text}");
        }
    }
}
