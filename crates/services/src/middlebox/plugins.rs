//! The built-in inspectors, as options choose them.

use std::sync::atomic::{AtomicU64, Ordering};

use levada_contexts::Inspector;
use regex_lite::Regex;

use super::needs::Need;
use super::{
    AddField, Cache, CacheInspector, Chain, Compress, Filter, Log, MakeInspector, SessionLog,
    WriteEntry,
};

/// What a middlebox does: the options of `levada middlebox`, and of `[middlebox]` in the
/// configuration of a node.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// End a session at a request whose head matches one of these.
    pub block: Vec<Regex>,
    /// Add these fields to each response: [`AddField::new`] reads them.
    pub add_response: Vec<String>,
    /// Compress the bodies of responses.
    pub compress: bool,
    /// Store responses in a cache of so many bytes; [`parse_cache_size`] reads them.
    pub cache: Option<usize>,
    /// Carry sessions that do not grant what the others need, too, without their work.
    pub lenient: bool,
}

impl Plugins {
    /// Returns what a session must grant so that every plug-in can do its work.
    pub fn needs(&self) -> Vec<Need> {
        let all = [
            (!self.block.is_empty(), Need::BLOCK),
            (!self.add_response.is_empty(), Need::ADD_RESPONSE),
            (self.compress, Need::COMPRESS),
            (self.cache.is_some(), Need::CACHE),
        ];
        let used = all.into_iter().filter(|(is_used, _)| *is_used && !self.lenient);
        used.map(|(_, need)| need).collect()
    }

    /// Makes the inspector of each session; `write` takes the lines of its log. All sessions share
    /// one cache.
    pub fn inspectors(self, write: WriteEntry) -> MakeInspector {
        let cache = self.cache.map(Cache::new);
        let sessions = AtomicU64::new(0);
        Box::new(move |source| {
            let log = SessionLog::new(1 + sessions.fetch_add(1, Ordering::Relaxed), write.clone());
            // From the client's side to the server's: the cache stores what the server has sent,
            // and what it answers is changed as all else.
            let mut all: Vec<Box<dyn Inspector>> = vec![Box::new(Log::new(log.clone(), source))];
            for pattern in &self.block {
                all.push(Box::new(Filter::new(pattern.clone(), log.clone())));
            }
            if self.compress {
                all.push(Box::new(Compress::new(log.clone())));
            }
            for field in self.add_response.iter().filter_map(|field| AddField::new(field)) {
                all.push(Box::new(field));
            }
            if let Some(cache) = &cache {
                all.push(Box::new(CacheInspector::new(cache, log.clone())));
            }
            Box::new(Chain::new(all))
        })
    }
}

/// The smallest cache, in bytes.
const MIN_CACHE: u64 = 1_000_000;

/// Reads the size of a cache in bytes ([`levada_core::parse_size`]).
///
/// # Errors
/// A text that says what is allowed.
pub fn parse_cache_size(text: &str) -> Result<usize, String> {
    let bytes = levada_core::parse_size(text).map_err(|error| error.to_string())?;
    let size = usize::try_from(bytes).ok().filter(|_| bytes >= MIN_CACHE);
    size.ok_or_else(|| "a cache has at least 1M".to_owned())
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

    #[test]
    fn a_cache_has_a_size() {
        assert_eq!(parse_cache_size("256M"), Ok(256_000_000));
        assert_eq!(parse_cache_size("1Gi"), Ok(1 << 30));
        for wrong in ["", "1", "999K", "1.5M"] {
            assert!(parse_cache_size(wrong).is_err(), "{wrong}");
        }
    }
}
