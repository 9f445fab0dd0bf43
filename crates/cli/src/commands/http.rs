//! `levada http`: a local origin whose requests travel through middleboxes to an HTTP origin behind a node.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use levada_client::home::Home;
use levada_client::{Client, Target};
use levada_services::http::client::Local;
use levada_services::http::{Strategy, contexts};
use tokio::net::TcpListener;

use crate::attach::Signals;
use crate::failure::{Failure, Outcome, USAGE};
use crate::names::Names;
use crate::output::{data, note};
use crate::service_target::ServiceTarget;

/// The type of the services in front of HTTP origins.
const HTTP: &str = "http";

/// Use an HTTP origin behind a node, through middleboxes that see only what they are granted
///
/// Listens here, prints the address, and answers there as the origin does: /p is /p at the origin. Each --via is a middlebox, the first
/// next to this side, with what it may read (r) or read and write (rw): request-head, request-body, response-head, response-body. What is
/// not named it cannot see, nor change. The node must allow it, too. Runs until it is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada http --via office:request-head=r alpha/web
  levada http --listen 127.0.0.1:8080 --via cache:request-head=rw,response-head=rw --via office alpha/web
  curl http://127.0.0.1:8080/")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port
    #[arg(value_name = "NODE/SERVICE")]
    at: ServiceTarget,

    /// A middlebox, and what it is granted; nothing if not given
    #[arg(long, value_name = "NODE[:CONTEXT=r|rw,…]", required = true)]
    via: Vec<Via>,

    /// Where to listen; a free port of 127.0.0.1 if not given
    #[arg(long, value_name = "A:P", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    #[command(flatten)]
    names: Names,
}

/// A middlebox with its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Via {
    node: String,
    grants: String,
}

impl FromStr for Via {
    type Err = &'static str;

    /// Grants begin behind the last colon, if there is a `=` behind it: IDENTITY@host:port has a colon, too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, grants) = match text.rsplit_once(':') {
            Some((node, grants)) if grants.contains('=') => (node, grants),
            _ => (text, ""),
        };
        if node.is_empty() {
            return Err("expected NODE, or NODE:CONTEXT=r");
        }
        Ok(Self { node: node.to_owned(), grants: grants.to_owned() })
    }
}

pub async fn run(arguments: Arguments) -> Outcome {
    let grants: Vec<&str> = arguments.via.iter().map(|via| via.grants.as_str()).collect();
    let contexts = contexts(Strategy::Four, &grants)
        .map_err(|error| Failure::new(USAGE, format!("--via: {error}")))?;
    let client = Arc::new(Client::new(&Home::open()?)?);
    let target = arguments.names.resolve(&client, &arguments.at.node).await?;
    client.check_type(&target, &arguments.at.service, HTTP).await?;
    let mut hops: Vec<Target> = Vec::new();
    for via in &arguments.via {
        hops.push(arguments.names.identify(&client, &via.node).await?);
    }
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.map_err(|error| {
        Failure::local(format!("cannot listen at {}: {error}", arguments.listen))
    })?;
    let address = listener.local_addr().map_err(Failure::local)?;
    // The first session shows whether every party allows the path, before anything is promised.
    let service = arguments.at.service.clone();
    let first = client.start_through(&target, &service, &hops, contexts.clone()).await?;
    for (via, hop) in arguments.via.iter().zip(&hops) {
        let grants = if via.grants.is_empty() { "nothing" } else { &via.grants };
        note(format_args!("through {}, which may see {grants}", hop.identity.short()));
    }
    let opener = client.clone();
    let open = Box::new(move || {
        let (client, target, hops) = (opener.clone(), target.clone(), hops.clone());
        let (service, contexts) = (service.clone(), contexts.clone());
        let open = async move {
            let started = client.start_through(&target, &service, &hops, contexts).await;
            started.map_err(|error| error.to_string())
        };
        Box::pin(open) as _
    });
    let local = Local::new(&listener, open).map_err(Failure::local)?;
    local.keep(first).await;
    data(format!("http://{address}/"))?;
    let mut signals = Signals::new()?;
    let outcome = tokio::select! {
        served = local.clone().serve(listener) => served.map(|()| 0).map_err(Failure::local),
        code = signals.end() => Ok(code),
    };
    local.close().await;
    client.close();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_told_from_a_port() {
        let via = |text: &str| text.parse::<Via>().map(|via| (via.node, via.grants));
        let own = |node: &str, grants: &str| Ok((node.to_owned(), grants.to_owned()));
        assert_eq!(via("office"), own("office", ""));
        assert_eq!(via("office:request-head=r"), own("office", "request-head=r"));
        assert_eq!(via("lv1@h:5382"), own("lv1@h:5382", ""));
        assert_eq!(via("lv1@h:5382:a=r,b=rw"), own("lv1@h:5382", "a=r,b=rw"));
        assert!(via(":a=r").is_err());
    }
}
