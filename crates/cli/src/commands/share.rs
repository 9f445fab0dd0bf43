//! `levada share`: shares files by the node of this home, and prints a ticket.

use crate::attach::Signals;
use crate::failure::{Failure, Outcome, USAGE};
use crate::output::plain;
use crate::{log, output};
use clap::{Args, ValueEnum};
use levada_home::address::advertised;
use levada_home::Home;
use levada_core::{Clock, SystemClock, parse_size};
use levada_config::{Config, LogFormat};
use levada_core::{format_duration, parse_duration};
use levada_client::control::{
    self, ByUdp, ControlError, ListingSettings, MediatedSettings, Paths, Request, ShareRequest,
    ShareSettings,
};
use levada_node::store::Store;
use levada_node::{Overrides, running};
use levada_swarm::ChunkSize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Notify;

/// Share files and folders with many, and print a ticket that they get them with
///
/// The running node of this home serves the share, also after a restart, until `levada swarm stop`. Those who get it pass parts on to each
/// other. The files stay where they are, and must not change. Without a running node, one runs here until Ctrl-C.
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

    /// Who passes chunks on: peers to each other, or the node from peer to peer
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Direct)]
    mode: Mode,

    /// Mediated: how many peers keep each chunk, so that the node need not read it again
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,

    /// Mediated: how much of the content the node keeps in memory
    #[arg(long, value_name = "SIZE", default_value = "8Mi", value_parser = parse_size)]
    cache: u64,

    /// Mediated: how many peers are there before the first gets a chunk
    #[arg(long, value_name = "N", default_value_t = 1)]
    wait: u16,

    /// Mediated: which chunks each peer keeps: every n-th, or a range
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Placement::Stripes)]
    placement: Placement,

    /// What carries control messages; with udp, QUIC, and the chunks go by TCP
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = Transport::Tcp)]
    control: Transport,

    /// What carries the chunks; with udp, QUIC, and control messages go by TCP
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = Transport::Tcp)]
    data: Transport,

    /// The most that the coordinator sends in a second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    upload_limit: Option<u64>,

    /// Leave out when the files of a folder were changed
    #[arg(long)]
    no_times: bool,

    /// Leave out the permissions of the files of a folder, except whether they can be executed
    #[arg(long)]
    no_modes: bool,

    /// For how long the ticket is valid, such as 1h or 7d
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    expires: Duration,

    /// How many identities may use the ticket
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    peers: u32,

    /// The only identity that may use the ticket, or its name here
    #[arg(long, value_name = "IDENTITY")]
    to: Option<String>,

    /// Where the node is reached from outside, before its own addresses: a DNS name or an address, and the port
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    address: Vec<String>,

    /// Stay until Ctrl-C, and stop the share then
    #[arg(long)]
    pub foreground: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Direct,
    Mediated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    Stripes,
    Blocks,
}

/// Shares by the running node of this home. If there is none, one runs here until it is stopped. `verbose`, if not 0, overrides the
/// configured log level.
pub async fn run(arguments: Arguments, verbose: u8) -> Outcome {
    let home = Home::open()?;
    let json = arguments.json;
    let foreground = arguments.foreground;
    let time = format_duration(arguments.expires);
    let mut request = request(arguments)?;
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
        // Another node of this home may have been started since; its share goes on, and `swarm stop` ends it.
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
            mediated: mediated(&arguments),
            udp: by_udp(arguments.control, arguments.data)?,
            listing: Some(ListingSettings {
                times: !arguments.no_times,
                modes: !arguments.no_modes,
            }),
            foreground: false,
        },
        expires_secs: arguments.expires.as_secs(),
        peers: arguments.peers,
        to: arguments.to,
        addresses: arguments.address,
    })
}

fn chunk_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let chunk = u32::try_from(bytes).ok().and_then(|bytes| ChunkSize::new(bytes).ok());
    let wrong = || format!("{bytes} bytes are not a power of two from 1Ki to 1Mi, such as 64Ki");
    chunk.map(ChunkSize::bytes).ok_or_else(wrong)
}

/// The stream that goes by UDP.
fn by_udp(control: Transport, data: Transport) -> Result<Option<ByUdp>, Failure> {
    match (control, data) {
        (Transport::Tcp, Transport::Tcp) => Ok(None),
        (Transport::Udp, Transport::Tcp) => Ok(Some(ByUdp::Control)),
        (Transport::Tcp, Transport::Udp) => Ok(Some(ByUdp::Data)),
        (Transport::Udp, Transport::Udp) => {
            Err(Failure::new(USAGE, "only one of --control and --data can be udp"))
        }
    }
}

/// The settings of mediated mode, if it is chosen.
fn mediated(arguments: &Arguments) -> Option<MediatedSettings> {
    let Mode::Mediated = arguments.mode else { return None };
    if arguments.replicas == 1 {
        output::note("--replicas 1: a chunk is read again when the only peer that keeps it leaves");
    }
    Some(MediatedSettings {
        replicas: arguments.replicas.into(),
        cache: arguments.cache,
        wait: arguments.wait.into(),
        in_blocks: arguments.placement == Placement::Blocks,
    })
}
