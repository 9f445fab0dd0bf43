//! `levada http`: a local origin whose requests travel to an HTTP origin behind a node, also
//! through middleboxes.

mod events;
mod required;
mod route;
mod via;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use levada_client::{Client, ClientError, Target};
use levada_contexts::Context;
use levada_core::wire::Middlebox;
use levada_home::Home;
use levada_services::forward::{Address, Listener};
use levada_services::http::client::{Local, LocalOptions, site};
use levada_services::http::{Strategy, contexts};
use tokio::net::TcpListener;

use crate::abbreviation::expand;
use crate::attach::Signals;
use crate::directory::short;
use crate::failure::{Failure, Outcome, USAGE};
use crate::names::Names;
use crate::output::{data, note, plain};
use crate::service_target::ServiceTarget;
use route::{Parties, route};
use via::Via;

/// The type of the services in front of HTTP origins.
const HTTP: &str = "http";

/// Use an HTTP origin behind a node, also through middleboxes that see only what they are granted
///
/// Listens here, prints the address, and answers there as the origin does: /p is /p at the origin.
/// Each --via is a middlebox, the first next to this side, with what it may read (r) or read and
/// write (rw): request-head, request-body, response-head, response-body, trailers. What is not
/// named it cannot see, nor change. The node must allow it, too. Runs until it is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada http alpha/web
  levada http --unix /tmp/web.sock alpha/web
  levada http --via office:request-head=r alpha/web
  levada http --listen 127.0.0.1:8080 --via cache:request-head=rw,response-head=rw --via office alpha/web
  levada http --strategy per-header --via office:user-agent=r,cookie=r alpha/web
  levada http --accept-via --json alpha/web
  curl http://127.0.0.1:8080/
  curl --unix-socket /tmp/web.sock http://localhost/")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port
    #[arg(value_name = "NODE/SERVICE")]
    at: ServiceTarget,

    /// A middlebox, and what it is granted; nothing if not given
    #[arg(long, value_name = "NODE[:CONTEXT=r|rw,…]")]
    via: Vec<Via>,

    /// Lead sessions through the middleboxes that the service requires, with all rights that it
    /// allows them
    #[arg(long, conflicts_with = "via")]
    accept_via: bool,

    /// How messages are divided into contexts: `one` (all in `exchange`), `four` (heads and
    /// bodies), or `per-header` (as `four`, and cookie, authorization, user-agent, referer, accept,
    /// content-type, location, cache-control and validators)
    #[arg(long, value_name = "one|four|per-header", default_value = "four")]
    strategy: Strategy,

    /// Carry trailers through middleboxes also if no grant names them
    #[arg(long)]
    trailers: bool,

    /// Where to listen; a free port of 127.0.0.1 if not given
    #[arg(long, value_name = "A:P", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Listen at a Unix socket, which only this user may use
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<PathBuf>,

    /// Print one JSON object for each event: listening, opened and ended sessions
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    names: Names,
}

pub async fn run(mut arguments: Arguments) -> Outcome {
    // The node is looked up again if it moves.
    arguments.at.node = expand(&arguments.at.node).await?;
    let mut vias = arguments.via.clone();
    // A wrong grant is reported before anything is opened.
    contexts_of(&arguments, &vias)?;
    let client = Arc::new(Client::new(&Home::open()?)?);
    let target = arguments.names.resolve(&client, &arguments.at.node).await?;
    let service = arguments.at.service.clone();
    let services = match client.check_type(&target, &service, HTTP).await {
        // The path leads to it, too: a client may reach nothing but the first middlebox.
        Err(ClientError::NoAnswer(error) | ClientError::Unreachable(error)) if !vias.is_empty() => {
            let error = plain(&error);
            note(format_args!("the node cannot be asked directly what it allows: {error}"));
            None
        }
        checked => Some(checked?),
    };
    let listed = services.map(|services| required::listed(&services, &service));
    if let Some(listed) = listed.as_ref().filter(|_| vias.is_empty()) {
        let middleboxes = required::middleboxes(listed)?;
        vias = required::accept(&middleboxes, arguments.strategy, arguments.accept_via)?;
    }
    let contexts = contexts_of(&arguments, &vias)?;
    let mut hops: Vec<Target> = Vec::new();
    // What each is looked up by, should it move.
    let mut places: Vec<String> = Vec::new();
    for via in &vias {
        let listed = listed.as_deref().unwrap_or_default();
        let place = place_of(&client, listed, &expand(&via.node).await?);
        hops.push(arguments.names.identify(&client, &place).await?);
        places.push(place);
    }
    if let Some(listed) = &listed {
        required::check_listed(listed, &service, &hops)?;
    }
    let listener = listen(&arguments).await?;
    let site = site(&service, &arguments.at.node, &target.identity);
    let shown: Vec<String> = hops.iter().map(|hop| short(&hop.identity)).collect();
    let middleboxes: Vec<String> = vias.iter().map(|via| via.node.clone()).collect();
    let names = (arguments.at.node.clone(), places);
    let found = Mutex::new((target, hops));
    let parties = Parties { client: client.clone(), service, names, contexts, found };
    let options = LocalOptions { site: Some(site), middleboxes };
    let report = events::report(arguments.json);
    let local = Local::new(&listener, options, route(parties), report).await?;
    for (via, hop) in vias.iter().zip(&shown) {
        let grants = if via.grants.is_empty() { "nothing" } else { &via.grants };
        note(format_args!("through {hop}, which may see {grants}"));
    }
    let plain_address = match &listener {
        Listener::Tcp(_) => format!("http://{}/", listener.address()),
        Listener::Unix(..) => listener.address(),
    };
    let address = match &listener {
        Listener::Tcp(_) => format!("http://{}/", local.host()),
        Listener::Unix(..) => plain_address.clone(),
    };
    if address != plain_address {
        note(format_args!("for programs that do not resolve names of localhost: {plain_address}"));
    }
    match arguments.json {
        true => events::listening(&address, &plain_address)?,
        false => data(plain(&address))?,
    }
    let mut signals = Signals::new()?;
    let code = tokio::select! {
        () = local.clone().serve(listener) => 0,
        code = signals.end() => code,
    };
    local.close().await;
    client.close();
    Ok(code)
}

/// Returns what leads to a middlebox: a name stands for its pinned key at the address that the node
/// lists for that. The pin has the addresses of a node, whose middlebox listens elsewhere.
fn place_of(client: &Client, listed: &[Middlebox], name: &str) -> String {
    if name.contains('@') {
        return name.to_owned();
    }
    let identity = client.known().identity_of(name).ok();
    let own = identity.and_then(|one| Some((one, required::address_of(listed, &one)?)));
    own.map_or_else(
        || {
            note(format_args!(
                "the node does not say where the middlebox {} listens; if that is not its pinned \
                 address, name it as IDENTITY@HOST:PORT",
                plain(name)
            ));
            name.to_owned()
        },
        |(identity, address)| format!("{identity}@{address}"),
    )
}

/// The contexts of the path.
fn contexts_of(arguments: &Arguments, vias: &[Via]) -> Result<Vec<Context>, Failure> {
    let grants: Vec<&str> = vias.iter().map(|via| via.grants.as_str()).collect();
    contexts(arguments.strategy, arguments.trailers, &grants)
        .map_err(|error| Failure::new(USAGE, format!("--via: {error}")))
}

async fn listen(arguments: &Arguments) -> Result<Listener, Failure> {
    let (listener, at) = match &arguments.unix {
        Some(path) => {
            let address = Address::Unix(path.clone());
            (Listener::bind(&address).await, path.display().to_string())
        }
        None => {
            let listener = TcpListener::bind(arguments.listen).await.map(Listener::Tcp);
            (listener, arguments.listen.to_string())
        }
    };
    listener.map_err(|error| Failure::local(format!("cannot listen at {at}: {error}")))
}
