//! Times as text, in UTC.

use levada_core::UnixTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time in RFC 3339, in UTC.
pub fn time(time: UnixTime) -> String {
    if time == UnixTime::NEVER {
        return "never".into();
    }
    date(time)
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{} seconds after 1970", time.0))
}

/// Month, day, hour and minute in UTC, such as `11-30 13:27Z`, where the whole time does not fit.
pub(super) fn short_time(time: UnixTime) -> String {
    let Some(date) = date(time).filter(|_| time != UnixTime::NEVER) else {
        return self::time(time);
    };
    let month = u8::from(date.month());
    format!("{month:02}-{:02} {:02}:{:02}Z", date.day(), date.hour(), date.minute())
}

fn date(time: UnixTime) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(time.0).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(time(UnixTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time(UnixTime::NEVER), "never");
        assert!(time(UnixTime(u64::MAX - 1)).contains("after 1970"));
        assert_eq!(short_time(UnixTime(90_061)), "01-02 01:01Z");
        assert_eq!(short_time(UnixTime::NEVER), "never");
    }
}
