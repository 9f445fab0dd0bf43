//! `levada up`: run a node.

use crate::failure::{Failure, Outcome};
use crate::output::LogOutput;
use crate::who::{Who, identities};
use clap::Args;
use levada_node::address::advertised;
use levada_node::config::{Config, LogFormat, check_name};
use levada_node::home::Home;
use levada_node::running::{self, Announcement, Overrides};
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// Run a node that offers services
///
/// Without configuration it offers `echo` and `clock` to its own identity. What is given here holds
/// over the configuration (config.toml in the home's folder).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada up
  levada up --demo --name alpha --listen 0.0.0.0:5382
  levada up --advertise box.example:5382
  levada up --service backup.toml --allow lv…")]
pub struct Arguments {
    /// The node's name; the host's name if not given
    #[arg(long, value_name = "N", value_parser = name)]
    name: Option<String>,

    /// An address to listen on; port 5382 of all addresses if not given
    #[arg(long, value_name = "A:P")]
    listen: Vec<SocketAddr>,

    /// Where others reach this node, before its own addresses, such as behind a port mapping; in invitations and pins
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    advertise: Vec<String>,

    /// The address of the HTTP port (catalogue, metrics and health); 127.0.0.1:5383 if not given
    #[arg(long, value_name = "A:P")]
    http: Option<SocketAddr>,

    /// An identity, or a name that is known here, that may request every service of this node
    #[arg(long, value_name = "IDENTITY")]
    allow: Vec<Who>,

    /// A file that defines a service to offer
    #[arg(long, value_name = "FILE.toml")]
    service: Vec<PathBuf>,

    /// Also offer `exec` of uname, date and cat
    #[arg(long)]
    demo: bool,

    /// Do not tell neighbours of this node: they need IDENTITY@host:port then
    #[arg(long)]
    no_announce: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = Home::open()?;
    let overrides = Overrides {
        name: arguments.name,
        listen: arguments.listen,
        advertise: arguments.advertise,
        http: arguments.http,
        allow: identities(&home, &arguments.allow)?,
        services: absolute(arguments.service)?,
        demo: arguments.demo,
        no_announce: arguments.no_announce,
        only_catalogue: false,
    };
    serve(overrides).await
}

/// Runs a node of this home until it is stopped.
pub async fn serve(overrides: Overrides) -> Outcome {
    let home = Home::open()?;
    let config = Config::load(&home.config_file())?;
    start_log(&config)?;
    running::up(&home, &overrides, announce).await?;
    Ok(0)
}

/// They are read again when the node starts again, wherever it is then.
fn absolute(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    files
        .into_iter()
        .map(|file| std::path::absolute(&file).map_err(Failure::file("find", &file)))
        .collect()
}

fn start_log(config: &Config) -> Result<(), Failure> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| config.log.clone());
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| Failure::local(format!("`{filter}` is no filter for the log: {error}")))?;
    let colors = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match config.log_format {
        LogFormat::Text => {
            log.with_ansi(colors).with_writer(move || LogOutput::text(colors)).try_init()
        }
        LogFormat::Json => log.json().with_writer(LogOutput::json).try_init(),
    };
    started.map_err(Failure::local)
}

/// What the node says once it is ready. That nobody reads it does not end the node.
fn announce(announcement: &Announcement) {
    let _ = write_announcement(&mut io::stdout().lock(), announcement);
    for note in &announcement.notes {
        crate::output::note(format_args!("note: {note}"));
    }
}

fn write_announcement(output: &mut impl Write, node: &Announcement) -> io::Result<()> {
    writeln!(output, "node      {}", node.name)?;
    writeln!(output, "identity  {}", node.identity)?;
    for address in &node.addresses {
        writeln!(output, "address   {address}")?;
    }
    if let Some(http) = node.http {
        writeln!(output, "http      http://{http}/metrics")?;
    }
    writeln!(output, "services  {}", node.services.join(", "))?;
    writeln!(output)?;
    let levada = command_to_type();
    writeln!(output, "Let somebody in, from another terminal:")?;
    writeln!(output, "  {levada} invite")?;
    if let Some(service) = node.services.iter().find(|name| *name == "clock") {
        writeln!(output, "Try it yourself:")?;
        writeln!(output, "  {levada} run {}/{service}", node.name)?;
    }
    output.flush()
}

/// How this very program is called from another terminal in the same folder: a newcomer who built it
/// a moment ago has it on no path yet.
fn command_to_type() -> String {
    let home = std::env::var("LEVADA_HOME").map(|home| format!("LEVADA_HOME={home} "));
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
    format!("{home}{}", near.display())
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}
