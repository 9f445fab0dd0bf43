//! The connection to the origin, at the server.

use std::net::Ipv6Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use super::body::ChannelBody;
use super::forwarded::Forwarding;
use super::head::{RequestHead, ResponseHead};
use super::rewrite::rewrite;

/// How long the origin may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a kept connection may take to be ready for the next request, after the end of the last
/// response.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the origin listens, and what it is told about clients.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// `host:port`.
    authority: String,
    forwarding: Forwarding,
    /// The name of the client, or its identity.
    user: String,
}

impl Origin {
    /// # Errors
    /// A line that names the key and what is wrong.
    pub(super) fn new(authority: String, forwarding: Forwarding) -> Result<Self, String> {
        let is_authority = authority.rsplit_once(':').is_some_and(|(host, port)| {
            let is_name =
                host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let is_ip = ip.is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
            !host.is_empty() && (is_name || is_ip) && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !is_authority {
            return Err(format!(
                "`origin`: expected HOST:PORT, such as \"127.0.0.1:8080\", without `http://` and a path; \
                 it is \"{authority}\""
            ));
        }
        Ok(Self { authority, forwarding, user: String::new() })
    }

    /// Where it listens: `host:port`.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// The same origin, for one client: the pinned name of its identity, or the identity.
    pub(super) fn for_user(&self, user: String) -> Self {
        Self { user, ..self.clone() }
    }
}

/// Why the origin did not answer.
#[derive(Debug, Error)]
pub(super) enum OriginError {
    #[error("the origin cannot be reached: {0}")]
    Unreachable(String),
    #[error("the origin failed: {0}")]
    Failed(#[from] hyper::Error),
    #[error("the origin sent a transfer coding other than chunked, which was not asked for")]
    Coding,
}

/// Idle connections that a session keeps.
const MAX_IDLE: usize = 8;

/// The connections of one session to the origin that wait for a request.
pub(super) struct OriginPool {
    origin: Origin,
    idle: Mutex<Vec<SendRequest<ChannelBody>>>,
}

/// A connection to the origin, which may be kept after an exchange.
pub(super) struct OriginConnection<'a> {
    pool: &'a OriginPool,
    sender: Option<SendRequest<ChannelBody>>,
}

impl OriginPool {
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, idle: Mutex::default() }
    }

    /// A connection for one exchange.
    pub(super) fn connection(&self) -> OriginConnection<'_> {
        OriginConnection { pool: self, sender: self.lock().pop() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SendRequest<ChannelBody>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OriginConnection<'_> {
    /// Keeps the connection for another exchange. If the last one is not complete, it is closed
    /// when it is taken again.
    pub(super) fn keep(self) {
        let mut idle = self.pool.lock();
        if idle.len() < MAX_IDLE {
            idle.extend(self.sender);
        }
    }

    /// The kept connection, if it is still open.
    async fn kept(&mut self) -> Option<SendRequest<ChannelBody>> {
        let mut sender = self.sender.take()?;
        let ready = timeout(READY_TIMEOUT, sender.ready()).await;
        ready.is_ok_and(|ready| ready.is_ok()).then_some(sender)
    }

    async fn connect(&self) -> Result<SendRequest<ChannelBody>, OriginError> {
        let unreachable = |error: String| OriginError::Unreachable(error);
        let authority = &self.pool.origin.authority;
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(authority)).await;
        let stream = stream.map_err(|_| unreachable("no answer".to_owned()))?;
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the origin's connection, or when the sender is dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends a request, and returns the head of the response with its body. `trailers` announces
    /// those of the request; None if none can travel.
    pub(super) async fn send(
        &mut self,
        head: RequestHead,
        body: ChannelBody,
        trailers: Option<&[u8]>,
    ) -> Result<(ResponseHead, hyper::body::Incoming), OriginError> {
        let request = self.request(head, body, trailers);
        let response = match self.kept().await {
            // The origin may close a kept connection at any time: a request that it has not read is
            // sent once more.
            Some(mut kept) => match kept.try_send_request(request).await {
                Ok(response) => (kept, response),
                Err(mut error) => match error.take_message() {
                    Some(request) => self.send_anew(request).await?,
                    None => return Err(error.into_error().into()),
                },
            },
            None => self.send_anew(request).await?,
        };
        self.sender = Some(response.0);
        let (mut parts, body) = response.1.into_parts();
        // What stays encoded would arrive without the field that says so (RFC 9112 section 6.1).
        let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
        if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
            return Err(OriginError::Coding);
        }
        rewrite(&mut parts.headers, &self.pool.origin.authority);
        Ok((ResponseHead { status: parts.status, fields: parts.headers }, body))
    }

    async fn send_anew(
        &self,
        request: Request<ChannelBody>,
    ) -> Result<(SendRequest<ChannelBody>, Response<hyper::body::Incoming>), OriginError> {
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await?;
        Ok((sender, response))
    }

    fn request(
        &self,
        head: RequestHead,
        body: ChannelBody,
        trailers: Option<&[u8]>,
    ) -> Request<ChannelBody> {
        let chunked = !body.is_end_stream();
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = head.target;
        *request.headers_mut() = head.fields;
        let fields = request.headers_mut();
        let origin = &self.pool.origin;
        origin.forwarding.apply(fields, &origin.user);
        if let Ok(authority) = HeaderValue::from_str(&origin.authority) {
            fields.insert(header::HOST, authority);
        }
        if chunked {
            // Also for methods that seldom have a body: without this it would be dropped.
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let Some(names) = trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
            fields.insert(header::CONNECTION, HeaderValue::from_static("te"));
            if let (true, Ok(names)) =
                (chunked && !names.is_empty(), HeaderValue::from_bytes(names))
            {
                fields.insert(header::TRAILER, names);
            }
        }
        request
    }
}

/// A response that the service makes itself.
pub(super) fn own_response(status: hyper::StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
