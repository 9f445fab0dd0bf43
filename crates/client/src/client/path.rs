//! Sessions through middleboxes: requests and starts one in the first message that only the node
//! can read.

use std::time::Duration;

use levada_contexts::{
    Context, ContextError, Hop, Kem, Party, Path, PathError, PathEvent, PathSession, Received,
    connect_path,
};
use levada_core::Params;
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_transport::{Tcp, connect_tcp};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::operations::{REQUEST_TIMEOUT, unexpected, wire_request};
use super::{Client, ClientError, RequestSpec, Target};
use levada_home::address;

/// How long one address may take to accept a TCP connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Codes of an ALERT (`docs/protocol.md`, "Frames of a path"): the policy of a party, a session
/// that could not be resumed, an unreachable neighbour.
const REFUSED: u8 = 2;
const NOT_RESUMED: u8 = 3;
const UNREACHABLE: u8 = 4;
/// Up to this many middleboxes, the first flights fit into TCP's initial window also with
/// post-quantum keys.
const MAX_HYBRID: usize = 8;

impl Client {
    /// Requests and starts a session with the service `service` of `target` that leads through
    /// `hops`, the first next to this side, which get the rights in `contexts`. A path that was
    /// used before costs the middleboxes no operation with a public key.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if a party does not answer; [`ClientError::Denied`] if the node
    /// refuses the session, a middlebox or a right; [`ClientError::Protocol`] if a party is not the
    /// one that it should be.
    pub async fn start_through(
        &self,
        target: &Target,
        service: &str,
        hops: &[Target],
        contexts: Vec<Context>,
    ) -> Result<PathSession, ClientError> {
        let path = path(target, hops, contexts)?;
        let first = hops.first().ok_or_else(|| no_address(target))?;
        let failed = |error| path_error(error, &path);
        let session = match self.connect_over(first, path.clone()).await {
            // The node has forgotten a session that a middlebox remembers.
            Err(PathError::Context(ContextError::Alert { code: NOT_RESUMED, .. })) => {
                self.paths.forget(&target.identity);
                self.connect_over(first, path.clone()).await
            }
            connected => connected,
        };
        let session = session.map_err(failed)?;
        let spec = RequestSpec {
            service: service.to_owned(),
            params: Params::new(),
            ..RequestSpec::default()
        };
        let operation = Operation::Start(wire_request(&spec));
        let message = Zeroizing::new(wire::encode(&wire::Operation::from(operation)));
        session.control(&message).map_err(failed)?;
        let answer = timeout(REQUEST_TIMEOUT, receive_answer(&session, &path)).await;
        let late = || ClientError::Unreachable("the node did not answer in time".to_owned());
        match answer.map_err(|_| late())?? {
            Answer::StartedAtOnce(_) => Ok(session),
            Answer::Refusal(refusal) => Err(refusal.into()),
            _ => Err(unexpected()),
        }
    }

    async fn connect_over(&self, first: &Target, path: Path) -> Result<PathSession, PathError> {
        let transport = dial_first(first).await?;
        connect_path(Box::new(transport), &self.tls, self.paths.clone(), path).await
    }
}

fn path(target: &Target, hops: &[Target], contexts: Vec<Context>) -> Result<Path, ClientError> {
    let party = |target: &Target| {
        let mut usable = target.addresses.iter().filter(|one| address::is_usable(one));
        // Another machine connects to it, which has its own links.
        let address = usable.clone().find(|one| !address::is_of_link(one)).or(usable.next());
        let address = address.ok_or_else(|| no_address(target))?;
        Ok::<_, ClientError>(Party {
            identity: target.identity,
            address: address::shown(address).to_owned(),
        })
    };
    let hop = |target| Ok::<_, ClientError>(Hop { party: party(target)?, resume: None });
    let hops = hops.iter().map(hop).collect::<Result<Vec<_>, _>>()?;
    let kem = if hops.len() <= MAX_HYBRID { Kem::Hybrid } else { Kem::X25519 };
    Ok(Path { kem, server: party(target)?, hops, contexts })
}

fn no_address(target: &Target) -> ClientError {
    ClientError::Unreachable(format!("no address is known for {}", target.identity))
}

/// Connects to the first middlebox at one of its addresses.
async fn dial_first(first: &Target) -> Result<Tcp, PathError> {
    let mut failure = PathError::Transport(format!("no address is known for {}", first.identity));
    for address in first.addresses.iter().filter(|one| address::is_usable(one)) {
        let shown = address::shown(address);
        match connect_tcp(shown, DIAL_TIMEOUT).await {
            Ok(transport) => return Ok(transport),
            Err(error) => failure = PathError::Transport(format!("{shown}: {error}")),
        }
    }
    Err(failure)
}

/// The node's answer, after every party is there.
async fn receive_answer(session: &PathSession, path: &Path) -> Result<Answer, ClientError> {
    loop {
        match session.next().await.map_err(|error| path_error(error, path))? {
            Some(PathEvent::Ready) => {}
            Some(PathEvent::Received(Received::Control(message))) => {
                let message = Zeroizing::new(message);
                let answer = wire::decode::<wire::Answer>(&message);
                return answer.ok().and_then(|answer| answer.answer).ok_or_else(unexpected);
            }
            Some(PathEvent::Received(Received::Error(text))) => {
                return Err(ClientError::Denied(String::from_utf8_lossy(&text).into_owned()));
            }
            _ => return Err(unexpected()),
        }
    }
}

/// Nothing authenticates an alert, so it never counts as a refusal of the node.
fn path_error(error: PathError, path: &Path) -> ClientError {
    let text = explain(&error, path);
    match &error {
        PathError::Transport(_)
        | PathError::Context(
            ContextError::Alert { code: 4 | 5, .. } | ContextError::Timeout { .. },
        ) => ClientError::Unreachable(text),
        _ => ClientError::Protocol(text),
    }
}

/// An alert names a party by its place on the path: adds its key and address, and what to do.
fn explain(error: &PathError, path: &Path) -> String {
    let PathError::Context(ContextError::Alert { code, hop }) = error else {
        return error.to_string();
    };
    let at = usize::from(*hop).checked_sub(1).and_then(|at| path.hops.get(at));
    let Some(Party { identity, address }) = at.map(|hop| &hop.party) else {
        return match *code {
            REFUSED => {
                let hops: Vec<String> =
                    path.hops.iter().map(|hop| hop.party.identity.to_string()).collect();
                format!("{error}; the node must allow each middlebox: {}", hops.join(", "))
            }
            _ => error.to_string(),
        };
    };
    let next = &path.after(*hop).address;
    let server = path.server.identity;
    match *code {
        REFUSED => format!(
            "{error}; {identity}@{address} must list {next} as a next party (`--next`), and the node {server} if it lists any \
             (`--server`); the session must also grant what its options need, which its log names"
        ),
        UNREACHABLE => format!("{error}; {identity}@{address} leads to {next}"),
        _ => format!("{error} ({identity}@{address})"),
    }
}
