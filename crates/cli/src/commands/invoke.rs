//! `levada invoke`: lets another node start a session, and attaches to it.

use std::time::Duration;

use clap::Args;
use levada_capability::{Capability, Narrowing, Rights};
use levada_client::{Client, ClientError, RequestSpec};
use levada_core::{
    Clock, Framing, Identity, Params, Random, SecretKey, SystemClock, SystemRandom, UnixTime,
};
use levada_home::Home;
use levada_services::brokering::invoke;

use crate::failure::{Failure, Outcome};
use crate::names::Names;
use crate::service_target::ServiceTarget;
use crate::{attach, output, secret_text};

/// For how long the other node may start the session.
const EXPIRES: Duration = Duration::from_secs(300);

/// Let another node start the session of a capability, and attach to it
///
/// That node gets a capability that only permits one start of the session, within five minutes. The
/// session ends when this command ends. The exit code is that of the program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada invoke @backup.cap --on hub/invoke
  levada request well/exec -- uname | levada invoke - --on hub/invoke")]
pub struct Arguments {
    /// The capability, which must carry `distribute`: its text, @file, or - for a line of standard
    /// input
    #[arg(value_name = "CAPABILITY")]
    capability: String,

    /// The service that starts it; NODE is a nickname, a name that `levada ls` shows, or
    /// IDENTITY@host:port
    #[arg(long, value_name = "NODE/INVOKE")]
    on: ServiceTarget,

    /// How messages to that service become records: auto, or block:N with N from 64 to 4096
    #[arg(long)]
    framing: Option<Framing>,

    #[command(flatten)]
    names: Names,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let capability = secret_text::read(&arguments.capability)?;
    let client = Client::new(&Home::open()?)?;
    let target = arguments.names.resolve(&client, &arguments.on.node).await?;
    let narrowed = narrow(client.key(), &capability, target.identity, SystemClock.now())?;
    let spec = RequestSpec {
        service: arguments.on.service,
        params: invoke::parameters(&narrowed),
        framing: arguments.framing,
        ..RequestSpec::default()
    };
    let session = client.request(&target, spec).await?;
    let mut running = client.connect(&session).await?;
    // The capability is sent over the stream, not in the parameters, which the other node stores.
    let sent = running.stream.send(narrowed.to_text().as_bytes()).await;
    sent.map_err(ClientError::from)?;
    attach::attach(&client, running, attach::has_terminal(&capability), attach::Escape::default())
        .await
}

/// Narrows `capability` to one start within [`EXPIRES`], bound to the invoking node `to`.
fn narrow(
    key: &SecretKey,
    capability: &Capability,
    to: Identity,
    now: UnixTime,
) -> Result<Capability, Failure> {
    if capability.expires() <= now {
        let end = output::time(capability.expires());
        return Err(Failure::denied(format!("the capability has expired ({end})")));
    }
    // Without a nonce, two invocations within one second would have the same link, with one use.
    let mut nonce = vec![0; 16];
    SystemRandom.fill(&mut nonce).map_err(Failure::local)?;
    let mut params = Params::new();
    params.add(Params::NONCE, nonce)?;
    let narrowing = Narrowing {
        rights: Rights::EXECUTE,
        expires: Some(capability.expires().min(now.after(EXPIRES))),
        uses: Some(1),
        max_run: None,
        params,
    };
    Ok(capability.grant(key, to, narrowing)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_capability::{LinkBody, SessionId, mint};
    use levada_core::wire;

    const INVOKER: Identity = Identity::from_bytes([7; 32]);
    const NOW: UnixTime = UnixTime(1000);

    /// A capability of `key` that may be started nine times until `expires`.
    fn capability(key: &SecretKey, expires: UnixTime) -> Capability {
        let identity = key.identity();
        let rights = Rights::ALL;
        let body =
            LinkBody { identity, rights, expires, uses: 9, max_run: None, params: Params::new() };
        let node = Identity::from_bytes([8; 32]);
        let (link, secret) = mint(&[1; 32], &body, node, SessionId::from_bytes([2; 16])).unwrap();
        let granted = wire::Granted { link, secret: secret.to_vec(), framing: "auto".into() };
        Capability::from_granted(granted, "echo".into(), Vec::new()).unwrap()
    }

    #[test]
    fn narrows_to_one_start_within_five_minutes() {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let own = capability(&key, UnixTime::NEVER);
        let narrowed = narrow(&key, &own, INVOKER, NOW).unwrap();
        assert_eq!((narrowed.holder(), narrowed.rights()), (INVOKER, Rights::EXECUTE));
        assert_eq!((narrowed.uses(), narrowed.expires()), (1, UnixTime(1300)));
        // Another invocation in the same second has another link, with its own use.
        let again = narrow(&key, &own, INVOKER, NOW).unwrap();
        assert_ne!(again.ids().last(), narrowed.ids().last());
        let soon = narrow(&key, &capability(&key, UnixTime(1100)), INVOKER, NOW).unwrap();
        assert_eq!(soon.expires(), UnixTime(1100));
        assert!(narrow(&key, &capability(&key, NOW), INVOKER, NOW).is_err());
    }
}
