//! `levada catalogue serve`, `verify` and `gc`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use levada_core::{check_name, format_size, parse_duration};
use levada_home::Home;
use levada_node::Overrides;
use serde_json::json;

use super::at::AtOne;
use crate::commands::up;
use crate::failure::{Failure, NO, Outcome};
use crate::identity::{IdentityOrName, identities};
use crate::output::{self, plain};

/// Run a node that offers its catalogue and nothing else
///
/// The HTTP port permits reading without authentication; identities that may request the service
/// `catalogue` have the rights that the configuration gives them. It uses the same lock and socket
/// as `levada up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue serve
  levada catalogue serve --http 0.0.0.0:5383 --listen 0.0.0.0:5382 --allow lv…
  levada catalogue serve --http 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem")]
pub struct Serve {
    /// The node's name; the host's name if not given
    #[arg(long, value_name = "N", value_parser = name)]
    name: Option<String>,

    /// The address of the HTTP port; 127.0.0.1:5383 if not given
    #[arg(long, value_name = "A:P")]
    http: Option<SocketAddr>,

    /// Serve the HTTP port with TLS, with this certificate and its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// An address to listen on; port 5382 of all addresses if not given
    #[arg(long, value_name = "A:P")]
    listen: Vec<SocketAddr>,

    /// An identity, or a name that is known here, that may request the service
    #[arg(long, value_name = "IDENTITY")]
    allow: Vec<IdentityOrName>,

    /// Do not announce this node on the network: clients then need IDENTITY@host:port
    #[arg(long)]
    no_announce: bool,
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

pub async fn serve(arguments: Serve, verbose: u8) -> Outcome {
    let overrides = Overrides {
        name: arguments.name,
        listen: arguments.listen,
        http: arguments.http,
        allow: identities(&Home::open()?, &arguments.allow).await?,
        http_tls: up::tls_files(arguments.tls_cert, arguments.tls_key)?,
        no_announce: arguments.no_announce,
        only_catalogue: true,
        ..Overrides::default()
    };
    up::serve(overrides, verbose).await
}

/// Read everything, and verify every digest and every reference
///
/// Prints a line for each problem. The catalogue can be used meanwhile, except during the integrity
/// check of its database. The exit code is 1 if there is a problem.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada catalogue verify")]
pub struct Verify {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: AtOne,
}

pub async fn verify(arguments: Verify) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let mut findings = Vec::new();
    let each = |text: String| {
        findings.push(text);
        Ok::<_, Failure>(())
    };
    let verified = connection.caller.verify(each).await;
    connection.close().await;
    let verified = verified?;
    let versions = verified.versions;
    let packages = verified.packages;
    let bytes = verified.bytes;
    if arguments.json {
        output::json(json!({
            "findings": findings,
            "versions": versions,
            "packages": packages,
            "bytes": bytes,
        }))?;
    } else {
        findings.iter().try_for_each(|text| output::data(plain(text)))?;
        output::note(format_args!(
            "versions: {versions}, packages: {packages} ({}), findings: {}",
            format_size(bytes),
            findings.len()
        ));
    }
    Ok(if findings.is_empty() { 0 } else { NO })
}

/// Delete packages that no version refers to
///
/// The catalogue can be used meanwhile: packages that were uploaded within --grace are kept,
/// because their versions may not be published yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada catalogue gc
  levada catalogue gc --grace 10m")]
pub struct Gc {
    /// Keep packages that are younger than this
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    grace: Duration,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: AtOne,
}

pub async fn gc(arguments: Gc) -> Outcome {
    let mut connection = arguments.at.open().await?;
    let collected = connection.caller.collect(arguments.grace).await;
    connection.close().await;
    let collected = collected?;
    let packages = collected.packages;
    let bytes = collected.bytes;
    match arguments.json {
        true => output::json(json!({ "packages": packages, "bytes": bytes }))?,
        false => {
            let size = format_size(bytes);
            output::note(format_args!("deleted packages: {packages} ({size})"));
        }
    }
    Ok(0)
}
