//! The `Host` of an HTTP request.

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

/// The maximum length of `Host`, in bytes.
const MAX_LEN: usize = 255;

/// The value is not a host with or without a port.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the header Host is not HOST or HOST:PORT of at most {MAX_LEN} bytes")]
pub struct HostError;

/// `HOST` or `HOST:PORT` (RFC 9110 section 7.2), as in the request. It is valid in a URL; in JSON
/// it may need escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a>(&'a str);

impl<'a> Host<'a> {
    /// Validates the value of the header.
    ///
    /// # Errors
    /// [`HostError`] if it has more than 255 bytes, has no host, or violates the grammar of hosts
    /// and ports (RFC 3986 sections 3.2.2 and 3.2.3).
    pub fn new(header: &'a [u8]) -> Result<Self, HostError> {
        if header.len() > MAX_LEN {
            return Err(HostError);
        }
        let text = str::from_utf8(header).map_err(|_| HostError)?;
        let (host, port) = split_port(text);
        if is_host(host) && port.is_none_or(is_port) { Ok(Self(text)) } else { Err(HostError) }
    }

    /// The text of the host and port.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Splits host and port. The colons of an IPv6 address are within brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !text.is_empty() && is_registered_name(text),
    }
}

/// Returns true for a `reg-name` (RFC 3986 section 3.2.2): unreserved characters, percent-encoded
/// bytes and sub-delimiters. IPv4 addresses match too.
fn is_registered_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let valid = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte),
        };
        if !valid {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_address_with_an_optional_port() {
        for text in [
            "127.0.0.1:28080",
            "localhost",
            "catalogue.example",
            "a_b.example.:0",
            "[::1]",
            "[2001:db8::1]:65535",
            "x%2fy",
            "a=b&'c'",
            &"a".repeat(255),
        ] {
            assert_eq!(Host::new(text.as_bytes()).map(Host::as_str), Ok(text));
        }
        for text in [
            "",
            ":80",
            "a:",
            "a:b",
            "a:+1",
            "a:65536",
            "a:1:2",
            "::1",
            "[::1",
            "::1]",
            "[a]",
            "[]",
            "[::1]x",
            "[::1]:x",
            "a b",
            "a/b",
            "a\\b",
            "a\"b",
            "<a>",
            "a?b",
            "a#b",
            "u@a",
            "a\r\nb",
            "a\0",
            "%",
            "%2",
            "%zz",
            "ç",
            "[::1%25lo]",
            &"a".repeat(256),
        ] {
            assert_eq!(Host::new(text.as_bytes()), Err(HostError), "{text:?}");
        }
        assert_eq!(Host::new(b"a\xff"), Err(HostError));
    }

    #[test]
    fn a_host_cannot_end_a_json_string_or_a_header() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(host) = Host::new(bytes) {
                let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\<>/@".contains(&byte);
                assert!(host.as_str().bytes().all(plain), "{host}");
            }
        });
    }
}
