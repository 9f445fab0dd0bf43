//! The text form: unique for each capability, and the only output with the secret.

use levada_capability::{Capability, CapabilityError, ChainError, Operation, Rights, Widening};
use levada_core::{Params, TextError, decode_text, encode_text};
use zeroize::Zeroizing;

use crate::common::*;

#[test]
fn text_round_trips_and_keeps_every_part() {
    for capability in [minted(ALICE, Rights::EXECUTE), chain_of_three()] {
        let text = capability.to_text();
        let read = Capability::from_text(&text).unwrap();
        assert_eq!(read.to_text(), text);
        assert_eq!(read.chain(), capability.chain());
        assert_eq!((read.service(), read.addresses()), ("echo", capability.addresses()));
        assert_eq!(read.params(), capability.params());
        let [one, two] = [read, capability].map(|each| each.present(&EXPORTER, Operation::Connect));
        assert_eq!(one, two);
    }
}

#[test]
fn a_changed_or_lost_character_is_refused() {
    let text = minted(ALICE, Rights::ALL).to_text();
    for at in 0..text.len() {
        let mut other = text.as_bytes().to_vec();
        other[at] = if other[at] == b'a' { b'b' } else { b'a' };
        assert!(Capability::from_text(std::str::from_utf8(&other).unwrap()).is_err(), "{at}");
        assert!(Capability::from_text(&text[..at]).is_err(), "{at}");
    }
    for other in [format!("{}a", *text), format!(" {}", *text), text.to_uppercase()] {
        assert!(Capability::from_text(&other).is_err(), "{other}");
    }
    let garbled = format!("{}{}", &text[..20], &text[21..]);
    let error = Capability::from_text(&garbled).unwrap_err();
    assert!(error.to_string().starts_with("not a capability: "), "{error}");
}

#[test]
fn a_wrong_content_under_a_right_checksum_is_refused() {
    let bytes = decode_text("lvcap1", &chain_of_three().to_text(), 1 << 20).unwrap();
    let read = |bytes: &[u8]| Capability::from_text(&encode_text("lvcap1", bytes));
    assert!(read(&bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "{length}");
    }
    assert_eq!(
        read(&[&bytes[..], &[0]].concat()).unwrap_err(),
        CapabilityError::Text(TextError::Content)
    );
    for count in [0, 17, 255] {
        assert!(read(&[&[count], &bytes[1..]].concat()).is_err());
    }
    // A length beyond the end is refused before anything is allocated.
    assert!(read(&[1, 0xff, 0xff, 0xff, 0xff]).is_err());
}

#[test]
fn a_widened_capability_is_refused_when_it_is_read() {
    let mut forger = Forger::with_root();
    forger.push(&body(ALICE, Rights::DISTRIBUTE), NODE);
    let mut next = body(BOB, Rights::EXECUTE);
    next.params = Params::new();
    forger.push(&next, ALICE);
    let secret = Zeroizing::new(forger.secret);
    let error = Capability::new(forger.chain(), secret, "echo".into(), Vec::new()).unwrap_err();
    let widened = ChainError::Widened { link: 2, how: Widening::Rights };
    assert_eq!(error, CapabilityError::Chain(widened));
    assert!(error.to_string().contains("widened"));
}

#[test]
fn hints_are_bounded() {
    let genuine = minted(ALICE, Rights::ALL);
    let with = |service: &str, addresses: &[&str]| {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        let secret = Zeroizing::new(secret_of(&genuine));
        Capability::new(genuine.chain().clone(), secret, service.into(), addresses)
    };
    let long = "a".repeat(256);
    for (service, addresses) in [
        ("", &[] as &[&str]),
        (&long, &[]),
        ("a\nb", &[]),
        ("a", &[""]),
        ("a", &[&long]),
        ("a", &["a\x1b[2J"]),
        ("a", &["a"; 9]),
    ] {
        assert_eq!(with(service, addresses).unwrap_err(), CapabilityError::Hints);
    }
    let most = with(&long[1..], &[&long[1..]; 8]).unwrap();
    let read = Capability::from_text(&most.to_text()).unwrap();
    assert_eq!((read.service(), read.addresses()), (most.service(), most.addresses()));
}

#[test]
fn the_longest_capability_has_a_text() {
    let mut capability = minted(ALICE, Rights::ALL);
    for number in 0..5 {
        let params = params(&[(&format!("p{number}"), &[0; 32_000])]);
        let narrowing = levada_capability::Narrowing {
            params,
            ..levada_capability::Narrowing::to_rights(Rights::ALL)
        };
        capability = capability.grant(&key(ALICE), identity(ALICE), narrowing).unwrap();
    }
    let read = Capability::from_text(&capability.to_text()).unwrap();
    assert_eq!(read.params(), capability.params());
}

#[test]
fn debug_shows_no_secret() {
    let capability = chain_of_three();
    let secret = secret_of(&capability);
    let shown = format!("{capability:?} {capability:#?}");
    let hex: String = secret.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let numbers = format!("{}, {}, {}", secret[0], secret[1], secret[2]);
    let lines = format!("{},\n", secret[0]);
    assert!(shown.contains("echo") && !shown.contains("secret"));
    assert!(!shown.to_lowercase().contains(&hex) && !shown.contains(&numbers));
    assert!(!shown.contains(&lines), "{shown}");
    assert!(!shown.contains(&capability.to_text()[..]));
}

#[test]
fn arbitrary_bytes_and_text_never_panic() {
    let genuine = decode_text("lvcap1", &chain_of_three().to_text(), 1 << 20).unwrap();
    bolero::check!().with_type::<(Vec<u8>, u16)>().for_each(|(bytes, at)| {
        let _ = Capability::from_text(&String::from_utf8_lossy(bytes));
        let at = usize::from(*at) % genuine.len();
        let mut changed = genuine.clone();
        for (old, new) in changed[at..].iter_mut().zip(bytes) {
            *old = *new;
        }
        for content in [bytes, &changed] {
            let text = encode_text("lvcap1", content);
            if let Ok(capability) = Capability::from_text(&text) {
                assert_eq!(capability.to_text().as_str(), text);
            }
        }
    });
}
