//! Points in time on the command line.

use std::str::FromStr;

use levada_core::{Clock, SystemClock, UnixTime, parse_duration};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The beginning of a period: a time in RFC 3339, or a duration before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(UnixTime);

impl Since {
    /// The time, in seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0.0
    }
}

impl FromStr for Since {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(duration) = parse_duration(text) {
            let now = SystemClock.now().0;
            return Ok(Self(UnixTime(now.saturating_sub(duration.as_secs()))));
        }
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| {
            "it is neither a duration such as 90s, 10m, 1h or 7d nor a time such as \
             2026-11-30T12:00:00Z"
        })?;
        Ok(Self(UnixTime(u64::try_from(time.unix_timestamp()).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_at_a_time_or_a_duration_ago() {
        assert_eq!("1970-01-02T00:00:01Z".parse(), Ok(Since(UnixTime(86_401))));
        assert_eq!("1970-01-02T01:00:01+01:00".parse(), Ok(Since(UnixTime(86_401))));
        let ago: Since = "1h".parse().unwrap();
        let now = SystemClock.now().0;
        assert!((now - 3602..=now - 3600).contains(&ago.seconds()), "{ago:?}");
        for text in ["", "yesterday", "12:00", "2026-11-30"] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
    }
}
