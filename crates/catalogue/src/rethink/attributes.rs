//! Which attributes the original knew of each type, and in what order it answered them.

use crate::model::Kind;

/// An attribute of a type of object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// Its number in the original's model, which decides its place.
    number: usize,
    pub(super) name: &'static str,
    /// Whether an object without it was left out.
    pub(super) mandatory: bool,
}

const fn must(number: usize, name: &'static str) -> Attribute {
    Attribute { number, name, mandatory: true }
}

const fn may(number: usize, name: &'static str) -> Attribute {
    Attribute { number, name, mandatory: false }
}

const HYPERTY: &[Attribute] = &[
    must(0, "cguid"),
    must(1, "hypertyType"),
    must(2, "version"),
    must(3, "objectName"),
    must(4, "description"),
    must(5, "sourcePackageURL"),
    may(6, "sourcePackage"),
    must(7, "language"),
    may(8, "signature"),
    may(9, "messageSchema"),
    may(10, "configuration"),
    may(11, "constraints"),
    must(12, "dataObjects"),
    may(13, "policies"),
];

/// Of protocol stubs and of proxies of identity providers.
const STUB: &[Attribute] = &[
    must(0, "cguid"),
    must(2, "version"),
    must(3, "objectName"),
    must(4, "description"),
    may(5, "sourcePackageURL"),
    may(6, "sourcePackage"),
    must(7, "language"),
    may(8, "signature"),
    may(9, "messageSchemas"),
    may(10, "configuration"),
    may(11, "constraints"),
    may(12, "hypertyType"),
    may(13, "dataObjects"),
    may(14, "interworking"),
    may(15, "idpProxy"),
    may(16, "mutualAuthentication"),
];

const RUNTIME: &[Attribute] = &[
    must(0, "cguid"),
    must(1, "runtimeType"),
    must(2, "version"),
    must(3, "objectName"),
    must(4, "description"),
    may(5, "sourcePackageURL"),
    may(6, "sourcePackage"),
    must(7, "language"),
    may(8, "signature"),
    must(9, "hypertyCapabilities"),
    must(10, "protocolCapabilities"),
    may(11, "p2pHandlerStub"),
    may(12, "p2pRequesterStub"),
];

const DATA_SCHEMA: &[Attribute] = &[
    must(0, "cguid"),
    must(1, "type"),
    must(2, "version"),
    must(3, "objectName"),
    must(4, "description"),
    may(5, "sourcePackageURL"),
    may(6, "sourcePackage"),
    must(7, "language"),
    may(8, "signature"),
    may(9, "accessControlPolicy"),
    may(10, "scheme"),
];

/// The attributes of a package.
pub(super) const PACKAGE: &[Attribute] = &[
    may(0, "encoding"),
    must(1, "sourceCodeClassname"),
    must(2, "sourceCode"),
    may(3, "signature"),
    may(4, "md5"),
];

/// The attributes of objects of `kind`, by number; `None` if the original had no such type.
pub(super) const fn of(kind: Kind) -> Option<&'static [Attribute]> {
    match kind {
        Kind::Hyperty => Some(HYPERTY),
        Kind::ProtocolStub | Kind::IdpProxy => Some(STUB),
        Kind::Runtime => Some(RUNTIME),
        Kind::DataSchema => Some(DATA_SCHEMA),
        Kind::Service => None,
    }
}

/// Those of `attributes` that are `present`, in the order in which they are answered.
///
/// The original gathered them in a hash table. Its size is the least power of two of which they fill at most three
/// quarters, and an attribute's place is its number modulo the size. So they stand in the order of their numbers,
/// with two exceptions: `md5` comes first in a package with neither `encoding` nor `signature`, and
/// `mutualAuthentication` second, behind `cguid`, unless there are 13 or more.
pub(super) fn in_order(
    attributes: &'static [Attribute],
    present: impl Fn(&str) -> bool,
) -> Vec<&'static Attribute> {
    let mut found: Vec<_> = attributes.iter().filter(|attribute| present(attribute.name)).collect();
    let size = table_size(found.len());
    found.sort_by_key(|attribute| (attribute.number % size, attribute.number));
    found
}

fn table_size(count: usize) -> usize {
    let size = count.next_power_of_two();
    if count > size * 3 / 4 { size * 2 } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(attributes: &'static [Attribute], present: &[&str]) -> Vec<&'static str> {
        let found = in_order(attributes, |name| present.contains(&name));
        found.iter().map(|attribute| attribute.name).collect()
    }

    #[test]
    fn numbers_ascend_in_every_table() {
        for kind in Kind::ALL {
            let attributes = of(kind).unwrap_or_default();
            assert!(attributes.is_sorted_by(|one, next| one.number < next.number), "{kind}");
            assert_eq!(attributes.is_empty(), kind == Kind::Service);
        }
    }

    #[test]
    fn attributes_are_answered_in_the_order_of_a_small_hash_table() {
        let package = ["encoding", "sourceCodeClassname", "sourceCode", "signature", "md5"];
        assert_eq!(order(PACKAGE, &package), package);
        assert_eq!(order(PACKAGE, &package[1..]), &package[1..]);
        assert_eq!(
            order(PACKAGE, &["sourceCode", "md5", "sourceCodeClassname"]),
            ["md5", "sourceCodeClassname", "sourceCode"]
        );

        let all: Vec<_> = STUB.iter().map(|attribute| attribute.name).collect();
        assert_eq!(order(STUB, &all), all);
        let without = |left_out: &[&str]| {
            let present: Vec<_> =
                all.iter().copied().filter(|name| !left_out.contains(name)).collect();
            order(STUB, &present)
        };
        assert_eq!(
            without(&["signature", "idpProxy", "sourcePackage"]).last(),
            Some(&"mutualAuthentication")
        );
        let twelve = without(&["signature", "idpProxy", "sourcePackage", "interworking"]);
        assert_eq!(twelve[..3], ["cguid", "mutualAuthentication", "version"]);
    }

    #[test]
    fn whatever_else_is_present_stands_by_its_number() {
        // All that a valid object has, with every choice of the rest but the one attribute that moves.
        for kind in Kind::ALL {
            let attributes = of(kind).unwrap_or_default();
            let optional: Vec<_> = attributes
                .iter()
                .filter(|attribute| !attribute.mandatory && attribute.number < 16)
                .filter(|attribute| attribute.name != "sourcePackageURL")
                .collect();
            for choice in 0..1_u32 << optional.len() {
                let chosen = |name: &str| {
                    let place = optional.iter().position(|attribute| attribute.name == name);
                    place.is_none_or(|place| (choice >> place) & 1 == 1)
                        && name != "mutualAuthentication"
                };
                let found = in_order(attributes, chosen);
                assert!(found.is_sorted_by(|one, next| one.number < next.number));
            }
        }
    }
}
