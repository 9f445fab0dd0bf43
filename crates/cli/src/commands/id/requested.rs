//! The sessions that this identity has requested for others, at all pinned nodes: what a rotation of its key ends.

use std::sync::Arc;
use std::time::Duration;

use crate::failure::Failure;
use crate::output::{self, plain};
use levada_capability::SessionId;
use levada_core::wire::RequestedSession;
use levada_core::{Identity, UnixTime};
use levada_node::client::{Client, ClientError, Target};
use levada_node::known::Pin;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one node may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Nodes that are asked at a time.
const AT_ONCE: usize = 16;

/// What the pinned nodes have said.
#[derive(Default)]
pub struct Requested {
    /// Each with the name of its node.
    sessions: Vec<(String, RequestedSession)>,
    /// Nodes with more sessions than they list.
    more: Vec<String>,
    /// Nodes that have not answered, and why.
    silent: Vec<(String, ClientError)>,
}

/// Asks every pinned node but this home's own.
///
/// # Errors
/// [`Failure`] if the pins cannot be read.
pub async fn ask_everywhere(client: &Arc<Client>) -> Result<Requested, Failure> {
    let mut requested = Requested::default();
    let ask = |client: Arc<Client>, target: Target| async move {
        client.requested_for_others(&target).await
    };
    for (name, answer) in at_each(client, ask).await? {
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
    Ok(requested)
}

/// Tells every pinned node of the new key now, so that what the old one requested ends at once; names those that will
/// hear of it with the next connection.
///
/// # Errors
/// [`Failure`] if the pins cannot be read.
pub async fn tell_everywhere(client: &Arc<Client>) -> Result<(), Failure> {
    let tell =
        |client: Arc<Client>, target: Target| async move { client.tell_successions(&target).await };
    for (name, told) in at_each(client, tell).await? {
        match told {
            Ok(refused) => {
                for text in refused {
                    let text = plain(&text);
                    output::note(format_args!("{name} has not taken over the new key: {text}"));
                }
            }
            Err(error) => {
                let error = plain(&error.to_string());
                output::note(format_args!("{name} is told with the next connection: {error}"));
            }
        }
    }
    Ok(())
}

/// Calls `act` with each pinned node but this home's own; the results by name.
async fn at_each<T, F>(
    client: &Arc<Client>,
    act: impl Fn(Arc<Client>, Target) -> F,
) -> Result<Vec<(String, Result<T, ClientError>)>, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ClientError>> + Send + 'static,
{
    let mut pins = client.known().names()?;
    pins.retain(|pin| pin.identity != client.identity());
    let (mut results, mut running) = (Vec::new(), JoinSet::new());
    for Pin { name, identity, addresses, .. } in pins {
        if running.len() >= AT_ONCE {
            results.extend(running.join_next().await.and_then(Result::ok));
        }
        let acting = act(client.clone(), Target { identity, addresses });
        running.spawn(async move {
            let late = || ClientError::Unreachable("the node did not answer".into());
            let result = timeout(ANSWER, acting).await.unwrap_or_else(|_| Err(late()));
            (name, result)
        });
    }
    while let Some(joined) = running.join_next().await {
        results.extend(joined.ok());
    }
    results.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(results)
}

impl Requested {
    /// Whether `session` is one of those listed.
    pub fn has(&self, session: &SessionId) -> bool {
        self.sessions.iter().any(|(_, one)| one.session == session.as_bytes())
    }

    /// Whether all pinned nodes have answered with all their sessions.
    pub fn is_complete(&self) -> bool {
        self.more.is_empty() && self.silent.is_empty()
    }

    /// Says what will end and what goes on, and which nodes could not be asked.
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
            output::note(format_args!("{name} could not be asked for such sessions: {error}"));
        }
    }
}

fn describe(name: &str, session: &RequestedSession, end: &str) -> String {
    let id: Result<[u8; 16], _> = session.session.as_slice().try_into();
    let id = id.map_or_else(|_| "?".into(), |id| SessionId::from_bytes(id).to_string());
    let holder = Identity::try_from(session.holder.as_slice());
    let holder = holder.map_or_else(|_| "?".into(), |holder| holder.to_string());
    let (service, since) = (plain(&session.service), output::time(UnixTime(session.created)));
    format!("  {id} {end}: {name}/{service} for {holder}, requested {since}")
}
