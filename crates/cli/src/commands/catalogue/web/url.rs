//! The URL of a catalogue's HTTP port.

use std::fmt;
use std::str::FromStr;

/// `http://HOST[:PORT]`, or with https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebUrl {
    is_https: bool,
    /// The value of the header `Host`.
    authority: String,
}

impl WebUrl {
    /// Whether the scheme is https.
    pub(super) fn is_https(&self) -> bool {
        self.is_https
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl FromStr for WebUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected http://HOST, https://HOST, or one of them with :PORT";
        let (is_https, authority) = match text.strip_prefix("https://") {
            Some(authority) => (true, authority),
            None => (false, text.strip_prefix("http://").ok_or(FORM)?),
        };
        let authority = authority.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if authority.is_empty() || authority.len() > 255 || !authority.chars().all(plain) {
            return Err(FORM);
        }
        Ok(Self { is_https, authority: authority.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_scheme_a_host_and_an_optional_port() {
        for text in ["http://catalogue.example", "https://[::1]:5383/", "http://192.0.2.1:80"] {
            let web: WebUrl = text.parse().unwrap();
            assert_eq!(web.to_string(), text.trim_end_matches('/'));
        }
        for text in ["", "http://", "ftp://a", "http://a/b", "https://a b", "http://u@a", "a"] {
            assert!(text.parse::<WebUrl>().is_err(), "{text}");
        }
    }
}
