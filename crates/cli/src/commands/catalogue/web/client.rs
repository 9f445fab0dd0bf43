//! The HTTP client (ureq, rustls with aws-lc-rs), with a limit on everything that a server
//! controls.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::format_duration;
use rustls::crypto::aws_lc_rs;
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, Error, ResponseExt};

use super::resolver::{LeadsInside, SameKind};
use super::url::WebUrl;
use crate::commands::catalogue::files;
use crate::failure::{DENIED, Failure, PROTOCOL, UNREACHABLE};

/// How long name resolution, and then the connection with its handshake, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one read or write may take.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// By how much a socket's timeout may fire before the deadline that it was computed from.
const TIMER_SLACK: Duration = Duration::from_millis(50);
/// The maximum length of an answer's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum number of redirects of one request.
const MAX_REDIRECTS: u32 = 4;
/// The maximum length of a file of certificates, in bytes.
const MAX_CERTIFICATES: usize = 4 * 1024 * 1024;

/// A client of one server, with one deadline for all requests.
pub struct HttpClient {
    web: WebUrl,
    agent: Agent,
    timeout: Duration,
    start: Instant,
}

impl HttpClient {
    /// A client of `web`, which trusts the certificates in the file `ca`, or those of the system.
    /// `timeout` is for all requests together.
    ///
    /// # Errors
    /// [`Failure`] if there are no certificates of trusted authorities.
    pub fn new(web: &WebUrl, ca: Option<&Path>, timeout: Duration) -> Result<Self, Failure> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Applies to redirects too.
            .https_only(web.is_https())
            .max_redirects(MAX_REDIRECTS)
            .save_redirect_history(true)
            // A proxy from the environment would receive requests for addresses of this machine.
            .proxy(None)
            .accept_encoding("identity")
            .user_agent(concat!("levada/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(MAX_HEAD)
            .max_idle_connections(0)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(IDLE_TIMEOUT))
            .timeout_per_write(Some(IDLE_TIMEOUT));
        let config = match web.is_https() || ca.is_some() {
            true => config.tls_config(tls(ca)?),
            // For a redirect from http to https.
            false => config.tls_config(tls(ca).unwrap_or_else(|_| no_roots())),
        };
        let connector = DefaultConnector::new();
        let resolver = SameKind::default();
        let agent = Agent::with_parts(config.build(), connector, resolver);
        Ok(Self { web: web.clone(), agent, timeout, start: Instant::now() })
    }

    /// The answer to a GET of `path`, from byte `offset` on. Its last byte must arrive within
    /// `limit`, and before the deadline of all requests.
    ///
    /// # Errors
    /// [`Failure`] 122 if there is no answer, 121 if the server's certificate is not trusted, 123
    /// if it breaks the protocol.
    pub fn get(&self, path: &str, offset: u64, limit: Duration) -> Result<Response<Body>, Failure> {
        let left = self.timeout.saturating_sub(self.start.elapsed()).min(limit);
        if left.is_zero() {
            return Err(self.late());
        }
        let request = self.agent.get(format!("{}{path}", self.web));
        // No keep-alive: a reused connection may have been closed by the server, and there are only
        // a few requests.
        let request = request.header(header::CONNECTION, "close");
        let request = match offset {
            0 => request,
            offset => request.header(header::RANGE, format!("bytes={offset}-")),
        };
        let answer = request.config().timeout_global(Some(left)).build().call();
        let answer = answer.map_err(|error| self.failure(error))?;
        if is_downgraded(answer.get_redirect_history().unwrap_or_default()) {
            return Err(self.broken("it redirects from https to http"));
        }
        Ok(answer)
    }

    /// The failure for an error while a body is read.
    pub fn lost(&self, error: io::Error) -> Failure {
        self.failure(Error::from(error))
    }

    /// The failure for an invalid answer.
    pub fn broken(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(PROTOCOL, format!("protocol: {}: {why}", self.web))
    }

    fn late(&self) -> Failure {
        let text = format!(
            "unreachable: {}: it took longer than {}; --timeout allows more",
            self.web,
            format_duration(self.timeout)
        );
        Failure::new(UNREACHABLE, text)
    }

    fn failure(&self, error: Error) -> Failure {
        let unreachable = |why: &dyn std::fmt::Display| {
            Failure::new(UNREACHABLE, format!("unreachable: {}: {why}", self.web))
        };
        match error {
            Error::Timeout(_) if self.start.elapsed() + TIMER_SLACK >= self.timeout => self.late(),
            Error::Timeout(what) => unreachable(&format_args!("no answer in time ({what})")),
            Error::Io(error) => match (tls_error(&error), cause::<LeadsInside>(&error)) {
                (Some(error), _) => self.distrusted(error),
                (None, Some(error)) => self.broken(error),
                (None, None) => unreachable(&error),
            },
            Error::Rustls(error) => self.distrusted(&error),
            Error::HostNotFound => unreachable(&"the host name is unknown"),
            Error::ConnectionFailed => unreachable(&"cannot connect"),
            Error::TooManyRedirects => {
                self.broken(format_args!("more than {MAX_REDIRECTS} redirects"))
            }
            Error::RequireHttpsOnly(_) => self.broken("it redirects from https to http"),
            error => self.broken(error),
        }
    }

    fn distrusted(&self, error: &rustls::Error) -> Failure {
        match error {
            rustls::Error::InvalidCertificate(_) => {
                let text = format!(
                    "denied: {}: its certificate is not trusted ({error}); --ca FILE adds a trusted authority",
                    self.web
                );
                Failure::new(DENIED, text)
            }
            error => self.broken(error),
        }
    }
}

/// Whether the answer starts at `offset`; false if the server sends the whole content.
pub fn is_resumed(answer: &Response<Body>, offset: u64) -> bool {
    let range = answer.headers().get(header::CONTENT_RANGE).and_then(|text| text.to_str().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {offset}-")))
}

fn is_downgraded(history: &[Uri]) -> bool {
    let is_https = |uri: &Uri| uri.scheme_str() == Some("https");
    history.windows(2).any(|pair| is_https(&pair[0]) && !is_https(&pair[1]))
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    cause(error)
}

fn cause<E: std::error::Error + 'static>(error: &io::Error) -> Option<&E> {
    error.get_ref()?.downcast_ref()
}

fn tls(ca: Option<&Path>) -> Result<TlsConfig, Failure> {
    let certificates = match ca {
        Some(path) => from_pem(&files::read(path, MAX_CERTIFICATES)?).ok_or_else(|| {
            Failure::local(format!("{}: it contains no certificate (PEM)", path.display()))
        })?,
        None => system_certificates()?,
    };
    Ok(trusting(certificates))
}

fn no_roots() -> TlsConfig {
    trusting(Vec::new())
}

fn trusting(certificates: Vec<Certificate<'static>>) -> TlsConfig {
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .build()
}

/// The certificates in `pem`; `None` if there is none, or one is malformed.
fn from_pem(pem: &[u8]) -> Option<Vec<Certificate<'static>>> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.ok()? {
            found.push(certificate);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The certificates of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_certificates() -> Result<Vec<Certificate<'static>>, Failure> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Failure::local(format!(
            "no certificates of trusted authorities{why}: install ca-certificates, or give --ca FILE"
        )));
    }
    Ok(found.certs.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_a_redirect_from_https_to_http() {
        let uris = |texts: &[&str]| -> Vec<Uri> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        for fine in
            [&["http://a/"] as &[&str], &["http://a/", "https://a/"], &["https://a/", "https://b/"]]
        {
            assert!(!is_downgraded(&uris(fine)), "{fine:?}");
        }
        assert!(is_downgraded(&uris(&["http://a/", "https://a/", "http://b/"])));
        assert!(from_pem(b"").is_none() && from_pem(b"-----BEGIN CERTIFICATE-----\n!\n").is_none());
    }
}
