//! The test vectors of `docs/protocol.md`, "Sessions with middleboxes": what every implementation
//! computes from fixed inputs.

mod exchange;
mod handshake;
mod keys;

use std::collections::BTreeMap;
use std::fmt::Write;

use levada_core::{Digest, Identity, SecretKey};
use zeroize::Zeroizing;

use crate::Right::{None as No, Read, Write as May};
use crate::path::tests::path;
use crate::schedule::{Classes, EndpointSecret, HopSecrets, Resume, Secret};
use crate::{Path, Purpose, frame};
use exchange::exchange;
use handshake::{first_flight, second_flight, third_flight};

const FIXTURE: &str = include_str!("../../tests/fixtures/contexts-v1.json");
const NAMES: [&str; 2] = ["to_server", "to_client"];

/// Names and values, in the order of the file.
#[derive(Default)]
struct Vectors {
    all: Vec<(String, Vec<u8>)>,
}

impl Vectors {
    fn put(&mut self, name: impl Into<String>, value: impl AsRef<[u8]>) {
        self.all.push((name.into(), value.as_ref().to_vec()));
    }

    fn secret(&mut self, name: impl Into<String>, secret: &Secret) {
        self.put(name, secret.bytes());
    }

    /// One pair in a line.
    fn to_json(&self) -> String {
        let mut text = String::from("{\n");
        for (at, (name, value)) in self.all.iter().enumerate() {
            write!(text, "  \"{name}\": \"").unwrap();
            value.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push_str(if at + 1 == self.all.len() { "\"\n" } else { "\",\n" });
        }
        text + "}\n"
    }
}

/// The stored values.
fn stored() -> BTreeMap<&'static str, Vec<u8>> {
    let pair = |line: &'static str| {
        let (name, value) = line.trim().trim_end_matches(',').split_once(": ")?;
        let name = name.trim_matches('"');
        let value = value.trim_matches('"');
        let byte = |at| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
        Some((name, (0..value.len()).step_by(2).map(byte).collect()))
    };
    FIXTURE.lines().filter_map(pair).collect()
}

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Zeroizing::new([seed; 32])).unwrap()
}

/// Two middleboxes, the second with keys of an earlier session; a context for each form of a
/// record.
fn path_of(ids: [Identity; 3]) -> Path {
    let [server, hops @ ..] = ids;
    let mut path = path(server, &hops, &[&[Read, No], &[May, Read], &[No, No], &[May, Read]]);
    let purposes = [Purpose::RequestHead, Purpose::ResponseHead, Purpose::Other, Purpose::Fields];
    for (context, purpose) in path.contexts.iter_mut().zip(purposes) {
        context.purpose = purpose;
    }
    path.contexts[2].pad = 16;
    path.hops[1].resume = Some([0x1d; 16]);
    path
}

/// What the handshake gives.
struct Session {
    path: Path,
    classes: Classes,
    secret: EndpointSecret,
    th2: Digest,
    hops: Vec<HopSecrets>,
}

fn whole(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut whole = Vec::new();
    frame::put(&mut whole, kind, parts);
    whole
}

fn computed() -> Vectors {
    let mut out = Vectors::default();
    let keys = [1, 2, 3].map(key);
    let path = path_of([0, 1, 2].map(|at: usize| keys[at].identity()));
    let kept =
        Resume { id: [0x1d; 16], psk: Secret::new([0x50; 32]), y: Some(Secret::new([0x59; 32])) };
    let first = first_flight(&mut out, &keys, &path, &kept);
    let session = second_flight(&mut out, (&keys, path, &kept), first);
    third_flight(&mut out, &session);
    keys::keys(&mut out, &session);
    exchange(&mut out, &session);
    out.put("PING", whole(frame::PING, &[&[1], &[9; 8]]));
    out
}

#[test]
fn every_byte_is_that_of_the_first_release() {
    let computed = computed().to_json();
    if computed == FIXTURE {
        return;
    }
    // For a new version of the format.
    let file = std::env::temp_dir().join("contexts-v1.json");
    std::fs::write(&file, &computed).unwrap();
    let changed = computed.lines().zip(FIXTURE.lines()).find(|(new, old)| new != old);
    panic!("the vectors have changed; the computed ones are in {}: {changed:?}", file.display());
}

/// The bytes that a record has besides its plaintext, in each form.
#[test]
fn the_vectors_have_every_form_of_a_record() {
    let stored = stored();
    let length = |name: &str| stored[name].len();
    for (form, context, plain) in [(21, 0, 11), (37, 1, 8), (53, 2, 8), (21, 3, 16), (53, 4, 8)] {
        let at = if context == 0 { 0 } else { context + 1 };
        let name = format!("frame {at} client to middlebox 1");
        assert_eq!(stored[name.as_str()][..2], [frame::RECORD, context]);
        assert_eq!(length(&name), form + plain, "{name}");
    }
    assert_eq!(length("frame 4 middlebox 1 to middlebox 2"), 61 + 8);
}
