//! `levada request`: requests a session, and prints a capability for it.

use crate::failure::Outcome;
use crate::identity::IdentityOrName;
use crate::names::Names;
use crate::output;
use crate::parameters::Parameters;
use crate::service_target::ServiceTarget;
use clap::Args;
use levada_client::{Client, RequestSpec};
use levada_core::parse_duration;
use levada_core::{Clock, Framing, SystemClock};
use levada_home::Home;
use serde_json::json;
use std::time::Duration;

/// Request a session with fixed parameters; prints a capability
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada request alpha/exec -- uname -a
  levada request alpha/exec --for bob --expires 7d --uses 10 -- date -u
  levada request alpha/exec -- cat > cat.cap; levada connect @cat.cap")]
pub struct Arguments {
    /// NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port
    #[arg(value_name = "NODE/SERVICE")]
    at: ServiceTarget,

    /// The identity that may use the capability, or its name here; this home's own identity if not
    /// given
    #[arg(long = "for", value_name = "IDENTITY")]
    holder: Option<IdentityOrName>,

    /// For how long the session may be started, such as 90s, 10m, 1h or 7d. A running session
    /// continues: --max-run limits that
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,

    /// For how long one start may run, such as 90s, 10m, 1h or 7d: then the session is ended
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_run: Option<Duration>,

    /// How often the session may be started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,

    /// How messages become records: auto, or block:N with N from 64 to 4096
    #[arg(long)]
    framing: Option<Framing>,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    parameters: Parameters,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let client = Client::new(&Home::open()?)?;
    let holder = match arguments.holder {
        Some(holder) => Some(holder.identity(&client).await?),
        None => None,
    };
    let spec = RequestSpec {
        service: arguments.at.service,
        holder,
        expires: arguments.expires.map(|duration| SystemClock.now().after(duration)),
        uses: arguments.uses,
        max_run: arguments.max_run.map(|duration| duration.as_secs()),
        params: arguments.parameters.pairs()?,
        framing: arguments.framing,
    };
    let target = arguments.names.resolve(&client, &arguments.at.node).await?;
    let capability = client.request(&target, spec).await?;
    client.close();
    let text = capability.to_text();
    if arguments.json {
        let node = capability.node().to_string();
        let service = capability.service();
        output::json(json!({ "capability": text.as_str(), "node": node, "service": service }))?;
    } else {
        output::data(text.as_str())?;
    }
    Ok(0)
}
