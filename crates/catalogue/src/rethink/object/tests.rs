use super::*;
use crate::rethink::Host;

const DESCRIPTOR: &str = r#"{"cguid": "", "hypertyType": "a", "version": "1", "objectName": "DupClassA", "description": "d", "language": "js", "dataObjects": []}"#;

fn object(descriptor: &str) -> Result<Object, Incompatible> {
    Object::parse(Kind::Hyperty, descriptor.as_bytes(), "Shared")
}

fn attribute(object: &Object, name: &str, with_host: bool) -> Option<String> {
    let body = object.attribute(name, with_host)?.fill(Host::new(b"h:1").unwrap());
    Some(String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn the_hash_covers_all_members_in_order_except_hash_and_package() {
    // Recorded from reTHINK's catalogue.
    let cguid = "691d51ead634cb126cff35241df05315";
    let plain = object(DESCRIPTOR).unwrap();
    assert_eq!(attribute(&plain, "cguid", true).as_deref(), Some(cguid));
    let with_package = DESCRIPTOR.replace("{\"cguid\"", "{sourcePackage: {a: 1}, \"cguid\"");
    assert_eq!(attribute(&object(&with_package).unwrap(), "cguid", true).as_deref(), Some(cguid));
    for change in ["{\"x\": 1, ", "{\"sourcePackageURL\": \"/sourcepackage/Shared\", "] {
        let changed = object(&DESCRIPTOR.replacen('{', change, 1)).unwrap();
        assert_ne!(attribute(&changed, "cguid", true).as_deref(), Some(cguid), "{change}");
    }
    // The loader overwrites the value, and at the end the position is the same, so the hash does
    // not change.
    let stated = DESCRIPTOR.replace("[]}", "[], \"sourcePackageURL\": \"elsewhere\"}");
    assert_eq!(attribute(&object(&stated).unwrap(), "cguid", true).as_deref(), Some(cguid));
}

#[test]
fn the_host_is_inserted_into_the_url_unless_the_path_has_a_trailing_slash() {
    let object = object(DESCRIPTOR).unwrap();
    assert_eq!(
        attribute(&object, "sourcePackageURL", true).as_deref(),
        Some("hyperty-catalogue://h:1/.well-known/sourcepackage/Shared")
    );
    assert_eq!(
        attribute(&object, "sourcePackageURL", false).as_deref(),
        Some("/sourcepackage/Shared")
    );
    let body = object.body().unwrap().fill(Host::new(b"h:1").unwrap());
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body["sourcePackageURL"],
        "hyperty-catalogue://h:1/.well-known/sourcepackage/Shared"
    );
}

#[test]
fn a_class_name_is_escaped_in_the_url() {
    let object = Object::parse(Kind::Hyperty, DESCRIPTOR.as_bytes(), "<a>\"\n").unwrap();
    let body = object.body().unwrap().fill(Host::new(b"h").unwrap());
    let text = str::from_utf8(&body).unwrap();
    assert!(
        text.contains("\"hyperty-catalogue://h/.well-known/sourcepackage/\\u003ca\\u003e\\\"\\n\"")
    );
}

#[test]
fn only_known_attributes_with_a_value_are_answered() {
    let descriptor = DESCRIPTOR.replace("[]}", "[], extra: 1, signature: '', policies: null}");
    let object = object(&descriptor).unwrap();
    for name in ["extra", "signature", "messageSchema", "sourcePackage", "", "Version"] {
        assert_eq!(attribute(&object, name, true), None, "{name}");
    }
    assert_eq!(attribute(&object, "policies", true).as_deref(), Some("null"));
    let body = object.body().unwrap().fill(Host::new(b"h").unwrap());
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let members = body.as_object().unwrap();
    assert_eq!(members.len(), 8);
}

#[test]
fn objects_that_the_loader_rejects_are_incompatible() {
    let missing = DESCRIPTOR.replace("\"version\": \"1\", ", "");
    assert_eq!(object(&missing).err(), Some(Incompatible::Missing("version")));
    for (name, reason) in [
        ("\"default\"", Incompatible::Default),
        ("['default']", Incompatible::Default),
        ("null", Incompatible::Name),
        ("{}", Incompatible::Name),
        ("[a, b]", Incompatible::Name),
    ] {
        let other = DESCRIPTOR.replace("\"DupClassA\"", name);
        assert_eq!(object(&other).err(), Some(reason), "{name}");
    }
    assert_eq!(object("[]").err(), Some(Incompatible::DescriptorForm));
    assert_eq!(object("").err(), Some(Incompatible::DescriptorForm));
    assert!(matches!(object("{bad"), Err(Incompatible::Descriptor(_))));
    let service = Object::parse(Kind::Service, DESCRIPTOR.as_bytes(), "A");
    assert_eq!(service.err(), Some(Incompatible::Kind(Kind::Service)));
}

#[test]
fn a_name_is_any_scalar() {
    for (name, text) in [("7", "7"), ("TRUE", "true"), ("[x]", "[\"x\"]"), ("1.10", "1.10")] {
        let other = DESCRIPTOR.replace("\"DupClassA\"", name);
        assert_eq!(object(&other).unwrap().name, text);
    }
}

#[test]
fn a_body_over_the_limit_is_incompatible() {
    // 200 levels, with one number per line inside: each is indented by 400 blanks.
    let bomb = format!("{}{}{}", "[".repeat(200), "1,".repeat(30_000), "]".repeat(200));
    let descriptor = DESCRIPTOR.replace("\"d\"", &bomb);
    assert_eq!(object(&descriptor).unwrap().body().err(), Some(Incompatible::TooLong(MAX_BODY)));
}
