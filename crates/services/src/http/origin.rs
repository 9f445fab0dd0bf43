//! The connection to the origin, at the server.

use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use super::body::ChannelBody;
use super::head::{RequestHead, ResponseHead, strip};

/// How long the origin may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the origin listens.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// `host:port`.
    pub(super) authority: String,
}

/// Why the origin did not answer.
#[derive(Debug, Error)]
pub(super) enum OriginError {
    #[error("the origin cannot be reached: {0}")]
    Unreachable(String),
    #[error("the origin failed: {0}")]
    Failed(#[from] hyper::Error),
}

/// A connection to the origin, which is kept between requests.
pub(super) struct OriginConnection {
    origin: Origin,
    sender: Option<SendRequest<ChannelBody>>,
}

impl OriginConnection {
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, sender: None }
    }

    async fn ready(&mut self) -> Result<&mut SendRequest<ChannelBody>, OriginError> {
        let open = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            self.sender = Some(self.connect().await?);
        }
        let missing = || OriginError::Unreachable("no connection".to_owned());
        self.sender.as_mut().ok_or_else(missing)
    }

    async fn connect(&self) -> Result<SendRequest<ChannelBody>, OriginError> {
        let unreachable = |error: String| OriginError::Unreachable(error);
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.origin.authority)).await;
        let stream = stream.map_err(|_| unreachable("no answer".to_owned()))?;
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the origin's connection, or when the sender is dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends a request, and returns the head of the response with its body.
    pub(super) async fn send(
        &mut self,
        head: RequestHead,
        body: ChannelBody,
    ) -> Result<(ResponseHead, hyper::body::Incoming), OriginError> {
        let authority = HeaderValue::from_str(&self.origin.authority);
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = head.target;
        *request.headers_mut() = head.fields;
        if let Ok(authority) = authority {
            request.headers_mut().insert(header::HOST, authority);
        }
        let (mut parts, body) = self.ready().await?.send_request(request).await?.into_parts();
        strip(&mut parts.headers);
        self.rewrite(&mut parts);
        Ok((ResponseHead { status: parts.status, fields: parts.headers }, body))
    }

    /// Makes what names the origin name no host, so that it holds for the client's address.
    fn rewrite(&self, parts: &mut hyper::http::response::Parts) {
        let own =
            [format!("http://{}", self.origin.authority), format!("//{}", self.origin.authority)];
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let Some(value) = parts.headers.get(&name).and_then(|value| value.to_str().ok()) else {
                continue;
            };
            let rest = own.iter().find_map(|own| value.strip_prefix(own.as_str()));
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
            let Some(rest) = rest else { continue };
            let local = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
            if let Ok(local) = HeaderValue::from_str(&local) {
                parts.headers.insert(&name, local);
            }
        }
        let host = self.origin.authority.rsplit_once(':').map_or("", |(host, _)| host);
        let cookies: Vec<HeaderValue> = parts
            .headers
            .get_all(header::SET_COOKIE)
            .iter()
            .map(|value| without_domain(value, host))
            .collect();
        parts.headers.remove(header::SET_COOKIE);
        for cookie in cookies {
            parts.headers.append(header::SET_COOKIE, cookie);
        }
    }
}

/// A cookie of the origin without the attributes that bind it to the origin's host, or to TLS, which the client's local address has not.
fn without_domain(cookie: &HeaderValue, host: &str) -> HeaderValue {
    let Ok(text) = cookie.to_str() else { return cookie.clone() };
    let keep = |attribute: &&str| {
        let (name, value) = attribute.trim().split_once('=').unwrap_or((attribute.trim(), ""));
        let own = value.trim_start_matches('.').eq_ignore_ascii_case(host);
        !(name.eq_ignore_ascii_case("domain") && own || name.eq_ignore_ascii_case("secure"))
    };
    let mut parts = text.split(';');
    let kept: Vec<&str> = parts.next().into_iter().chain(parts.filter(keep)).collect();
    HeaderValue::from_str(&kept.join(";")).unwrap_or_else(|_| cookie.clone())
}

/// A response that the service makes itself.
pub(super) fn own_response(status: hyper::StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_lose_only_what_binds_them_to_the_origin() {
        let changed = |text: &'static str| {
            without_domain(&HeaderValue::from_static(text), "origin.test")
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(changed("a=b; Domain=origin.test; Path=/; Secure"), "a=b; Path=/");
        assert_eq!(changed("a=b; domain=.Origin.test"), "a=b");
        assert_eq!(changed("a=b; Domain=other.test; HttpOnly"), "a=b; Domain=other.test; HttpOnly");
        assert_eq!(changed("secure=1; SameSite=Lax"), "secure=1; SameSite=Lax");
    }
}
