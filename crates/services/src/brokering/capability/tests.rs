//! The service between real clients: the delivery of questions and replies, disconnects and limits.

use levada_capability::exchange::{
    PendingQuestion, Question, Registration, Reply, Route, SessionRequest,
};
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Reason, Refusal, Register, SealedReply, Seek, mediation::Part,
};
use levada_core::{Params, SecretKey, SystemRandom, UnixTime};
use levada_service::testing::{definition, invocation, params};
use levada_service::{Context, Entities, ServiceError};
use levada_session::{ReceiveHalf, SendHalf, testing};
use tokio::task::JoinHandle;

use super::*;
use crate::brokering::mediation;

/// A service that several clients use.
struct Scene(Mediator);

/// The client's end of a session; the service's end runs in a task.
struct End {
    send: SendHalf,
    receive: ReceiveHalf,
    service: JoinHandle<Result<(), ServiceError>>,
}

fn register(challenge: &[u8]) -> Register {
    Register { challenge: challenge.to_vec(), answers_node: true }
}

impl Scene {
    fn new(options: &str) -> Self {
        let text = format!("name = 'capability'\ntype = 'capability'\n{options}");
        let options: Options = definition(service_type(), &text).unwrap().read_options().unwrap();
        Self(Mediator::new(&levada_service::testing::context(), &options))
    }

    fn node(&self) -> Identity {
        self.0.node
    }

    async fn session(&self, holder: Identity, role: &str) -> End {
        let (near, far) = testing::pair().await.unwrap();
        let run = self
            .0
            .prepare(&params(&[(ROLE, role.as_bytes())]), Over::Stream)
            .unwrap()
            .into_stream()
            .unwrap();
        let service = tokio::spawn(run.start(Invocation { holder, ..invocation() }, far));
        let (send, receive) = near.split();
        End { send, receive, service }
    }

    /// A registered entity.
    async fn entity(&self, key: &SecretKey) -> (End, Registration) {
        let registration = Registration::new(key.identity(), self.node(), &SystemRandom).unwrap();
        let mut end = self.session(key.identity(), ENTITY).await;
        end.send(Part::Register(register(registration.challenge()))).await;
        assert!(matches!(end.receive().await, Part::Registered(_)));
        (end, registration)
    }

    /// A requester that has asked `entity`.
    async fn requester(&self, key: &SecretKey, entity: Identity) -> (End, PendingQuestion) {
        self.requester_for(key, entity, Params::new()).await
    }

    /// A requester that has asked `entity` for a session with these parameters.
    async fn requester_for(
        &self,
        key: &SecretKey,
        entity: Identity,
        params: Params,
    ) -> (End, PendingQuestion) {
        let mut end = self.session(key.identity(), REQUESTER).await;
        end.send(Part::Seek(Seek { entity: entity.as_bytes().to_vec() })).await;
        let Part::Found(found) = end.receive().await else { panic!() };
        let challenge = found.challenge.try_into().unwrap();
        let (pending, question) = question_for(key, entity, self.node(), challenge, params);
        end.send(Part::Asked(Asked { number: 0, question: Some(question) })).await;
        (end, pending)
    }
}

impl End {
    async fn send(&mut self, part: Part) {
        mediation::send(&mut self.send, part).await.unwrap();
    }

    async fn receive(&mut self) -> Part {
        mediation::receive(&mut self.receive).await.unwrap().unwrap()
    }

    /// Receives the reason why the session ends.
    async fn ends(&mut self) -> (Cause, String) {
        let Part::Ended(ended) = self.receive().await else { panic!() };
        self.send.finish().await.unwrap();
        (ended.cause(), ended.text)
    }

    /// The next question, and its number.
    async fn question(&mut self, registration: &mut Registration) -> (u64, Question) {
        let Part::Asked(asked) = self.receive().await else { panic!() };
        (asked.number, registration.accept(&asked.question.unwrap()).unwrap())
    }

    async fn answer(&mut self, number: u64, question: &Question, key: &SecretKey, text: &str) {
        let reply = Reply::No(Refusal::new(Reason::Denied, text));
        let reply = Some(question.reply(key, &reply).unwrap());
        self.send(Part::Answered(Answered { number, reply })).await;
    }

    /// The text of the entity's reply.
    async fn reads(&mut self, pending: &PendingQuestion) -> String {
        let Part::Answered(answered) = self.receive().await else { panic!() };
        let Reply::No(refusal) = pending.read(&answered.reply.unwrap()).unwrap() else { panic!() };
        self.send.finish().await.unwrap();
        refusal.text
    }
}

fn question(
    key: &SecretKey,
    entity: Identity,
    via: Identity,
    challenge: [u8; 32],
) -> (PendingQuestion, levada_core::wire::SignedQuestion) {
    question_for(key, entity, via, challenge, Params::new())
}

fn question_for(
    key: &SecretKey,
    entity: Identity,
    via: Identity,
    challenge: [u8; 32],
    params: Params,
) -> (PendingQuestion, levada_core::wire::SignedQuestion) {
    let route = Route { via, entity, challenge, until: UnixTime::NEVER };
    let request = SessionRequest {
        node: Identity::from_bytes([9; 32]),
        addresses: Vec::new(),
        service: "echo".into(),
        params,
        expires: None,
        uses: 1,
    };
    PendingQuestion::new(key, &route, request, &SystemRandom).unwrap()
}

fn key() -> SecretKey {
    SecretKey::generate(&SystemRandom).unwrap()
}

#[tokio::test]
async fn replies_reach_their_requesters_in_any_order() {
    let scene = Scene::new("");
    let [alice, bob, one, two] = [(); 4].map(|()| key());
    let (mut first, mut hears_first) = scene.entity(&one).await;
    let (mut second, mut hears_second) = scene.entity(&two).await;
    let (mut alices, alice_asks) = scene.requester(&alice, one.identity()).await;
    let (number, from_alice) = first.question(&mut hears_first).await;
    let (mut bobs, bob_asks) = scene.requester(&bob, one.identity()).await;
    let (other, from_bob) = first.question(&mut hears_first).await;
    let (mut again, again_asks) = scene.requester(&alice, two.identity()).await;
    let (third, from_again) = second.question(&mut hears_second).await;
    assert_eq!(from_alice.requester, alice.identity());
    assert_eq!(from_bob.requester, bob.identity());
    second.answer(third, &from_again, &two, "third").await;
    first.answer(other, &from_bob, &one, "second").await;
    first.answer(number, &from_alice, &one, "first").await;
    assert_eq!(alices.reads(&alice_asks).await, "first");
    assert_eq!(bobs.reads(&bob_asks).await, "second");
    assert_eq!(again.reads(&again_asks).await, "third");
    for end in [alices, bobs, again] {
        end.service.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_question_for_an_unregistered_entity_is_refused() {
    let scene = Scene::new("");
    let alice = key();
    let one = key();
    let seek = || Part::Seek(Seek { entity: one.identity().as_bytes().to_vec() });
    let mut end = scene.session(alice.identity(), REQUESTER).await;
    end.send(seek()).await;
    assert_eq!(end.ends().await, (Cause::Away, "the entity is not registered here".into()));
    end.service.await.unwrap().unwrap();
    // An entity that has finished is no longer registered.
    let (mut entity, _) = scene.entity(&one).await;
    entity.send.finish().await.unwrap();
    entity.service.await.unwrap().unwrap();
    let mut end = scene.session(alice.identity(), REQUESTER).await;
    end.send(seek()).await;
    assert_eq!(end.ends().await.0, Cause::Away);
}

#[tokio::test]
async fn a_disconnect_of_an_entity_ends_its_questions() {
    let scene = Scene::new("");
    let alice = key();
    let one = key();
    let (mut entity, mut registration) = scene.entity(&one).await;
    let (mut end, _) = scene.requester(&alice, one.identity()).await;
    entity.question(&mut registration).await;
    drop((entity.send, entity.receive));
    assert_eq!(end.ends().await, (Cause::Away, "the entity went away before it replied".into()));
    assert!(entity.service.await.unwrap().is_err());
}

#[tokio::test]
async fn a_disconnect_of_a_requester_withdraws_its_question() {
    let scene = Scene::new("");
    let alice = key();
    let one = key();
    let (mut entity, mut registration) = scene.entity(&one).await;
    let (end, _) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut registration).await;
    drop((end.send, end.receive));
    let Part::Withdrawn(withdrawn) = entity.receive().await else { panic!() };
    assert_eq!(withdrawn.number, number);
    // A late reply, and one with an unknown number, are ignored.
    entity.answer(number, &question, &one, "late").await;
    entity.answer(99, &question, &one, "unknown").await;
    let (mut end, pending) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut registration).await;
    entity.answer(number, &question, &one, "in time").await;
    assert_eq!(end.reads(&pending).await, "in time");
}

#[tokio::test]
async fn an_entity_may_send_before_it_reads() {
    let scene = Scene::new("questions_per_requester = 64\n");
    let alice = key();
    let one = key();
    let (mut entity, mut registration) = scene.entity(&one).await;
    // More questions, and then replies, than the buffers to an entity that does not read can hold.
    let mut asked = Vec::new();
    for _ in 0..32 {
        let params = params(&[("long", &[0; 30_000])]);
        asked.push(scene.requester_for(&alice, one.identity(), params).await);
    }
    let sealed = vec![0; 100_000];
    let reply = SealedReply { sealed, ..SealedReply::default() };
    for _ in 0..32 {
        let reply = Some(reply.clone());
        entity.send(Part::Answered(Answered { number: u64::MAX, reply })).await;
    }
    let (number, question) = entity.question(&mut registration).await;
    entity.answer(number, &question, &one, "heard").await;
    let (mut end, pending) = asked.remove(0);
    assert_eq!(end.reads(&pending).await, "heard");
}

#[tokio::test]
async fn a_new_registration_replaces_the_old_one() {
    let scene = Scene::new("");
    let alice = key();
    let one = key();
    let (mut old, mut hears_old) = scene.entity(&one).await;
    let (mut asked, _) = scene.requester(&alice, one.identity()).await;
    let (number, question) = old.question(&mut hears_old).await;
    let (mut new, mut hears_new) = scene.entity(&one).await;
    assert_eq!(asked.ends().await.0, Cause::Away);
    assert_eq!(old.ends().await.0, Cause::Replaced);
    old.service.await.unwrap().unwrap();
    let (mut end, pending) = scene.requester(&alice, one.identity()).await;
    // A registration cannot answer the questions of another one.
    new.answer(number, &question, &one, "old").await;
    let (number, question) = new.question(&mut hears_new).await;
    new.answer(number, &question, &one, "new").await;
    assert_eq!(end.reads(&pending).await, "new");
}

#[tokio::test]
async fn a_new_challenge_holds_for_later_questions() {
    let scene = Scene::new("");
    let alice = key();
    let one = key();
    let (mut entity, mut registration) = scene.entity(&one).await;
    let old = *registration.challenge();
    registration.renew(&SystemRandom).unwrap();
    entity.send(Part::Register(register(registration.challenge()))).await;
    // Its answer with the new challenge shows that the service has read the renewal.
    let mut found = old.to_vec();
    while found == old {
        let mut end = scene.session(alice.identity(), REQUESTER).await;
        end.send(Part::Seek(Seek { entity: one.identity().as_bytes().to_vec() })).await;
        let Part::Found(message) = end.receive().await else { panic!() };
        found = message.challenge;
        let (_, question) = question(&alice, one.identity(), scene.node(), old);
        if found != old {
            end.send(Part::Asked(Asked { number: 0, question: Some(question) })).await;
            assert!(end.ends().await.1.contains("renewed its registration"));
        }
    }
    assert_eq!(found, registration.challenge());
    let (mut end, pending) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut registration).await;
    entity.answer(number, &question, &one, "yes").await;
    assert_eq!(end.reads(&pending).await, "yes");
}

#[tokio::test]
async fn a_question_must_be_signed_by_its_requester_and_name_this_service() {
    let scene = Scene::new("");
    let alice = key();
    let mallory = key();
    let one = key();
    let (_entity, registration) = scene.entity(&one).await;
    let challenge = *registration.challenge();
    let one = one.identity();
    let good = question(&alice, one, scene.node(), challenge).1;
    let mut forged = good.clone();
    forged.signature[5] ^= 1;
    for (question, text) in [
        (question(&mallory, one, scene.node(), challenge).1, "another requester's"),
        (question(&alice, mallory.identity(), scene.node(), challenge).1, "another entity"),
        (question(&alice, one, mallory.identity(), challenge).1, "another service"),
        (question(&alice, one, scene.node(), [0; 32]).1, "renewed its registration"),
        (forged, "not signed"),
        (levada_core::wire::SignedQuestion::default(), "malformed"),
    ] {
        let mut end = scene.session(alice.identity(), REQUESTER).await;
        end.send(Part::Seek(Seek { entity: one.as_bytes().to_vec() })).await;
        end.receive().await;
        end.send(Part::Asked(Asked { number: 0, question: Some(question) })).await;
        let (_, reason) = end.ends().await;
        assert!(reason.contains(text), "{reason}");
    }
}

#[tokio::test]
async fn limits_are_enforced_and_released() {
    let scene = Scene::new("entities = 1\nquestions = 2\nquestions_per_requester = 1\n");
    let [alice, bob, carol, one, two] = [(); 5].map(|()| key());
    let (mut entity, mut registration) = scene.entity(&one).await;
    let mut second = scene.session(two.identity(), ENTITY).await;
    second.send(Part::Register(register(&[0; 32]))).await;
    assert_eq!(second.ends().await.0, Cause::Busy);
    let (mut alices, alice_asks) = scene.requester(&alice, one.identity()).await;
    let (number, from_alice) = entity.question(&mut registration).await;
    let (mut more, _) = scene.requester(&alice, one.identity()).await;
    let (cause, text) = more.ends().await;
    assert!(cause == Cause::Busy && text.contains("your limit"), "{text}");
    let (_bobs, _) = scene.requester(&bob, one.identity()).await;
    entity.question(&mut registration).await;
    let (mut carols, _) = scene.requester(&carol, one.identity()).await;
    assert_eq!(carols.ends().await.0, Cause::Busy);
    entity.answer(number, &from_alice, &one, "no").await;
    alices.reads(&alice_asks).await;
    let (_carols, _) = scene.requester(&carol, one.identity()).await;
    assert_eq!(entity.question(&mut registration).await.1.requester, carol.identity());
    // An entity that registers again counts once.
    scene.entity(&one).await;
}

#[tokio::test]
async fn unexpected_messages_end_the_session() {
    let scene = Scene::new("");
    let one = key();
    let registered = Part::Registered(Default::default());
    let short = Part::Register(register(&[0; 31]));
    let seek = Part::Seek(Seek { entity: vec![0; 31] });
    for (role, part) in [
        (ENTITY, registered.clone()),
        (ENTITY, short),
        (ENTITY, Part::Seek(Seek { entity: vec![0; 32] })),
        (REQUESTER, seek),
        (REQUESTER, registered),
        (REQUESTER, Part::Ended(Ended::default())),
    ] {
        let mut end = scene.session(one.identity(), role).await;
        end.send(part.clone()).await;
        let result = end.service.await.unwrap();
        assert!(matches!(result, Err(ServiceError::Message(_))), "{role}: {part:?}");
    }
    let (mut entity, _) = scene.entity(&one).await;
    entity.send(Part::Answered(Answered { number: 1, reply: None })).await;
    assert!(entity.service.await.unwrap().is_err());
}

#[test]
fn a_session_has_only_the_parameter_role() {
    let mediator = Scene::new("").0;
    let check = |pairs: &[(&str, &[u8])], complete| match complete {
        true => mediator.prepare(&params(pairs), Over::Stream).map(drop),
        false => mediator.check(&params(pairs)),
    };
    assert_eq!(check(&[(ROLE, b"entity"), ("framing", b"auto")], true), Ok(()));
    assert_eq!(check(&[(ROLE, b"requester")], true), Ok(()));
    assert_eq!(check(&[], false), Ok(()));
    assert_eq!(check(&[], true), Err(Refused::Missing(ROLE)));
    assert_eq!(check(&[(ROLE, b"king")], false), Err(Refused::Malformed(ROLE.into())));
    assert_eq!(check(&[("args", b"")], false), Err(Refused::Arguments));
    assert_eq!(check(&[("pty", b"")], false), Err(Refused::Unknown("pty".into())));
}

/// A service of the node with `key`.
fn scene_of(key: &SecretKey) -> Scene {
    let text = "name = 'capability'\ntype = 'capability'\n";
    let options: Options = definition(service_type(), text).unwrap().read_options().unwrap();
    Scene(Mediator::new(&Context::without_client(key.identity()), &options))
}

/// A question of the node about a session of `subject`.
fn of_node(
    node: &SecretKey,
    entity: Identity,
    challenge: [u8; 32],
    subject: Identity,
) -> (PendingQuestion, levada_core::wire::SignedQuestion) {
    let own = node.identity();
    let route = Route { via: own, entity, challenge, until: UnixTime::NEVER };
    let request = SessionRequest {
        node: own,
        addresses: Vec::new(),
        service: "echo".into(),
        params: Params::new(),
        expires: None,
        uses: 1,
    };
    PendingQuestion::of_node(node, &route, request, subject, &SystemRandom).unwrap()
}

#[tokio::test]
async fn questions_of_the_node_count_for_those_who_request() {
    let [node, one] = [key(), key()];
    let [alice, bob] = [key(), key()].map(|key| key.identity());
    let scene = scene_of(&node);
    let entities = scene.0.entities().unwrap();
    assert_eq!(entities.challenge(&one.identity()), None);
    let (mut entity, mut registration) = scene.entity(&one).await;
    let challenge = entities.challenge(&one.identity()).unwrap().unwrap();
    let question = |subject| of_node(&node, one.identity(), challenge, subject);

    // Four of Alice wait; a fifth is refused, and one of Bob is not.
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let pending = scene.0.pending.clone();
            let (_, signed) = question(alice);
            tokio::spawn(async move { Entities::ask(&*pending, signed).await })
        })
        .collect();
    for _ in 0..4 {
        let (_, asked) = entity.question(&mut registration).await;
        assert_eq!((asked.requester, asked.subject()), (node.identity(), alice));
    }
    let refused = entities.ask(question(alice).1).await.unwrap_err();
    assert_eq!(refused.cause(), Cause::Busy);
    let (pending, signed) = question(bob);
    let permit = async {
        let (number, asked) = entity.question(&mut registration).await;
        let reply = Some(asked.reply(&one, &Reply::Permitted).unwrap());
        entity.send(Part::Answered(Answered { number, reply })).await;
    };
    let (reply, ()) = tokio::join!(entities.ask(signed), permit);
    assert!(matches!(pending.read(&reply.unwrap()), Ok(Reply::Permitted)));

    // A question whose client has gone is withdrawn, and no longer counts.
    for task in waiting {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(matches!(entity.receive().await, Part::Withdrawn(_)));
    }
    drop((entity.send, entity.receive));
    let ended = entities.ask(question(alice).1).await.unwrap_err();
    assert_eq!(ended.cause(), Cause::Away);
}

#[tokio::test]
async fn an_entity_of_an_older_version_is_not_asked_by_the_node() {
    let [node, one] = [key(), key()];
    let scene = scene_of(&node);
    let mut end = scene.session(one.identity(), ENTITY).await;
    end.send(Part::Register(Register { answers_node: false, ..register(&[7; 32]) })).await;
    assert!(matches!(end.receive().await, Part::Registered(_)));
    let challenge = scene.0.entities().unwrap().challenge(&one.identity());
    assert_eq!(challenge.unwrap().unwrap_err().cause(), Cause::Away);
}

#[tokio::test]
async fn a_session_carries_no_question_of_the_node() {
    let [node, one] = [key(), key()];
    let scene = scene_of(&node);
    let (_entity, registration) = scene.entity(&one).await;
    let alice = key().identity();
    let signed = of_node(&node, one.identity(), *registration.challenge(), alice).1;
    for holder in [node.identity(), alice] {
        let mut end = scene.session(holder, REQUESTER).await;
        end.send(Part::Seek(Seek { entity: one.identity().as_bytes().to_vec() })).await;
        end.receive().await;
        end.send(Part::Asked(Asked { number: 0, question: Some(signed.clone()) })).await;
        assert_eq!(end.ends().await.0, Cause::Malformed);
    }
}
