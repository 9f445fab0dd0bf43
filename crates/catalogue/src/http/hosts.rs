//! The values of `Host` that are accepted.

use thiserror::Error;

use super::request::{Header, Refusal, Request};
use crate::host::Host;

/// The text is not a host.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is not a host: use HOST or HOST:PORT")]
pub struct HostsError(String);

/// The values of `Host` that are accepted, and the header that has them.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// In lower case; empty if every host is accepted.
    accepted: Vec<String>,
    forwarded: bool,
}

impl Hosts {
    /// Accepts only these: `HOST:PORT` with that port, `HOST` with any. Case is ignored.
    ///
    /// # Errors
    /// [`HostsError`] names the first text that is not a host.
    pub fn only(hosts: &[String]) -> Result<Self, HostsError> {
        let check = |host: &String| match Host::new(host.as_bytes()) {
            Ok(_) => Ok(host.to_ascii_lowercase()),
            Err(_) => Err(HostsError(host.chars().take(64).collect())),
        };
        Ok(Self { accepted: hosts.iter().map(check).collect::<Result<_, _>>()?, forwarded: false })
    }

    /// Uses `X-Forwarded-Host` instead of `Host` where it is present, for a deployment behind a
    /// proxy that sets it. The first of a list is used, because each proxy appends its own host.
    #[must_use]
    pub fn forwarded(self, forwarded: bool) -> Self {
        Self { forwarded, ..self }
    }

    /// Sets the host of `request`, and refuses one that is not accepted.
    pub(super) fn apply(&self, request: &mut Request<'_>) -> Result<(), Refusal> {
        let refuse = |detail| Refusal { status: 400, detail };
        if self.forwarded {
            match request.headers.forwarded_host {
                Header::Absent => {}
                Header::Value(value) => {
                    let first = value.split(|byte| *byte == b',').next().unwrap_or_default();
                    let host = Host::new(first.trim_ascii()).ok();
                    let wrong = "the header X-Forwarded-Host is not HOST or HOST:PORT";
                    request.host = Some(host.ok_or(refuse(wrong))?);
                }
                Header::Repeated => return Err(refuse("there is more than one X-Forwarded-Host")),
            }
        }
        if self.accepted.is_empty() || request.host.is_some_and(|host| self.accepts(host)) {
            return Ok(());
        }
        Err(refuse("this host is not served here: the configuration lists those that are"))
    }

    fn accepts(&self, host: Host<'_>) -> bool {
        let whole = host.as_str();
        let name = match whole.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => whole,
        };
        self.accepted
            .iter()
            .any(|it| it.eq_ignore_ascii_case(whole) || it.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};

    fn host(hosts: &Hosts, fields: &str) -> Option<String> {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n");
        let Parsed::Request(mut request, _) = parse(text.as_bytes()) else { panic!("{text}") };
        hosts.apply(&mut request).ok()?;
        request.host.map(|host| host.to_string())
    }

    #[test]
    fn accepts_only_the_listed_hosts() {
        let list = ["Catalogue.example".to_owned(), "[::1]:80".to_owned()];
        let hosts = Hosts::only(&list).unwrap();
        for (field, accepted) in [
            ("Host: catalogue.EXAMPLE", true),
            ("Host: catalogue.example:8080", true),
            ("Host: [::1]:80", true),
            ("Host: [::1]:81", false),
            ("Host: [::1]", false),
            ("Host: evil.example", false),
            ("Host: x.catalogue.example", false),
        ] {
            assert_eq!(host(&hosts, field).is_some(), accepted, "{field}");
        }
        assert!(Hosts::only(&["a b".to_owned()]).is_err());
    }

    #[test]
    fn uses_the_forwarded_host_only_if_configured() {
        let fields = "Host: a\r\nX-Forwarded-Host: b";
        let plain = Hosts::default();
        assert_eq!(host(&plain, fields).as_deref(), Some("a"));
        let forwarded = Hosts::default().forwarded(true);
        assert_eq!(host(&forwarded, fields).as_deref(), Some("b"));
        assert_eq!(host(&forwarded, "Host: a").as_deref(), Some("a"));
        for list in ["b, c", "b,c", " b , c d", "b,"] {
            let fields = format!("Host: a\r\nX-Forwarded-Host: {list}");
            assert_eq!(host(&forwarded, &fields).as_deref(), Some("b"), "{list}");
        }
        for wrong in [
            "X-Forwarded-Host: , b",
            "X-Forwarded-Host: b c, d",
            "X-Forwarded-Host: b\r\nX-Forwarded-Host: b",
        ] {
            assert_eq!(host(&forwarded, &format!("Host: a\r\n{wrong}")), None);
        }
    }
}
