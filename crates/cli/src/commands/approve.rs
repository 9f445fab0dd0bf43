//! `levada approve`: registers as an entity, and decides questions of requesters.

mod decide;
mod policy;
mod terminal;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levada_capability::exchange::{QuestionError, Registration, Reply};
use levada_client::{Client, ClientError, Running};
use levada_core::SystemRandom;
use levada_core::wire::{
    Answered, Asked, Reason, Refusal, Register, SealedReply, SignedQuestion, Withdrawn,
    mediation::Part,
};
use levada_home::Home;
use levada_home::known::Known;
use levada_services::brokering::mediation::ENTITY;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::select;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::failure::{Failure, Outcome, UNREACHABLE};
use crate::names::Names;
use crate::service_target::ServiceTarget;
use crate::{mediated, output};
use decide::Decider;
use policy::Policy;
use terminal::Terminal;

/// Questions that are decided at once; further ones are answered with [`Reason::Busy`].
const MAX_OPEN: usize = 256;
/// Invalid questions under one challenge, after which the registration ends. A service of ours
/// forwards none but those of the previous challenge, and those that a requester repeats.
const MAX_INVALID: usize = 100;
/// How long the service may take to answer the registration.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(30);

/// Decide the questions that others ask you through a service of type `capability`
///
/// Registers there, and runs until it is ended. Without a policy every question is shown on the
/// terminal, one at a time. For each allowed question a session is requested from the other node
/// under your identity.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada approve --at hub/capability
  levada approve --at hub/capability --policy rules.toml")]
pub struct Arguments {
    /// The service that carries the questions; NODE is a nickname, a name that `levada ls` shows,
    /// or IDENTITY@host:port
    #[arg(long, value_name = "NODE/CAPABILITY")]
    at: ServiceTarget,

    /// Decide by the rules of this file (TOML); it also says whether to ask on the terminal if no
    /// rule matches
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    names: Names,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let client = Arc::new(Client::new(&Home::open()?)?);
    let policy = match arguments.policy {
        Some(file) => {
            let load = move |known: &Known| Ok::<_, ClientError>(Policy::load(&file, known));
            client.with_known(load).await??
        }
        None => Policy::ask_always(),
    };
    let terminal = if policy.asks() { Some(Terminal::open()?) } else { None };
    let running = mediated::start(&client, &arguments.at, arguments.names, ENTITY).await?;
    let Running { stream, connection, .. } = running;
    let (send, receive) = stream.split();
    let registration = Registration::new(client.identity(), connection.peer(), &SystemRandom);
    let registration = registration.map_err(Failure::local)?;
    let decider = Arc::new(Decider { client: client.clone(), policy, terminal });
    let open = HashMap::new();
    let decisions = JoinSet::new();
    let entity = Entity { decider, registration, send, open, decisions, invalid: 0 };
    let failure = entity.serve(receive, &arguments.at).await;
    mediated::close(&client, &connection).await;
    failure.map(|()| 0)
}

/// A registration, and the questions that are being decided.
struct Entity {
    decider: Arc<Decider>,
    registration: Registration,
    send: SendHalf,
    open: HashMap<u64, AbortHandle>,
    decisions: JoinSet<(u64, Option<SealedReply>)>,
    invalid: usize,
}

impl Entity {
    /// Serves until the registration ends, and returns why. Ctrl-C ends the process; the closed
    /// connection ends the registration.
    async fn serve(
        mut self,
        mut receive: ReceiveHalf,
        target: &ServiceTarget,
    ) -> Result<(), Failure> {
        self.register().await?;
        match timeout(REGISTER_TIMEOUT, mediated::receive(&mut receive)).await {
            Ok(Ok(Part::Registered(_))) => {}
            Ok(Ok(_)) => return Err(mediated::unexpected()),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => {
                return Err(Failure::new(UNREACHABLE, "unreachable: the service does not answer"));
            }
        }
        output::note(format_args!("Registered at {target}. Ctrl-C ends it."));
        loop {
            select! {
                part = mediated::receive(&mut receive) => self.handle(part?).await?,
                Some(decided) = self.decisions.join_next() => {
                    // The task of a withdrawn question was aborted, which is an error here.
                    if let Ok((number, reply)) = decided {
                        self.answer(number, reply).await?;
                    }
                }
            }
        }
    }

    async fn register(&mut self) -> Result<(), Failure> {
        let challenge = self.registration.challenge().to_vec();
        mediated::send(&mut self.send, Part::Register(Register { challenge, answers_node: true }))
            .await
    }

    async fn handle(&mut self, part: Part) -> Result<(), Failure> {
        match part {
            Part::Asked(Asked { number, question: Some(signed) }) => {
                self.begin(number, &signed).await
            }
            Part::Withdrawn(Withdrawn { number }) => {
                if let Some(deciding) = self.open.remove(&number) {
                    deciding.abort();
                }
                Ok(())
            }
            _ => Err(mediated::unexpected()),
        }
    }

    /// Verifies a question, and starts to decide it. An invalid one gets no reply: the requester
    /// did not ask it.
    async fn begin(&mut self, number: u64, signed: &SignedQuestion) -> Result<(), Failure> {
        let question = match self.registration.accept(signed) {
            Ok(question) => question,
            Err(error) => {
                output::note(format_args!("Question rejected: {error}."));
                // Repeated questions do not count: a requester could end the registration with
                // them.
                self.invalid += usize::from(error != QuestionError::Repeated);
                let too_many = self.invalid >= MAX_INVALID;
                return if too_many { Err(mediated::unexpected()) } else { Ok(()) };
            }
        };
        if self.decisions.len() >= MAX_OPEN {
            let refusal = Refusal::new(Reason::Busy, "too many questions at once; ask again");
            let reply = self.decider.seal(&question, &Reply::Failed(refusal));
            self.answer(number, reply).await?;
        } else {
            let decider = self.decider.clone();
            let deciding = self.decisions.spawn(async move {
                let reply = decider.decide(&question).await;
                (number, decider.seal(&question, &reply))
            });
            self.open.insert(number, deciding);
        }
        if self.registration.is_full() {
            self.registration.renew(&SystemRandom).map_err(Failure::local)?;
            self.invalid = 0;
            self.register().await?;
        }
        Ok(())
    }

    async fn answer(&mut self, number: u64, reply: Option<SealedReply>) -> Result<(), Failure> {
        self.open.remove(&number);
        match reply {
            Some(reply) => {
                let answered = Answered { number, reply: Some(reply) };
                mediated::send(&mut self.send, Part::Answered(answered)).await
            }
            None => Ok(()),
        }
    }
}
