//! Attacks on the handshake by parties on its links.

use levada_core::{SecretKey, SystemRandom};

use super::chain::{Chain, Parties, events, frames};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{None as No, Read, Write};
use crate::messages::{Bind, BindProof, Hello};
use crate::{ContextError, Direction, PathEvent, Received, frame};
use levada_channel::Error;
use levada_channel::parts::{CHANGE_CIPHER_SPEC, DATA, HANDSHAKE};

pub(crate) fn parties() -> Parties {
    Parties::new(&[&[Read, Write], &[No, Read], &[No, No]])
}

/// What a whole session ends with when the frames of one kind on one link are changed.
fn changed(
    (link, direction, kind): (usize, Direction, u8),
    change: impl FnMut(Vec<u8>) -> Vec<Vec<u8>> + 'static,
) -> (usize, ContextError) {
    let mut chain = Chain::new(&parties());
    chain.replace((link, direction), kind, change);
    let (party, error) = chain.whole_session().unwrap_err();
    assert!(no_data(&mut chain));
    (party, error)
}

fn no_data(chain: &mut Chain) -> bool {
    let received = |event: &PathEvent| matches!(event, PathEvent::Received(Received::Data { .. }));
    !events(&mut chain.client).iter().chain(&events(&mut chain.server)).any(received)
}

pub(crate) fn dropped(_: Vec<u8>) -> Vec<Vec<u8>> {
    Vec::new()
}

fn doubled(frame: Vec<u8>) -> Vec<Vec<u8>> {
    vec![frame.clone(), frame]
}

fn last_bit(mut frame: Vec<u8>) -> Vec<Vec<u8>> {
    *frame.last_mut().unwrap() ^= 1;
    vec![frame]
}

pub(crate) fn malformed(what: &'static str) -> ContextError {
    ContextError::Malformed(what)
}

pub(crate) fn unexpected(what: &'static str) -> ContextError {
    ContextError::Unexpected(what)
}

pub(crate) fn forged(what: &'static str) -> ContextError {
    ContextError::forged(what)
}

pub(crate) fn forged_by(what: &'static str, hop: u8) -> ContextError {
    ContextError::forged_by(what, hop)
}

const OF_CLIENT: &str = "a frame of the client's handshake";
const OF_SERVER: &str = "a frame of the server's handshake";
const TO_SERVER: &str = "a frame in the client's handshake";
const NOT_OPEN: ContextError = ContextError::State("the session is not open");

const EARLY: &str = "a frame before every party is there";
const OTHER_READY: &str = "a READY of another party";

type Change = fn(Vec<u8>) -> Vec<Vec<u8>>;

/// Link, direction, kind of frame, change; party that finds it, error.
type Case = (usize, Direction, u8, Change, usize, ContextError);

fn check(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for (number, (link, direction, kind, change, party, error)) in cases.into_iter().enumerate() {
        let found = changed((link, direction, kind), change);
        if found != (party, error) {
            wrong.push((number, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_frame_of_the_first_flight_that_is_dropped_doubled_or_altered_ends_the_handshake() {
    check(vec![
        (0, ToServer, frame::PATH, dropped, 1, unexpected(OF_CLIENT)),
        (2, ToServer, frame::PATH, dropped, 3, unexpected(TO_SERVER)),
        (1, ToServer, frame::PATH, doubled, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::PATH, doubled, 3, unexpected(TO_SERVER)),
        (0, ToServer, HANDSHAKE, dropped, 0, NOT_OPEN),
        (1, ToServer, HANDSHAKE, doubled, 2, unexpected(OF_CLIENT)),
        (2, ToServer, HANDSHAKE, doubled, 3, unexpected(TO_SERVER)),
        (1, ToServer, frame::MBHELLO, dropped, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::MBHELLO, dropped, 3, unexpected("a MBKEY without its MBHELLO")),
        (1, ToServer, frame::MBHELLO, doubled, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::MBHELLO, doubled, 3, unexpected("a MBHELLO where a MBKEY belongs")),
        (1, ToServer, frame::MBHELLO, last_bit, 3, forged_by("a MBHELLO", 1)),
        (2, ToServer, frame::MBHELLO, last_bit, 3, forged_by("a MBHELLO", 1)),
        (1, ToServer, frame::MBKEY, dropped, 0, NOT_OPEN),
        (2, ToServer, frame::MBKEY, dropped, 3, unexpected("a MBHELLO where a MBKEY belongs")),
        (1, ToServer, frame::MBKEY, doubled, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::MBKEY, doubled, 3, unexpected("a MBKEY without its MBHELLO")),
        // The key is swapped under a valid MBHELLO.
        (1, ToServer, frame::MBKEY, last_bit, 3, forged_by("a MBKEY", 1)),
        (2, ToServer, frame::MBKEY, last_bit, 3, forged_by("a MBKEY", 1)),
    ]);
}

#[test]
fn a_frame_of_the_servers_flight_that_is_dropped_doubled_or_altered_ends_the_handshake() {
    let bind = || forged("a SBIND");
    let before_bind = "a frame before the server's SBIND";
    check(vec![
        (2, ToClient, HANDSHAKE, dropped, 2, forged("a SBIND")),
        (2, ToClient, HANDSHAKE, doubled, 2, bind()),
        (2, ToClient, DATA, last_bit, 2, bind()),
        (2, ToClient, frame::ECHO, dropped, 2, unexpected(OF_SERVER)),
        (0, ToClient, frame::ECHO, dropped, 0, unexpected(before_bind)),
        (2, ToClient, frame::ECHO, doubled, 2, unexpected(OF_SERVER)),
        (0, ToClient, frame::ECHO, doubled, 0, unexpected(before_bind)),
        (2, ToClient, frame::SSHARE, dropped, 2, unexpected(OF_SERVER)),
        (2, ToClient, frame::SSHARE, doubled, 2, unexpected(OF_SERVER)),
        (2, ToClient, frame::SSHARE, last_bit, 2, forged("a share that SBIND does not cover")),
        (1, ToClient, frame::SSHARE, last_bit, 1, forged("a share that SBIND does not cover")),
        (2, ToClient, frame::SBIND, dropped, 0, NOT_OPEN),
        (2, ToClient, frame::SBIND, doubled, 2, unexpected(OF_SERVER)),
        (0, ToClient, frame::SBIND, doubled, 0, unexpected(EARLY)),
        (2, ToClient, frame::SBIND, last_bit, 2, bind()),
        (1, ToClient, frame::SBIND, last_bit, 1, bind()),
        (0, ToClient, frame::SBIND, last_bit, 0, bind()),
    ]);
}

/// READY_2 only.
fn second_ready(change: Change) -> impl FnMut(Vec<u8>) -> Vec<Vec<u8>> {
    move |frame| if frame[5] == 2 { change(frame) } else { vec![frame] }
}

#[test]
fn a_frame_of_the_second_flight_that_is_dropped_doubled_or_altered_ends_the_handshake() {
    let share = || forged("a client's share");
    let finished =
        || ContextError::Tls(Error::Handshake("cannot decrypt peer's message".to_owned()));
    check(vec![
        (2, ToServer, DATA, dropped, 3, unexpected(TO_SERVER)),
        (2, ToServer, DATA, last_bit, 3, finished()),
        (0, ToServer, frame::READY, dropped, 1, unexpected(OF_CLIENT)),
        (1, ToServer, frame::READY, dropped, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::READY, dropped, 3, unexpected(TO_SERVER)),
        (0, ToServer, frame::READY, last_bit, 3, forged_by("a READY", 0)),
        (1, ToServer, frame::READY, doubled, 2, unexpected(OF_CLIENT)),
        (2, ToServer, frame::READY, doubled, 3, unexpected(OTHER_READY)),
        (0, ToServer, frame::CSHARE, dropped, 1, unexpected(OF_CLIENT)),
        (1, ToServer, frame::CSHARE, dropped, 2, unexpected(OF_CLIENT)),
        (0, ToServer, frame::CSHARE, doubled, 1, unexpected(OF_CLIENT)),
        (0, ToServer, frame::CSHARE, last_bit, 1, share()),
        (1, ToServer, frame::CSHARE, last_bit, 2, share()),
        (2, ToClient, frame::READY, dropped, 2, unexpected(OF_SERVER)),
        (2, ToClient, frame::READY, doubled, 2, unexpected("a frame in a session")),
        (1, ToClient, frame::READY, dropped, 1, unexpected(OF_SERVER)),
        (0, ToClient, frame::READY, dropped, 0, unexpected(EARLY)),
        (0, ToClient, frame::READY, doubled, 0, unexpected(OTHER_READY)),
        (2, ToClient, frame::READY, last_bit, 2, forged("a start")),
        (0, ToClient, frame::READY, last_bit, 0, forged_by("a READY", 2)),
    ]);
    let at = |link, direction| (link, direction, frame::READY);
    let found = changed(at(2, ToServer), second_ready(last_bit));
    assert_eq!(found, (3, forged_by("a READY", 2)));
    let found = changed(at(1, ToClient), second_ready(dropped));
    assert_eq!(found, (1, unexpected(OF_SERVER)));
    let found = changed(at(1, ToClient), second_ready(last_bit));
    assert_eq!(found, (0, forged_by("a READY", 2)));
}

#[test]
fn ready_of_the_server_has_a_start_for_each_middlebox_and_nothing_else() {
    for (link, party) in [(0, 0), (1, 1), (2, 2)] {
        for length in [17, 17 + 33, 17 + 65, 17 + 67, 17 + 99] {
            let found = changed((link, ToClient, frame::READY), move |mut whole| {
                if whole[5] == 0 {
                    whole.resize(5 + length, 0);
                    whole[4] = length as u8;
                }
                vec![whole]
            });
            assert_eq!(
                found,
                (party, malformed("the starts in a READY")),
                "link {link}, length {length}"
            );
        }
    }
}

#[test]
fn ready_in_another_order_is_an_error() {
    for (link, direction, party, error) in [
        (0, ToClient, 0, malformed("the starts in a READY")),
        (1, ToClient, 1, malformed("the starts in a READY")),
        (2, ToServer, 3, unexpected(OTHER_READY)),
        (1, ToServer, 2, unexpected(OF_CLIENT)),
    ] {
        let mut chain = Chain::new(&parties());
        chain.attack((link, direction), |mut frames| {
            let is_ready = |frame: &Vec<u8>| frame[0] == frame::READY;
            let of: Vec<usize> = (0..frames.len()).filter(|at| is_ready(&frames[*at])).collect();
            if let [first, .., last] = of[..] {
                frames.swap(first, last);
            }
            frames
        });
        assert_eq!(chain.whole_session(), Err((party, error)), "link {link}");
    }
}

#[test]
fn a_change_cipher_spec_is_an_error_everywhere() {
    let spec = vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];
    for (link, direction, party) in
        [(0, ToServer, 1), (1, ToServer, 2), (2, ToServer, 3), (2, ToClient, 2), (0, ToClient, 0)]
    {
        // Before, among and after the flights.
        for at in 0..12 {
            let mut chain = Chain::new(&parties());
            let mut count = 0;
            let spec = spec.clone();
            chain.attack((link, direction), move |frames| {
                let mut all = Vec::new();
                for frame in frames {
                    if count == at {
                        all.push(spec.clone());
                    }
                    count += 1;
                    all.push(frame);
                }
                all
            });
            let (found, error) = chain.whole_session().unwrap_err();
            assert_eq!(found, party, "link {link}, before frame {at}");
            assert!(matches!(error, ContextError::Unexpected(_)), "{error}");
        }
    }
}

#[test]
fn another_number_of_tickets_another_form_and_another_share_are_not_what_the_server_signed() {
    for (link, party) in [(2, 2), (1, 1), (0, 0)] {
        // Tickets, hashes.
        for at in [6, 7, 39] {
            let found = changed((link, ToClient, frame::SBIND), move |mut frame| {
                frame[at] ^= 1;
                vec![frame]
            });
            assert_eq!(found, (party, forged("a SBIND")), "link {link}, byte {at}");
        }
        let tickets = move |mut frame: Vec<u8>| {
            frame[6] = 9;
            vec![frame]
        };
        let found = changed((link, ToClient, frame::SBIND), tickets);
        assert_eq!(found, (party, malformed("a SBIND")));
        let tagged = |frame: Vec<u8>| {
            let mut bind = Bind::take(&frame[5..], 2).unwrap();
            bind.proof = BindProof::Tagged { hops: vec![[0; 16]; 2], client: [0; 16] };
            vec![bind.encode()]
        };
        let found = changed((link, ToClient, frame::SBIND), tagged);
        assert_eq!(found, (party, forged("a SBIND without a signature")));
    }
}

/// Builds an ECHO of other messages.
fn echo(change: impl Fn(&mut Vec<Vec<u8>>)) -> impl FnMut(Vec<u8>) -> Vec<Vec<u8>> {
    move |whole| {
        let mut hellos = frames(&whole[5..]);
        change(&mut hellos);
        let mut out = Vec::new();
        frame::put(&mut out, frame::ECHO, &[&hellos.concat()]);
        vec![out]
    }
}

#[test]
fn an_echo_of_other_messages_is_an_error_of_the_middlebox_and_the_client() {
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut other = Vec::new();
    Hello::signed(&key, 1, &[0; 32], &[1; 32]).put(&mut other);
    let own = "an ECHO without this middlebox's own message";
    for (link, party) in [(2, 2), (1, 1), (0, 0)] {
        let at = (link, ToClient, frame::ECHO);
        let found = changed(at, echo(Vec::clear));
        assert_eq!(found, (party, malformed("an ECHO that does not fit PATH")));
        let found = changed(at, echo(|hellos| hellos.reverse()));
        assert_eq!(found, (party, malformed("an ECHO that does not fit PATH")));
        let found = changed(at, echo(|hellos| hellos.push(hellos[1].clone())));
        assert_eq!(found, (party, malformed("an ECHO that does not fit PATH")));
        let other = other.clone();
        let found = changed(at, echo(move |hellos| hellos[0] = other.clone()));
        let error = if party == 0 { forged_by("a MBHELLO", 1) } else { forged(own) };
        assert_eq!(found, (party, error));
    }
}
