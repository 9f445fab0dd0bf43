//! `levada share`: shares files by the node of this home, and prints a ticket.

mod options;

use crate::abbreviation::expand;
use crate::attach::Signals;
use crate::failure::{Failure, Outcome};
use crate::output::plain;
use crate::{log, output};
use clap::Args;
use levada_client::control::{self, ControlError, Paths, Request, ShareRequest, ShareSettings};
use levada_config::{Config, LogFormat};
use levada_core::{Clock, SystemClock, format_duration, parse_size};
use levada_home::Home;
use levada_node::store::Store;
use levada_node::{Overrides, running};
use levada_swarm::ChunkSize;
use options::{MetadataOptions, ModeOptions, TicketOptions, TransportOptions};
use serde_json::Value;
use std::path::PathBuf;
use tokio::sync::Notify;

/// Share files and folders with many, and print a ticket that they get them with
///
/// The running node of this home serves the share, also after a restart, until `levada swarm stop`.
/// Those who get it pass parts on to each other. The files stay where they are, and must not
/// change. Without a running node, one runs here until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada share film.mkv
  levada share photos/ --peers 5 --expires 7d
  levada share notes.txt --to bob")]
pub struct Arguments {
    /// The files and folders
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The length of a chunk, a power of two from 1Ki to 1Mi
    #[arg(long, value_name = "SIZE", default_value = "64Ki", value_parser = chunk_size)]
    chunk: u32,

    #[command(flatten)]
    mode: ModeOptions,

    #[command(flatten)]
    transports: TransportOptions,

    /// The most that the coordinator sends in a second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    upload_limit: Option<u64>,

    #[command(flatten)]
    metadata: MetadataOptions,

    #[command(flatten)]
    ticket: TicketOptions,

    /// Stay until Ctrl-C, and stop the share then
    #[arg(long)]
    pub foreground: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shares by the running node of this home. If there is none, one runs here until it is stopped.
/// `verbose`, if not 0, overrides the configured log level.
pub async fn run(arguments: Arguments, verbose: u8) -> Outcome {
    let home = Home::open()?;
    let json = arguments.json;
    let foreground = arguments.foreground;
    let time = format_duration(arguments.ticket.expires);
    let mut request = request(arguments)?;
    if let Some(to) = &mut request.to {
        *to = expand(to).await?;
    }
    let udp = request.settings.udp.is_some();
    let is_running = control::call(&home, &Request::Status).await;
    request.settings.foreground = foreground || is_running.is_err();
    let request = Request::Share(request);
    let show = |answer: &Value| show(answer, json, &time);
    match is_running {
        Ok(_) => log::start(verbose, "off", LogFormat::Text)?,
        Err(ControlError::NotRunning) => {
            let overrides = Overrides { udp, ..Overrides::default() };
            return with_node(&home, &overrides, &request, verbose, show).await;
        }
        Err(error) => return Err(error.into()),
    }
    if !foreground {
        show(&control::call(&home, &request).await?)?;
        return Ok(0);
    }
    // If this process is killed, the node notices, and stops the share.
    let (answer, _held) = control::hold(&home, &request).await?;
    show(&answer)?;
    let code = Signals::new()?.end().await;
    if let Some(share) = new_share(&answer) {
        control::call(&home, &Request::StopShare { share }).await?;
    }
    Ok(code)
}

/// Runs the node of this home with the share, until it is stopped.
async fn with_node(
    home: &Home,
    overrides: &Overrides,
    request: &Request,
    verbose: u8,
    show: impl Fn(&Value) -> Result<(), Failure>,
) -> Outcome {
    let config = Config::load(&home.config_file())?;
    // At a terminal, the ticket matters more than what peers do.
    log::start(verbose, "warn", config.log_format)?;
    let ready = Notify::new();
    let node = running::up(home, overrides, |_| ready.notify_one());
    let mut node = std::pin::pin!(node);
    let shared = async {
        ready.notified().await;
        let (answer, held) = control::hold(home, request).await?;
        show(&answer)?;
        output::note("This node runs here until Ctrl-C, which stops the share, too.");
        Ok::<_, Failure>((answer, held))
    };
    let (answer, _held) = tokio::select! {
        ended = &mut node => return ended.map(|()| 0).map_err(Failure::from),
        answer = shared => answer?,
    };
    node.await?;
    if let Some(share) = new_share(&answer) {
        // Another node of this home may have been started since; its share goes on, and
        // `swarm stop` ends it.
        let _lock = home.lock()?;
        let store = Store::open(&home.node_db())?;
        let now = SystemClock.now();
        let record = store.shares()?.into_iter().find(|one| one.id == share);
        store.stop_share(share, &home.key()?.identity(), now)?;
        if let Some(record) = record {
            levada_node::forget_hashes(home, &record, &store.shares()?);
        }
    }
    Ok(0)
}

/// The number of the share, unless it was there before.
fn new_share(answer: &Value) -> Option<i64> {
    answer["share"].as_i64().filter(|_| answer["is_new"] == true)
}

fn show(answer: &Value, json: bool, time: &str) -> Result<(), Failure> {
    if json {
        return output::json(answer.clone());
    }
    let ticket = answer["ticket"]
        .as_str()
        .ok_or_else(|| Failure::local("the node answered without a ticket"))?;
    let share = &answer["share"];
    for path in answer["left_out"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output::note(plain(&format!("{path}: left out, it is a link to what is not shared")));
    }
    let count = answer["left_out_count"].as_u64().unwrap_or_default();
    let named = answer["left_out"].as_array().map_or(0, Vec::len) as u64;
    if count > named {
        output::note(format_args!("{} more such links were left out", count - named));
    }
    output::note(format_args!("Share {share}, with a ticket that is valid for {time}:"));
    output::data(ticket)
}

fn request(arguments: Arguments) -> Result<ShareRequest, Failure> {
    let absolute = |path: &PathBuf| path.canonicalize().map_err(Failure::file("read", path));
    Ok(ShareRequest {
        paths: Paths(arguments.files.iter().map(absolute).collect::<Result<_, _>>()?),
        settings: ShareSettings {
            chunk: arguments.chunk,
            upload_limit: arguments.upload_limit,
            mediated: arguments.mode.mediated(),
            udp: arguments.transports.by_udp()?,
            listing: Some(arguments.metadata.listing()),
            foreground: false,
        },
        expires_secs: arguments.ticket.expires.as_secs(),
        peers: arguments.ticket.peers,
        to: arguments.ticket.to,
        addresses: arguments.ticket.address,
    })
}

fn chunk_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let chunk = u32::try_from(bytes).ok().and_then(|bytes| ChunkSize::new(bytes).ok());
    let wrong = || format!("{bytes} bytes are not a power of two from 1Ki to 1Mi, such as 64Ki");
    chunk.map(ChunkSize::bytes).ok_or_else(wrong)
}
