//! `levada up`: runs a node.

use crate::failure::{Failure, Outcome};
use crate::identity::{IdentityOrName, identities, identities_in};
use crate::log;
use clap::Args;
use levada_client::control::{self, ControlError, Request};
use levada_config::{Config, TlsFiles};
use levada_core::{Identity, check_name, shell_word};
use levada_home::Home;
use levada_home::address::{advertised, reach};
use levada_node::check::{self, Names, State};
use levada_node::running::{self, Announcement};
use levada_node::{Overrides, UpError, ports};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run a node that offers services
///
/// Without configuration it offers `echo` and `clock` to its own identity. Options override the
/// configuration (config.toml in the home's folder).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada up
  levada up --demo --name alpha --listen 0.0.0.0:5382
  levada up --advertise box.example:5382
  levada up --service backup.toml --allow lv…
  levada up --check")]
pub struct Arguments {
    /// The node's name; the host's name if not given
    #[arg(long, value_name = "N", value_parser = name)]
    name: Option<String>,

    /// An address to listen on; port 5382 of all addresses if not given
    #[arg(long, value_name = "A:P")]
    listen: Vec<SocketAddr>,

    /// An address at which others reach this node, listed before its own in invitations and
    /// catalogues; for example behind NAT
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    advertise: Vec<String>,

    /// The address of the HTTP port (catalogue, metrics and health); 127.0.0.1:5383 if not given
    #[arg(long, value_name = "A:P")]
    http: Option<SocketAddr>,

    /// Serve the HTTP port with TLS, with this certificate and its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// An identity, or a name that is known here, that may request every service of this node
    #[arg(long, value_name = "IDENTITY")]
    allow: Vec<IdentityOrName>,

    /// A file that defines a service to offer
    #[arg(long, value_name = "FILE.toml")]
    service: Vec<PathBuf>,

    /// Also offer `exec` of uname, date and cat
    #[arg(long)]
    demo: bool,

    /// Check the configuration, these options, the files of the home and the ports as a start does,
    /// and change nothing
    #[arg(long)]
    check: bool,

    /// Do not announce this node on the network: clients then need IDENTITY@host:port
    #[arg(long)]
    no_announce: bool,
}

pub async fn run(arguments: Arguments, verbose: u8) -> Outcome {
    if arguments.check {
        return check(arguments, verbose).await;
    }
    let allow = identities(&Home::open()?, &arguments.allow).await?;
    serve(arguments.overrides(allow)?, verbose).await
}

impl Arguments {
    fn overrides(self, allow: Vec<Identity>) -> Result<Overrides, Failure> {
        Ok(Overrides {
            name: self.name,
            listen: self.listen,
            advertise: self.advertise,
            udp: false,
            http: self.http,
            allow,
            http_tls: tls_files(self.tls_cert, self.tls_key)?,
            services: absolute(self.service)?,
            demo: self.demo,
            no_announce: self.no_announce,
            only_catalogue: false,
        })
    }
}

/// Checks a start without one, also while a node of this home runs: for its next start.
async fn check(arguments: Arguments, verbose: u8) -> Outcome {
    let home = Home::find()?;
    home.check_folders()?;
    let config = Config::load(&home.config_file())?;
    log::check(verbose, &config)?;
    let allow = match arguments.allow.as_slice() {
        [] => Vec::new(),
        list => identities_in(&Names::open(&home)?.known, list).await?,
    };
    let overrides = arguments.overrides(allow)?;
    let own = match control::call(&home, &Request::Status).await {
        Ok(status) => Some(ports::of_running(&status)),
        Err(ControlError::NotRunning) => None,
        Err(error) => return Err(error.into()),
    };
    let state = own.as_deref().map_or(State::Absent, State::Runs);
    for note in check::start(&home, &config, &overrides, state)? {
        crate::output::note(format_args!("note: {note}"));
    }
    crate::output::data("the configuration is valid")?;
    Ok(0)
}

/// Runs the node of this home until it is stopped. `verbose`, if not 0, overrides the configured
/// log level.
pub async fn serve(overrides: Overrides, verbose: u8) -> Outcome {
    let home = Home::open()?;
    let config = Config::load(&home.config_file())?;
    log::start_of_node(verbose, &config)?;
    running::up(&home, &overrides, announce).await?;
    Ok(0)
}

/// The certificate of the HTTP port, with absolute paths: it is read again on SIGHUP.
pub fn tls_files(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsFiles>, Failure> {
    let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
    let absolute = |file: PathBuf| std::path::absolute(&file).map_err(Failure::file("find", &file));
    Ok(Some(TlsFiles { certificate: absolute(certificate)?, key: absolute(key)? }))
}

/// Makes the paths absolute: the files are read again when the node restarts.
fn absolute(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    files
        .into_iter()
        .map(|file| std::path::absolute(&file).map_err(Failure::file("find", &file)))
        .collect()
}

/// Prints the announcement of a node that is ready. A closed standard output is not an error.
fn announce(announcement: &Announcement) {
    let _ = write_announcement(&mut io::stdout().lock(), announcement);
    for note in &announcement.notes {
        crate::output::note(format_args!("note: {note}"));
    }
}

fn write_announcement(output: &mut impl Write, node: &Announcement) -> io::Result<()> {
    writeln!(output, "node      {}", node.name)?;
    writeln!(output, "identity  {}", node.identity)?;
    let width = node.addresses.iter().map(String::len).max().unwrap_or_default();
    for address in &node.addresses {
        match reach(address).limit() {
            Some(limit) => writeln!(output, "address   {address:width$}  ({limit})")?,
            None => writeln!(output, "address   {address}")?,
        }
    }
    if let Some(http) = node.http {
        let scheme = if node.https { "https" } else { "http" };
        writeln!(output, "http      {scheme}://{http}/metrics")?;
    }
    writeln!(output, "services  {}", node.services.join(", "))?;
    writeln!(output)?;
    let levada = command_to_type();
    writeln!(output, "Invite another identity, from another terminal:")?;
    writeln!(output, "  {levada} invite")?;
    if let Some(service) = &node.clock {
        writeln!(output, "Try it yourself:")?;
        let service = format!("{}/{service}", node.name);
        writeln!(output, "  {levada} run {}", shell_word(&service))?;
    }
    output.flush()
}

/// The command line that calls this program from another terminal in the same folder. After a build
/// from source, the program is not on PATH yet.
fn command_to_type() -> String {
    let home = std::env::var("LEVADA_HOME");
    let home = home.map(|home| format!("LEVADA_HOME={} ", shell_word(&home)));
    let home = home.unwrap_or_default();
    let Ok(program) = std::env::current_exe() else { return format!("{home}levada") };
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        let found = std::env::split_paths(&path).map(|folder| folder.join("levada"));
        found.flat_map(std::fs::canonicalize).next().is_some_and(|found| found == program)
    });
    if on_path {
        return format!("{home}levada");
    }
    let folder = std::env::current_dir().unwrap_or_default();
    let near = program.strip_prefix(folder).unwrap_or(&program);
    format!("{home}{}", shell_word(&near.display().to_string()))
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

impl From<UpError> for Failure {
    fn from(error: UpError) -> Self {
        Self::local(error)
    }
}
