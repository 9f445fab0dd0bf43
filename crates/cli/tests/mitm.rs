//! A service in the middle that alters, swaps, keeps and repeats what it carries between a real `ask`,
//! a real `approve` and a real node.

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
use node::{Middle, Session};

/// Who decides, who asks, and whose key the middle has.
struct Homes {
    well: Home,
    eve: Home,
    alice: Home,
    bob: Home,
    mallory: Home,
}

/// All of them, connected through the middle.
struct Scene<'a> {
    homes: &'a Homes,
    _well: Node<'a>,
    exec: String,
    middle: Middle,
    /// The entity that has registered, as a process and as the middle sees it.
    approver: Approver,
    entity: Session,
    challenge: Vec<u8>,
    last: u64,
}

/// A requester that has asked, as a process and as the middle sees it.
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
        let mut middle = Middle::new(&self.mallory).await;
        let rules = format!(
            "[[rule]]\nrequesters = ['{}', '{}']\nservices = ['well/exec']\nargs = ['uname', '-s']\n",
            self.alice.identity(),
            self.bob.identity()
        );
        let approver = Approver::spawn(&self.eve, &middle.place, &rules);
        let mut entity = middle.session(ENTITY).await;
        let Part::Register(register) = entity.hear().await else { panic!() };
        entity.say(Part::Registered(Registered {})).await;
        let (homes, challenge) = (self, register.challenge);
        Scene { homes, _well: well, exec, middle, approver, entity, challenge, last: 0 }
    }
}

impl Scene<'_> {
    /// Has somebody ask, and takes the question.
    async fn requester(&mut self, home: &Home) -> Requester {
        let eve = self.homes.eve.identity();
        let words = ["ask", &self.middle.place, "--entity", &eve, "--service", &self.exec];
        let mut command = home.command([&words[..], &["--", "uname", "-s"]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut session = self.middle.session(REQUESTER).await;
        assert!(matches!(session.hear().await, Part::Seek(_)));
        session.say(Part::Found(Found { challenge: self.challenge.clone() })).await;
        let Part::Asked(Asked { question: Some(question), .. }) = session.hear().await else {
            panic!()
        };
        Requester { child, session, question }
    }

    /// Passes a question to the entity.
    async fn pass(&mut self, question: SignedQuestion) {
        self.last += 1;
        self.entity.say(Part::Asked(Asked { number: self.last, question: Some(question) })).await;
    }

    /// Passes a question to the entity, and takes its reply.
    async fn reply(&mut self, question: SignedQuestion) -> SealedReply {
        self.pass(question).await;
        let Part::Answered(Answered { number, reply: Some(reply) }) = self.entity.hear().await
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
    /// Hands something over as the reply, and gives what came of it.
    async fn ends(mut self, reply: SealedReply) -> Ran {
        self.session.say(Part::Answered(Answered { number: 0, reply: Some(reply) })).await;
        ended(self.child).await
    }
}

async fn ended(child: Child) -> Ran {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await;
    output.unwrap().unwrap().into()
}

const NOT_THE_REPLY: &str = "is not the reply of";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_carried_faithfully_arrives_and_is_of_no_use_to_the_middle() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let question = String::from_utf8_lossy(&alice.question.body).into_owned();
    // What is asked for is no secret from the middle; docs say so.
    assert!(question.contains("uname"));
    let reply = scene.reply(alice.question.clone()).await;
    let capability = alice.ends(reply.clone()).await.ok();
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "Linux");
    let text = capability.as_bytes();
    for part in [&reply.encapsulation, &reply.sealed, &reply.signature] {
        assert!(!part.windows(16).any(|window| text.windows(16).any(|other| other == window)));
    }
    // Even the whole text would be of no use to him.
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
async fn a_reply_that_was_altered_is_refused() {
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
async fn replies_that_were_swapped_or_kept_are_refused() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let bob = scene.requester(&homes.bob).await;
    let to_alice = scene.reply(alice.question.clone()).await;
    let to_bob = scene.reply(bob.question.clone()).await;
    alice.ends(to_bob).await.denied(NOT_THE_REPLY);
    bob.ends(to_alice.clone()).await.denied(NOT_THE_REPLY);
    // An old reply, good in its time, for a new question of the same requester.
    let again = scene.requester(&homes.alice).await;
    again.ends(to_alice).await.denied(NOT_THE_REPLY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_altered_or_asked_before_is_not_heard() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let alice = scene.requester(&homes.alice).await;
    let mut altered = alice.question.clone();
    let at = altered.body.windows(5).position(|part| part == b"uname").unwrap();
    altered.body[at] = b'v';
    scene.pass(altered).await;
    eventually("it is not heard", || scene.approver.log().contains("not signed by who"));
    let reply = scene.reply(alice.question.clone()).await;
    scene.pass(alice.question.clone()).await;
    eventually("it is not heard", || scene.approver.log().contains("asked before"));
    // Any requester could repeat his own through an honest service: that ends nobody's registration.
    for _ in 0..120 {
        scene.pass(alice.question.clone()).await;
    }
    // The reply to the next question comes next: the one that was repeated had none.
    let bob = scene.requester(&homes.bob).await;
    let to_bob = scene.reply(bob.question.clone()).await;
    bob.ends(to_bob).await.ok();
    alice.ends(reply).await.ok();
    assert_eq!(scene.requested(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middle_that_asks_in_its_own_name_is_judged_by_it() {
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
async fn the_middle_can_only_hold_back() {
    let homes = Homes::new();
    let mut scene = homes.scene().await;
    let mut alice = scene.requester(&homes.alice).await;
    let text = "the entity said yes, and here is\u{1b}[2J nothing";
    alice.session.say(Part::Ended(Ended { cause: Cause::Away.into(), text: text.into() })).await;
    let ran = ended(alice.child).await;
    assert!(!ran.stderr.contains('\u{1b}'));
    ran.fails(122, "unreachable");
    // A challenge of its own making: the entity does not hear what was made for it.
    scene.challenge = vec![7; 32];
    let alice = scene.requester(&homes.alice).await;
    scene.pass(alice.question.clone()).await;
    eventually("it is not heard", || scene.approver.log().contains("another registration"));
    drop(alice.session);
    ended(alice.child).await.fails(123, "");
    assert_eq!(scene.requested(), 0);
}
