//! The log of this process, on standard error.

use levada_config::{Config, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::output::{LogOutput, Screen};

/// The filter for `-v`, and for `-v` given more than once.
const VERBOSE: [&str; 2] = [
    "info,levada=debug,levada_client=debug,levada_node=debug,levada_session=debug,levada_channel=debug,\
     levada_discovery=debug,levada_service=debug,levada_services=debug,levada_catalogue=debug",
    "trace",
];

/// Starts the log. The filter is `RUST_LOG`, else the one for `verbose`, else `standard`.
///
/// # Errors
/// [`Failure`] 120 for a filter that cannot be read.
pub fn start(verbose: u8, standard: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = match variable() {
        Some(filter) => parse(&filter, "RUST_LOG")?,
        None => parse(filter_for(verbose, standard), "the log")?,
    };
    let colors = Screen::error().is_colored;
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match format {
        LogFormat::Text => {
            log.with_ansi(colors).with_writer(move || LogOutput::text(colors)).try_init()
        }
        LogFormat::Json => log.json().with_writer(LogOutput::json).try_init(),
    };
    started.map_err(Failure::local)
}

/// Starts the log of a node, with the filter and the format of its configuration.
///
/// # Errors
/// As for [`check`].
pub fn start_of_node(verbose: u8, config: &Config) -> Result<(), Failure> {
    check(verbose, config)?;
    start(verbose, &without_libraries(&config.log), config.log_format)
}

/// Checks the filter with which [`start_of_node`] would start the log.
///
/// # Errors
/// [`Failure`] 120 for a filter that cannot be read; it names its place.
pub fn check(verbose: u8, config: &Config) -> Result<(), Failure> {
    match variable() {
        Some(_) => check_variable(),
        None if verbose == 0 => check_configured(config),
        None => Ok(()),
    }
}

/// Checks the filter of a configuration.
///
/// # Errors
/// As for [`check`].
pub fn check_configured(config: &Config) -> Result<(), Failure> {
    parse(&config.log, "`log` in config.toml").map(drop)
}

/// Checks the filter in the environment, if there is one.
///
/// # Errors
/// As for [`check`].
pub fn check_variable() -> Result<(), Failure> {
    variable().map_or(Ok(()), |filter| parse(&filter, "RUST_LOG").map(drop))
}

fn variable() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty())
}

fn parse(filter: &str, place: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(filter).map_err(|error| {
        let form = "expected one such as \"info\" or \"levada_node=debug\"";
        Failure::local(format!("{place}: `{filter}` is no filter for the log: {error}; {form}"))
    })
}

/// The filter of a configuration, without lines of the client of NATS: it repeats each failed
/// attempt to connect, which the catalogue reports itself.
fn without_libraries(filter: &str) -> String {
    format!("async_nats=off,{filter}")
}

fn filter_for(verbose: u8, standard: &str) -> &str {
    match usize::from(verbose).min(VERBOSE.len()).checked_sub(1) {
        Some(more) => VERBOSE[more],
        None => standard,
    }
}
