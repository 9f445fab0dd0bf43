//! `clock`: sends the time once and ends.

use std::sync::Arc;

use levada_core::{Clock as Source, Params, SystemClock, UnixTime};
use levada_service::stdio::Message;
use levada_service::{
    NoOptions, Over, Prepared, Refused, Service, ServiceError, ServiceType, check_none, exit, fail,
};
use levada_session::Stream;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The type `clock`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("clock", |_, _, _: NoOptions| Ok(Arc::new(Clock::new())))
}

/// The service of type `clock`.
struct Clock(Arc<dyn Source>);

impl Clock {
    /// A service that sends the time of this machine.
    fn new() -> Self {
        Self(Arc::new(SystemClock))
    }
}

impl Service for Clock {
    fn category(&self) -> &'static str {
        "information"
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        check_none(params)?;
        let source = self.0.clone();
        Ok(Prepared::stream(move |_, stream| answer(source.now(), stream)))
    }
}

async fn answer(now: UnixTime, stream: Stream) -> Result<(), ServiceError> {
    let Some(line) = line(now) else {
        let text = "the clock of this machine is after the year 9999: set it";
        let error = ServiceError::Failed(text.to_owned());
        return fail(stream, error).await;
    };
    let (mut send, receive) = stream.split();
    send.send(&Message::Data(line.as_bytes()).to_bytes()).await?;
    Ok(exit(send, receive, 0).await?)
}

/// The time as RFC 3339 in UTC and whole seconds, with a newline; `None` after the year 9999.
fn line(time: UnixTime) -> Option<String> {
    let seconds = i64::try_from(time.0).ok()?;
    let text = OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok()?;
    Some(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::ManualClock;
    use levada_service::testing::{Client, run};

    #[test]
    fn the_time_is_rfc_3339() {
        assert_eq!(line(UnixTime(1_700_000_000)).as_deref(), Some("2023-11-14T22:13:20Z\n"));
        assert_eq!(line(UnixTime::NEVER), None);
    }

    #[tokio::test]
    async fn sends_the_time_once_and_ends() {
        let clock = Clock(Arc::new(ManualClock::new(UnixTime(0))));
        let (mut client, stream) = Client::pair().await;
        let (result, end) = tokio::join!(run(&clock, &[], stream), client.finish_and_collect());
        result.unwrap();
        assert_eq!(end.output, b"1970-01-01T00:00:00Z\n");
        assert_eq!(end.exit, Some(0));
    }

    #[tokio::test]
    async fn a_time_after_the_year_9999_is_a_failure() {
        let clock = Clock(Arc::new(ManualClock::new(UnixTime::NEVER)));
        let (mut client, stream) = Client::pair().await;
        let (result, end) = tokio::join!(run(&clock, &[], stream), client.finish_and_collect());
        assert!(matches!(result, Err(ServiceError::Failed(_))));
        assert_eq!((end.exit, end.failure.is_some()), (Some(120), true));
    }
}
