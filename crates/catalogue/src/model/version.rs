//! Versions: Semantic Versioning 2.0.0, and the conversion of reTHINK's versions.

use std::cmp::Ordering;

use data_encoding::HEXLOWER;
use levada_core::sha256;
use semver::{BuildMetadata, Prerelease};

pub use semver::{Version, VersionReq};

use super::{MAX_VERSION, ModelError};

/// Checks that `version` is short enough to be published.
///
/// # Errors
/// [`ModelError::Version`] if its text has more than [`MAX_VERSION`] bytes.
pub fn check(version: &Version) -> Result<(), ModelError> {
    let length = version.to_string().len();
    if length > MAX_VERSION { Err(ModelError::Version(length)) } else { Ok(()) }
}

/// The order of two versions of an object by age (Semantic Versioning 2.0.0, section 11). Versions
/// that differ only in build metadata are equal, and so are hashed versions of [`from_rethink`],
/// which have no order: of equal ones, the one that was published later is newer.
pub fn precedence(a: &Version, b: &Version) -> Ordering {
    if is_unordered(a) && is_unordered(b) { Ordering::Equal } else { a.cmp_precedence(b) }
}

/// The order of two versions of an object by which is `latest`: releases are greater than all
/// pre-releases, then [`precedence`] decides. Of equal ones, again, it is the one that was
/// published later.
pub fn latest_order(a: &Version, b: &Version) -> Ordering {
    a.pre.is_empty().cmp(&b.pre.is_empty()).then_with(|| precedence(a, b))
}

/// `version` with `number` appended to its build metadata: `1.2.0` becomes `1.2.0+1`, and `1.2.0+b`
/// becomes `1.2.0+b.1`. It has the precedence of `version`, so it is newer if it is published
/// later.
///
/// # Errors
/// [`ModelError::Version`] if its text would have more than [`MAX_VERSION`] bytes.
pub fn numbered(version: &Version, number: u64) -> Result<Version, ModelError> {
    let build = match version.build.as_str() {
        "" => number.to_string(),
        build => format!("{build}.{number}"),
    };
    // Valid metadata with a dot and digits appended is valid.
    let build = BuildMetadata::new(&build).unwrap_or(BuildMetadata::EMPTY);
    let numbered = Version { build, ..version.clone() };
    check(&numbered).map(|()| numbered)
}

fn is_unordered(version: &Version) -> bool {
    (version.major, version.minor, version.patch) == (0, 0, 0)
        && version.pre.starts_with("original.")
}

/// Converts a version of reTHINK's catalogue: `1` becomes 1.0.0, `1.10` becomes 1.10.0, and a
/// semantic version stays itself. Any other text becomes 0.0.0-original.HASH, which is older than
/// all others and unique to the text. HASH is the first 16 hexadecimal digits of its SHA-256, after
/// an `x` if it has no letters, because it would be a number.
pub fn from_rethink(lexeme: &str) -> Version {
    if lexeme.len() > MAX_VERSION {
        return hashed(lexeme);
    }
    Version::parse(lexeme).ok().or_else(|| short(lexeme)).unwrap_or_else(|| hashed(lexeme))
}

/// Parses `MAJOR` or `MAJOR.MINOR`.
fn short(lexeme: &str) -> Option<Version> {
    let (major, minor) = lexeme.split_once('.').unwrap_or((lexeme, "0"));
    Some(Version::new(number(major)?, number(minor)?, 0))
}

/// Parses a number of Semantic Versioning: digits without a leading zero.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if digits && !padded { text.parse().ok() } else { None }
}

fn hashed(lexeme: &str) -> Version {
    let mut hash = HEXLOWER.encode(&sha256(&[lexeme.as_bytes()]));
    hash.truncate(16);
    if number_like(&hash) {
        hash.insert(0, 'x');
    }
    // Letters, digits and one dot are always valid.
    let pre = Prerelease::new(&format!("original.{hash}")).unwrap_or(Prerelease::EMPTY);
    Version { major: 0, minor: 0, patch: 0, pre, build: BuildMetadata::EMPTY }
}

fn number_like(hash: &str) -> bool {
    hash.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_numeric_and_semantic_versions() {
        for (lexeme, version) in [
            ("1", "1.0.0"),
            ("0", "0.0.0"),
            ("1.0", "1.0.0"),
            ("1.10", "1.10.0"),
            ("18.699999999999996", "18.699999999999996.0"),
            ("1.2.3", "1.2.3"),
            ("1.2.3-beta.1+7", "1.2.3-beta.1+7"),
        ] {
            assert_eq!(from_rethink(lexeme).to_string(), version, "{lexeme}");
        }
    }

    #[test]
    fn converts_other_texts_to_hashes_older_than_all_versions() {
        let mut seen = std::collections::BTreeSet::new();
        let long = "1".repeat(300);
        for lexeme in [
            "",
            "01",
            "1.01",
            "v1",
            "1.2.3.4",
            "-1",
            "1e5",
            "1.",
            ".1",
            "99999999999999999999",
            "ü",
            &long,
        ] {
            let version = from_rethink(lexeme);
            assert!(version.pre.starts_with("original."), "{lexeme}: {version}");
            assert!(version < Version::new(0, 0, 0));
            assert_eq!(Version::parse(&version.to_string()).unwrap(), version);
            assert!(seen.insert(version), "{lexeme} has the version of another text");
        }
        assert_eq!(from_rethink("v1").to_string(), "0.0.0-original.3bfc269594ef6492");
    }

    #[test]
    fn a_hash_without_letters_gets_a_letter() {
        // A text whose SHA-256 begins with 16 decimal digits.
        let lexeme = (0_u32..1_000_000)
            .map(|number| format!("v{number}"))
            .find(|text| number_like(&HEXLOWER.encode(&sha256(&[text.as_bytes()])[..8])))
            .unwrap();
        let version = from_rethink(&lexeme);
        assert!(version.pre.starts_with("original.x"), "{version}");
        assert_eq!(Version::parse(&version.to_string()).unwrap(), version);
    }

    #[test]
    fn a_pre_release_is_latest_only_without_a_release() {
        let order = |a: &str, b: &str| {
            latest_order(&Version::parse(a).unwrap(), &Version::parse(b).unwrap())
        };
        assert_eq!(order("1.0.0", "2.0.0-rc.1"), Ordering::Greater);
        assert_eq!(order("2.0.0-rc.1", "2.0.0-rc.2"), Ordering::Less);
        assert_eq!(order("1.0.0", "1.0.1"), Ordering::Less);
        assert_eq!(order("1.0.0", "1.0.0+9"), Ordering::Equal);
        assert_eq!(order("0.0.0-original.a", "0.0.0-original.b"), Ordering::Equal);
    }

    #[test]
    fn a_number_is_appended_to_the_build_metadata() {
        for (text, expected) in
            [("1.2.0", "1.2.0+3"), ("1.2.0-rc.1", "1.2.0-rc.1+3"), ("1.2.0+b", "1.2.0+b.3")]
        {
            let version = Version::parse(text).unwrap();
            let numbered = numbered(&version, 3).unwrap();
            assert_eq!(numbered.to_string(), expected);
            assert_eq!(latest_order(&version, &numbered), Ordering::Equal);
        }
        let long = Version::parse(&format!("1.0.0-{}", "a".repeat(MAX_VERSION - 6))).unwrap();
        assert!(check(&long).is_ok() && numbered(&long, 1).is_err());
    }

    #[test]
    fn every_text_converts_to_a_version_that_parses() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let version = from_rethink(text);
            assert_eq!(Version::parse(&version.to_string()).unwrap(), version);
            assert_eq!(check(&version), Ok(()));
        });
    }
}
