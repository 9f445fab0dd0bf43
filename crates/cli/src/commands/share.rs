//! `levada share`: stores a share at the node of this home, and prints a ticket.

use crate::failure::{Failure, Outcome, USAGE};
use crate::output;
use clap::{Args, ValueEnum};
use levada_client::address::advertised;
use levada_client::home::Home;
use levada_node::config::{format_duration, parse_duration};
use levada_node::control::{self, Request, ShareMode, ShareRequest, ShareSettings, ShareTransport};
use std::path::PathBuf;
use std::time::Duration;

/// Store a share at the node of this home, and print a ticket for it
///
/// The node stores the share until it is stopped, and exchanges the ticket. It does not serve the files yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada share film.mkv
  levada share photos/ --peers 5 --expires 7d
  levada share notes.txt --to bob")]
pub struct Arguments {
    /// The files and folders
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Whether peers exchange chunks with each other, or through the coordinator
    #[arg(long, value_enum, default_value_t = Mode::Direct)]
    mode: Mode,

    /// How many peers have each chunk, in mediated mode
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    replicas: u32,

    /// The coordinator's cache in mediated mode, such as 64M
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    cache: u64,

    /// The length of a chunk, a power of two from 1K to 1M
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size)]
    chunk: u64,

    /// What carries control messages
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    control: Transport,

    /// What carries data
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    data: Transport,

    /// The most that the coordinator sends in a second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    upload_limit: Option<u64>,

    /// For how long the ticket is valid, such as 1h or 7d
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    expires: Duration,

    /// How many identities may use the ticket
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    peers: u32,

    /// The only identity that may use the ticket, or its name here
    #[arg(long, value_name = "IDENTITY")]
    to: Option<String>,

    /// For how many peers the distribution waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait: u32,

    /// Where the node is reached from outside, before its own addresses: a DNS name or an address, and the port
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    address: Vec<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Peers exchange chunks with each other
    Direct,
    /// Every chunk goes through the coordinator
    Mediated,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Tcp,
    Udp,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let (json, time) = (arguments.json, format_duration(arguments.expires));
    let answer = control::call(&Home::open()?, &Request::Share(request(arguments)?)).await?;
    if json {
        output::json(answer)?;
        return Ok(0);
    }
    let ticket = answer["ticket"]
        .as_str()
        .ok_or_else(|| Failure::local("the node answered without a ticket"))?;
    output::note(format_args!(
        "Share {}, with a ticket that is valid for {time}:",
        answer["share"]
    ));
    output::data(ticket)?;
    Ok(0)
}

fn request(arguments: Arguments) -> Result<ShareRequest, Failure> {
    let absolute = |path: &PathBuf| path.canonicalize().map_err(Failure::file("read", path));
    let chunk = u32::try_from(arguments.chunk)
        .map_err(|_| Failure::new(USAGE, "--chunk: a chunk has at most 1M"))?;
    let settings = ShareSettings {
        mode: match arguments.mode {
            Mode::Direct => ShareMode::Direct,
            Mode::Mediated => ShareMode::Mediated,
        },
        chunk,
        replicas: arguments.replicas,
        cache: arguments.cache,
        control: transport(arguments.control),
        data: transport(arguments.data),
        upload_limit: arguments.upload_limit,
        wait: arguments.wait,
    };
    Ok(ShareRequest {
        paths: arguments.files.iter().map(absolute).collect::<Result<_, _>>()?,
        settings,
        expires_secs: arguments.expires.as_secs(),
        peers: arguments.peers,
        to: arguments.to,
        addresses: arguments.address,
    })
}

fn transport(transport: Transport) -> ShareTransport {
    match transport {
        Transport::Tcp => ShareTransport::Tcp,
        Transport::Udp => ShareTransport::Udp,
    }
}

/// A number of bytes, with K, M or G for its multiples of 1024.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count = digits.parse::<u64>().ok().filter(|count| is_number && *count > 0);
    let bytes = count.and_then(|count| count.checked_mul(1 << shift));
    bytes.ok_or_else(|| "not a size, such as 512K, 64M or 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["1", "4K", "64M", "2G"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [1, 4 << 10, 64 << 20, 2 << 30]);
        for wrong in ["", "K", "0", "-1", "+1", "1k", "1.5M", "99999999999999G", "1é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
