//! `levada access explain`: which rule or right decides about a request.

use std::time::Duration;

use clap::Args;
use levada_client::control::{self, ControlError, Request};
use levada_core::{Clock, Params, SystemClock, parse_duration};
use levada_home::Home;
use levada_node::explain::Wanted;
use serde_json::{Value, json};

use super::lines::configured;
use crate::failure::{Failure, NO, Outcome};
use crate::output::{self, plain};
use crate::parameters::Parameters;

/// Explain which rule or right decides about a request
///
/// Prints `yes`, `no` or `ask`, and what decides, with file and line. The running node answers, with
/// all its rights; without one the configuration decides alone. The exit code is 1 for `no`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada access explain bob clock
  levada access explain bob exec -- df -h
  levada access explain bob capability --param role=entity")]
pub struct Arguments {
    /// The identity, or its name here
    #[arg(value_name = "IDENTITY")]
    identity: String,

    /// The name of the service
    #[arg(value_name = "SERVICE")]
    service: String,

    /// The time until the session shall expire, such as 90s, 10m, 1h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,

    /// The number of starts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,

    /// Another parameter of the session; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    param: Vec<(String, String)>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    parameters: Parameters,
}

pub async fn run(home: &Home, arguments: Arguments) -> Outcome {
    let mut params = arguments.parameters.pairs()?;
    for (key, value) in &arguments.param {
        params.add(key, value.clone().into_bytes())?;
    }
    let request = Request::Explain {
        identity: arguments.identity.clone(),
        service: arguments.service.clone(),
        params: params.iter().map(|(key, value)| (key.to_owned(), value.to_vec())).collect(),
        expires_secs: arguments.expires.map(|expires| expires.as_secs()),
        uses: arguments.uses,
    };
    let answer = match control::call(home, &request).await {
        Err(ControlError::NotRunning) => of_configuration(home, &arguments, &params)?,
        answer => answer?,
    };
    let is_no = answer["answer"] == "no";
    if arguments.json {
        output::json(answer)?;
    } else {
        let text = |key: &str| plain(answer[key].as_str().unwrap_or_default());
        output::data(format!("{}: {}", text("answer"), text("text")))?;
    }
    Ok(if is_no { NO } else { 0 })
}

/// The answer of the configuration, for which rights of the store do not count.
fn of_configuration(home: &Home, arguments: &Arguments, params: &Params) -> Result<Value, Failure> {
    let rights = configured(home, &home.config_file())?;
    let identity = rights.identity(&arguments.identity)?;
    let now = SystemClock.now();
    let wanted = Wanted {
        service: &arguments.service,
        params,
        expires: arguments.expires.map(|expires| now.after(expires)),
        uses: arguments.uses,
    };
    let explained = rights.configured.explain(&identity, &wanted, now);
    output::note("no node is running: rights of invitations and of `access allow` do not count");
    if !rights.configured.has_service(&arguments.service) {
        let service = plain(&arguments.service);
        output::note(format_args!("the configuration has no service `{service}`"));
    }
    Ok(json!({
        "identity": identity.to_string(),
        "service": arguments.service,
        "answer": explained.answer.as_str(),
        "text": explained.text,
    }))
}

fn parameter(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, _)) if name == Params::ARGS => Err("write arguments after --"),
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE"),
    }
}
