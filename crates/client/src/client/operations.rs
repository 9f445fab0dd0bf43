//! The operations at other nodes. Each has its own stream.

use std::time::Duration;

use levada_capability::{Capability, Operation as Right, SessionId};
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Identity, Params, check_name, label};
use levada_service::Streams;
use levada_service::streams::DEFAULT_STREAMS;
use levada_session::{Class, Connection, Stream};
use levada_transport::quic::Endpoint;
use tokio::time::timeout;
use zeroize::Zeroizing;

use levada_home::address;
use levada_home::known::SeenCapability;

use super::remember::{remember_capability, remember_version};
use super::resolve::target_at;
use super::{Client, ClientError, Over, RequestSpec, Running, Target};

/// How long a node may take to answer an operation.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the answer to a request. The node may have to ask an entity, which has two
/// minutes.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(150);

impl Client {
    /// Queries the services of the node: the one named `service`, or all of them.
    ///
    /// # Errors
    /// [`ClientError::No`] if there is no such service.
    pub async fn query(
        &self,
        target: &Target,
        service: Option<&str>,
    ) -> Result<Vec<wire::Service>, ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        query_on(&connection, service).await
    }

    /// Queries all services of the node on a dedicated connection. Also returns the address that
    /// answered: a shared connection may lead to another of the node's addresses.
    ///
    /// # Errors
    /// As for [`Self::query`].
    pub(super) async fn query_dedicated(
        &self,
        target: &Target,
    ) -> Result<(Vec<wire::Service>, String), ClientError> {
        let (connection, address) = self.connect_at(target, Framing::Auto).await?;
        let services = query_on(&connection, None).await;
        connection.close(0, "");
        Ok((services?, address))
    }

    /// Requests a session with fixed parameters.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if this identity has no right to it, or the service rejects the
    /// parameters.
    pub async fn request(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Capability, ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        self.request_on(&connection, target, spec).await
    }

    /// As [`Self::request`], on a dedicated connection that is closed afterwards: for requests on
    /// behalf of other identities, which choose the node and must not cause connections that stay
    /// open.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_dedicated(
        &self,
        target: &Target,
        spec: RequestSpec,
    ) -> Result<Capability, ClientError> {
        let connection = self.dedicated_connection(target, Framing::Auto).await?;
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
        let answer = call(connection, Operation::Request(wire_request(&spec))).await?;
        let Answer::Granted(granted) = answer else { return Err(unexpected()) };
        let capability = self.granted(connection, target, spec, granted)?;
        let node = connection.peer();
        let version = connection.version();
        let seen = SeenCapability::from(&capability);
        let now = self.now();
        self.with_known(move |known| {
            remember_version(known, &node, version);
            remember_capability(known, &seen, now);
            Ok::<_, ClientError>(capability)
        })
        .await
    }

    /// The capability in an answer, after a check that it is the requested one.
    pub(super) fn granted(
        &self,
        connection: &Connection,
        target: &Target,
        spec: RequestSpec,
        granted: wire::Granted,
    ) -> Result<Capability, ClientError> {
        // An address of loopback is passed on with its tag; one of a single link is not passed on.
        let is_hint = |one: &&String| address::is_usable(one) && !address::is_of_link(one);
        let addresses = target.addresses.iter().filter(is_hint).cloned().collect();
        let capability = Capability::from_granted(granted, spec.service.clone(), addresses)?;
        let holder = spec.holder.unwrap_or_else(|| self.identity());
        if capability.node() != connection.peer() || capability.holder() != holder {
            return Err(ClientError::Protocol(
                "the node answered with a capability of another node or holder".into(),
            ));
        }
        check_granted(&spec, &capability)?;
        Ok(capability)
    }

    /// Starts the session that `capability` permits.
    ///
    /// # Errors
    /// [`ClientError::Denied`] names the rule that forbids it.
    pub async fn connect(&self, capability: &Capability) -> Result<Running, ClientError> {
        self.connect_as(capability, class_of(capability.params())).await
    }

    /// As [`Self::connect`], with a given class of the stream.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as(
        &self,
        capability: &Capability,
        class: Class,
    ) -> Result<Running, ClientError> {
        let framing = framing_of(capability.params())?;
        let (mut connection, target) = self.reach_node_of(capability, framing).await?;
        if class == Class::Bulk && framing == Framing::Auto && connection.streams() > 0 {
            // A lost packet of one stream would delay the others. Only `start_in_one` accepts that,
            // for a round trip.
            connection = self.dedicated_connection(&target, framing).await?;
        }
        Ok(start(connection, capability, class, "").await?.0)
    }

    /// Starts the session that `capability` permits, if it is of the service `service`, on a
    /// dedicated connection that ends with the session. Addresses of the capability are used only
    /// if its node has no pinned ones.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub async fn connect_dedicated(
        &self,
        capability: &Capability,
        service: &str,
    ) -> Result<Running, ClientError> {
        let framing = framing_of(capability.params())?;
        let target = self.pinned_or(capability.node(), capability.addresses()).await?;
        let connection = self.dedicated_connection(&target, framing).await?;
        Ok(start(connection, capability, class_of(capability.params()), service).await?.0)
    }

    /// Starts the session that `capability` permits, on a dedicated connection. Both sides may open
    /// further streams of the session, at most [`DEFAULT_STREAMS`] at a time.
    ///
    /// # Errors
    /// As for [`Self::connect`]; [`ClientError::Local`] if the node does not support further
    /// streams.
    pub async fn connect_with_streams(
        &self,
        capability: &Capability,
    ) -> Result<(Running, Streams), ClientError> {
        let framing = framing_of(capability.params())?;
        let (mut connection, target) = self.reach_node_of(capability, framing).await?;
        if framing == Framing::Auto {
            connection = match self.unused_connection(&target.identity) {
                Some(unused) => unused,
                None => self.dedicated_connection(&target, framing).await?,
            };
        }
        start_with_streams(connection, capability).await
    }

    /// As [`Self::connect_with_streams`], over QUIC, while a session of the capability runs on
    /// `connection`, to whose node this connects.
    ///
    /// # Errors
    /// As for [`Self::connect_with_streams`].
    pub async fn connect_over_udp(
        &self,
        capability: &Capability,
        connection: &Connection,
        endpoint: Endpoint,
    ) -> Result<(Running, Streams), ClientError> {
        let node = connection.peer();
        let pin = self.with_known(move |known| known.by_identity(&node)).await?;
        let pinned = pin.map(|pin| pin.addresses).unwrap_or_default();
        let target = Target { identity: node, ..target_at(capability, pinned) };
        let connection = self.connect_to_peer(&target, &Over::Udp(endpoint)).await?;
        start_with_streams(connection, capability).await
    }

    /// Stores that the capability exists, and connects to its node as [`Self::reach`] does.
    async fn reach_node_of(
        &self,
        capability: &Capability,
        framing: Framing,
    ) -> Result<(Connection, Target), ClientError> {
        let seen = SeenCapability::from(capability);
        let now = self.now();
        let pin = self.with_known(move |known| {
            remember_capability(known, &seen, now);
            known.by_identity(&seen.node)
        });
        let pinned = pin.await?.map(|pin| pin.addresses).unwrap_or_default();
        self.reach(&target_at(capability, pinned), framing).await
    }

    /// Terminates the session of `capability`.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the capability does not carry *terminate*.
    pub async fn terminate(&self, capability: &Capability) -> Result<(), ClientError> {
        self.present_done(capability, Right::Terminate, Operation::Terminate).await
    }

    /// Revokes the capability's last link and all links derived from it.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if this identity has no right to revoke it.
    pub async fn revoke(&self, capability: &Capability) -> Result<(), ClientError> {
        self.present_done(capability, Right::Revoke, Operation::Revoke).await
    }

    async fn present_done(
        &self,
        capability: &Capability,
        right: Right,
        operation: fn(wire::Presentation) -> Operation,
    ) -> Result<(), ClientError> {
        let target = self.target_of(capability).await?;
        let (connection, _) = self.reach(&target, Framing::Auto).await?;
        let presentation = present(&connection, capability, right)?;
        match call(&connection, operation(presentation)).await? {
            Answer::Done(_) => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// Starts a session on `connection`, with further streams.
async fn start_with_streams(
    connection: Connection,
    capability: &Capability,
) -> Result<(Running, Streams), ClientError> {
    let (running, run) = start(connection, capability, Class::Bulk, "").await?;
    if run == 0 {
        let text = "the node speaks an older version, without sessions of several streams";
        return Err(ClientError::Local(text.into()));
    }
    let streams = Streams::receiving(running.connection.clone(), run, DEFAULT_STREAMS);
    Ok((running, streams))
}

/// Starts a session on `connection`, which must be of the service `service` unless that is empty.
/// Also returns the number of the run, by which further streams refer to it.
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

/// Checks that a capability permits no more than was requested: its holder relies on that when
/// passing it on. An older node ignores `max_run`.
fn check_granted(spec: &RequestSpec, capability: &Capability) -> Result<(), ClientError> {
    if spec.max_run.is_some() && capability.max_run() != spec.max_run {
        let text =
            "the node speaks an older version, which has no limit of the run time (--max-run)";
        return Err(ClientError::Local(text.into()));
    }
    let later = spec.expires.is_some_and(|requested| capability.expires() > requested);
    let params = capability.params();
    let missing = spec.params.iter().any(|(key, value)| params.value(key) != Some(value));
    if later || missing || capability.uses() > spec.uses.max(1) {
        return Err(ClientError::Protocol(
            "the node granted a capability that differs from the request".into(),
        ));
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

/// A session with a terminal is interactive; all others are bulk.
pub(super) fn class_of(params: &Params) -> Class {
    if params.value("pty").is_some() { Class::Interactive } else { Class::Bulk }
}

/// Checks the name of a service or of its type, to which a node's configuration applies the same
/// rule.
pub(super) fn check_service_name(text: &str) -> Result<(), ClientError> {
    let invalid = |_| ClientError::Protocol("the node sent an invalid name of a service".into());
    check_name(text).map_err(invalid)
}

/// Checks what a node says about a middlebox.
fn check_middlebox(middlebox: &wire::Middlebox) -> Result<(), ClientError> {
    let invalid =
        |_| ClientError::Protocol("the node sent an invalid identity of a middlebox".into());
    Identity::try_from(middlebox.identity.as_slice()).map(drop).map_err(invalid)
}

/// Queries one service of the node, or all of them.
async fn query_on(
    connection: &Connection,
    service: Option<&str>,
) -> Result<Vec<wire::Service>, ClientError> {
    let query = wire::Query { service: service.unwrap_or_default().to_owned() };
    match call(connection, Operation::Query(query)).await? {
        Answer::Services(services) => {
            let names = services.services.iter().flat_map(|one| [&one.name, &one.r#type]);
            names.into_iter().try_for_each(|name| check_service_name(name))?;
            services
                .services
                .iter()
                .flat_map(|one| &one.middleboxes)
                .try_for_each(check_middlebox)?;
            Ok(services.services)
        }
        _ => Err(unexpected()),
    }
}

/// Sends an operation on a new stream, and waits for the answer.
pub(super) async fn call(
    connection: &Connection,
    operation: Operation,
) -> Result<Answer, ClientError> {
    let mut stream = connection.open(Class::Interactive)?;
    let answer = exchange(&mut stream, operation).await?;
    // The answer has arrived, so a failure to finish this direction has no effect.
    let _ = stream.finish().await;
    Ok(answer)
}

/// As [`answer_to`], with a refusal as an error.
async fn exchange(stream: &mut Stream, operation: Operation) -> Result<Answer, ClientError> {
    match answer_to(stream, operation).await? {
        Answer::Refusal(refusal) => Err(refusal.into()),
        answer => Ok(answer),
    }
}

/// Sends an operation and waits for its answer, which may be a refusal.
pub(super) async fn answer_to(
    stream: &mut Stream,
    operation: Operation,
) -> Result<Answer, ClientError> {
    tracing::debug!(operation = operation.name(), "sending an operation");
    let limit = match operation {
        Operation::Request(_) | Operation::Start(_) => REQUEST_TIMEOUT,
        _ => ANSWER_TIMEOUT,
    };
    let message = wire::Operation::from(operation);
    stream.send(&Zeroizing::new(wire::encode(&message))).await?;
    let received = timeout(limit, stream.receive(wire::MAX_MESSAGE))
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
    ClientError::Protocol("the node sent an answer of another operation".into())
}
