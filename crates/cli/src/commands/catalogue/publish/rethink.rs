//! Whether a version can be shown to clients of reTHINK's catalogue.

use levada_catalogue::model::{Draft, Kind};
use levada_catalogue::rethink::{Entry, MAX_CODE, PackageEntry, Prepared};

/// Why the version cannot be shown to reTHINK clients; `None` if it can, or for a service, which
/// they do not use.
pub fn problem(draft: &Draft) -> Option<String> {
    if draft.key.kind == Kind::Service {
        return None;
    }
    let Some(package) = &draft.package else {
        return Some("it has no package (--package FILE)".to_owned());
    };
    if package.length > MAX_CODE {
        return Some(format!("its package has more than {MAX_CODE} bytes"));
    }
    let entry = Entry {
        key: draft.key.clone(),
        order: 0,
        descriptor: draft.descriptor.clone().into(),
        package: Some(PackageEntry {
            description: package.description.clone().into(),
            digest: package.digest,
            length: package.length,
        }),
    };
    Prepared::new(entry).err().map(|unfit| unfit.to_string())
}
