//! `levada grant`: narrows a capability and passes it on, offline.

use crate::failure::{Failure, Outcome};
use crate::identity::IdentityOrName;
use crate::parameters::Parameters;
use crate::{output, secret_text};
use clap::Args;
use levada_capability::{Narrowing, Rights};
use levada_client::Client;
use levada_core::parse_duration;
use levada_core::{Clock, SystemClock};
use levada_home::Home;
use std::time::Duration;

/// Pass a capability on to another identity, with the same rights or fewer; works offline
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada grant @cat.cap --to lv… --rights x
  levada grant @run.cap --to bob --rights xd --expires 1h --uses 2 -- uname -a")]
pub struct Arguments {
    /// The capability: its text, @file, or - for a line of standard input
    #[arg(value_name = "CAPABILITY")]
    capability: String,

    /// The identity that may use it, or its name here
    #[arg(long, value_name = "IDENTITY")]
    to: IdentityOrName,

    /// The rights that it carries: x execute, t terminate, d distribute
    #[arg(long)]
    rights: Rights,

    /// For how long the session may be started, such as 90s, 10m, 1h or 7d; unchanged if not given.
    /// A running session continues: --max-run limits that
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,

    /// For how long one start may run, such as 90s, 10m, 1h or 7d; unchanged if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_run: Option<Duration>,

    /// How often it can start the session; unchanged if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,

    #[command(flatten)]
    parameters: Parameters,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let capability = secret_text::read(&arguments.capability)?;
    let now = SystemClock.now();
    if capability.expires() <= now {
        let end = output::time(capability.expires());
        return Err(Failure::denied(format!("the capability has expired ({end})")));
    }
    let narrowing = Narrowing {
        rights: arguments.rights,
        expires: arguments.expires.map(|duration| now.after(duration)),
        uses: arguments.uses,
        max_run: arguments.max_run.map(|duration| duration.as_secs()),
        params: arguments.parameters.pairs()?,
    };
    let client = Client::new(&Home::open()?)?;
    let to = arguments.to.identity(&client).await?;
    let granted = capability.grant(client.key(), to, narrowing)?;
    client.remember(&granted).await?;
    output::data(granted.to_text().as_str())?;
    Ok(0)
}
