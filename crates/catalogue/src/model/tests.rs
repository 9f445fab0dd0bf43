//! Tests of every limit of the model: the largest accepted value and the smallest refused one.

use levada_core::{SecretKey, SystemRandom, UnixTime, sha256};

use super::*;

fn draft(descriptor: &str) -> Draft {
    Draft {
        key: "hyperty/Connector".parse().unwrap(),
        version: Version::new(1, 2, 3),
        descriptor: descriptor.as_bytes().to_vec(),
        package: None,
        signatures: Vec::new(),
    }
}

fn package() -> Package {
    Package {
        digest: sha256(&[b"code"]),
        length: 4,
        media_type: "text/javascript".to_owned(),
        description: b"{}".to_vec(),
    }
}

fn fault(text: &str) -> Option<JsonFault> {
    check_object(text.as_bytes(), MAX_LEVELS).err().map(|error| error.fault)
}

#[test]
fn kinds_parse_and_are_sorted_by_their_text() {
    for kind in Kind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
    }
    assert!(Kind::ALL.is_sorted_by_key(|kind| kind.as_str()));
    assert!(Kind::ALL.is_sorted());
    for text in ["", "Hyperty", "hyperties", "sourcepackage", &"x".repeat(100_000)] {
        let error = text.parse::<Kind>().unwrap_err().to_string();
        assert!(error.contains("use dataschema, hyperty,") && error.len() < 300, "{error}");
    }
}

#[test]
fn names_are_valid_path_segments() {
    let longest = "é".repeat(127) + "e";
    for text in ["a", "...", "Inner Name", "ç😀", "a%2fb", "-", &longest] {
        assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
    }
    let too_long = "é".repeat(128);
    for text in ["", ".", "..", "a/b", "/", "a\0", "a\n", "\u{7f}", "\u{85}", &too_long] {
        assert_eq!(text.parse::<Name>(), Err(ModelError::Name), "{text:?}");
        assert_eq!(Name::try_from(text.to_owned()), Err(ModelError::Name));
    }
}

#[test]
fn keys_parse() {
    let key: Key = "idp-proxy/google.com".parse().unwrap();
    assert_eq!((key.kind, key.name.as_str()), (Kind::IdpProxy, "google.com"));
    assert_eq!(key.to_string().parse(), Ok(key));
    for text in ["", "hyperty", "hyperty/", "/a", "x/a", "hyperty/a/b"] {
        assert!(text.parse::<Key>().is_err(), "{text}");
    }
}

#[test]
fn digests_parse_in_canonical_form_only() {
    let digest = sha256(&[b""]);
    let text = digest_text(&digest);
    assert_eq!(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(parse_digest(&text), Ok(digest));
    for text in
        ["", "sha256:", &text[7..], &text.to_uppercase(), &text[..70], &(text.clone() + "0")]
    {
        assert_eq!(parse_digest(text), Err(ModelError::Digest), "{text}");
    }
}

#[test]
fn a_descriptor_is_a_single_well_formed_object() {
    for text in [
        "{}",
        " {\n} ",
        r#"{"a":[1,-0,1.5e+7,"\u00e7\ud83d\ude00\/",true,false,null,{}],"b":{"a":[]}}"#,
        r#"{"":"","\"":1}"#,
    ] {
        assert_eq!(fault(text), None, "{text}");
    }
    for text in [
        "{",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1,}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":NaN}",
        "{\"a\":TRUE}",
        "{\"a\":[1,]}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"",
        "{\"a\"}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":[1 2]}",
        "{/**/}",
        "{\"a\":\"\\",
        "{\"a\":\"\\u00e",
        "{\"a\":\"\\u00é\"}",
    ] {
        assert_eq!(fault(text), Some(JsonFault::Syntax), "{text}");
    }
    for text in ["", " ", "[]", "1", "\u{feff}{}", "null"] {
        assert_eq!(fault(text), Some(JsonFault::NotAnObject), "{text}");
    }
    assert_eq!(fault("{} {}"), Some(JsonFault::Trailing));
    assert_eq!(fault("{\"a\":1,\"b\":2,\"\\u0061\":3}"), Some(JsonFault::DuplicateName));
    assert_eq!(fault("{\"a\":{\"a\":1},\"b\":{\"a\":1}}"), None);
    for text in
        [r#"{"a":"\ud800"}"#, r#"{"a":"\udc00"}"#, r#"{"a":"\ud800\u0041"}"#, r#"{"\ud800x":1}"#]
    {
        assert_eq!(fault(text), Some(JsonFault::Surrogate), "{text}");
    }
    let error = check_object(b"{\"a\":\"\xff\"}", MAX_LEVELS).unwrap_err();
    assert_eq!(error, JsonError { at: 6, fault: JsonFault::Utf8 });
    assert_eq!(error.to_string(), "it is not UTF-8, at byte 6");
}

#[test]
fn a_descriptor_has_at_most_64_levels() {
    let nested = |levels: usize| {
        let open = "[".repeat(levels - 1);
        let close = "]".repeat(levels - 1);
        format!("{{\"a\":{open}{close}}}")
    };
    assert_eq!(draft(&nested(MAX_LEVELS)).check(), Ok(()));
    assert_eq!(fault(&nested(MAX_LEVELS + 1)), Some(JsonFault::TooDeep));
    assert_eq!(fault(&nested(100_000)), Some(JsonFault::TooDeep));
    assert_eq!(fault(&"{\"a\":".repeat(100_000)), Some(JsonFault::TooDeep));
}

#[test]
fn accepted_descriptors_are_valid_for_serde_json() {
    bolero::check!().with_type::<(Vec<u8>, bool)>().for_each(|(bytes, wrapped)| {
        let bytes = if *wrapped { [&b"{\"a\":"[..], bytes, b"}"].concat() } else { bytes.clone() };
        if check_object(&bytes, MAX_LEVELS).is_ok() {
            let text = str::from_utf8(&bytes).unwrap();
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(), "{text}");
        }
    });
}

#[test]
fn a_draft_is_checked_against_every_limit() {
    let fits = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
    assert_eq!(draft(&fits(MAX_DESCRIPTOR)).check(), Ok(()));
    let error = draft(&fits(MAX_DESCRIPTOR + 1)).check();
    assert_eq!(error, Err(ModelError::DescriptorLength(MAX_DESCRIPTOR + 1)));

    let with = |change: fn(&mut Package)| {
        let mut package = package();
        change(&mut package);
        Draft { package: Some(package), ..draft("{}") }.check()
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert!(matches!(with(|p| p.media_type.clear()), Err(ModelError::MediaType(_))));
    assert!(matches!(with(|p| p.description.clear()), Err(ModelError::PackageDescription(_))));
    let error = with(|p| p.description = vec![b' '; MAX_PACKAGE_DESCRIPTION + 1]);
    assert_eq!(error, Err(ModelError::PackageDescriptionLength(MAX_PACKAGE_DESCRIPTION + 1)));

    let long = format!("1.0.0-{}", "a".repeat(MAX_VERSION - 6));
    let mut draft = draft("{}");
    draft.version = long.parse().unwrap();
    assert_eq!(draft.check(), Ok(()));
    draft.version = format!("{long}a").parse().unwrap();
    assert_eq!(draft.check(), Err(ModelError::Version(MAX_VERSION + 1)));
}

#[test]
fn a_signature_covers_key_version_descriptor_and_package() {
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut signed = Draft { package: Some(package()), ..draft("{}") };
    signed.sign(&key);
    assert_eq!(signed.check_signatures(), Ok(()));
    let changes: [fn(&mut Draft); 7] = [
        |draft| draft.key.kind = Kind::Runtime,
        |draft| draft.key.name = "Other".parse().unwrap(),
        |draft| draft.version = Version::new(1, 2, 4),
        |draft| draft.descriptor.push(b' '),
        |draft| draft.package = None,
        |draft| draft.package.as_mut().unwrap().digest[0] ^= 1,
        |draft| draft.signatures[0].signature[0] ^= 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut other = signed.clone();
        change(&mut other);
        let error = other.check_signatures();
        assert_eq!(error, Err(ModelError::Signature(key.identity())), "change {number}");
    }
    let published = Published::new(&signed, None, UnixTime(7), 1);
    assert_eq!(published.signed_digest(), signed.signed_digest());
    assert!(published.signatures[0].verify(&published.signed_digest()).is_ok());

    signed.signatures = vec![signed.signatures[0]; MAX_SIGNATURES];
    assert_eq!(signed.check(), Ok(()));
    signed.signatures.push(signed.signatures[0]);
    assert_eq!(signed.check(), Err(ModelError::Signatures(MAX_SIGNATURES + 1)));
}

#[test]
fn keys_and_digests_of_any_text_round_trip() {
    bolero::check!().with_type::<String>().for_each(|text| {
        if let Ok(key) = text.parse::<Key>() {
            assert_eq!(&key.to_string(), text);
        }
        if let Ok(digest) = parse_digest(text) {
            assert_eq!(&digest_text(&digest), text);
        }
    });
}
