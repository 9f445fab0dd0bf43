//! Starts a session, and restarts it when the connection to the node was lost.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::forward::{Address, CarryError, Cause, LISTEN, Socket};
use levada_capability::Capability;
use levada_core::{Backoff, Params, encode_list, format_duration};
use tokio::time::{sleep, timeout};

use super::listeners::Listeners;
use super::session::{Ended, Session};
use super::{DENIED, ForwardError, Mode, Plan, Reporter, Stop, UNREACHABLE, carry};
use levada_client::{Client, ClientError, RequestSpec, Target, Verdict};

/// How long the node may take to send the addresses at which it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The right by which sessions are started.
pub enum Right {
    /// Each session is requested from the node.
    Request {
        /// The node.
        target: Target,
        /// The name of the service.
        service: String,
    },
    /// A capability. Each start counts as a use of it.
    Capability(Box<Capability>),
}

/// Starts sessions, and carries their connections.
pub struct Reconnector {
    client: Arc<Client>,
    right: Right,
    plan: Plan,
    listeners: Listeners,
    report: Reporter,
    stop: Stop,
    /// The addresses at which connections are accepted, as reported last: those of the node with
    /// [`Mode::Reverse`].
    reported: Option<String>,
}

/// Why there is no session.
enum Failed {
    /// A retry may succeed.
    Temporary(String),
    /// A retry is pointless.
    Permanent(ForwardError),
}

impl Reconnector {
    /// Listens at the addresses of the plan.
    ///
    /// # Errors
    /// [`ForwardError`] 120 if an address cannot be bound.
    pub async fn new(
        client: Arc<Client>,
        right: Right,
        plan: Plan,
        report: Reporter,
        stop: Stop,
    ) -> Result<Self, ForwardError> {
        let listeners = Listeners::open(&plan.listen, matches!(plan.mode, Mode::Udp(_))).await?;
        Ok(Self { client, right, plan, listeners, report, stop, reported: None })
    }

    /// Carries connections until it is stopped or the right has ended. Returns the exit code.
    pub async fn run(mut self) -> Result<u8, ForwardError> {
        let mut backoff = Backoff::default();
        loop {
            let reported = self.reported.as_deref();
            let start = start(&self.client, &self.right, &self.plan, reported, &self.report);
            let started = meanwhile(&mut self.listeners, &mut self.stop, start).await;
            let failed = match started {
                None => break,
                Some(Ok((session, remote))) => {
                    self.report_listening(remote)?;
                    self.report.carries(None);
                    backoff.reset();
                    match self.serve(session).await {
                        Ended::Interrupted => break,
                        Ended::Refused(code) => return Ok(code),
                        Ended::Broken(failure) => return Err(failure),
                        Ended::Lost(error) => classify(error, true),
                    }
                }
                Some(Err(failed)) => failed,
            };
            let pause = backoff.pause();
            match failed {
                Failed::Permanent(failure) => return Err(failure),
                Failed::Temporary(text) => {
                    self.report.carries(Some(&text));
                    let pause_text = format_duration(pause);
                    self.report.note(&format!("{text}; trying again in {pause_text}"));
                }
            }
            if meanwhile(&mut self.listeners, &mut self.stop, sleep(pause)).await.is_none() {
                break;
            }
        }
        self.client.close();
        Ok(0)
    }

    async fn serve(&mut self, mut session: Session) -> Ended {
        let ended = session.serve(&self.plan.mode, &mut self.listeners, &mut self.stop).await;
        session.end().await;
        ended
    }

    /// Reports the addresses at which connections are accepted: `remote` if the node listens,
    /// otherwise those of this side.
    fn report_listening(&mut self, remote: Option<String>) -> Result<(), ForwardError> {
        let now = remote.unwrap_or_else(|| self.listeners.addresses.join("\n"));
        match &self.reported {
            None => self.report.listening(&now)?,
            Some(before) if *before == now => self.report.note("connected again"),
            Some(_) => self.report.note(&format!("connected again; the node now listens at {now}")),
        }
        self.reported = Some(now);
        Ok(())
    }
}

impl Failed {
    fn into_error(self) -> ForwardError {
        match self {
            Self::Temporary(text) => ForwardError::new(UNREACHABLE, text),
            Self::Permanent(error) => error,
        }
    }
}

/// Starts a session. Also returns the address at which the node listens, if it does. `reported` has
/// the addresses of an earlier session.
async fn start(
    client: &Client,
    right: &Right,
    plan: &Plan,
    reported: Option<&str>,
    report: &Reporter,
) -> Result<(Session, Option<String>), Failed> {
    let is_restart = reported.is_some();
    let capability = match right {
        Right::Capability(capability) => capability.as_ref().clone(),
        Right::Request { target, service } => {
            let spec = request(service, plan, reported).map_err(Failed::Permanent)?;
            let mut granted = client.request(target, spec.clone()).await;
            // The node may have another address now: browse for its key.
            if is_restart
                && granted.as_ref().is_err_and(ClientError::is_unreachable)
                && let Ok(moved) = found_by_key(client, target).await
            {
                granted = client.request(&moved, spec).await;
            }
            granted.map_err(|error| classify(error, is_restart))?
        }
    };
    let started = client.connect_with_streams(&capability).await;
    let mut session =
        Session::new(started.map_err(|error| classify(error, is_restart))?, report.clone());
    let Mode::Reverse(_) = plan.mode else { return Ok((session, None)) };
    match timeout(LISTEN_TIMEOUT, session.listening()).await {
        Ok(Ok(address)) => Ok((session, Some(address))),
        // The earlier session may still occupy the address, until the node detects its loss.
        Ok(Err(Ended::Refused(_))) if is_restart => {
            Err(Failed::Temporary("the node cannot listen".into()))
        }
        Ok(Err(Ended::Refused(code))) => Err(Failed::Permanent(ForwardError::new(code, ""))),
        Ok(Err(Ended::Lost(error))) => Err(classify(error, is_restart)),
        Ok(Err(Ended::Broken(failure))) => Err(Failed::Permanent(failure)),
        Ok(Err(Ended::Interrupted)) | Err(_) => {
            let error = ClientError::Unreachable(
                "the node did not send the address at which it listens".into(),
            );
            Err(classify(error, is_restart))
        }
    }
}

/// Carries the single connection of `socket` to the target of `plan`. Returns the exit code when
/// both directions have ended.
///
/// # Errors
/// [`ForwardError`] 121 if the node does not permit the target, 122 if it cannot be reached, or the
/// connection was cut.
pub async fn carry_one(
    client: &Client,
    right: &Right,
    plan: &Plan,
    socket: Socket,
    report: &Reporter,
) -> Result<u8, ForwardError> {
    let Mode::To(target) = &plan.mode else {
        return Err(ForwardError::local("one connection goes to one HOST:PORT or unix:/PATH"));
    };
    let (mut session, _) =
        start(client, right, plan, None, report).await.map_err(Failed::into_error)?;
    let target: Address = target.clone();
    let carried = session.during(|opener| carry::one(opener, target, socket)).await;
    session.end().await;
    match carried {
        Ok(Ok(())) => Ok(0),
        Ok(Err(CarryError::Refused(failure))) => {
            let code = if failure.cause == Cause::NotAllowed { DENIED } else { UNREACHABLE };
            Err(ForwardError::new(code, failure))
        }
        Ok(Err(CarryError::Stream(error))) => Err(ClientError::from(error).into()),
        Ok(Err(cut)) => Err(ForwardError::new(UNREACHABLE, cut)),
        Err(Ended::Refused(code)) => Ok(code),
        Err(Ended::Broken(failure)) => Err(failure),
        Err(Ended::Lost(error)) => Err(error.into()),
        Err(Ended::Interrupted) => Ok(0),
    }
}

async fn found_by_key(client: &Client, target: &Target) -> Result<Target, ClientError> {
    // The target is a key, so no name is to be confirmed.
    client.resolve(&target.identity.to_string(), |_| Verdict::Unasked).await
}

/// The request. If the node chose a free port for an earlier session, this one requests the same
/// port.
fn request(
    service: &str,
    plan: &Plan,
    reported: Option<&str>,
) -> Result<RequestSpec, ForwardError> {
    let mut args = plan.args.clone();
    if let (Mode::Reverse(_), Some(address)) = (&plan.mode, reported) {
        args = vec![format!("{LISTEN}{address}")];
    }
    let mut params = Params::new();
    params.add(Params::ARGS, encode_list(&args))?;
    Ok(RequestSpec { service: service.to_owned(), params, uses: 1, ..RequestSpec::default() })
}

/// Waits for `work`, and resets connections that are accepted in the meantime. `None` if it is
/// stopped.
async fn meanwhile<T>(
    listeners: &mut Listeners,
    stop: &mut Stop,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Some(done),
            () = stop.stopped() => return None,
            // Dropping a connection resets it, so that its program does not wait for the node.
            accepted = listeners.accept() => drop(accepted),
        }
    }
}

/// A failed restart is retried unless it was refused. A failed first start is an error.
fn classify(error: ClientError, is_restart: bool) -> Failed {
    if is_restart && !error.is_refusal() {
        return Failed::Temporary(error.to_string());
    }
    Failed::Permanent(error.into())
}
