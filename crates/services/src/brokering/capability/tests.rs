//! The service between real ends: who gets what, when one of them goes away, and how many there may be.

use levada_capability::SessionId;
use levada_capability::exchange::{
    PendingQuestion, Question, Registration, Reply, Route, SessionRequest,
};
use levada_core::wire::{
    Answered, Asked, Cause, Ended, Reason, Refusal, Register, SealedReply, Seek, mediation::Part,
};
use levada_core::{Params, SecretKey, SystemRandom, UnixTime};
use levada_service::testing::{definition, params};
use levada_session::testing;
use tokio::task::JoinHandle;

use super::*;

/// A service that others use at the same time.
struct Scene(std::sync::Arc<Mediator>);

/// One end of a session; the service's end runs in a task.
struct End {
    send: SendHalf,
    receive: ReceiveHalf,
    service: JoinHandle<Result<(), ServiceError>>,
}

impl Scene {
    fn new(options: &str) -> Self {
        let text = format!("name = 'capability'\ntype = 'capability'\n{options}");
        let options: Options = definition(service_type(), &text).unwrap().read_options().unwrap();
        Self(std::sync::Arc::new(Mediator::new(&levada_service::testing::context(), &options)))
    }

    fn node(&self) -> Identity {
        self.0.node
    }

    async fn session(&self, holder: Identity, role: &str) -> End {
        let (near, far) = testing::pair().await.unwrap();
        let session = SessionId::from_bytes([1; 16]);
        let params = params(&[(ROLE, role.as_bytes())]);
        let streams = levada_service::Streams::none();
        let invocation = Invocation { session, holder, params, streams };
        let mediator = self.0.clone();
        let service = tokio::spawn(async move { mediator.run(invocation, far).await });
        let (send, receive) = near.split();
        End { send, receive, service }
    }

    /// An entity that has registered.
    async fn entity(&self, key: &SecretKey) -> (End, Registration) {
        let hearing = Registration::new(key.identity(), self.node(), &SystemRandom).unwrap();
        let mut end = self.session(key.identity(), ENTITY).await;
        end.say(Part::Register(Register { challenge: hearing.challenge().to_vec() })).await;
        assert!(matches!(end.hear().await, Part::Registered(_)));
        (end, hearing)
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
        end.say(Part::Seek(Seek { entity: entity.as_bytes().to_vec() })).await;
        let Part::Found(found) = end.hear().await else { panic!() };
        let challenge = found.challenge.try_into().unwrap();
        let (asking, question) = question_for(key, entity, self.node(), challenge, params);
        end.say(Part::Asked(Asked { number: 0, question: Some(question) })).await;
        (end, asking)
    }
}

impl End {
    async fn say(&mut self, part: Part) {
        mediation::send(&mut self.send, part).await.unwrap();
    }

    async fn hear(&mut self) -> Part {
        mediation::receive(&mut self.receive).await.unwrap().unwrap()
    }

    /// Hears why the session ends.
    async fn ends(&mut self) -> (Cause, String) {
        let Part::Ended(ended) = self.hear().await else { panic!() };
        self.send.finish().await.unwrap();
        (ended.cause(), ended.text)
    }

    /// The next question, and its number.
    async fn question(&mut self, hearing: &mut Registration) -> (u64, Question) {
        let Part::Asked(asked) = self.hear().await else { panic!() };
        (asked.number, hearing.accept(&asked.question.unwrap()).unwrap())
    }

    async fn answer(&mut self, number: u64, question: &Question, key: &SecretKey, text: &str) {
        let reply = Reply::No(Refusal::new(Reason::Denied, text));
        let reply = Some(question.reply(key, &reply).unwrap());
        self.say(Part::Answered(Answered { number, reply })).await;
    }

    /// The entity's words in its reply.
    async fn reads(&mut self, asking: &PendingQuestion) -> String {
        let Part::Answered(answered) = self.hear().await else { panic!() };
        let Reply::No(refusal) = asking.read(&answered.reply.unwrap()).unwrap() else { panic!() };
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
    let wish = SessionRequest {
        node: Identity::from_bytes([9; 32]),
        addresses: Vec::new(),
        service: "echo".into(),
        params,
        expires: None,
        uses: 1,
    };
    PendingQuestion::new(key, &route, wish, &SystemRandom).unwrap()
}

fn key() -> SecretKey {
    SecretKey::generate(&SystemRandom).unwrap()
}

#[tokio::test]
async fn replies_reach_those_who_asked_whatever_their_order() {
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
async fn nobody_is_asked_who_is_not_registered() {
    let scene = Scene::new("");
    let (alice, one) = (key(), key());
    let seek = || Part::Seek(Seek { entity: one.identity().as_bytes().to_vec() });
    let mut end = scene.session(alice.identity(), REQUESTER).await;
    end.say(seek()).await;
    assert_eq!(end.ends().await, (Cause::Away, "the entity is not registered here".into()));
    end.service.await.unwrap().unwrap();
    // One who has left is registered no more.
    let (mut entity, _) = scene.entity(&one).await;
    entity.send.finish().await.unwrap();
    entity.service.await.unwrap().unwrap();
    let mut end = scene.session(alice.identity(), REQUESTER).await;
    end.say(seek()).await;
    assert_eq!(end.ends().await.0, Cause::Away);
}

#[tokio::test]
async fn an_entity_that_dies_leaves_nobody_waiting() {
    let scene = Scene::new("");
    let (alice, one) = (key(), key());
    let (mut entity, mut hearing) = scene.entity(&one).await;
    let (mut end, _) = scene.requester(&alice, one.identity()).await;
    entity.question(&mut hearing).await;
    drop((entity.send, entity.receive));
    assert_eq!(end.ends().await, (Cause::Away, "the entity went away before it replied".into()));
    assert!(entity.service.await.unwrap().is_err());
}

#[tokio::test]
async fn a_requester_that_leaves_withdraws_its_question() {
    let scene = Scene::new("");
    let (alice, one) = (key(), key());
    let (mut entity, mut hearing) = scene.entity(&one).await;
    let (end, _) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut hearing).await;
    drop((end.send, end.receive));
    let Part::Withdrawn(withdrawn) = entity.hear().await else { panic!() };
    assert_eq!(withdrawn.number, number);
    // A reply that comes too late disturbs nobody, and neither does one to what nobody asked.
    entity.answer(number, &question, &one, "late").await;
    entity.answer(99, &question, &one, "to nobody").await;
    let (mut end, asking) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut hearing).await;
    entity.answer(number, &question, &one, "in time").await;
    assert_eq!(end.reads(&asking).await, "in time");
}

#[tokio::test]
async fn an_entity_that_speaks_before_it_listens_is_heard() {
    let scene = Scene::new("questions_per_requester = 64\n");
    let (alice, one) = (key(), key());
    let (mut entity, mut hearing) = scene.entity(&one).await;
    // More is asked, and then answered, than fits on the way to somebody who does not read.
    let mut asked = Vec::new();
    for _ in 0..32 {
        let params = params(&[("long", &[0; 30_000])]);
        asked.push(scene.requester_for(&alice, one.identity(), params).await);
    }
    let sealed = vec![0; 100_000];
    let reply = SealedReply { sealed, ..SealedReply::default() };
    for _ in 0..32 {
        let reply = Some(reply.clone());
        entity.say(Part::Answered(Answered { number: u64::MAX, reply })).await;
    }
    let (number, question) = entity.question(&mut hearing).await;
    entity.answer(number, &question, &one, "heard").await;
    let (mut end, asking) = asked.remove(0);
    assert_eq!(end.reads(&asking).await, "heard");
}

#[tokio::test]
async fn the_newest_registration_of_an_entity_holds() {
    let scene = Scene::new("");
    let (alice, one) = (key(), key());
    let (mut old, mut hears_old) = scene.entity(&one).await;
    let (mut asked, _) = scene.requester(&alice, one.identity()).await;
    let (number, question) = old.question(&mut hears_old).await;
    let (mut new, mut hears_new) = scene.entity(&one).await;
    assert_eq!(asked.ends().await.0, Cause::Away);
    assert_eq!(old.ends().await.0, Cause::Replaced);
    old.service.await.unwrap().unwrap();
    let (mut end, asking) = scene.requester(&alice, one.identity()).await;
    // What another registration was asked is not this one's to answer.
    new.answer(number, &question, &one, "old").await;
    let (number, question) = new.question(&mut hears_new).await;
    new.answer(number, &question, &one, "new").await;
    assert_eq!(end.reads(&asking).await, "new");
}

#[tokio::test]
async fn another_challenge_holds_for_questions_from_then_on() {
    let scene = Scene::new("");
    let (alice, one) = (key(), key());
    let (mut entity, mut hearing) = scene.entity(&one).await;
    let old = *hearing.challenge();
    hearing.renew(&SystemRandom).unwrap();
    entity.say(Part::Register(Register { challenge: hearing.challenge().to_vec() })).await;
    // Its answer to this shows that the service has read what came before.
    let mut found = old.to_vec();
    while found == old {
        let mut end = scene.session(alice.identity(), REQUESTER).await;
        end.say(Part::Seek(Seek { entity: one.identity().as_bytes().to_vec() })).await;
        let Part::Found(message) = end.hear().await else { panic!() };
        found = message.challenge;
        let (_, question) = question(&alice, one.identity(), scene.node(), old);
        if found != old {
            end.say(Part::Asked(Asked { number: 0, question: Some(question) })).await;
            assert!(end.ends().await.1.contains("registered anew"));
        }
    }
    assert_eq!(found, hearing.challenge());
    let (mut end, asking) = scene.requester(&alice, one.identity()).await;
    let (number, question) = entity.question(&mut hearing).await;
    entity.answer(number, &question, &one, "yes").await;
    assert_eq!(end.reads(&asking).await, "yes");
}

#[tokio::test]
async fn a_question_must_be_of_who_brings_it_and_go_its_way() {
    let scene = Scene::new("");
    let (alice, mallory, one) = (key(), key(), key());
    let (_entity, hearing) = scene.entity(&one).await;
    let challenge = *hearing.challenge();
    let one = one.identity();
    let good = question(&alice, one, scene.node(), challenge).1;
    let mut forged = good.clone();
    forged.signature[5] ^= 1;
    for (question, text) in [
        (question(&mallory, one, scene.node(), challenge).1, "another requester's"),
        (question(&alice, mallory.identity(), scene.node(), challenge).1, "another entity"),
        (question(&alice, one, mallory.identity(), challenge).1, "another service"),
        (question(&alice, one, scene.node(), [0; 32]).1, "registered anew"),
        (forged, "not signed"),
        (levada_core::wire::SignedQuestion::default(), "malformed"),
    ] {
        let mut end = scene.session(alice.identity(), REQUESTER).await;
        end.say(Part::Seek(Seek { entity: one.as_bytes().to_vec() })).await;
        end.hear().await;
        end.say(Part::Asked(Asked { number: 0, question: Some(question) })).await;
        let (_, told) = end.ends().await;
        assert!(told.contains(text), "{told}");
    }
}

#[tokio::test]
async fn limits_are_kept_and_given_back() {
    let scene = Scene::new("entities = 1\nquestions = 2\nquestions_per_requester = 1\n");
    let [alice, bob, carol, one, two] = [(); 5].map(|()| key());
    let (mut entity, mut hearing) = scene.entity(&one).await;
    let mut second = scene.session(two.identity(), ENTITY).await;
    second.say(Part::Register(Register { challenge: vec![0; 32] })).await;
    assert_eq!(second.ends().await.0, Cause::Busy);
    let (mut alices, alice_asks) = scene.requester(&alice, one.identity()).await;
    let (number, from_alice) = entity.question(&mut hearing).await;
    let (mut more, _) = scene.requester(&alice, one.identity()).await;
    let (cause, text) = more.ends().await;
    assert!(cause == Cause::Busy && text.contains("of yours"), "{text}");
    let (_bobs, _) = scene.requester(&bob, one.identity()).await;
    entity.question(&mut hearing).await;
    let (mut carols, _) = scene.requester(&carol, one.identity()).await;
    assert_eq!(carols.ends().await.0, Cause::Busy);
    entity.answer(number, &from_alice, &one, "no").await;
    alices.reads(&alice_asks).await;
    let (_carols, _) = scene.requester(&carol, one.identity()).await;
    assert_eq!(entity.question(&mut hearing).await.1.requester, carol.identity());
    // An entity that registers again needs no second place.
    scene.entity(&one).await;
}

#[tokio::test]
async fn who_says_what_does_not_belong_here_is_cut_off() {
    let scene = Scene::new("");
    let one = key();
    let registered = Part::Registered(Default::default());
    let short = Part::Register(Register { challenge: vec![0; 31] });
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
        end.say(part.clone()).await;
        let result = end.service.await.unwrap();
        assert!(matches!(result, Err(ServiceError::Message(_))), "{role}: {part:?}");
    }
    let (mut entity, _) = scene.entity(&one).await;
    entity.say(Part::Answered(Answered { number: 1, reply: None })).await;
    assert!(entity.service.await.unwrap().is_err());
}

#[test]
fn a_session_says_who_speaks_and_nothing_else() {
    let mediator = Scene::new("").0;
    let check = |pairs: &[(&str, &[u8])], complete| mediator.check(&params(pairs), complete);
    assert_eq!(check(&[(ROLE, b"entity"), ("framing", b"auto")], true), Ok(()));
    assert_eq!(check(&[(ROLE, b"requester")], true), Ok(()));
    assert_eq!(check(&[], false), Ok(()));
    assert_eq!(check(&[], true), Err(Refused::Missing(ROLE)));
    assert_eq!(check(&[(ROLE, b"king")], false), Err(Refused::Malformed(ROLE.into())));
    assert_eq!(check(&[("args", b"")], false), Err(Refused::Arguments));
    assert_eq!(check(&[("pty", b"")], false), Err(Refused::Unknown("pty".into())));
}
