//! The `[retention]` of the configuration.

use std::time::Duration;

use levada_core::parse_duration;

use super::ConfigError;
use super::reader::{Section, Value};

const DAY: u64 = 24 * 60 * 60;
const ALLOWED: &str = "a duration such as \"90d\", or false to keep all";

/// The times for which the node keeps records; `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Of a session after its expiry.
    pub sessions: Option<Duration>,
    /// Of an entry of the audit log.
    pub audit: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            sessions: Some(Duration::from_secs(90 * DAY)),
            audit: Some(Duration::from_secs(365 * DAY)),
        }
    }
}

impl Retention {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        section.only(&["sessions", "audit"])?;
        let mut retention = Self::default();
        for value in section.values() {
            match value.name() {
                "sessions" => retention.sessions = time(&value)?,
                _ => retention.audit = time(&value)?,
            }
        }
        Ok(retention)
    }
}

fn time(value: &Value<'_>) -> Result<Option<Duration>, ConfigError> {
    if value.as_bool() == Some(false) {
        return Ok(None);
    }
    let time = parse_duration(value.text(ALLOWED)?);
    time.map(Some).map_err(|error| value.wrong(error.to_string()))
}
