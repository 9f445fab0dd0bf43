//! Whether a version can be shown to clients of reTHINK's catalogue.

use levada_catalogue::model::Draft;
use levada_catalogue::rethink::{Entry, MAX_CODE, PackageEntry, Prepared};

/// The reason why the version cannot be shown to reTHINK clients; `None` if it can, or if its type
/// is not reTHINK's.
pub fn problem(draft: &Draft) -> Option<String> {
    if !draft.key.kind.is_rethink() {
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
