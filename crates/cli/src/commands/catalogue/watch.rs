//! `levada catalogue watch`.

use clap::Args;
use levada_catalogue::model::Kind;
use levada_core::wire::catalogue::Changed;
use levada_core::{Backoff, format_duration};
use serde_json::json;
use tokio::time::sleep;

use super::at::At;
use super::connection::CatalogueConnection;
use super::nodes::Nodes;
use crate::failure::{Failure, Outcome, PROTOCOL, UNREACHABLE};
use crate::output::{self, plain};

/// Show changes as they happen
///
/// Each line has the revision, the event and the version. A lost connection to another node is
/// re-established without missing a change, also to the next one of several nodes of a catalogue
/// (--at). After an interruption, --after with the last revision continues there; exit code 1 means
/// that changes after that revision are no longer stored.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue watch
  levada catalogue watch --type service --after 0 --at hub/catalogue
  levada catalogue watch --after 120 --once --json")]
pub struct Watch {
    /// Start after this revision, 0 for the very first change; only new changes if not given
    #[arg(long, value_name = "REVISION")]
    after: Option<u64>,

    /// Only objects of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,

    /// Only objects whose names begin with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// End after the last existing change
    #[arg(long)]
    once: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: At,
}

pub async fn watch(arguments: Watch) -> Outcome {
    let mut nodes = arguments.at.nodes().await?;
    let mut after = arguments.after;
    // For this home's own catalogue, a retry could take the lock that its restarting node needs.
    if arguments.once || !nodes.are_remote() {
        nodes.run(async |connection| follow(connection, &arguments, &mut after).await).await?;
        return Ok(0);
    }
    let mut connection = nodes.open().await?;
    loop {
        let watched = follow(&mut connection, &arguments, &mut after).await;
        connection.close().await;
        let Err(failure) = watched else { return Ok(0) };
        nodes.put_first_last();
        connection = reconnect(&mut nodes, failure).await?;
        output::note(format_args!("levada: connected again, to {}", nodes.first()));
    }
}

/// Prints changes after the revision `after`, and updates it.
async fn follow(
    connection: &mut CatalogueConnection,
    watch: &Watch,
    after: &mut Option<u64>,
) -> Result<(), Failure> {
    let filter = (watch.kind, watch.prefix.as_str());
    if after.is_none() {
        // The current revision: if the connection is lost before the first change, none is missed.
        let ignore = |_| Ok::<_, Failure>(());
        *after = Some(connection.caller.watch(None, filter, false, ignore).await?);
    }
    let start = *after;
    let each = |change: Changed| {
        *after = Some(change.revision);
        show(&change, watch.json)
    };
    connection.caller.watch(start, filter, !watch.once, each).await.map(drop)
}

fn show(change: &Changed, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(json!({
            "revision": change.revision,
            "event": change.event,
            "object": change.key,
            "version": change.version,
        }));
    }
    let [event, key, version] =
        [&change.event, &change.key, &change.version].map(|text| plain(text));
    output::data(format_args!("{} {event} {key} {version}", change.revision))
}

/// Reconnects after pauses, until it succeeds or fails for a reason that a retry cannot change.
async fn reconnect(
    nodes: &mut Nodes,
    mut failure: Failure,
) -> Result<CatalogueConnection, Failure> {
    let mut backoff = Backoff::default();
    while [UNREACHABLE, PROTOCOL].contains(&failure.code()) {
        let text = plain(failure.text());
        let pause = backoff.pause();
        output::note(format_args!("levada: {text}; trying again in {}", format_duration(pause)));
        sleep(pause).await;
        match nodes.open().await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
