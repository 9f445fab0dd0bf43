//! The sessions that this identity has requested for others at pinned nodes. A rotation of the key
//! ends them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::directory::labelled;
use crate::failure::{Failure, USAGE};
use crate::output::{self, plain};
use levada_capability::SessionId;
use levada_client::{Client, ClientError, Target};
use levada_core::wire::RequestedSession;
use levada_core::{Identity, UnixTime};
use levada_home::known::{Known, Pin};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The minimum digits of an abbreviated session.
const MIN_ID: usize = 8;
/// How long one node may take to answer.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that are queried at the same time.
const AT_ONCE: usize = 16;

/// The answers of the pinned nodes.
#[derive(Default)]
pub struct Requested {
    /// Each session with the name of its node.
    sessions: Vec<(String, RequestedSession)>,
    /// Nodes with more sessions than they list.
    more: Vec<String>,
    /// Nodes that have not answered, and why.
    silent: Vec<(String, ClientError)>,
}

/// Every pinned node but this home's own.
///
/// # Errors
/// [`Failure`] if the pins cannot be read.
pub async fn pinned_nodes(client: &Client) -> Result<Vec<Pin>, Failure> {
    let mut pins = client.with_known(Known::names).await?;
    pins.retain(|pin| pin.identity != client.identity());
    Ok(pins)
}

/// Queries all nodes of `pins`.
pub async fn query_all(client: &Arc<Client>, pins: &[Pin]) -> Requested {
    let mut requested = Requested::default();
    let ask = |client: Arc<Client>, target: Target| async move {
        client.requested_for_others(&target).await
    };
    for (name, answer) in at_each(client, pins, ask).await {
        match answer {
            Ok((sessions, more)) => {
                requested.sessions.extend(sessions.into_iter().map(|one| (name.clone(), one)));
                if more {
                    requested.more.push(name);
                }
            }
            Err(error) => requested.silent.push((name, error)),
        }
    }
    requested
}

/// Sends the succession to all nodes of `pins` now, so that sessions requested by the old key end
/// at once. Prints a note for each node that could not be reached: it receives the succession with
/// the next connection.
pub async fn announce_succession(client: &Arc<Client>, pins: &[Pin]) {
    let send = |client: Arc<Client>, target: Target| async move {
        client.announce_successions(&target).await
    };
    for (name, sent) in at_each(client, pins, send).await {
        match sent {
            Ok(refused) => {
                for text in refused {
                    let text = plain(&text);
                    output::note(format_args!("{name} did not accept the new key: {text}"));
                }
            }
            Err(error) => {
                let error = plain(&error.to_string());
                output::note(format_args!(
                    "{name} receives the new key with the next connection: {error}"
                ));
            }
        }
    }
}

/// Calls `act` for each node of `pins`; returns the results by name.
async fn at_each<T, F>(
    client: &Arc<Client>,
    pins: &[Pin],
    act: impl Fn(Arc<Client>, Target) -> F,
) -> Vec<(String, Result<T, ClientError>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ClientError>> + Send + 'static,
{
    let mut results = Vec::new();
    let mut running = JoinSet::new();
    for Pin { name, identity, addresses, .. } in pins.iter().cloned() {
        if running.len() >= AT_ONCE {
            results.extend(running.join_next().await.and_then(Result::ok));
        }
        let acting = act(client.clone(), Target { identity, addresses });
        running.spawn(async move {
            let late = || ClientError::Unreachable("the node did not answer".into());
            let result = timeout(NODE_TIMEOUT, acting).await.unwrap_or_else(|_| Err(late()));
            (name, result)
        });
    }
    while let Some(joined) = running.join_next().await {
        results.extend(joined.ok());
    }
    results.sort_by(|(one, _), (other, _)| one.cmp(other));
    results
}

impl Requested {
    /// The sessions that `--keep` names, by their ids or the beginning of one. Each must be one of
    /// those listed, unless a node could not be queried: a mistyped id would end the session that
    /// was to be kept.
    ///
    /// # Errors
    /// [`Failure`] 2 for any other, and for an ambiguous one.
    pub fn find(&self, keep: &[String]) -> Result<Vec<SessionId>, Failure> {
        keep.iter().map(|text| self.find_one(text)).collect()
    }

    fn find_one(&self, text: &str) -> Result<SessionId, Failure> {
        let found: BTreeSet<SessionId> =
            self.ids().filter(|id| id.to_string().starts_with(text)).collect();
        let wrong = |why: &str| Err(Failure::new(USAGE, format!("--keep {}: {why}", plain(text))));
        let is_complete = self.more.is_empty() && self.silent.is_empty();
        match (found.first(), text.parse::<SessionId>()) {
            (Some(only), _) if found.len() == 1 && text.len() >= MIN_ID => Ok(*only),
            (Some(_), _) if text.len() < MIN_ID => wrong("give at least 8 digits of the id"),
            (Some(_), _) => {
                let all: Vec<String> = found.iter().map(ToString::to_string).collect();
                wrong(&format!("several sessions begin so: {}", all.join(", ")))
            }
            (None, Ok(id)) if !is_complete => Ok(id),
            (None, Err(error)) if !is_complete => wrong(&error.to_string()),
            (None, _) => wrong("no node that is pinned here has such a session of this identity"),
        }
    }

    fn ids(&self) -> impl Iterator<Item = SessionId> {
        let ids =
            self.sessions.iter().filter_map(|(_, one)| one.session.as_slice().try_into().ok());
        ids.map(SessionId::from_bytes)
    }

    /// Prints the sessions that will end, those that are kept, and the nodes that could not be
    /// queried.
    pub fn show(&self, keep: &[SessionId]) {
        if !self.sessions.is_empty() {
            output::note(
                "Sessions that this identity has requested for others (--keep SESSION keeps one):",
            );
        }
        for (name, session) in &self.sessions {
            let kept = keep.iter().any(|kept| session.session == kept.as_bytes());
            let end = if kept { "is kept" } else { "will end" };
            output::note(describe(name, session, end));
        }
        for name in &self.more {
            output::note(format_args!("  {name} has more, older ones, which will end"));
        }
        for (name, error) in &self.silent {
            let error = plain(&error.to_string());
            output::note(format_args!("{name} could not be queried for such sessions: {error}"));
        }
    }
}

fn describe(name: &str, session: &RequestedSession, end: &str) -> String {
    let id: Result<[u8; 16], _> = session.session.as_slice().try_into();
    let id = id.map_or_else(|_| "?".into(), |id| SessionId::from_bytes(id).to_string());
    let holder = Identity::try_from(session.holder.as_slice());
    let holder = holder.map_or_else(|_| "?".into(), |holder| labelled(&holder));
    let service = plain(&session.service);
    let since = output::time(UnixTime(session.created));
    format!("  {id} {end}: {name}/{service} for {holder}, requested {since}")
}
