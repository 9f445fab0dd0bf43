//! Texts and a presentation as the first release wrote them. Every later release reads them. They
//! are the test vectors of `docs/protocol.md`: a line changes only with the version of the format.

use levada_capability::{Capability, Invitation, Operation};
use std::collections::BTreeMap;
use std::fmt::Write;
use zeroize::Zeroizing;

use crate::common::*;

const CAPABILITY: &str = include_str!("../fixtures/capability-v1.txt");
const INVITATION: &str = include_str!("../fixtures/invitation-v1.txt");

/// The values of lines `name value`; `#` begins a comment.
fn lines(fixture: &str) -> BTreeMap<&str, &str> {
    let lines = fixture.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

#[test]
fn the_capability_of_the_first_release_is_valid() {
    let fixture = lines(CAPABILITY);
    let capability = Capability::from_text(fixture["text"]).unwrap();
    assert_eq!(capability.to_text().as_str(), fixture["text"]);
    assert!(present(&capability, CAROL, Operation::Connect).is_ok());
    assert_eq!(capability.service(), fixture["service"]);
    assert_eq!(capability.addresses(), [fixture["address"]]);
    assert_eq!(capability.node().to_string(), fixture["node"]);
    assert_eq!(capability.session().to_string(), fixture["session"]);
    assert_eq!(hex(&secret_of(&capability)), fixture["secret"]);
    let ids = capability.ids();
    for (i, link) in capability.chain().link_bytes().enumerate() {
        assert_eq!(hex(link), fixture[format!("link{}", i + 1).as_str()]);
        assert_eq!(ids[i].to_string(), fixture[format!("id{}", i + 1).as_str()]);
    }
    for (i, signature) in capability.chain().signatures().enumerate() {
        assert_eq!(hex(signature), fixture[format!("signature{}", i + 2).as_str()]);
    }
}

#[test]
fn the_presentation_of_the_first_release_is_valid() {
    let fixture = lines(CAPABILITY);
    assert_eq!((hex(&ROOT), hex(&EXPORTER)), (fixture["root"].into(), fixture["exporter"].into()));
    let message = levada_core::wire::Presentation {
        links: [1, 2, 3].map(|i| from_hex(fixture[format!("link{i}").as_str()])).to_vec(),
        signatures: [2, 3].map(|i| from_hex(fixture[format!("signature{i}").as_str()])).to_vec(),
        proof: from_hex(fixture["proof"]),
        service: String::new(),
    };
    assert!(check(message, &context(CAROL, Operation::Connect)).is_ok());
}

#[test]
fn the_encoding_is_that_of_the_first_release() {
    let fixture = lines(CAPABILITY);
    let capability = chain_of_three();
    assert_eq!(capability.to_text().as_str(), fixture["text"]);
    let message = capability.present(&EXPORTER, Operation::Connect);
    assert_eq!(hex(&message.proof), fixture["proof"]);
}

#[test]
fn the_invitation_of_the_first_release_is_read() {
    let fixture = lines(INVITATION);
    let invitation = Invitation::from_text(fixture["text"]).unwrap();
    assert_eq!(invitation.to_text().as_str(), fixture["text"]);
    assert_eq!(invitation.node(), identity(NODE));
    assert_eq!(invitation.secret(), &Zeroizing::new([0x49; 16]));
    assert_eq!(hex(&**invitation.secret()), fixture["secret"]);
    assert_eq!(invitation.addresses(), [fixture["address1"], fixture["address2"]]);
    assert_eq!(hex(&Invitation::hash(invitation.secret())), fixture["hash"]);
}
