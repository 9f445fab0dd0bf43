//! `import --replace`: makes a catalogue match a folder. Changed content of an existing version is
//! published as VERSION+N, and objects that the folder does not have are yanked.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use levada_catalogue::model::version::{latest_order, numbered};
use levada_catalogue::model::{Draft, Key, ModelError, Published, Version};
use levada_core::wire::catalogue::{Cause, Detail};
use levada_services::catalogue::{CatalogueClient, CatalogueError, Item};

use super::report::Report;
use crate::failure::Failure;

/// The changes that make an object of the folder the latest version in the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The version to publish it as.
    pub publish: Option<Version>,
    /// The existing version whose yank is reverted.
    pub restore: Option<Version>,
    /// The versions that would be newer.
    pub yank: Vec<Version>,
}

/// The changes after which the object shows `draft`. `versions` are all of its versions, ascending.
///
/// # Errors
/// [`ModelError::Version`] if its version is too long for a number after it.
pub fn plan(draft: &Draft, versions: &[Published]) -> Result<Plan, ModelError> {
    let is_taken = |version: &Version| versions.iter().any(|one| one.version == *version);
    // Ends with a free number: there is one more candidate than versions.
    let mut numbers = Vec::from([draft.version.clone()]);
    while numbers.last().is_some_and(is_taken) {
        numbers.push(numbered(&draft.version, numbers.len() as u64)?);
    }
    let digest = draft.digest();
    let existing = versions.iter().rposition(|one| {
        numbers.contains(&one.version) && one.digest == digest && one.package == draft.package
    });
    let Some(at) = existing else {
        let version = numbers.pop().unwrap_or_else(|| draft.version.clone());
        let yank = newer(versions, &version, versions.len());
        return Ok(Plan { publish: Some(version), restore: None, yank });
    };
    let found = &versions[at];
    let restore = found.yanked.then(|| found.version.clone());
    Ok(Plan { publish: None, restore, yank: newer(versions, &found.version, at) })
}

/// The versions that would be shown instead of `version`, whose index in the order of publication
/// is `at`.
fn newer(versions: &[Published], version: &Version, at: usize) -> Vec<Version> {
    let is_newer = |index: usize, one: &Published| match latest_order(&one.version, version) {
        Ordering::Greater => true,
        Ordering::Equal => index > at,
        Ordering::Less => false,
    };
    let newer = versions.iter().enumerate();
    let newer = newer.filter(|(index, one)| !one.yanked && is_newer(*index, one));
    newer.map(|(_, one)| one.version.clone()).collect()
}

/// All versions of an object, ascending; none if the object does not exist.
pub async fn versions(caller: &mut CatalogueClient, key: &Key) -> Result<Vec<Published>, Failure> {
    let mut found = Vec::new();
    let each = |one: Published| {
        found.push(one);
        Ok::<_, CatalogueError>(())
    };
    match caller.versions(key, each).await {
        Ok(()) | Err(CatalogueError::Failed { cause: Cause::Unknown, .. }) => Ok(found),
        Err(error) => Err(error.into()),
    }
}

/// Yanks every object of reTHINK's types that is not in `kept`.
pub async fn yank_gone(
    caller: &mut CatalogueClient,
    kept: &BTreeSet<Key>,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut gone = Vec::new();
    let each = |item: Item| {
        let is_gone = item.key.kind.is_rethink() && !kept.contains(&item.key);
        if is_gone && item.newest.is_some() {
            gone.push(item.key);
        }
        Ok::<_, Failure>(())
    };
    caller.list(None, "", 0, Detail::Newest, each).await?;
    for key in gone {
        let shown: Vec<Version> = versions(caller, &key)
            .await?
            .into_iter()
            .filter(|one| !one.yanked)
            .map(|one| one.version)
            .collect();
        yank(caller, &key, &shown, report).await?;
    }
    Ok(())
}

/// Yanks versions; in a dry run only reports them.
pub async fn yank(
    caller: &mut CatalogueClient,
    key: &Key,
    versions: &[Version],
    report: &mut Report,
) -> Result<(), Failure> {
    for version in versions {
        if !report.dry_run {
            caller.yank(key, version, true).await?;
        }
        report.yank(format!("{key}@{version}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::UnixTime;

    fn draft(version: &str, descriptor: &str) -> Draft {
        Draft {
            key: "hyperty/a".parse().unwrap(),
            version: version.parse().unwrap(),
            descriptor: descriptor.as_bytes().to_vec(),
            package: None,
            signatures: Vec::new(),
        }
    }

    /// Versions with their content, and whether they are yanked.
    fn catalogue(versions: &[(&str, &str, bool)]) -> Vec<Published> {
        let published = |(version, content, yanked): &(&str, &str, bool)| Published {
            yanked: *yanked,
            ..Published::new(&draft(version, content), None, UnixTime(1), 1)
        };
        versions.iter().map(published).collect()
    }

    fn check(
        (version, content): (&str, &str),
        versions: &[(&str, &str, bool)],
        (publish, restore, yank): (&str, &str, &[&str]),
    ) {
        let read = |text: &str| (!text.is_empty()).then(|| Version::parse(text).unwrap());
        let yank = yank.iter().map(|text| Version::parse(text).unwrap()).collect();
        let expected = Plan { publish: read(publish), restore: read(restore), yank };
        let found = plan(&draft(version, content), &catalogue(versions)).unwrap();
        assert_eq!(found, expected, "{version} {content} in {versions:?}");
    }

    #[test]
    fn the_folders_version_becomes_the_latest() {
        let one = ("1.0.0", "{}");
        check(one, &[], ("1.0.0", "", &[]));
        check(one, &[("1.0.0", "{}", false)], ("", "", &[]));
        check(one, &[("1.0.0", "{ }", false)], ("1.0.0+1", "", &[]));
        let changed = [("1.0.0", "{ }", false), ("1.0.0+1", "{  }", false)];
        check(one, &changed, ("1.0.0+2", "", &[]));
        // Back to earlier content: the version in between is yanked, or its yank is reverted.
        check(("1.0.0", "{ }"), &changed, ("", "", &["1.0.0+1"]));
        check(
            ("1.0.0", "{  }"),
            &[("1.0.0", "{ }", false), ("1.0.0+1", "{  }", true)],
            ("", "1.0.0+1", &[]),
        );
        // The folder has a lower version than before, or a pre-release.
        check(one, &[("0.9.0", "{}", false), ("2.0.0", "{}", false)], ("1.0.0", "", &["2.0.0"]));
        check(("2.0.0-rc.1", "{}"), &[("1.0.0", "{}", false)], ("2.0.0-rc.1", "", &["1.0.0"]));
        check(one, &[("1.0.0-rc.1", "{}", false)], ("1.0.0", "", &[]));
        let long = draft(&format!("1.0.0-{}", "a".repeat(249)), "{}");
        let taken = Published::new(&draft(&long.version.to_string(), "{ }"), None, UnixTime(1), 1);
        assert!(plan(&long, &[taken]).is_err());
    }
}
