//! Names in definitions, and the demo.

use super::*;
use levada_config::{GroupDefinition, Member};
use levada_core::{Params, UnixTime, encode_list};

fn demo_accepts(args: &[&str]) -> bool {
    let registry = registry(None);
    let definition = registry.parse(DEMO).unwrap();
    let mut params = Params::new();
    params.add(Params::ARGS, encode_list(args)).unwrap();
    let context = Context::without_client(Identity::from_bytes([1; 32]));
    registry
        .build(&definition, &context)
        .unwrap()
        .prepare(&params, levada_service::Over::Stream)
        .is_ok()
}

#[test]
fn patterns_may_use_pinned_names() {
    let folder = tempfile::tempdir().unwrap();
    let known = Known::open(&folder.path().join("known.db")).unwrap();
    let well = Identity::from_bytes([2; 32]);
    let members = [well, Identity::from_bytes([3; 32])].map(Member::Identity).into();
    let boxes = GroupDefinition { name: "boxes".into(), members, until: UnixTime::NEVER };
    let groups = Groups::expand(&[boxes], false).unwrap();
    known.pin("well", &well, &[], UnixTime(1)).unwrap();
    let mut table: toml::Table =
        format!("start = ['well/exec', '*/echo', '{well}/a*', 'a b']").parse().unwrap();
    resolve_names(&mut table, (&known, &groups)).unwrap();
    let patterns = table[START].as_array().unwrap();
    let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_str().unwrap()).collect();
    let [by_name, by_key] = [format!("{well}/exec"), format!("{well}/a*")];
    assert_eq!(patterns, [by_name.as_str(), "*/echo", &by_key, "a b"]);
    let mut table: toml::Table = "start = ['nowhere/exec']".parse().unwrap();
    let (key, error) = resolve_names(&mut table, (&known, &groups)).unwrap_err();
    assert!(key == START && error.contains("`nowhere`"));
    let text = format!("middlebox = [{{ identity = 'well' }}, {{ identity = '{well}' }}]");
    let mut table: toml::Table = text.parse().unwrap();
    resolve_names(&mut table, (&known, &groups)).unwrap();
    let own: Vec<_> = table[MIDDLEBOX].as_array().unwrap().iter().collect();
    assert!(own.iter().all(|one| one["identity"].as_str() == Some(&well.to_string())));
    let mut table: toml::Table =
        "middlebox = [{ identity = 'group:boxes', required = true }]".parse().unwrap();
    resolve_names(&mut table, (&known, &groups)).unwrap();
    let own = table[MIDDLEBOX].as_array().unwrap();
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|one| one["required"].as_bool() == Some(true)));
    let mut table: toml::Table = "middlebox = [{ identity = 'group:none' }]".parse().unwrap();
    assert!(resolve_names(&mut table, (&known, &groups)).is_err());
}

#[test]
fn the_demo_runs_only_harmless_commands() {
    assert!(demo_accepts(&["uname", "-a", "--", "anything"]));
    assert!(demo_accepts(&["date", "-u", "+%F %T"]));
    assert!(demo_accepts(&["cat"]));
    assert!(!demo_accepts(&["cat", "/etc/passwd"]));
    assert!(!demo_accepts(&["date", "-s", "2000-01-01"]));
    assert!(!demo_accepts(&["date", "--set=now"]));
    assert!(!demo_accepts(&["sh"]));
}

#[test]
fn a_required_group_of_middleboxes_without_members_refuses_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let known = Known::open(&folder.path().join("known.db")).unwrap();
    let members = Vec::new();
    let boxes = GroupDefinition { name: "boxes".into(), members, until: UnixTime::NEVER };
    let groups = Groups::expand(&[boxes], false).unwrap();
    let prepare = |required: bool| {
        let text = format!(
            "name = 'web'\ntype = 'http'\norigin = '127.0.0.1:80'\n\
             [[middlebox]]\nidentity = 'group:boxes'\nrequired = {required}\n"
        );
        let mut table: toml::Table = text.parse().unwrap();
        resolve_names(&mut table, (&known, &groups)).unwrap();
        let definition = Definition::deserialize(table).unwrap();
        let context = Context::without_client(Identity::from_bytes([1; 32]));
        let service = registry(None).build(&definition, &context).unwrap();
        service.prepare(&Params::new(), levada_service::Over::Stream).map(drop)
    };
    prepare(false).unwrap();
    let refused = prepare(true).unwrap_err();
    assert!(refused.to_string().contains("a middlebox of group:boxes"), "{refused}");
}
