//! Questions and replies through a mediator that alters, swaps, withholds and replays them.

use levada_capability::exchange::{
    PendingQuestion, Question, QuestionError, Registration, Reply, ReplyError, Route,
    SessionRequest,
};
use levada_capability::{Capability, LinkBody, Narrowing, Rights};
use levada_core::wire::{self, Reason, Refusal};
use levada_core::{Params, SystemRandom, UnixTime, encode_list};

use crate::common::{
    ALICE, BOB, CAROL, EXPIRES, MALLORY, NODE, NOW, ROOT, SESSION, identity, key, minted_from,
    params,
};

/// Alice and Carol ask, Bob replies, and Mallory runs the mediator.
const ENTITY: u8 = BOB;

fn wish() -> SessionRequest {
    SessionRequest {
        node: identity(NODE),
        addresses: vec!["127.0.0.1:5382".into()],
        service: "echo".into(),
        params: params(&[(Params::ARGS, &encode_list(&["date", "-u"]))]),
        expires: Some(EXPIRES),
        uses: 2,
    }
}

fn hearing() -> Registration {
    Registration::new(identity(ENTITY), identity(MALLORY), &SystemRandom).unwrap()
}

fn route(hearing: &Registration) -> Route {
    Route {
        via: identity(MALLORY),
        entity: identity(ENTITY),
        challenge: *hearing.challenge(),
        until: NOW,
    }
}

fn ask(requester: u8, hearing: &Registration) -> (PendingQuestion, wire::SignedQuestion) {
    PendingQuestion::new(&key(requester), &route(hearing), wish(), &SystemRandom).unwrap()
}

/// The capability that the node grants for `wish`, with its framing.
fn capability_for(wish: &SessionRequest, holder: u8) -> Capability {
    let mut fixed = wish.params.clone();
    fixed.add(Params::FRAMING, b"auto".to_vec()).unwrap();
    let body = LinkBody {
        identity: identity(holder),
        rights: Rights::ALL,
        expires: wish.expires.unwrap(),
        uses: wish.uses,
        max_run: None,
        params: fixed,
    };
    minted_from(&ROOT, SESSION, &body)
}

fn granted(question: &Question, holder: u8) -> wire::SealedReply {
    let reply = Reply::Granted(Box::new(capability_for(&question.request, holder)));
    question.reply(&key(ENTITY), &reply).unwrap()
}

#[test]
fn a_question_is_accepted_and_its_reply_read() {
    let mut hearing = hearing();
    let (asking, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    assert_eq!((question.requester, &question.request), (identity(ALICE), &wish()));
    assert_eq!(question.route, route(&hearing));
    let Ok(Reply::Granted(capability)) = asking.read(&granted(&question, ALICE)) else { panic!() };
    assert_eq!(capability.holder(), identity(ALICE));
    assert_eq!(capability.to_text(), capability_for(&wish(), ALICE).to_text());
}

#[test]
fn denials_and_failures_are_distinguished() {
    let mut hearing = hearing();
    let refusal = Refusal::new(Reason::Denied, "not today");
    let (asking, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    let no = question.reply(&key(ENTITY), &Reply::No(refusal.clone())).unwrap();
    assert!(matches!(asking.read(&no), Ok(Reply::No(read)) if read == refusal));
    let failed = question.reply(&key(ENTITY), &Reply::Failed(refusal.clone())).unwrap();
    assert!(matches!(asking.read(&failed), Ok(Reply::Failed(read)) if read == refusal));
}

/// A question of the mediator's node about a session that Alice requests there.
fn of_node(hearing: &Registration) -> (PendingQuestion, wire::SignedQuestion) {
    let wish = SessionRequest { node: identity(MALLORY), ..wish() };
    let route = route(hearing);
    PendingQuestion::of_node(&key(MALLORY), &route, wish, identity(ALICE), &SystemRandom).unwrap()
}

#[test]
fn a_question_of_a_node_is_answered_without_a_capability() {
    let mut hearing = hearing();
    let (asking, signed) = of_node(&hearing);
    let question = hearing.accept(&signed).unwrap();
    assert_eq!((question.requester, question.subject()), (identity(MALLORY), identity(ALICE)));
    let reply = |question: &Question, reply: &Reply| question.reply(&key(ENTITY), reply).unwrap();
    let permitted = reply(&question, &Reply::Permitted);
    assert!(matches!(asking.read(&permitted), Ok(Reply::Permitted)));
    // A reply to one kind of question is none to the other.
    assert_eq!(asking.read(&granted(&question, MALLORY)).err(), Some(ReplyError::Kind));
    let (asking, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    assert_eq!((question.subject, question.subject()), (None, identity(ALICE)));
    let permitted = reply(&question, &Reply::Permitted);
    assert_eq!(asking.read(&permitted).err(), Some(ReplyError::Kind));
    // A reply to another question of the node.
    let (other, _) = of_node(&hearing);
    let permitted = reply(&question, &Reply::Permitted);
    assert_eq!(other.read(&permitted).err(), Some(ReplyError::Signature));
}

#[test]
fn only_a_node_asks_for_others_and_about_its_own_services() {
    let mut hearing = hearing();
    let (_, signed) = of_node(&hearing);
    let mut altered = |requester: u8, change: fn(&mut wire::Question)| {
        let mut question: wire::Question = wire::decode(&signed.body).unwrap();
        question.requester = identity(requester).as_bytes().to_vec();
        change(&mut question);
        let body = wire::encode(&question);
        let signature = key(requester).sign("question", &body).to_vec();
        hearing.accept(&wire::SignedQuestion { body, signature })
    };
    assert!(altered(MALLORY, |_| ()).is_ok());
    assert_eq!(altered(CAROL, |_| ()), Err(QuestionError::Malformed));
    let another_node = |question: &mut wire::Question| {
        question.node = identity(NODE).as_bytes().to_vec();
    };
    assert_eq!(altered(MALLORY, another_node), Err(QuestionError::Malformed));
    let no_identity = |question: &mut wire::Question| question.subject = vec![1; 31];
    assert_eq!(altered(MALLORY, no_identity), Err(QuestionError::Malformed));
}

#[test]
fn any_altered_byte_is_detected() {
    let mut hearing = hearing();
    let (asking, signed) = ask(ALICE, &hearing);
    // The question, altered before the entity receives it.
    bolero::check!().with_type::<(bool, usize, u8)>().for_each(|(body, at, change)| {
        let mut altered = signed.clone();
        let part = if *body { &mut altered.body } else { &mut altered.signature };
        let at = at % part.len();
        part[at] ^= change;
        assert_eq!(Question::verify(&altered).is_ok(), *change == 0);
    });
    let question = hearing.accept(&signed).unwrap();
    let reply = granted(&question, ALICE);
    bolero::check!().with_type::<(u8, usize, u8)>().for_each(|(part, at, change)| {
        let mut altered = reply.clone();
        let part = match part % 3 {
            0 => &mut altered.encapsulation,
            1 => &mut altered.sealed,
            _ => &mut altered.signature,
        };
        let at = at % part.len();
        part[at] ^= change;
        assert_eq!(asking.read(&altered).is_ok(), *change == 0);
    });
}

#[test]
fn swapped_replies_are_refused() {
    let mut hearing = hearing();
    let (alices, from_alice) = ask(ALICE, &hearing);
    let (carols, from_carol) = ask(CAROL, &hearing);
    let to_alice = granted(&hearing.accept(&from_alice).unwrap(), ALICE);
    let to_carol = granted(&hearing.accept(&from_carol).unwrap(), CAROL);
    assert_eq!(alices.read(&to_carol).err(), Some(ReplyError::Signature));
    assert_eq!(carols.read(&to_alice).err(), Some(ReplyError::Signature));
    // The same for an old reply to a new question of the same requester.
    let (again, _) = ask(ALICE, &hearing);
    assert_eq!(again.read(&to_alice).err(), Some(ReplyError::Signature));
    assert!(alices.read(&to_alice).is_ok() && carols.read(&to_carol).is_ok());
}

#[test]
fn a_question_is_accepted_once_and_only_by_its_entity_and_service() {
    let mut hearing = hearing();
    let (_, signed) = ask(ALICE, &hearing);
    hearing.accept(&signed).unwrap();
    assert_eq!(hearing.accept(&signed), Err(QuestionError::Repeated));
    let unheard = ask(ALICE, &hearing).1;
    hearing.renew(&SystemRandom).unwrap();
    assert_eq!(hearing.accept(&signed), Err(QuestionError::Stale));
    assert_eq!(hearing.accept(&unheard), Err(QuestionError::Stale));
    // For another service or another entity, with the valid challenge.
    let mut astray = route(&hearing);
    astray.via = identity(CAROL);
    let (_, signed) = PendingQuestion::new(&key(ALICE), &astray, wish(), &SystemRandom).unwrap();
    assert_eq!(hearing.accept(&signed), Err(QuestionError::Misdirected));
    let mut astray = route(&hearing);
    astray.entity = identity(CAROL);
    let (_, signed) = PendingQuestion::new(&key(ALICE), &astray, wish(), &SystemRandom).unwrap();
    assert_eq!(hearing.accept(&signed), Err(QuestionError::Misdirected));
}

#[test]
fn the_mediator_can_forge_neither_questions_nor_replies() {
    let mut hearing = hearing();
    let (asking, signed) = ask(ALICE, &hearing);
    // Mallory signs Alice's question.
    let mut forged = signed.clone();
    forged.signature = key(MALLORY).sign("question", &forged.body).to_vec();
    assert_eq!(hearing.accept(&forged), Err(QuestionError::Signature));
    // A signature of Alice for another purpose is invalid.
    forged.signature = key(ALICE).sign("reply", &forged.body).to_vec();
    assert_eq!(hearing.accept(&forged), Err(QuestionError::Signature));
    // Mallory can read the question, and therefore seal a reply; only the entity can sign it.
    let question = hearing.accept(&signed).unwrap();
    let refusal = Refusal::new(Reason::Denied, "");
    for reply in
        [Reply::No(refusal), Reply::Granted(Box::new(capability_for(&question.request, ALICE)))]
    {
        let forged = question.reply(&key(MALLORY), &reply).unwrap();
        assert_eq!(asking.read(&forged).err(), Some(ReplyError::Signature));
    }
}

#[test]
fn the_mediator_cannot_read_a_reply() {
    let mut hearing = hearing();
    let (_, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    let capability = capability_for(&question.request, ALICE);
    let kept = granted(&question, ALICE);
    let secret = crate::common::secret_of(&capability);
    let text = capability.to_text();
    for part in [&kept.encapsulation, &kept.sealed, &kept.signature] {
        assert!(!part.windows(secret.len()).any(|window| window == secret));
        assert!(!part.windows(32).any(|window| window == &text.as_bytes()[..32]));
    }
    // The reply to Mallory's own question is bound to Mallory.
    let (mallorys, own) = ask(MALLORY, &hearing);
    let question = hearing.accept(&own).unwrap();
    assert_eq!(question.requester, identity(MALLORY));
    assert!(mallorys.read(&kept).is_err());
}

#[test]
fn a_capability_that_differs_from_the_question_is_refused() {
    let mut hearing = hearing();
    let (asking, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    let refused = |capability: Capability| {
        let reply = Reply::Granted(Box::new(capability));
        let reply = question.reply(&key(ENTITY), &reply).unwrap();
        asking.read(&reply).err()
    };
    let wished = |change: fn(&mut SessionRequest)| {
        let mut wish = wish();
        change(&mut wish);
        capability_for(&wish, ALICE)
    };
    assert_eq!(
        refused(capability_for(&wish(), MALLORY)),
        Some(ReplyError::Other("bound to another identity"))
    );
    let other = wished(|wish| wish.params = Params::new());
    assert_eq!(refused(other), Some(ReplyError::Other("for other parameters")));
    let other = wished(|wish| wish.params.add("pty", b"24 80".to_vec()).unwrap());
    assert_eq!(refused(other), Some(ReplyError::Other("for other parameters")));
    let other = wished(|wish| wish.uses = 3);
    assert_eq!(refused(other), Some(ReplyError::Other("for another number of uses")));
    let other = wished(|wish| wish.expires = Some(UnixTime(EXPIRES.0 + 1)));
    assert_eq!(refused(other), Some(ReplyError::Other("for another time")));
    let whole = capability_for(&wish(), ALICE);
    let narrowed = Narrowing::to_rights(Rights::TERMINATE);
    let other = whole.grant(&key(ALICE), identity(ALICE), narrowed).unwrap();
    assert_eq!(refused(other), Some(ReplyError::Other("without the right to execute")));
    assert_eq!(refused(whole), None);
}

#[test]
fn a_question_expires_after_an_allowance_for_clock_skew() {
    let mut hearing = hearing();
    let (_, signed) = ask(ALICE, &hearing);
    let question = hearing.accept(&signed).unwrap();
    assert!(!question.is_expired(NOW) && !question.is_expired(UnixTime(NOW.0 + 300)));
    assert!(question.is_expired(UnixTime(NOW.0 + 301)));
}

#[test]
fn a_question_outside_its_bounds_is_refused() {
    let hearing = hearing();
    let ask = |wish| {
        PendingQuestion::new(&key(ALICE), &route(&hearing), wish, &SystemRandom).map(|(_, one)| one)
    };
    for service in ["", "a\nb", &"a".repeat(256)] {
        let wish = SessionRequest { service: service.into(), ..wish() };
        assert_eq!(ask(wish), Err(QuestionError::Malformed), "{service:?}");
    }
    let framing = params(&[(Params::FRAMING, b"auto")]);
    assert_eq!(ask(SessionRequest { params: framing, ..wish() }), Err(QuestionError::Malformed));
    let long = params(&[("a", &[0; Params::MAX_LEN])]);
    assert_eq!(ask(SessionRequest { params: long, ..wish() }), Err(QuestionError::Malformed));
    // Addresses are hints: invalid ones are dropped.
    let addresses = (0..20).map(|at| format!("host{at}\u{7}:1")).chain(["host:1".to_owned()]);
    let signed = ask(SessionRequest { addresses: addresses.collect(), ..wish() }).unwrap();
    assert_eq!(Question::verify(&signed).unwrap().request.addresses, ["host:1"]);
}

#[test]
fn the_number_of_accepted_questions_is_bounded() {
    let mut hearing = hearing();
    let (_, signed) = ask(ALICE, &hearing);
    let body = |nonce: usize| {
        let mut question: wire::Question = wire::decode(&signed.body).unwrap();
        question.nonce[..8].copy_from_slice(&nonce.to_be_bytes());
        let body = wire::encode(&question);
        let signature = key(ALICE).sign("question", &body).to_vec();
        wire::SignedQuestion { body, signature }
    };
    for nonce in 0..Registration::MAX_QUESTIONS {
        hearing.accept(&body(nonce)).unwrap();
    }
    assert!(hearing.is_full());
    assert_eq!(hearing.accept(&body(Registration::MAX_QUESTIONS)), Err(QuestionError::TooMany));
}
