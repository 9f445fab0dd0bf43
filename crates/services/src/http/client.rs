//! The client's side of `http`: a local origin that any browser can use.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming as RequestBody;
use hyper::header;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_session::contexts::PathSession;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::body::{self, ChannelBody};
use super::exchange::{self, ExchangeError, MessageContexts};
use super::head::{RequestHead, ResponseHead, strip};
use super::origin::own_response;

/// Sessions at a time: browsers open six connections to an origin.
const SESSIONS: usize = 6;
/// Local connections at a time.
const CONNECTIONS: usize = 256;
/// How long a local client may take to send a head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a session that is started and can send requests.
pub type Open = Box<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<PathSession, String>> + Send>> + Send + Sync,
>;

/// Why the local origin could not be served.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The listener failed.
    #[error("cannot accept connections: {0}")]
    Accept(#[from] io::Error),
}

/// What the local origin needs.
pub struct Local {
    open: Open,
    /// The values of Host that name this origin.
    hosts: Vec<String>,
    idle: Mutex<Vec<PathSession>>,
    sessions: Semaphore,
}

/// A response of the origin, or one that this side made.
type LocalBody = Either<ChannelBody, String>;

impl Local {
    /// The local origin at `listener`, whose requests travel over sessions of `open`.
    ///
    /// # Errors
    /// [`LocalError`] if the listener has no address.
    pub fn new(listener: &TcpListener, open: Open) -> Result<Arc<Self>, LocalError> {
        let address = listener.local_addr()?;
        let port = address.port();
        let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
        if port == 80 {
            hosts.extend([address.ip().to_string(), "localhost".to_owned()]);
        }
        let sessions = Semaphore::new(SESSIONS);
        Ok(Arc::new(Self { open, hosts, idle: Mutex::default(), sessions }))
    }

    /// Keeps a session for the next request.
    pub async fn keep(&self, session: PathSession) {
        self.idle.lock().await.push(session);
    }

    /// Serves connections until the listener fails.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), LocalError> {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
            let (stream, _) = listener.accept().await?;
            let local = self.clone();
            tokio::spawn(async move {
                let _permit = permit;
                local.serve_connection(stream).await;
            });
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let answer = service_fn(|request| {
            let local = self.clone();
            async move { Ok::<_, Infallible>(local.answer(request).await) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        // A failure affects only this client, which has gone.
        let _ = server.serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn answer(self: Arc<Self>, request: Request<RequestBody>) -> Response<LocalBody> {
        let refused = self.refusal(&request);
        let answered = match refused {
            Some(refused) => return refused.map(Either::Right),
            None => self.exchange(request).await,
        };
        answered
            .unwrap_or_else(|text| own_response(StatusCode::BAD_GATEWAY, &text).map(Either::Right))
    }

    /// What this origin does not do: it answers to no other name, so that no page of another origin can reach it by a name that leads
    /// to this address (DNS rebinding); and it is no proxy.
    fn refusal(&self, request: &Request<RequestBody>) -> Option<Response<String>> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let own = self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        if !own || hosts.next().is_some() {
            let text = format!("this is {}, and not what the field Host names", self.hosts[0]);
            return Some(own_response(StatusCode::MISDIRECTED_REQUEST, &text));
        }
        if request.method() == Method::CONNECT || request.uri().authority().is_some() {
            return Some(own_response(StatusCode::BAD_REQUEST, "this is no proxy"));
        }
        if request.headers().contains_key(header::UPGRADE) {
            let text = "connections cannot be upgraded here, so WebSockets do not work";
            return Some(own_response(StatusCode::NOT_IMPLEMENTED, text));
        }
        None
    }

    async fn exchange(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<Response<LocalBody>, String> {
        let (mut parts, body) = request.into_parts();
        strip(&mut parts.headers);
        parts.headers.remove(header::HOST);
        let head = RequestHead { method: parts.method, target: parts.uri, fields: parts.headers };
        let (respond, response) = tokio::sync::oneshot::channel();
        let method = head.method.clone();
        // A task of its own: the session must get to the end of the exchange also if the local client goes away.
        tokio::spawn(async move {
            if let Err(error) = self.run(head, body, respond).await {
                tracing::debug!(%method, %error, "an exchange failed");
            }
        });
        response.await.map_err(|_| "the session has ended".to_owned())?
    }

    /// Runs one exchange on an idle session, which is idle again after it.
    async fn run(
        &self,
        head: RequestHead,
        body: RequestBody,
        respond: tokio::sync::oneshot::Sender<Result<Response<LocalBody>, String>>,
    ) -> Result<(), ExchangeError> {
        let Ok(_permit) = self.sessions.acquire().await else { return Ok(()) };
        let session = match self.session(&_permit).await {
            Ok(session) => session,
            Err(text) => {
                let _ = respond.send(Err(text));
                return Ok(());
            }
        };
        let path = session.path().ok_or(ExchangeError::Layout)?;
        let requests = MessageContexts::of_requests(&path)?;
        let responses = MessageContexts::of_responses(&path)?;
        let head = head.encode();
        let send = exchange::send(&session, requests, &head, body);
        let receive = async {
            let received = exchange::receive(&session, responses).await?;
            let (head, incoming) =
                received.ok_or(ExchangeError::Ended(" before its answer".to_owned()))?;
            let head = ResponseHead::decode(&head)?;
            let (sender, body) = body::channel();
            let body =
                if incoming.is_over() { Either::Right(String::new()) } else { Either::Left(body) };
            let mut response = Response::new(body);
            *response.status_mut() = head.status;
            *response.headers_mut() = head.fields;
            let _ = respond.send(Ok(response));
            incoming.pass_body(sender).await
        };
        let (sent, received) = tokio::join!(send, receive);
        sent?;
        received?;
        self.keep(session).await;
        Ok(())
    }

    /// An idle session, or a new one. The permit bounds their number.
    async fn session(&self, _: &SemaphorePermit<'_>) -> Result<PathSession, String> {
        let mut idle = self.idle.lock().await;
        while let Some(session) = idle.pop() {
            if session.is_open() {
                return Ok(session);
            }
        }
        drop(idle);
        (self.open)().await
    }

    /// Ends the idle sessions.
    pub async fn close(&self) {
        for session in self.idle.lock().await.drain(..) {
            if session.close().is_ok() {
                session.flushed().await;
            }
        }
    }
}
