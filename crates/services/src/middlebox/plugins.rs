//! The built-in inspectors, as options choose them.

use levada_session::contexts::Inspector;
use regex_lite::Regex;

use super::{AddField, Chain, Filter, Line, Log, MakeInspector};

/// What a middlebox does: the options of `levada middlebox`, and of `[middlebox]` in the configuration of a node.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// End a session at a request whose head matches one of these.
    pub block: Vec<Regex>,
    /// Add these fields to each response: [`AddField::new`] reads them.
    pub add_response: Vec<String>,
}

impl Plugins {
    /// Makes the inspector of each session: a log, whose lines go to `line`, then the filters, then what changes something.
    pub fn inspectors(self, line: Line) -> MakeInspector {
        Box::new(move || {
            let mut all: Vec<Box<dyn Inspector>> = vec![Box::new(Log::new(line.clone()))];
            all.extend(
                self.block.iter().map(|one| Box::new(Filter::new(one.clone(), line.clone())) as _),
            );
            all.extend(
                self.add_response.iter().filter_map(|one| Some(Box::new(AddField::new(one)?) as _)),
            );
            Box::new(Chain::new(all))
        })
    }
}

/// Reads the address of a next party, as a path names it: `host:port`.
///
/// # Errors
/// A text that says what is allowed.
pub fn next_party(text: &str) -> Result<String, &'static str> {
    let parts = text.rsplit_once(':').filter(|(host, port)| {
        let plain = host.bytes().all(|byte| byte.is_ascii_graphic());
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        !host.is_empty() && plain && digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    parts.map(|_| text.to_owned()).ok_or("expected HOST:PORT, such as box.example:5382")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_party_has_a_host_and_a_port() {
        for good in ["a:1", "[::1]:5382", "box.example:65535"] {
            assert_eq!(next_party(good).as_deref(), Ok(good));
        }
        for wrong in ["", "a", ":1", "a:", "a:0", "a:65536", "a:+1", "a b:1"] {
            assert!(next_party(wrong).is_err(), "{wrong:?}");
        }
    }
}
