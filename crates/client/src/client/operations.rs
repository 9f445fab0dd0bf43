//! The operations, one stream each.

use std::time::Duration;

use levada_capability::{Capability, Invitation, Operation as Right, SessionId};
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Identity, Params, check_name, label};
use levada_service::Streams;
use levada_service::streams::DEFAULT_STREAMS;
use levada_session::{Class, Connection, Stream};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::address;
use crate::known::SeenCapability;

use super::resolve::merged;
use super::{Client, ClientError, Joined, RequestSpec, Running, Target};

/// How long a node may take to answer an operation.
const ANSWER: Duration = Duration::from_secs(30);

impl Client {
    /// Which services the node offers: one, or all if `service` is `None`.
    ///
    /// # Errors
    /// [`ClientError::No`] if there is no such service.
    pub async fn query(
        &self,
        target: &Target,
        service: Option<&str>,
    ) -> Result<Vec<wire::Service>, ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        offered(&connection, service).await
    }

    /// All services of the node, and which of the target's addresses has answered: asked on a connection of its
    /// own, because one that is shared shows nothing of these addresses.
    ///
    /// # Errors
    /// As for [`Self::query`].
    pub(super) async fn query_there(
        &self,
        target: &Target,
    ) -> Result<(Vec<wire::Service>, String), ClientError> {
        let (connection, address) = self.connect_at(target, Framing::Auto).await?;
        let services = offered(&connection, None).await;
        connection.close(0, "");
        Ok((services?, address))
    }

    /// Asks for a session with fixed parameters.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if this identity may not, or the service does not take the parameters.
    pub async fn request(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Capability, ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        self.request_on(&connection, target, spec).await
    }

    /// As [`Self::request`], on a connection that is closed again: for those who ask at the wish of others, at
    /// nodes that these may name.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_apart(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Capability, ClientError> {
        let connection = self.connection_of_its_own(target, Framing::Auto).await?;
        let granted = self.request_on(&connection, target, spec).await;
        connection.close(0, "");
        granted
    }

    async fn request_on(
        &self,
        connection: &Connection,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Capability, ClientError> {
        let answer = ask(connection, Operation::Request(wire_request(&spec))).await?;
        self.note_version(connection);
        let Answer::Granted(granted) = answer else { return Err(unexpected()) };
        let capability = self.granted(connection, target, spec, granted)?;
        self.remember(&capability);
        Ok(capability)
    }

    /// The capability that a node has granted, if it is what was asked for.
    pub(super) fn granted(
        &self,
        connection: &Connection,
        target: &Target,
        spec: RequestSpec,
        granted: wire::Granted,
    ) -> Result<Capability, ClientError> {
        // One of loopback goes on with its tag, one of a single link not at all.
        let is_hint = |one: &&String| address::is_usable(one) && !address::is_of_link(one);
        let addresses = target.addresses.iter().filter(is_hint).cloned().collect();
        let capability = Capability::from_granted(granted, spec.service.clone(), addresses)?;
        let holder = spec.holder.unwrap_or_else(|| self.identity());
        if capability.node() != connection.peer() || capability.holder() != holder {
            return Err(ClientError::Protocol(
                "the node answered with another's capability".into(),
            ));
        }
        check_granted(&spec, &capability)?;
        Ok(capability)
    }

    /// Starts the session that `capability` permits.
    ///
    /// # Errors
    /// [`ClientError::Denied`] says which rule stands against it.
    pub async fn connect(&self, capability: &Capability) -> Result<Running, ClientError> {
        self.connect_as(capability, class_of(capability.params())).await
    }

    /// As [`Self::connect`], for who knows how urgent the session is.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as(
        &self,
        capability: &Capability,
        class: Class,
    ) -> Result<Running, ClientError> {
        let framing = framing_of(capability.params())?;
        self.remember(capability);
        let (mut connection, target) = self.reach(&self.target_of(capability)?, framing).await?;
        if class == Class::Bulk && framing == Framing::Auto && connection.streams() > 0 {
            // Bulk does not share with what runs already: a lost packet of one would hold up the other.
            connection = self.connection_of_its_own(&target, framing).await?;
        }
        Ok(start(connection, capability, class, "").await?.0)
    }

    /// Starts the session that `capability` permits, if it is one of the service called `service`, on a
    /// connection that nothing else uses and that ends with the session; at its node's pinned addresses, if there
    /// are any.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub async fn connect_apart(
        &self,
        capability: &Capability,
        service: &str,
    ) -> Result<Running, ClientError> {
        let framing = framing_of(capability.params())?;
        let target = self.pinned_or(capability.node(), capability.addresses())?;
        let connection = self.connection_of_its_own(&target, framing).await?;
        Ok(start(connection, capability, class_of(capability.params()), service).await?.0)
    }

    /// Starts the session that `capability` permits, on a connection of its own: both sides may open further
    /// streams of it, at most [`DEFAULT_STREAMS`] at a time.
    ///
    /// # Errors
    /// As for [`Self::connect`]; [`ClientError::Local`] if the node knows no further streams.
    pub async fn connect_with_streams(
        &self,
        capability: &Capability,
    ) -> Result<(Running, Streams), ClientError> {
        let framing = framing_of(capability.params())?;
        self.remember(capability);
        let (mut connection, target) = self.reach(&self.target_of(capability)?, framing).await?;
        if framing == Framing::Auto {
            connection = match self.unused_connection(&target.identity) {
                Some(unused) => unused,
                None => self.connection_of_its_own(&target, framing).await?,
            };
        }
        let (running, run) = start(connection, capability, Class::Bulk, "").await?;
        if run == 0 {
            let text = "the node speaks an older version, without sessions of several streams";
            return Err(ClientError::Local(text.into()));
        }
        let streams = Streams::receiving(running.connection.clone(), run, DEFAULT_STREAMS);
        Ok((running, streams))
    }

    /// Ends the session for good.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the capability does not carry *terminate*.
    pub async fn terminate(&self, capability: &Capability) -> Result<(), ClientError> {
        self.present_done(capability, Right::Terminate, Operation::Terminate).await
    }

    /// Revokes the capability's last link and all derived from it.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if it is not this identity's to revoke.
    pub async fn revoke(&self, capability: &Capability) -> Result<(), ClientError> {
        self.present_done(capability, Right::Revoke, Operation::Revoke).await
    }

    /// Becomes known to the node that made the invitation, and pins it under `name`, or under the name
    /// that it gives itself.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the invitation is used, expired or unknown, or the name is taken by another key.
    pub async fn join(
        &self,
        invitation: &Invitation,
        name: Option<&str>,
    ) -> Result<Joined, ClientError> {
        let target = Target::from(invitation);
        let (connection, address) = self.new_connection(&target, Framing::Auto).await?;
        if let Some(name) = name {
            self.name_is_free(name, invitation.node())?;
        }
        let join = wire::Join { secret: invitation.secret().to_vec() };
        let Answer::Joined(joined) = ask(&connection, Operation::Join(join)).await? else {
            return Err(unexpected());
        };
        joined.services.iter().try_for_each(|service| is_name(service))?;
        let name = self.pin_as(name, &joined.name, invitation, &address)?;
        Ok(Joined { name, identity: invitation.node(), services: joined.services })
    }

    async fn present_done(
        &self,
        capability: &Capability,
        right: Right,
        operation: fn(wire::Presentation) -> Operation,
    ) -> Result<(), ClientError> {
        let target = self.target_of(capability)?;
        let (connection, _) = self.reach(&target, Framing::Auto).await?;
        let presentation = present(&connection, capability, right)?;
        match ask(&connection, operation(presentation)).await? {
            Answer::Done(_) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn name_is_free(&self, name: &str, node: Identity) -> Result<(), ClientError> {
        match self.known.by_name(name).map_err(ClientError::local)? {
            Some(pin) if pin.identity != node => Err(ClientError::Denied(format!(
                "`{name}` is already the name of {} here; choose another with --as",
                pin.identity
            ))),
            _ => Ok(()),
        }
    }

    /// Pins the node under `asked`, which is free, or else under the name that it gives itself, if that
    /// is a name and free; otherwise under one made from its key.
    fn pin_as(
        &self,
        asked: Option<&str>,
        own: &str,
        invitation: &Invitation,
        proven: &str,
    ) -> Result<String, ClientError> {
        let (node, known) = (invitation.node(), &self.known);
        let addresses = merged(&[proven.to_owned()], invitation.addresses());
        let pinned = known.by_identity(&node).map_err(ClientError::local)?;
        let usable = |name: &str| {
            check_name(name).is_ok()
                && name.parse::<Identity>().is_err()
                && self.name_is_free(name, node).is_ok()
        };
        let own = if usable(own) { own.to_owned() } else { format!("node-{}", &node.short()[2..]) };
        let name = match (asked, pinned) {
            (Some(asked), Some(pin)) if pin.name != asked => {
                known.rename(&pin.name, asked).map_err(ClientError::local)?;
                asked.to_owned()
            }
            (_, Some(pin)) => pin.name,
            (asked, None) => {
                let name = asked.map_or(own, str::to_owned);
                known.pin(&name, &node, &addresses, self.now()).map_err(ClientError::local)?;
                name
            }
        };
        known.update_addresses(&name, &addresses).map_err(ClientError::local)?;
        Ok(name)
    }

    /// Notes that the capability exists, for `id rotate`; never its secret. Failing to is no reason to
    /// lose the capability.
    pub fn remember(&self, capability: &Capability) {
        let ids = capability.ids();
        let Some(last) = ids.last() else { return };
        let seen = SeenCapability {
            link: *last,
            node: capability.node(),
            holder: capability.holder(),
            expires: capability.expires(),
        };
        let noted = self.known.remember_capability(&seen, self.now());
        if let Err(error) = noted {
            tracing::warn!(%error, "could not note the capability in known.db");
        }
    }
}

/// Starts a session on `connection`; one of the service called `service`, unless that is empty. Also gives
/// the number of the start, which names it to further streams.
async fn start(
    connection: Connection,
    capability: &Capability,
    class: Class,
    service: &str,
) -> Result<(Running, u64), ClientError> {
    let mut stream = connection.open(class)?;
    let mut presentation = present(&connection, capability, Right::Connect)?;
    presentation.service = service.to_owned();
    let answer = exchange(&mut stream, Operation::Connect(presentation)).await?;
    let Answer::Started(started) = answer else { return Err(unexpected()) };
    tracing::debug!(node = %connection.peer(), session = %capability.session(), "started");
    Ok((Running { session: session_id(&started)?, stream, connection }, started.run))
}

/// A capability must not permit more than was asked for: its holder relies on that when it is passed on. A node of an older version
/// does not know a limit of the running time, and ignores it.
fn check_granted(spec: &RequestSpec, capability: &Capability) -> Result<(), ClientError> {
    if spec.max_run.is_some() && capability.max_run() != spec.max_run {
        let text =
            "the node speaks an older version, without a limit of the running time (--max-run)";
        return Err(ClientError::Local(text.into()));
    }
    let later = spec.expires.is_some_and(|asked| capability.expires() > asked);
    let params = capability.params();
    let missing = spec.params.iter().any(|(key, value)| params.value(key) != Some(value));
    if later || missing || capability.uses() > spec.uses.max(1) {
        return Err(ClientError::Protocol("the node granted something else than was asked".into()));
    }
    Ok(())
}

pub(super) fn session_id(started: &wire::Started) -> Result<SessionId, ClientError> {
    let session: [u8; 16] = started.session.as_slice().try_into().map_err(|_| unexpected())?;
    Ok(SessionId::from_bytes(session))
}

pub(super) fn wire_request(spec: &RequestSpec) -> wire::Request {
    wire::Request {
        service: spec.service.clone(),
        parameters: pairs(&spec.params),
        holder: spec.holder.map(|holder| holder.as_bytes().to_vec()).unwrap_or_default(),
        expires: spec.expires.map_or(0, |time| time.0),
        uses: spec.uses,
        max_run: spec.max_run.unwrap_or_default(),
        framing: spec.framing.map(|framing| framing.to_string()).unwrap_or_default(),
    }
}

/// The name of an operation in logs and metrics.
pub fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Query(_) => "query",
        Operation::Request(_) => "request",
        Operation::Connect(_) => "connect",
        Operation::Terminate(_) => "terminate",
        Operation::Revoke(_) => "revoke",
        Operation::Join(_) => "join",
        Operation::Succession(_) => "succession",
        Operation::Successor(_) => "successor",
        Operation::Attach(_) => "attach",
        Operation::Start(_) => "start",
        Operation::Requested(_) => "requested",
    }
}

/// A terminal has somebody in front of it; pipes carry files.
pub(super) fn class_of(params: &Params) -> Class {
    if params.value("pty").is_some() { Class::Interactive } else { Class::Bulk }
}

/// The names of a node's services and of their types come from its configuration, which is held against the same rule.
fn is_name(text: &str) -> Result<(), ClientError> {
    let wrong = |_| ClientError::Protocol("the node offers a service whose name is none".into());
    check_name(text).map_err(wrong)
}

/// One service that the node offers, or all of them.
async fn offered(
    connection: &Connection,
    service: Option<&str>,
) -> Result<Vec<wire::Service>, ClientError> {
    let query = wire::Query { service: service.unwrap_or_default().to_owned() };
    match ask(connection, Operation::Query(query)).await? {
        Answer::Services(services) => {
            let names = services.services.iter().flat_map(|one| [&one.name, &one.r#type]);
            names.into_iter().try_for_each(|name| is_name(name))?;
            Ok(services.services)
        }
        _ => Err(unexpected()),
    }
}

/// Sends one operation on a stream of its own and waits for the answer.
pub(super) async fn ask(
    connection: &Connection,
    operation: Operation,
) -> Result<Answer, ClientError> {
    let mut stream = connection.open(Class::Interactive)?;
    let answer = exchange(&mut stream, operation).await?;
    // The answer is there: whether our end still reaches the node does not matter.
    let _ = stream.finish().await;
    Ok(answer)
}

async fn exchange(stream: &mut Stream, operation: Operation) -> Result<Answer, ClientError> {
    match answer_to(stream, operation).await? {
        Answer::Refusal(refusal) => Err(refusal.into()),
        answer => Ok(answer),
    }
}

/// Sends an operation and waits for its answer, a refusal included.
pub(super) async fn answer_to(
    stream: &mut Stream,
    operation: Operation,
) -> Result<Answer, ClientError> {
    tracing::debug!(operation = operation_name(&operation), "asked");
    let message = wire::Operation::from(operation);
    stream.send(&Zeroizing::new(wire::encode(&message))).await?;
    let received = timeout(ANSWER, stream.receive(wire::MAX_MESSAGE))
        .await
        .map_err(|_| ClientError::Unreachable("the node did not answer".into()))??;
    let bytes = Zeroizing::new(received.ok_or_else(unexpected)?);
    let answer: wire::Answer =
        wire::decode(&bytes).map_err(|error| ClientError::Protocol(error.to_string()))?;
    answer.answer.ok_or_else(unexpected)
}

fn present(
    connection: &Connection,
    capability: &Capability,
    right: Right,
) -> Result<wire::Presentation, ClientError> {
    let exporter = Zeroizing::new(connection.export::<32>(label::EXPORTER)?);
    Ok(capability.present(&exporter, right))
}

fn framing_of(params: &Params) -> Result<Framing, ClientError> {
    let Some(value) = params.value(Params::FRAMING) else { return Ok(Framing::Auto) };
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| ClientError::Denied("the capability's framing is malformed".into()))
}

fn pairs(params: &Params) -> Vec<wire::Pair> {
    params
        .iter()
        .map(|(key, value)| wire::Pair { key: key.to_owned(), value: value.to_vec() })
        .collect()
}

pub(super) fn unexpected() -> ClientError {
    ClientError::Protocol("the node answered something else than was asked".into())
}
