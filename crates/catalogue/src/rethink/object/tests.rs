use super::*;
use crate::rethink::Host;

const DESCRIPTOR: &str = r#"{"cguid": "", "hypertyType": "a", "version": "1", "objectName": "DupClassA", "description": "d", "language": "js", "dataObjects": []}"#;

fn object(descriptor: &str) -> Result<Object, Unfit> {
    Object::read(Kind::Hyperty, descriptor.as_bytes(), "Shared")
}

fn attribute(object: &Object, name: &str, spliced: bool) -> Option<String> {
    let body = object.attribute(name, spliced)?.fill(Host::new(b"h:1").unwrap());
    Some(String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn the_hash_is_over_everything_but_hash_and_package_in_the_order_written() {
    // As recorded of the original.
    let cguid = "691d51ead634cb126cff35241df05315";
    let plain = object(DESCRIPTOR).unwrap();
    assert_eq!(attribute(&plain, "cguid", true).as_deref(), Some(cguid));
    let with_package = DESCRIPTOR.replace("{\"cguid\"", "{sourcePackage: {a: 1}, \"cguid\"");
    assert_eq!(attribute(&object(&with_package).unwrap(), "cguid", true).as_deref(), Some(cguid));
    for change in ["{\"x\": 1, ", "{\"sourcePackageURL\": \"/sourcepackage/Shared\", "] {
        let changed = object(&DESCRIPTOR.replacen('{', change, 1)).unwrap();
        assert_ne!(attribute(&changed, "cguid", true).as_deref(), Some(cguid), "{change}");
    }
    // A member that stands where the loader would have put it changes nothing, whatever it says.
    let stated = DESCRIPTOR.replace("[]}", "[], \"sourcePackageURL\": \"elsewhere\"}");
    assert_eq!(attribute(&object(&stated).unwrap(), "cguid", true).as_deref(), Some(cguid));
}

#[test]
fn the_url_gets_its_host_unless_the_path_ends_otherwise() {
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
    let object = Object::read(Kind::Hyperty, DESCRIPTOR.as_bytes(), "<a>\"\n").unwrap();
    let body = object.body().unwrap().fill(Host::new(b"h").unwrap());
    let text = str::from_utf8(&body).unwrap();
    assert!(
        text.contains("\"hyperty-catalogue://h/.well-known/sourcepackage/\\u003ca\\u003e\\\"\\n\"")
    );
}

#[test]
fn only_known_attributes_that_have_a_value_are_answered() {
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
fn what_the_loader_left_out_does_not_fit() {
    let missing = DESCRIPTOR.replace("\"version\": \"1\", ", "");
    assert_eq!(object(&missing).err(), Some(Unfit::Missing("version")));
    for (name, unfit) in [
        ("\"default\"", Unfit::Default),
        ("['default']", Unfit::Default),
        ("null", Unfit::Name),
        ("{}", Unfit::Name),
        ("[a, b]", Unfit::Name),
    ] {
        let other = DESCRIPTOR.replace("\"DupClassA\"", name);
        assert_eq!(object(&other).err(), Some(unfit), "{name}");
    }
    assert_eq!(object("[]").err(), Some(Unfit::DescriptorForm));
    assert_eq!(object("").err(), Some(Unfit::DescriptorForm));
    assert!(matches!(object("{bad"), Err(Unfit::Descriptor(_))));
    let service = Object::read(Kind::Service, DESCRIPTOR.as_bytes(), "A");
    assert_eq!(service.err(), Some(Unfit::Kind(Kind::Service)));
}

#[test]
fn a_name_is_any_single_value() {
    for (name, text) in [("7", "7"), ("TRUE", "true"), ("[x]", "[\"x\"]"), ("1.10", "1.10")] {
        let other = DESCRIPTOR.replace("\"DupClassA\"", name);
        assert_eq!(object(&other).unwrap().name, text);
    }
}

#[test]
fn a_body_that_would_be_huge_does_not_fit() {
    // 200 levels, and within them a number a line: 400 blanks for each.
    let bomb = format!("{}{}{}", "[".repeat(200), "1,".repeat(30_000), "]".repeat(200));
    let descriptor = DESCRIPTOR.replace("\"d\"", &bomb);
    assert_eq!(object(&descriptor).unwrap().body().err(), Some(Unfit::TooLong(MAX_BODY)));
}
