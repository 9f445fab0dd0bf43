//! Keeps a session: starts it, and starts it anew when the connection to the node was lost.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::forward::{Address, CarryError, Cause, LISTEN, Socket};
use levada_capability::Capability;
use levada_core::{Backoff, Params, encode_list};
use tokio::time::{sleep, timeout};

use super::listeners::Listeners;
use super::session::{Ended, Session};
use super::{DENIED, ForwardError, Mode, Plan, Reporter, Stop, UNREACHABLE, carry};
use levada_client::{Client, ClientError, RequestSpec, Target, Verdict};

/// How long the node may take to say where it listens.
const LISTEN_WITHIN: Duration = Duration::from_secs(10);

/// What a session is started by.
pub enum Right {
    /// Each one is requested anew.
    Request {
        /// Where.
        target: Target,
        /// Of which service.
        service: String,
    },
    /// Each start counts as a use of it.
    Capability(Box<Capability>),
}

/// Starts sessions and carries what comes.
pub struct Reconnector {
    client: Arc<Client>,
    right: Right,
    plan: Plan,
    listeners: Listeners,
    report: Reporter,
    stop: Stop,
    /// It has been said where connections come in: at the node, if that is where.
    told: Option<String>,
}

/// Why there is no session.
enum Failed {
    /// There may be one later.
    Now(String),
    /// There will be none.
    For(ForwardError),
}

impl Reconnector {
    /// Listens where the plan says.
    ///
    /// # Errors
    /// [`ForwardError`] 120 if that is not possible.
    pub async fn new(
        client: Arc<Client>,
        right: Right,
        plan: Plan,
        report: Reporter,
        stop: Stop,
    ) -> Result<Self, ForwardError> {
        let listeners = Listeners::open(&plan.listen, matches!(plan.mode, Mode::Udp(_))).await?;
        Ok(Self { client, right, plan, listeners, report, stop, told: None })
    }

    /// Carries connections until it is stopped, or the right has ended: gives the exit code.
    pub async fn run(mut self) -> Result<u8, ForwardError> {
        let mut backoff = Backoff::default();
        loop {
            let start =
                start(&self.client, &self.right, &self.plan, self.told.as_deref(), &self.report);
            let started = meanwhile(&mut self.listeners, &mut self.stop, start).await;
            let failed = match started {
                None => break,
                Some(Ok((session, place))) => {
                    self.tell(place)?;
                    self.report.carries(None);
                    backoff.reset();
                    match self.serve(session).await {
                        Ended::Interrupted => break,
                        Ended::Refused(code) => return Ok(code),
                        Ended::Broken(failure) => return Err(failure),
                        Ended::Lost(error) => judge(error, true),
                    }
                }
                Some(Err(failed)) => failed,
            };
            let pause = backoff.pause();
            match failed {
                Failed::For(failure) => return Err(failure),
                Failed::Now(text) => {
                    self.report.carries(Some(&text));
                    self.report.note(&format!("{text}; trying again in {} s", pause.as_secs()));
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

    /// Says where connections come in, for whoever waits for that: `place` is at the node.
    fn tell(&mut self, place: Option<String>) -> Result<(), ForwardError> {
        let now = place.unwrap_or_else(|| self.listeners.addresses.join("\n"));
        match &self.told {
            None => self.report.listening(&now)?,
            Some(before) if *before == now => self.report.note("connected again"),
            Some(_) => self.report.note(&format!("connected again; the node listens at {now} now")),
        }
        self.told = Some(now);
        Ok(())
    }
}

impl Failed {
    fn into_error(self) -> ForwardError {
        match self {
            Self::Now(text) => ForwardError::new(UNREACHABLE, text),
            Self::For(error) => error,
        }
    }
}

/// Starts a session; also gives where the node listens, if it does. `told` is what was said of an earlier one.
async fn start(
    client: &Client,
    right: &Right,
    plan: &Plan,
    told: Option<&str>,
    report: &Reporter,
) -> Result<(Session, Option<String>), Failed> {
    let again = told.is_some();
    let capability = match right {
        Right::Capability(capability) => capability.as_ref().clone(),
        Right::Request { target, service } => {
            let spec = request(service, plan, told).map_err(Failed::For)?;
            let mut asked = client.request(target, spec.clone()).await;
            // A node that has come back somewhere else is looked for by its key.
            if again
                && matches!(asked, Err(ClientError::Unreachable(_) | ClientError::OtherKey(_)))
                && let Ok(moved) = found_by_key(client, target).await
            {
                asked = client.request(&moved, spec).await;
            }
            asked.map_err(|error| judge(error, again))?
        }
    };
    let started = client.connect_with_streams(&capability).await;
    let mut session = Session::new(started.map_err(|error| judge(error, again))?, report.clone());
    let Mode::Reverse(_) = plan.mode else { return Ok((session, None)) };
    match timeout(LISTEN_WITHIN, session.listening()).await {
        Ok(Ok(place)) => Ok((session, Some(place))),
        // The node may not have noticed yet that the session before was lost.
        Ok(Err(Ended::Refused(_))) if again => Err(Failed::Now("the node cannot listen".into())),
        Ok(Err(Ended::Refused(code))) => Err(Failed::For(ForwardError::new(code, ""))),
        Ok(Err(Ended::Lost(error))) => Err(judge(error, again)),
        Ok(Err(Ended::Broken(failure))) => Err(Failed::For(failure)),
        Ok(Err(Ended::Interrupted)) | Err(_) => {
            let error = ClientError::Unreachable("the node does not say where it listens".into());
            Err(judge(error, again))
        }
    }
}

/// Carries one connection, that of `socket`, to `target`: gives the exit code when both directions have ended.
///
/// # Errors
/// [`ForwardError`] 121 if the node does not let it be made, 122 if it cannot be made, or was cut.
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
    // A key is no name: there is nothing to be asked.
    client.resolve(&target.identity.to_string(), |_| Verdict::Unasked).await
}

/// What is requested: after a free port was found at the node, the same one again.
fn request(service: &str, plan: &Plan, told: Option<&str>) -> Result<RequestSpec, ForwardError> {
    let mut args = plan.args.clone();
    if let (Mode::Reverse(_), Some(place)) = (&plan.mode, told) {
        args = vec![format!("{LISTEN}{place}")];
    }
    let mut params = Params::new();
    params.add(Params::ARGS, encode_list(&args))?;
    Ok(RequestSpec { service: service.to_owned(), params, uses: 1, ..RequestSpec::default() })
}

/// Waits for `work`, and turns away who comes in the meantime; `None` if it is stopped.
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
            // Dropped, it is reset: nobody waits for what may never come.
            accepted = listeners.accept() => drop(accepted),
        }
    }
}

/// What was lost can be had `again`, unless it was refused for good. What never was is an error.
fn judge(error: ClientError, again: bool) -> Failed {
    if again && !error.is_refusal() {
        return Failed::Now(error.to_string());
    }
    Failed::For(error.into())
}
