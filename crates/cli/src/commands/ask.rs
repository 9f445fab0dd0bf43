//! `levada ask`: asks an entity for a capability, through a service that neither side has to trust.

use std::time::Duration;

use clap::Args;
use levada_capability::Capability;
use levada_capability::exchange::{PendingQuestion, Reply, Route, SessionRequest};
use levada_client::{Client, ClientError, Running};
use levada_core::wire::{Answered, Asked, Refusal, Seek, mediation::Part};
use levada_core::{Clock, Identity, SystemClock, SystemRandom};
use levada_core::{format_duration, parse_duration};
use levada_home::Home;
use levada_services::brokering::mediation::REQUESTER;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::time::timeout;

use crate::directory::named;
use crate::failure::{Failure, NO, Outcome, UNREACHABLE, USAGE};
use crate::identity::IdentityOrName;
use crate::mediated;
use crate::names::Names;
use crate::output::{self, plain};
use crate::parameters::Parameters;
use crate::service_target::ServiceTarget;

/// The longest wait: a service keeps a question no longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// Ask an entity for a capability, through a service of type `capability`; prints it
///
/// The service can withhold the question or the reply, but neither read the reply nor change
/// anything. Exit codes: 1 if the entity refuses, 122 if there is no reply.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada ask hub/capability --entity alice --service well/exec -- uname -a
  levada ask hub/capability --entity lv… --service well/exec --expires 1h --wait 10m -- date > date.cap")]
pub struct Arguments {
    /// The service that carries the question; NODE is a nickname, a name that `levada ls` shows, or
    /// IDENTITY@host:port
    #[arg(value_name = "NODE/CAPABILITY")]
    at: ServiceTarget,

    /// The entity to ask: an identity, or a nickname
    #[arg(long, value_name = "ENTITY")]
    entity: IdentityOrName,

    /// The service that the capability is for
    #[arg(long, value_name = "NODE/SERVICE")]
    service: ServiceTarget,

    /// For how long the session may be started, such as 90s, 10m, 1h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,

    /// How often the session may be started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,

    /// How long to wait for the reply, at most 1h
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = wait)]
    wait: Duration,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    parameters: Parameters,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let client = Client::new(&Home::open()?)?;
    let entity = arguments.entity.identity(&client).await?;
    // Not resolved: only the entity has to reach this node.
    let wanted = arguments.names.identify(&client, &arguments.service.node).await?;
    let request = SessionRequest {
        node: wanted.identity,
        addresses: wanted.addresses,
        service: arguments.service.service.clone(),
        params: arguments.parameters.pairs()?,
        expires: arguments.expires.map(|duration| SystemClock.now().after(duration)),
        uses: arguments.uses,
    };
    let running = mediated::start(&client, &arguments.at, arguments.names, REQUESTER).await?;
    let Running { stream, connection, .. } = running;
    let (mut send, mut receive) = stream.split();
    let wait = arguments.wait;
    let exchange = Exchange { client: &client, via: connection.peer(), entity, wait };
    let replied = timeout(wait, exchange.run(request, &mut send, &mut receive)).await;
    let _ = send.finish().await;
    mediated::close(&client, &connection).await;
    match replied {
        Ok(reply) => finish(&client, entity, reply?).await,
        Err(_) => Err(Failure::new(
            UNREACHABLE,
            format!(
                "unreachable: {} did not reply within {}",
                named(&entity),
                format_duration(wait)
            ),
        )),
    }
}

/// The parties of a question: this client, the service's node, and the entity.
struct Exchange<'a> {
    client: &'a Client,
    via: Identity,
    entity: Identity,
    wait: Duration,
}

impl Exchange<'_> {
    /// Sends the question and receives the reply.
    async fn run(
        &self,
        request: SessionRequest,
        send: &mut SendHalf,
        receive: &mut ReceiveHalf,
    ) -> Result<Reply, Failure> {
        let entity = self.entity.as_bytes().to_vec();
        mediated::send(send, Part::Seek(Seek { entity })).await?;
        let Part::Found(found) = mediated::receive(receive).await? else {
            return Err(mediated::unexpected());
        };
        let challenge = found.challenge.try_into().map_err(|_| mediated::unexpected())?;
        let until = SystemClock.now().after(self.wait);
        let route = Route { via: self.via, entity: self.entity, challenge, until };
        let (pending, question) =
            PendingQuestion::new(self.client.key(), &route, request, &SystemRandom)
                .map_err(|error| Failure::new(USAGE, format!("invalid question: {error}")))?;
        let question = Some(question);
        mediated::send(send, Part::Asked(Asked { number: 0, question })).await?;
        let Part::Answered(Answered { reply: Some(reply), .. }) =
            mediated::receive(receive).await?
        else {
            return Err(mediated::unexpected());
        };
        pending.read(&reply).map_err(|error| {
            Failure::denied(format!(
                "the service returned something that is not the reply of {} to this question: {error}",
                named(&self.entity)
            ))
        })
    }
}

async fn finish(client: &Client, entity: Identity, reply: Reply) -> Outcome {
    match reply {
        Reply::Granted(capability) => print(client, &capability).await,
        Reply::No(refusal) => Err(Failure::new(NO, describe(entity, "refused", &refusal))),
        Reply::Failed(mut refusal) => {
            refusal.text = describe(entity, "allowed it, but its request failed", &refusal);
            Err(ClientError::from(refusal).into())
        }
        Reply::Permitted => Err(mediated::unexpected()),
    }
}

async fn print(client: &Client, capability: &Capability) -> Outcome {
    client.remember(capability).await?;
    output::data(capability.to_text().as_str())?;
    Ok(0)
}

fn describe(entity: Identity, what: &str, refusal: &Refusal) -> String {
    let entity = named(&entity);
    // `Refusal::new` truncates the text: a misbehaving entity may send a longer one.
    match plain(&Refusal::new(refusal.reason(), refusal.text.as_str()).text) {
        text if text.is_empty() => format!("{entity} {what}"),
        text => format!("{entity} {what}: {text}"),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(wait) if wait > LONGEST => Err("a service keeps a question for at most 1h".into()),
        other => other.map_err(|error| error.to_string()),
    }
}
