//! The log of this process, on standard error.

use std::io::{self, IsTerminal};

use levada_node::config::LogFormat;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::output::LogOutput;

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
    let variable = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = variable.unwrap_or_else(|| filter_for(verbose, standard).to_owned());
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| Failure::local(format!("`{filter}` is no filter for the log: {error}")))?;
    let colors = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match format {
        LogFormat::Text => {
            log.with_ansi(colors).with_writer(move || LogOutput::text(colors)).try_init()
        }
        LogFormat::Json => log.json().with_writer(LogOutput::json).try_init(),
    };
    started.map_err(Failure::local)
}

/// The filter of a configuration, without lines of the client of NATS: it repeats each failed attempt to connect,
/// which the catalogue reports itself.
pub fn without_libraries(filter: &str) -> String {
    format!("async_nats=off,{filter}")
}

fn filter_for(verbose: u8, standard: &str) -> &str {
    match usize::from(verbose).min(VERBOSE.len()).checked_sub(1) {
        Some(more) => VERBOSE[more],
        None => standard,
    }
}
