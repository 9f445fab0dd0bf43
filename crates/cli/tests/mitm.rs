//! A hostile mediator: a service `capability` that alters, swaps, withholds and replays the
//! messages between a real `levada ask`, a real `levada approve` and a real node.

mod hostile_node;
mod node;

use std::process::{Child, Stdio};

use crate::support::entity::Approver;
use crate::support::{Home, Node, Ran, eventually};
use levada_capability::Capability;
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Found, Registered, SealedReply, SignedQuestion, mediation::Part,
};
use levada_services::brokering::mediation::{ENTITY, REQUESTER};
use node::{Mediator, Session};

/// The node, the entity Eve, the requesters Alice and Bob, and the attacker Mallory.
struct Homes {
    well: Home,
    eve: Home,
    alice: Home,
    bob: Home,
    mallory: Home,
}

/// The node, and the entity registered at the mediator.
struct Scene<'a> {
    homes: &'a Homes,
    _well: Node<'a>,
    exec: String,
    mediator: Mediator,
    /// The registered entity: its process, and its session at the mediator.
    approver: Approver,
    entity: Session,
    challenge: Vec<u8>,
    last: u64,
}

/// A requester that has asked: its process, its session at the mediator, and its question.
struct Requester {
    child: Child,
    session: Session,
    question: SignedQuestion,
}

impl Homes {
    fn new() -> Self {
        Self {
            well: Home::new(),
            eve: Home::new(),
            alice: Home::new(),
            bob: Home::new(),
            mallory: Home::new(),
        }
    }

    async fn scene(&self) -> Scene<'_> {
        let well = self.well.up("--demo --name well");
        well.welcome(&self.eve, "well");
        let exec = format!("{}/exec", well.at());
        let mut mediator = Mediator::new(&self.mallory).await;
        let rules = format!(
            "[[rule]]\nrequesters = ['{}', '{}']\nservices = ['well/exec']\nargs = ['uname', '-s']\n",
            self.alice.identity(),
            self.bob.identity()
        );
        let approver = Approver::spawn(&self.eve, &mediator.place, &rules);
        let mut entity = mediator.session(ENTITY).await;
        let Part::Register(register) = entity.receive().await else { panic!() };
        entity.send(Part::Registered(Registered {})).await;
        let homes = self;
        let challenge = register.challenge;
        Scene { homes, _well: well, exec, mediator, approver, entity, challenge, last: 0 }
    }
}

impl Scene<'_> {
    /// Starts `levada ask` from this home and receives its question.
    async fn requester(&mut self, home: &Home) -> Requester {
        let eve = self.homes.eve.identity();
        let words = ["ask", &self.mediator.place, "--entity", &eve, "--service", &self.exec];
        let mut command = home.command([&words[..], &["--", "uname", "-s"]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut session = self.mediator.session(REQUESTER).await;
        assert!(matches!(session.receive().await, Part::Seek(_)));
        session.send(Part::Found(Found { challenge: self.challenge.clone() })).await;
        let Part::Asked(Asked { question: Some(question), .. }) = session.receive().await else {
            panic!()
        };
        Requester { child, session, question }
    }

    /// Passes a question to the entity.
    async fn pass(&mut self, question: SignedQuestion) {
        self.last += 1;
        self.entity.send(Part::Asked(Asked { number: self.last, question: Some(question) })).await;
    }

    /// Passes a question to the entity and receives its reply.
    async fn reply(&mut self, question: SignedQuestion) -> SealedReply {
        self.pass(question).await;
        let Part::Answered(Answered { number, reply: Some(reply) }) = self.entity.receive().await
        else {
            panic!()
        };
        assert_eq!(number, self.last);
        reply
    }

    /// How many sessions the entity has asked the well for.
    fn requested(&self) -> usize {
        self.homes.well.json("sessions")["sessions"].as_array().unwrap().len()
    }
}

impl Requester {
    /// Passes `reply` to the requester: its result.
    async fn ends(mut self, reply: SealedReply) -> Ran {
        self.session.send(Part::Answered(Answered { number: 0, reply: Some(reply) })).await;
        ended(self.child).await
    }
}

async fn ended(child: Child) -> Ran {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await;
    output.unwrap().unwrap().into()
}

const NOT_THE_REPLY: &str = "is not the reply of";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_passed_on_arrives_and_is_useless_to_the_attacker() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let question = String::from_utf8_lossy(&alice.question.body).into_owned();
    // The mediator can read questions (docs/protocol.md).
    assert!(question.contains("uname"));
    let reply = scene.reply(alice.question.clone()).await;
    let capability = alice.ends(reply.clone()).await.ok();
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    let text = capability.as_bytes();
    for part in [&reply.encapsulation, &reply.sealed, &reply.signature] {
        assert!(!part.windows(16).any(|window| text.windows(16).any(|other| other == window)));
    }
    // Even the text of the capability is useless to the attacker.
    homes.mallory.args(["connect", &capability]).denied("bound to another identity");
    let bob = homes.bob.identity();
    let words = ["grant", &capability, "--to", &bob, "--rights", "x"];
    homes.mallory.args(words).denied("bound to another identity");
    homes.mallory.args(["terminate", &capability]).denied("bound to another identity");
    assert_eq!(
        Capability::from_text(&capability).unwrap().holder().to_string(),
        homes.alice.identity()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_altered_reply_is_refused() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    for part in 0..3 {
        let alice = scene.requester(&homes.alice).await;
        let mut reply = scene.reply(alice.question.clone()).await;
        match part {
            0 => reply.encapsulation[7] ^= 1,
            1 => reply.sealed[7] ^= 1,
            _ => reply.signature[7] ^= 1,
        }
        let ran = alice.ends(reply).await;
        assert_eq!(ran.stdout, "");
        ran.denied(NOT_THE_REPLY);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swapped_and_replayed_replies_are_refused() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let bob = scene.requester(&homes.bob).await;
    let to_alice = scene.reply(alice.question.clone()).await;
    let to_bob = scene.reply(bob.question.clone()).await;
    alice.ends(to_bob).await.denied(NOT_THE_REPLY);
    bob.ends(to_alice.clone()).await.denied(NOT_THE_REPLY);
    // A replayed reply for a new question of the same requester.
    let again = scene.requester(&homes.alice).await;
    again.ends(to_alice).await.denied(NOT_THE_REPLY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn altered_and_replayed_questions_are_ignored() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let mut altered = alice.question.clone();
    let at = altered.body.windows(5).position(|part| part == b"uname").unwrap();
    altered.body[at] = b'v';
    scene.pass(altered).await;
    eventually("the question is refused", || {
        scene.approver.log().contains("not signed by its requester")
    });
    let reply = scene.reply(alice.question.clone()).await;
    scene.pass(alice.question.clone()).await;
    eventually("the question is refused", || scene.approver.log().contains("asked before"));
    // Any requester could repeat its own question through an honest mediator: that does not end the
    // registration.
    for _ in 0..120 {
        scene.pass(alice.question.clone()).await;
    }
    // The next reply answers the next question: the replayed ones were not answered.
    let bob = scene.requester(&homes.bob).await;
    let to_bob = scene.reply(bob.question.clone()).await;
    bob.ends(to_bob).await.ok();
    alice.ends(reply).await.ok();
    assert_eq!(scene.requested(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attackers_own_question_is_decided_by_its_identity() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let mallory = scene.requester(&homes.mallory).await;
    let reply = scene.reply(mallory.question.clone()).await;
    mallory.ends(reply.clone()).await.fails(1, "no rule allows it");
    alice.ends(reply).await.denied(NOT_THE_REPLY);
    assert_eq!(scene.requested(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attacker_can_only_withhold_messages() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let mut alice = scene.requester(&homes.alice).await;
    let text = "the entity said yes, and here is\u{1b}[2J nothing";
    alice.session.send(Part::Ended(Ended { cause: Cause::Away.into(), text: text.into() })).await;
    let ran = ended(alice.child).await;
    assert!(!ran.stderr.contains('\u{1b}'));
    ran.fails(122, "unreachable");
    // With a challenge of the attacker, the entity refuses the question.
    scene.challenge = vec![7; 32];
    let alice = scene.requester(&homes.alice).await;
    scene.pass(alice.question.clone()).await;
    eventually("the question is refused", || scene.approver.log().contains("another registration"));
    drop(alice.session);
    ended(alice.child).await.fails(123, "reset the stream of the session");
    assert_eq!(scene.requested(), 0);
}
