//! Records and audits of an exchange, as they leave each party.

use std::collections::VecDeque;
use std::sync::Arc;

use levada_core::{Digest, label::derive};

use super::{Session, Vectors};
use crate::Direction::{self, ToClient, ToServer};
use crate::flow::Flow;
use crate::hop::HopBound;
use crate::receiver::{Receiver, Request};
use crate::schedule::EndpointKeys;
use crate::sender::{CONTROL_DATA, Sender};
use crate::tests::chain::frames;
use crate::{Action, Inspector, Piece, Received, frame};
use levada_channel::parts::HEADER;

/// Changes what middlebox 1 may write to upper case, towards the server.
struct Upper {
    hop: u8,
}

impl Inspector for Upper {
    fn record(&mut self, piece: Piece<'_>) -> Action {
        match piece.context {
            2 | 4 if piece.direction == ToServer && self.hop == 1 => {
                Action::Replace(piece.data.to_ascii_uppercase())
            }
            _ => Action::Pass,
        }
    }
}

/// What a middlebox has after the handshake.
fn flow(session: &Session, hop: u8, direction: Direction) -> Flow {
    let Session { path, classes, secret, th2, hops } = session;
    let halves = |side| secret.halves(classes, hop, side);
    let client = halves(derive::CLIENT_HALF);
    let server = halves(derive::SERVER_HALF);
    let keys = classes.keys_of_hop(hop, &client, &server, th2).unwrap();
    let bound = HopBound {
        path: path.clone(),
        classes: classes.clone(),
        number: hop,
        secrets: hops[usize::from(hop) - 1].clone(),
        server_halves: server,
        th2: *th2,
        tickets: 2,
        resumed: false,
        aes: true,
    };
    let mut flow = Flow::new(&bound, &keys, direction, true).unwrap();
    flow.start();
    flow
}

/// Passes frames through a middlebox; returns what it sends, and whether an answer was endorsed.
fn pass(flow: &mut Flow, sent: &[u8], request: Option<Digest>) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut endorsed = false;
    let mut upper = Upper { hop: flow.number };
    for mut frame in frames(sent) {
        if frame[0] == frame::RECORD {
            flow.pass_record(&mut frame, &mut upper, &mut out).unwrap();
        } else {
            let ended = flow.pass_audit(&frame, || request, &mut out).unwrap();
            endorsed |= ended.is_some_and(|ended| ended.endorsed);
        }
    }
    (out, endorsed)
}

/// Every frame on one link in one direction.
fn put_frames(out: &mut Vectors, link: &str, sent: &[u8]) {
    for (at, frame) in frames(sent).iter().enumerate() {
        out.put(format!("frame {at} {link}"), frame);
    }
}

/// A message in each context.
fn write(sender: &mut Sender) {
    for context in 1..=4 {
        sender.write(context, b"message").unwrap();
        sender.end(context).unwrap();
    }
}

fn sent(sender: &mut Sender) -> Vec<u8> {
    let mut sent = Vec::new();
    sender.transmit(&mut sent);
    sent
}

/// An operation, a request and its answer on each link. Middlebox 1 changes the request where it
/// may.
pub(super) fn exchange(out: &mut Vectors, session: &Session) {
    let Session { path, classes, secret, th2, hops } = session;
    let keys = |aes| {
        let path = path.clone();
        let secret = secret.clone();
        let classes = classes.clone();
        Arc::new(EndpointKeys { path, secret, classes, th2: *th2, aes, hops: hops.clone() })
    };
    let mut other_cipher = Sender::new(keys(false), ToServer);
    other_cipher.control(CONTROL_DATA, b"operation").unwrap();
    out.put("the first frame with ChaCha20-Poly1305", &frames(&sent(&mut other_cipher))[0]);
    let mut client = Sender::new(keys(true), ToServer);
    client.control(CONTROL_DATA, b"operation").unwrap();
    write(&mut client);
    client.finish(&[]).unwrap();
    let near = sent(&mut client);
    let mut flows = [1, 2].map(|hop| flow(session, hop, ToServer));
    let (middle, _) = pass(&mut flows[0], &near, None);
    let (far, _) = pass(&mut flows[1], &middle, None);
    let links = ["client to middlebox 1", "middlebox 1 to middlebox 2", "middlebox 2 to server"];
    for (link, bytes) in links.iter().zip([&near, &middle, &far]) {
        put_frames(out, link, bytes);
    }
    let (request, received) = receive(&mut Receiver::new(keys(true), ToServer), &far);
    assert!(received.contains(&Received::Control(b"operation".to_vec())));
    let rewritten = Received::Data { context: 2, data: b"MESSAGE".into(), origin: 1, end: true };
    assert!(received.contains(&rewritten));
    let request = request.unwrap();
    let mut server = Sender::new(keys(true), ToClient);
    write(&mut server);
    server.finish(&request.digests).unwrap();
    let far = sent(&mut server);
    let digests = flows.map(|mut flow| flow.take_request().unwrap());
    for (hop, digest) in (1..).zip(digests) {
        out.put(format!("K_{hop}"), digest);
    }
    let (middle, second) = pass(&mut flow(session, 2, ToClient), &far, Some(digests[1]));
    let (near, first) = pass(&mut flow(session, 1, ToClient), &middle, Some(digests[0]));
    assert!(first && second, "the endorsements verify");
    let links = ["server to middlebox 2", "middlebox 2 to middlebox 1", "middlebox 1 to client"];
    for (link, bytes) in links.iter().zip([&far, &middle, &near]) {
        put_frames(out, link, bytes);
    }
    let (_, received) = receive(&mut Receiver::new(keys(true), ToClient), &near);
    assert_eq!(received.len(), 5);
}

/// What an endpoint receives.
fn receive(receiver: &mut Receiver, bytes: &[u8]) -> (Option<Request>, VecDeque<Received>) {
    let mut request = None;
    let mut received = VecDeque::new();
    for mut frame in frames(bytes) {
        if frame[0] == frame::RECORD {
            receiver.receive_record(&mut frame).unwrap();
        } else {
            let ended = receiver.receive_audit(&frame[HEADER..], &mut received).unwrap();
            request = request.or(ended);
        }
    }
    (request, received)
}
