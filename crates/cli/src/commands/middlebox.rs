//! `levada middlebox`: carries sessions of others, and does with them what both endpoints grant.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levada_config::LogFormat;
use levada_contexts::{ContextError, PathError};
use levada_core::{Clock, SystemClock};
use levada_home::Home;
use levada_services::middlebox::{
    AddField, Failed, Middlebox, Plugins, Policy, WriteEntry, next_party, parse_cache_size,
    trace_failures,
};
use regex_lite::Regex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::identity::{IdentityOrName, identities};
use crate::output::{self, data, note, plain};

/// Carry sessions of others as a middlebox
///
/// A session leads through this middlebox if its client names it. Both its client and its node
/// decide what this middlebox may read or write; it has no keys for the rest. It leads sessions
/// only to the addresses of --next. The log on standard error has the rights of each session, and
/// the method, target and status of each exchange whose heads it may read. Runs until it is
/// interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada middlebox --listen 0.0.0.0:5383 --next alpha.example:5382
  levada middlebox --next alpha.example:5382 --add-response 'X-Checked: yes'
  levada middlebox --next alpha.example:5382 --block '^GET /private'
  levada middlebox --next alpha.example:5382 --cache 256M --compress")]
pub struct Arguments {
    /// Where to listen; a free port of 127.0.0.1 if not given
    #[arg(long, value_name = "A:P", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// An address that sessions may be led to: of a node, or of the next middlebox
    #[arg(long, value_name = "HOST:PORT", required = true, value_parser = next_party)]
    next: Vec<String>,

    /// A node that sessions may end at, or its name here; any behind --next if not given
    #[arg(long, value_name = "IDENTITY")]
    server: Vec<IdentityOrName>,

    /// End a session at a request whose head matches: METHOD, a space and the target, then the
    /// fields, a line each
    #[arg(long, value_name = "REGEX")]
    block: Vec<Regex>,

    /// Add a field to each response
    #[arg(long, value_name = "NAME: VALUE", value_parser = field)]
    add_response: Vec<String>,

    /// Store responses and give them to later requests, also of other clients, as far as RFC 9111
    /// and the service allow; the bytes that all of them take in memory, such as 256M. Needs rw on
    /// request-head, request-body, response-head and response-body
    #[arg(long, value_name = "SIZE", value_parser = parse_cache_size)]
    cache: Option<usize>,

    /// Compress the bodies of responses that are text, for clients that take gzip. Needs r on
    /// request-head, rw on response-head and response-body
    #[arg(long)]
    compress: bool,

    /// Carry sessions that do not grant what the options above need, too, without their work.
    /// Otherwise such a session is refused
    #[arg(long)]
    lenient: bool,

    /// The format of the log: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Keep keys for this many seconds, so that further sessions along the same path cost less; 0
    /// keeps none
    #[arg(long, value_name = "SECONDS", default_value_t = 24 * 3600)]
    resume: u64,
}

/// Writes the log to standard error, with the time of each line.
fn write_log(format: LogFormat) -> WriteEntry {
    Arc::new(move |entry| match format {
        LogFormat::Text => {
            let now = output::time(SystemClock.now());
            note(plain(&format!("{now} {entry}")));
        }
        LogFormat::Json => write_json(serde_json::to_value(entry).unwrap_or_default()),
    })
}

/// Reports sessions that this middlebox has refused. Others fail for reasons of their parties, and
/// anyone can let one fail.
fn report_refusals(format: LogFormat) -> Failed {
    let trace = trace_failures();
    Arc::new(move |source, error| match (error, format) {
        (PathError::Context(ContextError::Refused(_)), LogFormat::Text) => {
            let now = output::time(SystemClock.now());
            note(plain(&format!("{now} a session from {source}: {error}")));
        }
        (PathError::Context(ContextError::Refused(_)), LogFormat::Json) => {
            let text = error.to_string();
            write_json(json!({ "event": "refused", "source": source, "text": text }));
        }
        _ => trace(source, error),
    })
}

/// Writes a line of the log with its time.
fn write_json(mut line: Value) {
    line["time"] = output::time(SystemClock.now()).into();
    output::note_json(&line);
}

fn field(text: &str) -> Result<String, &'static str> {
    AddField::new(text).map(|_| text.to_owned()).ok_or("expected NAME: VALUE")
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let key = Arc::new(home.key().map_err(Failure::local)?);
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.map_err(|error| {
        Failure::local(format!("cannot listen at {}: {error}", arguments.listen))
    })?;
    let address = listener.local_addr().map_err(Failure::local)?;
    let plugins = Plugins {
        block: arguments.block,
        add_response: arguments.add_response,
        compress: arguments.compress,
        cache: arguments.cache,
        lenient: arguments.lenient,
    };
    let servers = identities(&home, &arguments.server).await?;
    let policy = Policy { next: arguments.next, servers, needs: plugins.needs() };
    let inspector = plugins.inspectors(write_log(arguments.log_format));
    let lifetime = Duration::from_secs(arguments.resume);
    let identity = key.identity();
    let middlebox = Middlebox::new(key, policy, lifetime, inspector);
    data(format!("{identity}@{address}"))?;
    let mut signals = Signals::new()?;
    let refusals = report_refusals(arguments.log_format);
    tokio::select! {
        () = middlebox.serve(listener, std::future::pending(), refusals) => Ok(0),
        code = signals.end() => Ok(code),
    }
}
