use super::*;

fn manifest(entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
    Manifest::new(Layout::First, entries)
}

fn entry(path: &str, length: u64) -> Entry {
    let permissions = Permissions::Default;
    let modified = None;
    Entry { path: path.into(), kind: Kind::File(length), permissions, modified }
}

/// Decodes what follows the length.
fn decode(content: &[u8]) -> Result<Manifest, ManifestError> {
    let (layout, length) = Manifest::decode_length(content[..8].try_into().unwrap())?;
    assert_eq!(length, content.len() as u64 - 8);
    Manifest::decode(layout, &content[8..])
}

/// A folder with an entry of each kind.
fn all_kinds() -> Vec<Entry> {
    let time = |seconds, nanoseconds| Some(Modified { seconds, nanoseconds });
    let exact = Permissions::Exact;
    let new = |path: &str, kind, permissions, modified| Entry {
        path: path.into(),
        kind,
        permissions,
        modified,
    };
    vec![
        new("", Kind::Folder, exact(0o700), time(-1, 0)),
        new("a", Kind::File(7), exact(0), time(1_700_000_000, 999_999_999)),
        new("b", Kind::Folder, exact(0o777), None),
        new("b/link", Kind::Link("../a".into()), Permissions::Default, time(i64::MIN, 1)),
        new("b/run", Kind::File(0), Permissions::Executable, None),
    ]
}

#[test]
fn a_manifest_survives_encoding() {
    let first = manifest(vec![entry("a", 0), entry("b/c d/ü", 7)]).unwrap();
    let second = Manifest::new(Layout::Second, all_kinds()).unwrap();
    for (manifest, version) in [(first, 0), (second, 2)] {
        let bytes = manifest.encode();
        assert_eq!(
            (bytes[0], bytes[6..8].as_ref()),
            (version, &(bytes.len() as u16 - 8).to_be_bytes()[..])
        );
        let sum: u64 =
            manifest.entries().iter().map(|one| one.encoded_length(manifest.layout)).sum();
        assert_eq!(sum, bytes.len() as u64 - 8);
        assert_eq!(decode(&bytes), Ok(manifest.clone()));
        for end in 9..bytes.len() {
            let decoded = Manifest::decode(manifest.layout, &bytes[8..end]);
            let fewer = |some: Manifest| some.entries().len() < manifest.entries().len();
            assert!(decoded.map_or(true, fewer), "{end}");
        }
    }
    for first in [[1, 0, 0, 0, 0, 0, 0, 0], [0xff; 8], [2, 0, 0, 0, 9, 0, 0, 0]] {
        assert!(Manifest::decode_length(first).is_err());
    }
}

#[test]
fn links_that_lead_outside_are_refused() {
    for target in ["/etc/passwd", "../a", "b/../../c"] {
        let mut all = all_kinds();
        all[1].kind = Kind::Link(target.into());
        let refused = Manifest::new(Layout::Second, all);
        assert_eq!(refused, Err(ManifestError::Link("a".into())), "{target}");
    }
    // Nothing is written through a link.
    let mut all = all_kinds();
    all[2].kind = Kind::Link("a".into());
    assert_eq!(Manifest::new(Layout::Second, all), Err(ManifestError::Twice("b".into())));
}

#[test]
fn paths_that_leave_the_folder_are_refused() {
    let long = "x".repeat(256);
    let deep = ["d"; 65].join("/");
    for path in [
        "",
        "/",
        "/etc/passwd",
        "..",
        "a/../b",
        "a/..",
        "./a",
        "a//b",
        "a/",
        "a\\b",
        "a\nb",
        "a\0b",
        &long,
        &deep,
    ] {
        let refused = manifest(vec![entry(path, 1)]);
        assert!(matches!(refused, Err(ManifestError::Path(_))), "{path:?}");
    }
}

/// Paths of 64 components, each of which names 63 folders: their names would take 2 GB.
#[test]
fn deep_paths_and_many_files_have_limits() {
    let deep = |number: usize| entry(&format!("{}{number}", "folder of a name/".repeat(63)), 1);
    let all = manifest((0..1000).map(deep).collect()).unwrap();
    assert_eq!(decode(&all.encode()), Ok(all));
    let many = (0..=MAX_ENTRIES).map(|number| entry(&format!("{number}"), 0)).collect();
    assert_eq!(manifest(many), Err(ManifestError::TooLong));
}

#[test]
fn characters_that_hide_or_reorder_text_are_replaced() {
    let names = ["invoice\u{202e}fdp.exe", "a/\u{200b}b", "c"].map(|path| entry(path, 1));
    let (all, changed) = manifest(names.into()).unwrap().with_printable_paths().unwrap();
    let paths: Vec<&str> = all.entries().iter().map(|one| one.path.to_str().unwrap()).collect();
    assert_eq!((paths, changed), (vec!["invoice_fdp.exe", "a/_b", "c"], 2));
    let same = manifest(vec![entry("a\u{202e}", 1), entry("a\u{202d}", 1)]).unwrap();
    assert_eq!(same.with_printable_paths(), Err(ManifestError::Twice("a_".to_owned())));
}

#[test]
fn names_of_devices_are_refused() {
    for path in [
        "CON",
        "nul",
        "Aux.txt",
        "prn.tar.gz",
        "COM1",
        "com0.log",
        "LPT9",
        "lpt³",
        "a/NUL/b",
        "a/con .txt",
        "CONIN$",
        "a.",
        "a ",
        "a./b",
        "...",
    ] {
        let refused = manifest(vec![entry(path, 1)]);
        assert!(matches!(refused, Err(ManifestError::Reserved(_))), "{path:?} {refused:?}");
        let unchecked = Manifest { layout: Layout::First, entries: vec![entry(path, 1)] };
        assert_eq!(refused, decode(&unchecked.encode()));
    }
    for path in ["console", "CONTENT.txt", "com", "COM10", "lpt", "null", ".con", "a.nul", "a b.c"]
    {
        assert!(manifest(vec![entry(path, 1)]).is_ok(), "{path:?}");
    }
}

#[test]
fn one_path_is_one_file() {
    let apart = vec![entry("a", 1), entry("a-b", 1), entry("a.d/e", 1), entry("a b/c", 1)];
    assert!(manifest(apart).is_ok());
    for (one, other) in [("a", "a"), ("a", "A"), ("a", "a/b"), ("x/y/z", "x/Y")] {
        let refused = manifest(vec![entry(one, 1), entry(other, 1)]);
        assert!(matches!(refused, Err(ManifestError::Twice(_))), "{one} {other}");
    }
    assert_eq!(manifest(vec![entry("a", u64::MAX), entry("b", 1)]), Err(ManifestError::TooLong));
}

#[test]
fn folders_may_differ_in_case_only() {
    let folder = |path: &str| Entry { kind: Kind::Folder, ..entry(path, 0) };
    assert!(manifest(vec![folder("a"), entry("a/b", 1), folder("A"), entry("A/c", 1)]).is_ok());
    assert!(manifest(vec![folder("a"), folder("a")]).is_err());
    assert!(manifest(vec![folder("a"), entry("A", 1)]).is_err());
}

#[test]
fn any_bytes_are_decoded_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        for layout in [Layout::First, Layout::Second] {
            let Ok(manifest) = Manifest::decode(layout, bytes) else { continue };
            assert_eq!(&manifest.encode()[8..], bytes);
            for entry in manifest.entries() {
                let inside = |part| matches!(part, std::path::Component::Normal(_));
                assert!(entry.path.components().all(inside));
            }
        }
    });
}
