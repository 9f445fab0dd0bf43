//! The attributes of each type in reTHINK's catalogue, and their order in its answers.

use crate::model::Kind;

/// An attribute of a type of object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// Its number in reTHINK's data model, which determines its position.
    number: usize,
    pub(super) name: &'static str,
    /// Whether objects without it are not shown.
    pub(super) mandatory: bool,
}

const fn mandatory(number: usize, name: &'static str) -> Attribute {
    Attribute { number, name, mandatory: true }
}

const fn optional(number: usize, name: &'static str) -> Attribute {
    Attribute { number, name, mandatory: false }
}

const HYPERTY: &[Attribute] = &[
    mandatory(0, "cguid"),
    mandatory(1, "hypertyType"),
    mandatory(2, "version"),
    mandatory(3, "objectName"),
    mandatory(4, "description"),
    mandatory(5, "sourcePackageURL"),
    optional(6, "sourcePackage"),
    mandatory(7, "language"),
    optional(8, "signature"),
    optional(9, "messageSchema"),
    optional(10, "configuration"),
    optional(11, "constraints"),
    mandatory(12, "dataObjects"),
    optional(13, "policies"),
];

/// For protocol stubs and identity provider proxies.
const STUB: &[Attribute] = &[
    mandatory(0, "cguid"),
    mandatory(2, "version"),
    mandatory(3, "objectName"),
    mandatory(4, "description"),
    optional(5, "sourcePackageURL"),
    optional(6, "sourcePackage"),
    mandatory(7, "language"),
    optional(8, "signature"),
    optional(9, "messageSchemas"),
    optional(10, "configuration"),
    optional(11, "constraints"),
    optional(12, "hypertyType"),
    optional(13, "dataObjects"),
    optional(14, "interworking"),
    optional(15, "idpProxy"),
    optional(16, "mutualAuthentication"),
];

const RUNTIME: &[Attribute] = &[
    mandatory(0, "cguid"),
    mandatory(1, "runtimeType"),
    mandatory(2, "version"),
    mandatory(3, "objectName"),
    mandatory(4, "description"),
    optional(5, "sourcePackageURL"),
    optional(6, "sourcePackage"),
    mandatory(7, "language"),
    optional(8, "signature"),
    mandatory(9, "hypertyCapabilities"),
    mandatory(10, "protocolCapabilities"),
    optional(11, "p2pHandlerStub"),
    optional(12, "p2pRequesterStub"),
];

const DATA_SCHEMA: &[Attribute] = &[
    mandatory(0, "cguid"),
    mandatory(1, "type"),
    mandatory(2, "version"),
    mandatory(3, "objectName"),
    mandatory(4, "description"),
    optional(5, "sourcePackageURL"),
    optional(6, "sourcePackage"),
    mandatory(7, "language"),
    optional(8, "signature"),
    optional(9, "accessControlPolicy"),
    optional(10, "scheme"),
];

/// The attributes of a package.
pub(super) const PACKAGE: &[Attribute] = &[
    optional(0, "encoding"),
    mandatory(1, "sourceCodeClassname"),
    mandatory(2, "sourceCode"),
    optional(3, "signature"),
    optional(4, "md5"),
];

/// The attributes of objects of `kind`, by number; `None` if reTHINK's catalogue does not have the
/// type.
pub(super) const fn attributes_of(kind: Kind) -> Option<&'static [Attribute]> {
    match kind {
        Kind::Hyperty => Some(HYPERTY),
        Kind::ProtocolStub | Kind::IdpProxy => Some(STUB),
        Kind::Runtime => Some(RUNTIME),
        Kind::DataSchema => Some(DATA_SCHEMA),
        Kind::Package | Kind::Service => None,
    }
}

/// The `present` ones of `attributes` in the order of the answer.
///
/// reTHINK's catalogue collected them in a hash table. Its size is the smallest power of two of
/// which they fill at most three quarters, and the position of an attribute is its number modulo
/// the size. The result is the order of the numbers, with two exceptions: `md5` comes first in a
/// package with neither `encoding` nor `signature`, and `mutualAuthentication` comes second, after
/// `cguid`, unless there are 13 attributes or more.
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
    fn numbers_are_strictly_ascending() {
        for kind in Kind::ALL {
            let attributes = attributes_of(kind).unwrap_or_default();
            assert!(attributes.is_sorted_by(|one, next| one.number < next.number), "{kind}");
            assert_eq!(attributes.is_empty(), !kind.is_rethink());
        }
    }

    #[test]
    fn attributes_are_in_the_order_of_a_hash_table() {
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
    fn all_other_combinations_are_ordered_by_number() {
        // The mandatory attributes with every combination of the optional ones, except the one that
        // changes position.
        for kind in Kind::ALL {
            let attributes = attributes_of(kind).unwrap_or_default();
            let optional: Vec<_> = attributes
                .iter()
                .filter(|attribute| !attribute.mandatory && attribute.number < 16)
                .filter(|attribute| attribute.name != "sourcePackageURL")
                .collect();
            for choice in 0..1_u32 << optional.len() {
                let chosen = |name: &str| {
                    let position = optional.iter().position(|attribute| attribute.name == name);
                    position.is_none_or(|position| (choice >> position) & 1 == 1)
                        && name != "mutualAuthentication"
                };
                let found = in_order(attributes, chosen);
                assert!(found.is_sorted_by(|one, next| one.number < next.number));
            }
        }
    }
}
