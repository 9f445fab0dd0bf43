//! `levada approve`: register as an entity, and decide what others ask for.

mod decide;
mod policy;
mod terminal;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levada_capability::exchange::{QuestionError, Registration, Reply};
use levada_core::SystemRandom;
use levada_core::wire::{
    Answered, Asked, Reason, Refusal, Register, SealedReply, SignedQuestion, Withdrawn,
    mediation::Part,
};
use levada_node::client::{Client, Running};
use levada_node::home::Home;
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

/// Questions that are being decided at once; what comes beyond them is told so.
const MAX_OPEN: usize = 256;
/// Questions under one challenge that do not hold. An honest service passes on none, but for those of the challenge
/// before, and those that a requester repeats.
const MAX_UNHEARD: usize = 100;
/// How long the service may take to register us.
const ANSWER: Duration = Duration::from_secs(30);

/// Decide what others ask you for, through a service of type `capability`
///
/// Registers there, and stays until it is ended. Without a policy every question is shown on the
/// terminal, one at a time. What you allow, you ask the other node for yourself, in your own name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada approve --at hub/capability
  levada approve --at hub/capability --policy rules.toml")]
pub struct Arguments {
    /// The service that carries the questions; NODE is a nickname, a name that `levada ls` shows, or IDENTITY@host:port
    #[arg(long, value_name = "NODE/CAPABILITY")]
    at: ServiceTarget,

    /// Decide by the rules of this file (TOML); it says whether to ask where no rule matches
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    names: Names,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let client = Arc::new(Client::new(&Home::open()?)?);
    let policy = match &arguments.policy {
        Some(file) => Policy::load(file, &client)?,
        None => Policy::ask_always(),
    };
    let terminal = if policy.asks() { Some(Terminal::open()?) } else { None };
    let running = mediated::start(&client, &arguments.at, arguments.names, ENTITY).await?;
    let Running { stream, connection, .. } = running;
    let (send, receive) = stream.split();
    let hearing = Registration::new(client.identity(), connection.peer(), &SystemRandom);
    let hearing = hearing.map_err(Failure::local)?;
    let decider = Arc::new(Decider { client: client.clone(), policy, terminal });
    let (open, decisions) = (HashMap::new(), JoinSet::new());
    let entity = Entity { decider, hearing, send, open, decisions, unheard: 0 };
    let failure = entity.serve(receive, &arguments.at).await;
    mediated::leave(&client, &connection).await;
    failure.map(|()| 0)
}

/// A registration, and the questions that are being decided.
struct Entity {
    decider: Arc<Decider>,
    hearing: Registration,
    send: SendHalf,
    open: HashMap<u64, AbortHandle>,
    decisions: JoinSet<(u64, Option<SealedReply>)>,
    unheard: usize,
}

impl Entity {
    /// Serves until the registration ends, and says why it did. Ctrl-C ends the process, which the
    /// service learns at once.
    async fn serve(
        mut self,
        mut receive: ReceiveHalf,
        place: &ServiceTarget,
    ) -> Result<(), Failure> {
        self.register().await?;
        match timeout(ANSWER, mediated::next(&mut receive)).await {
            Ok(Ok(Part::Registered(_))) => {}
            Ok(Ok(_)) => return Err(mediated::unexpected()),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => {
                return Err(Failure::new(UNREACHABLE, "unreachable: the service does not answer"));
            }
        }
        let ServiceTarget { node, service } = place;
        output::note(format_args!("Registered at {node}/{service}. Ctrl-C ends it."));
        loop {
            select! {
                part = mediated::next(&mut receive) => self.take(part?).await?,
                Some(decided) = self.decisions.join_next() => {
                    // What was withdrawn is an error, and of no interest.
                    if let Ok((number, reply)) = decided {
                        self.answer(number, reply).await?;
                    }
                }
            }
        }
    }

    async fn register(&mut self) -> Result<(), Failure> {
        let challenge = self.hearing.challenge().to_vec();
        mediated::say(&mut self.send, Part::Register(Register { challenge })).await
    }

    async fn take(&mut self, part: Part) -> Result<(), Failure> {
        match part {
            Part::Asked(Asked { number, question: Some(signed) }) => {
                self.hear(number, &signed).await
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

    /// Begins to decide a question. One that does not hold gets no reply at all: whoever asked in
    /// earnest did not ask that.
    async fn hear(&mut self, number: u64, signed: &SignedQuestion) -> Result<(), Failure> {
        let question = match self.hearing.accept(signed) {
            Ok(question) => question,
            Err(error) => {
                output::note(format_args!("Not heard: {error}."));
                // Else a requester could end the registration.
                self.unheard += usize::from(error != QuestionError::Repeated);
                let enough = self.unheard >= MAX_UNHEARD;
                return if enough { Err(mediated::unexpected()) } else { Ok(()) };
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
        if self.hearing.is_full() {
            self.hearing.renew(&SystemRandom).map_err(Failure::local)?;
            self.unheard = 0;
            self.register().await?;
        }
        Ok(())
    }

    async fn answer(&mut self, number: u64, reply: Option<SealedReply>) -> Result<(), Failure> {
        self.open.remove(&number);
        match reply {
            Some(reply) => {
                let answered = Answered { number, reply: Some(reply) };
                mediated::say(&mut self.send, Part::Answered(answered)).await
            }
            None => Ok(()),
        }
    }
}
