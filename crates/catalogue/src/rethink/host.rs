//! The `Host` of a request, which stands in the bodies of the original.

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

/// The longest `Host`, in bytes.
const MAX_LEN: usize = 255;

/// What is not a host with or without a port.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the header Host is not HOST or HOST:PORT of at most {MAX_LEN} bytes")]
pub struct HostError;

/// `HOST` or `HOST:PORT` (RFC 9110 section 7.2), as the request has it. It can stand in a URL; in JSON it may have to
/// be escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a>(&'a str);

impl<'a> Host<'a> {
    /// Takes the value of the header.
    ///
    /// # Errors
    /// [`HostError`] if it is longer than 255 bytes, has no host, or has anything in it that a host or port has not
    /// (RFC 3986 sections 3.2.2 and 3.2.3).
    pub fn new(header: &'a [u8]) -> Result<Self, HostError> {
        if header.len() > MAX_LEN {
            return Err(HostError);
        }
        let text = str::from_utf8(header).map_err(|_| HostError)?;
        let (host, port) = split_port(text);
        if is_host(host) && port.is_none_or(is_port) { Ok(Self(text)) } else { Err(HostError) }
    }

    /// The text itself.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Host and port. The colons of an IPv6 address are within brackets.
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

/// RFC 3986 section 3.2.2: unreserved, percent-encoded or one of the sub-delimiters. IPv4 addresses are among them.
fn is_registered_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let fits = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte),
        };
        if !fits {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_or_address_and_perhaps_a_port() {
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
    fn nothing_in_a_host_ends_a_string_of_json_or_a_header() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(host) = Host::new(bytes) {
                let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\<>/@".contains(&byte);
                assert!(host.as_str().bytes().all(plain), "{host}");
            }
        });
    }
}
