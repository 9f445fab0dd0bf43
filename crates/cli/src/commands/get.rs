//! `levada get`: fetches what a ticket names, from its node and from other peers.

mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use levada_capability::{Capability, Ticket};
use levada_client::{Client, ClientError};
use levada_core::{Random, SystemRandom};
use levada_core::{format_duration, parse_duration};
use levada_home::Home;
use levada_services::swarm::peer_network::{self, Listen};
use levada_services::swarm::{JoinError, join_first, join_over_udp};
use levada_session::Connection;
use levada_swarm::content::{ContentError, PartialFile, printable};
use levada_swarm::driver::{Get, GetError, Got, Link};
use levada_swarm::mediated::Settings;
use levada_swarm::mode::Mode;
use levada_swarm::{ContentId, Description, DescriptionError, Geometry, UdpStream};
use levada_transport::quic::Endpoint;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

use crate::attach::Signals;
use crate::failure::{Failure, LOCAL, NO, Outcome, PROTOCOL, UNREACHABLE, USAGE};
use crate::output::{self, plain};
use crate::secret_text;
use report::Report;

/// How long the connection over UDP may take, until both streams go by TCP.
const UDP_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause before the node is tried again; each further pause is twice as long.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// For how long a lost node is tried.
const GIVE_UP: Duration = Duration::from_secs(600);

/// Fetch what a ticket names, from its node and from others that fetch it
///
/// Every part is verified against the ticket before it is stored. What was received survives an
/// interruption, and the same command resumes. Others receive parts from here meanwhile, and for as
/// long as --seed says. Exit code 1 if no one has a part any more.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada get lvtkt1…
  levada get lvtkt1… -o /srv/film.mkv --seed 1h
  levada get lvtkt1… --json")]
pub struct Arguments {
    /// The ticket that `levada share` has printed, @FILE, or - for standard input
    #[arg(value_name = "TICKET")]
    ticket: String,

    /// The file, or the folder to put it in; its own name in the current folder if not given
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Continue to provide it to others for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    seed: Option<Duration>,

    /// Where other peers connect to; a free port of all addresses if not given
    #[arg(long, value_name = "A:P")]
    listen: Option<std::net::SocketAddr>,

    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

/// What does not change between attempts.
struct Download<'a> {
    arguments: &'a Arguments,
    client: Arc<Client>,
    ticket: Ticket,
    capability: Capability,
    /// UDP has got through, but the download was lost before a part has come.
    no_udp: AtomicBool,
}

/// The session with the node.
struct Session {
    link: Link,
    description: Description,
    /// The stream that goes by UDP, and what other peers are dialled from.
    udp: Option<(UdpStream, Endpoint)>,
    /// They are closed at the end.
    connections: Vec<Connection>,
}

/// How an attempt has ended.
enum Ended {
    Complete(PathBuf, Got),
    /// The node was lost; it is tried again.
    Lost,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let text = secret_text::read_text(&arguments.ticket, "ticket")?;
    let ticket = Ticket::from_text(text.trim()).map_err(|error| {
        Failure::new(USAGE, format!("{error}; pass the text that `levada share` has printed"))
    })?;
    let client = Arc::new(Client::new(&Home::open()?)?);
    let mut signals = Signals::new()?;
    let capability = client.exchange(&ticket).await?;
    let report = Report::new(arguments.json);
    let no_udp = AtomicBool::new(false);
    let download =
        Download { arguments: &arguments, client: client.clone(), ticket, capability, no_udp };
    let outcome = tokio::select! {
        outcome = download.run(&report) => outcome,
        code = signals.end() => {
            if report.is_interrupted() {
                output::note("What was received is kept: run the same command again to go on.");
            }
            Ok(code)
        }
    };
    client.close();
    outcome
}

impl Download<'_> {
    /// Tries until all is there. A node that was lost is tried again.
    async fn run(&self, report: &Report) -> Outcome {
        let mut pause = MIN_PAUSE;
        let mut last = (Instant::now(), 0);
        loop {
            let error = match self.attempt(report).await {
                Ok(Ended::Complete(path, got)) => {
                    report.complete(&path, &got)?;
                    return Ok(0);
                }
                Ok(Ended::Lost) => "the connection to the node was lost".to_owned(),
                Err(failure) if failure.code() == UNREACHABLE && report.received() > 0 => {
                    failure.text().to_owned()
                }
                Err(failure) => return Err(failure),
            };
            if report.received() > last.1 {
                (pause, last) = (MIN_PAUSE, (Instant::now(), report.received()));
            }
            if last.0.elapsed() > GIVE_UP {
                let text = format!("{error}; what was received is kept: the same command resumes");
                return Err(Failure::new(UNREACHABLE, text));
            }
            let pause_text = format_duration(pause);
            output::note(format_args!("{}; trying again in {pause_text}", plain(&error)));
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self, report: &Report) -> Result<Ended, Failure> {
        let Session { link, description, udp, connections } = self.connect().await?;
        let over_udp = udp.as_ref().map(|(stream, _)| *stream);
        let geometry = Geometry::new(self.ticket.terms().length, description.chunk)
            .map_err(|error| Failure::new(PROTOCOL, format!("protocol: {error}")))?;
        let target = self.target(&description)?;
        let id = ContentId { root: self.ticket.terms().root, geometry };
        // This may read the part that an earlier call received.
        let file = block_in_place(|| match description.is_folder {
            true => PartialFile::open_folder(&target, id),
            false => PartialFile::open(&target, id),
        });
        let file = file.map_err(content)?;
        let listen = self.arguments.listen.map_or(Listen::Free, Listen::At);
        let network = peer_network::open(&self.client, listen, udp);
        let (network, _accepting) = network
            .map_err(|error| Failure::local(format!("cannot listen for other peers: {error}")))?;
        let progress = report.start(
            &description.name.to_string_lossy(),
            geometry,
            file.have().count(),
            over_udp,
        );
        let mode = match description.is_mediated {
            true => Mode::Mediated(Settings::default()),
            false => Mode::Direct,
        };
        let seed = seed();
        let get = Get { coordinator: link, mode, file, network, progress, seed, upload: true };
        let before = report.received();
        let got = get.run(self.seeding(report, &target)).await;
        connections.iter().for_each(|connection| connection.close(0, ""));
        report.stop().await;
        if got.is_err() && over_udp.is_some() && report.received() == before {
            self.no_udp.store(true, Ordering::Relaxed);
        }
        let got = match got {
            Ok(got) => got,
            Err(GetError::CoordinatorLost | GetError::Stream(_) | GetError::Session(_)) => {
                return Ok(Ended::Lost);
            }
            Err(GetError::Lost(chunks)) => return Err(lost(&chunks, geometry)),
            Err(GetError::Content(error)) => return Err(kept(error)),
            Err(error) => return Err(Failure::new(PROTOCOL, format!("protocol: {error}"))),
        };
        if got.renamed > 0 {
            note_replaced(&target);
        }
        Ok(Ended::Complete(target, got))
    }

    /// Starts the session. If one stream is to go by UDP, starts a further one over QUIC, unless
    /// that does not get through.
    async fn connect(&self) -> Result<Session, Failure> {
        let joined = join_first(&self.client, &self.capability).await;
        let (link, description, connection) = joined.map_err(join_failure)?;
        let Some(stream) = description.udp else {
            return Ok(Session { link, description, udp: None, connections: vec![connection] });
        };
        let broken = |error| Failure::from(ClientError::from(error));
        match self.connect_over_udp(&connection).await {
            Ok((quic, further, endpoint)) => {
                let link = Link::split(link, quic, stream).await.map_err(broken)?;
                let connections = vec![connection, further];
                Ok(Session { link, description, udp: Some((stream, endpoint)), connections })
            }
            Err(error) => {
                output::note(format_args!("{}; all goes by TCP", plain(&error)));
                let link = link.together().await.map_err(broken)?;
                Ok(Session { link, description, udp: None, connections: vec![connection] })
            }
        }
    }

    /// Starts a further session with the node of `connection`, over QUIC.
    async fn connect_over_udp(
        &self,
        connection: &Connection,
    ) -> Result<(Link, Connection, Endpoint), String> {
        if self.no_udp.load(Ordering::Relaxed) {
            return Err("nothing has come by UDP".to_owned());
        }
        let endpoint =
            peer_network::endpoint().map_err(|error| format!("no UDP socket: {error}"))?;
        let joined = join_over_udp(&self.client, &self.capability, connection, endpoint.clone());
        match timeout(UDP_TIMEOUT, joined).await {
            Ok(Ok((link, _, connection))) => Ok((link, connection, endpoint)),
            Ok(Err(error)) => Err(format!("UDP does not get through: {error}")),
            Err(_) => Err("UDP does not get through".to_owned()),
        }
    }

    /// Returns the path to write to. The sharer chooses the name, except a hidden one: shells and
    /// other programs read files such as `.bash_profile` unasked.
    fn target(&self, description: &Description) -> Result<PathBuf, Failure> {
        let name = printable(&description.name);
        let path = match &self.arguments.output {
            None => name.clone(),
            Some(folder) if folder.is_dir() => folder.join(&name),
            Some(path) => return Ok(path.clone()),
        };
        if name.as_os_str().as_encoded_bytes().starts_with(b".") {
            let shown = plain(&name.to_string_lossy());
            let text = format!("the name {shown} is hidden; name the target with -o PATH");
            return Err(Failure::new(USAGE, text));
        }
        if name != description.name {
            note_replaced(&path);
        }
        Ok(path)
    }

    /// Waits while others may still fetch from here.
    async fn seeding(&self, report: &Report, path: &Path) {
        if let Some(time) = self.arguments.seed {
            report.seeding(path, time);
            sleep(time).await;
        }
    }
}

/// Notes that the names in or of `path` are not those of the sharer.
fn note_replaced(path: &Path) {
    output::note(plain(&format!(
        "{}: characters of names that hide or reorder text were replaced by _",
        path.display()
    )));
}

fn join_failure(error: JoinError) -> Failure {
    match error {
        JoinError::Client(error) => error.into(),
        JoinError::Description(DescriptionError::Stream(error)) => ClientError::from(error).into(),
        JoinError::Description(error) => Failure::new(PROTOCOL, plain(&error.to_string())),
        JoinError::Open(_) | JoinError::Silent => Failure::new(UNREACHABLE, error),
    }
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    u64::from_be_bytes(seed)
}

fn content(error: ContentError) -> Failure {
    Failure::new(LOCAL, plain(&error.to_string()))
}

/// The failure of a download that has begun, and how to go on.
fn kept(error: ContentError) -> Failure {
    let text = match error {
        ContentError::Manifest(error) => {
            return Failure::new(PROTOCOL, plain(&format!("protocol: {error}")));
        }
        ContentError::Exists(path) => {
            format!("{} was made by another program; move it away", path.display())
        }
        ContentError::Foreign(path) => {
            format!("{} is of another program; move it away", path.display())
        }
        error => error.to_string(),
    };
    let text = format!("{text}; what was received is kept: the same command goes on");
    Failure::new(LOCAL, plain(&text))
}

/// The failure that says which bytes no one has any more.
fn lost(chunks: &[std::ops::Range<u32>], geometry: Geometry) -> Failure {
    let bytes = |run: &std::ops::Range<u32>| {
        let end = geometry.range(run.end - 1).end;
        format!("{} to {}", geometry.range(run.start).start, end - 1)
    };
    let shown: Vec<String> = chunks.iter().take(20).map(bytes).collect();
    let more = chunks.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
    Failure::new(
        NO,
        format!(
            "lost: the source has changed, and no peer has the bytes {}{more}; what was received is kept",
            shown.join(", ")
        ),
    )
}
