//! Attacks on PATH, on its binding to TLS, and on which middleboxes stand where.

use std::sync::Arc;

use levada_core::{SecretKey, SystemRandom, label};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::version::TLS13;

use super::chain::{Behaviour, Chain, Parties};
use crate::Direction::{ToClient, ToServer};
use crate::Right::{None as No, Read, Write};
use crate::kem::OneTimeKey;
use crate::messages::{self, Hello};
use crate::{Action, ContextError, HopSetup, Kem, Path, Purpose, frame, path};
use levada_channel::parts::Capture;
use levada_channel::parts::HANDSHAKE;
use levada_channel::parts::Handshake;
use levada_channel::testing::RawKeyVerifier;
use levada_channel::{Error, ServerConfig};

const NOT_OPEN: ContextError = ContextError::State("the session is not open");
const NOT_HERE: &str = "the path does not lead here";
/// What TLS says to a ClientHello whose ALPN names another path.
const OTHER_PATH: &str = "unexpected error: no server certificate chain resolved";

fn parties() -> Parties {
    Parties::new(&[&[Read, Write], &[No, No]])
}

fn tls(text: &str) -> ContextError {
    ContextError::Tls(Error::Handshake(text.to_owned()))
}

fn refused(text: &str) -> ContextError {
    ContextError::Refused(text.to_owned())
}

/// What a whole session ends with when PATH is another one from this link on.
fn altered(link: usize, change: impl Fn(&mut Path) + 'static) -> (usize, ContextError) {
    let mut chain = Chain::new(&parties());
    chain.replace((link, ToServer), frame::PATH, move |whole| {
        let mut path = Path::decode(&whole).unwrap();
        change(&mut path);
        vec![path.encode().unwrap()]
    });
    chain.whole_session().unwrap_err()
}

#[test]
fn the_server_refuses_a_path_that_was_altered_on_any_link() {
    let changes: [fn(&mut Path); 9] = [
        |path| path.contexts[0].rights[0] = Write,
        |path| path.contexts[0].rights[1] = Read,
        |path| path.contexts[1].purpose = Purpose::ResponseBody,
        |path| path.contexts[1].pad = 7,
        |path| path.contexts.truncate(1),
        |path| path.contexts.push(path.contexts[0].clone()),
        |path| path.server.address = "other.example:1".to_owned(),
        |path| path.hops[1].party.address = "other.example:1".to_owned(),
        |path| path.hops[0].resume = Some([5; 16]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for link in 0..3 {
            assert_eq!(altered(link, change), (3, tls(OTHER_PATH)), "change {number}, link {link}");
        }
    }
}

#[test]
fn other_parties_in_an_altered_path_are_found_out_by_the_first_that_they_concern() {
    let key = SecretKey::generate(&SystemRandom).unwrap().identity();
    let other_hop = move |path: &mut Path| path.hops[0].party.identity = key;
    assert_eq!(altered(0, other_hop), (1, refused(NOT_HERE)));
    assert_eq!(altered(1, other_hop), (3, tls(OTHER_PATH)));
    assert_eq!(altered(2, other_hop), (3, tls(OTHER_PATH)));
    let server = move |path: &mut Path| path.server.identity = key;
    for link in 0..3 {
        assert_eq!(altered(link, server), (3, refused("the path leads to another server")));
    }
    // Middlebox 1 waits for the message of the one that should stand before it.
    let order = |path: &mut Path| path.hops.reverse();
    assert_eq!(altered(0, order), (0, NOT_OPEN));
    let second = ContextError::Unexpected("a frame of the client's handshake");
    assert_eq!(altered(1, order), (2, second));
    assert_eq!(altered(2, order), (3, tls(OTHER_PATH)));
    let without = |at: usize| {
        move |path: &mut Path| {
            path.hops.remove(at);
            path.contexts.iter_mut().for_each(|context| {
                context.rights.remove(at);
            });
        }
    };
    assert_eq!(altered(0, without(0)), (1, refused(NOT_HERE)));
    assert_eq!(altered(0, without(1)), (2, refused(NOT_HERE)));
    assert_eq!(altered(2, without(1)), (3, tls(OTHER_PATH)));
    let kem = |path: &mut Path| path.kem = Kem::Hybrid;
    assert_eq!(altered(0, kem), (3, tls(OTHER_PATH)));
    assert_eq!(altered(2, kem), (3, ContextError::forged_by("a MBKEY", 1)));
}

/// A ClientHello for a path with other protocols in ALPN.
fn hello(parties: &Parties, protocols: Vec<Vec<u8>>) -> Vec<u8> {
    let capture = Arc::new(Capture::default());
    let store = Arc::new(rustls::client::ClientSessionMemoryCache::new(1));
    let server = parties.path.server.identity;
    let made = parties.client.for_path(&server, Vec::new(), store, capture.clone());
    let (config, name) = made.unwrap();
    let mut config = (*config).clone();
    config.alpn_protocols = protocols;
    let mut out = Vec::new();
    Handshake::client_with(Arc::new(config), name, capture, Some(server), b"", &mut out).unwrap();
    out
}

/// What a session ends with if the client sends another ClientHello.
fn with_hello(parties: &Parties, hello: Vec<u8>) -> (usize, ContextError) {
    let mut chain = Chain::new(parties);
    chain.replace((0, ToServer), HANDSHAKE, move |_| vec![hello.clone()]);
    chain.whole_session().unwrap_err()
}

#[test]
fn alpn_names_exactly_the_protocol_and_the_path() {
    let parties = parties();
    let protocol = label::CONTEXTS_ALPN.as_bytes().to_vec();
    let right = path::alpn(&parties.path.encode().unwrap());
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let plain = b"levada/1".to_vec();
    for protocols in [
        vec![protocol.clone(), right.clone(), plain.clone()],
        vec![plain.clone(), protocol.clone(), right.clone()],
        vec![protocol.clone(), plain.clone(), right.clone()],
        vec![right.clone(), protocol.clone()],
        vec![protocol.clone(), wrong],
        vec![protocol.clone()],
        vec![right.clone()],
        vec![plain],
        vec![],
    ] {
        let error = with_hello(&parties, hello(&parties, protocols.clone()));
        assert_eq!(error, (3, tls(OTHER_PATH)), "{protocols:?}");
    }
    // The server accepts the right ones; the client did not send this ClientHello.
    let (party, _) = with_hello(&parties, hello(&parties, vec![protocol, right]));
    assert_eq!(party, 0);
}

#[test]
fn a_server_without_middleboxes_refuses_a_client_whose_path_was_stripped() {
    let parties = parties();
    let mut chain = Chain::new(&parties);
    let mut first = Vec::new();
    chain.client.transmit(&mut first);
    let hello = super::chain::frames(&first).pop().unwrap();
    let config = ServerConfig::new(&parties.server.key).unwrap();
    let mut server = Handshake::server(&config).unwrap();
    let error = server.receive(&hello, &mut Vec::new()).unwrap_err();
    assert_eq!(error, Error::Handshake("peer doesn't support any known protocol".to_owned()));
}

#[test]
fn a_client_hello_that_needs_a_retry_is_an_error() {
    let parties = parties();
    let provider = rustls::crypto::CryptoProvider {
        kx_groups: vec![kx_group::X25519, kx_group::X25519MLKEM768],
        ..default_provider()
    };
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let mut config = config
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(RawKeyVerifier::any())
        .with_no_client_auth();
    let alpn = path::alpn(&parties.path.encode().unwrap());
    config.alpn_protocols = vec![label::CONTEXTS_ALPN.into(), alpn];
    let server = parties.path.server.identity;
    let name = server.to_string().try_into().unwrap();
    let mut hello = Vec::new();
    let capture = Arc::default();
    let config = Arc::new(config);
    let expected = Some(server);
    Handshake::client_with(config, name, capture, expected, b"", &mut hello).unwrap();
    let error = ContextError::Unexpected("a ClientHello that needs a second one");
    assert_eq!(with_hello(&parties, hello), (3, error));
}

#[test]
fn a_client_refuses_a_hello_retry_request() {
    // RFC 8446 section 4.1.3: a ServerHello with this random is a HelloRetryRequest.
    const RANDOM: [u8; 32] = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8,
        0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8,
        0x33, 0x9c,
    ];
    let mut chain = Chain::new(&parties());
    chain.replace((0, ToClient), HANDSHAKE, |mut hello| {
        hello[11..43].copy_from_slice(&RANDOM);
        vec![hello]
    });
    let (party, error) = chain.run().unwrap_err();
    assert!(matches!(error, ContextError::Tls(Error::Handshake(_))), "{error}");
    assert_eq!(party, 0);
}

#[test]
fn a_refusal_of_the_server_reaches_the_other_parties_as_a_hint() {
    let mut parties = parties();
    parties.server.policy = Arc::new(|path| match path.hops.len() {
        2 => Err("this middlebox is not on the list".to_owned()),
        _ => Ok(()),
    });
    let mut chain = Chain::new(&parties);
    assert_eq!(chain.run(), Err((3, refused("this middlebox is not on the list"))));
    let alert = ContextError::Alert { code: 2, hop: 0 };
    for party in [2, 1, 0] {
        assert_eq!(chain.run(), Err((party, alert.clone())));
    }
}

#[test]
fn a_refusal_of_a_middlebox_names_it() {
    let mut parties = parties();
    parties.hops[1].policy = Arc::new(|path, number| {
        assert_eq!((path.hops.len(), number), (2, 2));
        Err("the next address is not on the list".to_owned())
    });
    let mut chain = Chain::new(&parties);
    assert_eq!(chain.run(), Err((2, refused("the next address is not on the list"))));
    let (party, error) = chain.run().unwrap_err();
    assert_eq!((party, error), (1, ContextError::Alert { code: 2, hop: 2 }));
}

/// A session whose bytes go over these middleboxes.
fn over(parties: &Parties, hops: &[HopSetup]) -> Chain {
    let pass = hops.iter().map(|_| -> Behaviour { Box::new(|_| Action::Pass) });
    Chain::over(parties, hops, pass.collect())
}

#[test]
fn middleboxes_in_another_order_open_no_session() {
    let parties = parties();
    let [first, second] = &parties.hops[..] else { panic!() };
    let mut chain = over(&parties, &[second.clone(), first.clone()]);
    assert_eq!(chain.whole_session(), Err((0, NOT_OPEN)));
}

#[test]
fn a_middlebox_that_stands_on_the_path_twice_is_an_error() {
    let parties = parties();
    let [first, second] = &parties.hops[..] else { panic!() };
    let error = ContextError::Unexpected("a frame of the client's handshake");
    let mut chain = over(&parties, &[first.clone(), first.clone(), second.clone()]);
    assert_eq!(chain.whole_session(), Err((2, error.clone())));
    let mut chain = over(&parties, &[first.clone(), second.clone(), second.clone()]);
    assert_eq!(chain.whole_session(), Err((3, error)));
}

#[test]
fn a_middlebox_that_is_left_out_opens_no_session() {
    let parties = parties();
    let [first, second] = &parties.hops[..] else { panic!() };
    // The server waits for the second message; the second middlebox for the first one.
    for only in [first, second] {
        let mut chain = over(&parties, std::slice::from_ref(only));
        assert_eq!(chain.whole_session(), Err((0, NOT_OPEN)));
    }
}

#[test]
fn a_middlebox_that_the_path_does_not_name_refuses() {
    let parties = parties();
    let [first, second] = &parties.hops[..] else { panic!() };
    let mut other = first.clone();
    other.key = Arc::new(SecretKey::generate(&SystemRandom).unwrap());
    let mut chain = over(&parties, &[other.clone(), second.clone()]);
    assert_eq!(chain.whole_session(), Err((1, refused(NOT_HERE))));
    let mut chain = over(&parties, &[first.clone(), other, second.clone()]);
    assert_eq!(chain.whole_session(), Err((2, refused(NOT_HERE))));
}

#[test]
fn a_middlebox_cannot_take_the_place_of_another() {
    let parties = parties();
    let other = SecretKey::generate(&SystemRandom).unwrap();
    let kem_key = OneTimeKey::generate(Kem::X25519).unwrap();
    let mut chain = Chain::new(&parties);
    chain.attack((1, ToServer), move |frames| {
        let [path, hello, ..] = &frames[..] else { return frames };
        if path[0] != frame::PATH {
            return frames;
        }
        let before = messages::first_transcript(path, hello);
        let mut own = Vec::new();
        Hello::signed(&other, 1, &before, kem_key.public()).put(&mut own);
        frame::put(&mut own, frame::MBKEY, &[&[1], kem_key.public()]);
        vec![path.clone(), hello.clone(), own]
    });
    assert_eq!(chain.whole_session(), Err((3, ContextError::forged_by("a MBHELLO", 1))));
}
