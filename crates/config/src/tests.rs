use levada_core::{Identity, UnixTime};

use levada_core::DurationError;

use super::*;
use levada_home::known::Known;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("config.toml"), text)
}

#[track_caller]
fn assert_error(text: &str, message: &str) {
    let error = parse(text).unwrap_err().to_string();
    assert_eq!(error, message);
}

/// The identity that a single entry stands for.
fn one(subject: &Subject, known: &Known) -> Result<Identity, ConfigError> {
    subject.identities(known, &Groups::default()).map(|found| found[0])
}

fn peer() -> Identity {
    Identity::from_bytes([7; 32])
}

#[test]
fn a_full_configuration_is_read() {
    let text = format!(
        r#"
name = "alpha"
listen = ["0.0.0.0:5382", "[::1]:9"]
advertise = ["box.example:80", "[2001:db8::1]:5382"]
http = false
announce = false
allow = ["{0}", {{ identity = "{0}", services = ["echo"] }}]
block = ["{0}"]
session_expires = "10m"
log = "debug"
log_format = "json"

[limits]
half_open = 10
sessions = 5
streams = 7

[[service]]
name = "exec"
type = "exec"
[[service.command]]
program = "uname"
args = ".*"

[[service]]
name = "echo"
type = "echo"
"#,
        peer()
    );
    let config = parse(&text).unwrap();
    assert_eq!(config.name.as_deref(), Some("alpha"));
    assert_eq!(config.listen.unwrap().len(), 2);
    assert_eq!(config.advertise, ["box.example:80", "[2001:db8::1]:5382"]);
    assert_eq!(config.http, Http::Off);
    assert!(!config.announce && Config::default().announce);
    let folder = tempfile::tempdir().unwrap();
    let known = Known::open(&folder.path().join("known.db")).unwrap();
    assert_eq!(one(&config.allow[0].identity, &known).unwrap(), peer());
    assert_eq!(config.allow[0].services, None);
    assert_eq!(config.allow[1].services, Some(vec!["echo".into()]));
    let blocked: Vec<_> = config.block.iter().map(|entry| one(entry, &known).unwrap()).collect();
    assert_eq!(blocked, [peer()]);
    assert_eq!(config.session_expires, Duration::from_secs(600));
    assert_eq!((config.limits.half_open, config.limits.sessions), (10, 5));
    assert_eq!((config.limits.streams, Limits::default().streams), (7, 128));
    assert_eq!(config.limits.connections, Limits::default().connections);
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!((config.services[0].name.as_str(), config.services[0].line), ("exec", 18));
    assert_eq!(config.services[0].table["command"][0]["program"].as_str(), Some("uname"));
    assert_eq!(config.services[1].line, 25);
}

#[test]
fn errors_name_file_line_key_and_allowed_values() {
    assert_error(
        "name = \"a\"\nlisten = [\n  \"0.0.0.0:1\",\n  \"nowhere\",\n]",
        "config.toml:4: key `listen[1]`: it is \"nowhere\"; allowed is an address and port such as \
         \"0.0.0.0:5382\" or \"[::1]:5382\"",
    );
    assert_error(
        "http = 80",
        "config.toml:1: key `http`: it is 80; allowed is an address and port such as \
         \"127.0.0.1:5383\", or false for no HTTP port",
    );
    assert_error(
        "announce = 1",
        "config.toml:1: key `announce`: it is 1; allowed is true or false",
    );
    assert_error(
        "\n[limits]\nhalf_open = 0",
        "config.toml:3: key `limits.half_open`: it is 0; allowed is a whole number from 1 to 1000000",
    );
    assert_error(
        "session_expires = \"1y\"",
        &format!("config.toml:1: key `session_expires`: {DurationError}"),
    );
    assert_error(
        "allow = [\"a b\"]",
        &format!(
            "config.toml:1: key `allow[0]`: it is \"a b\"; allowed is {}",
            identify::ALLOWED_SUBJECT
        ),
    );
    assert_error(
        "[[service]]\nname = \"a\"",
        "config.toml:1: key `service[0].type`: it is missing; it is the type of the service, such as \
         \"exec\"",
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_key() {
    assert_error("listn = []", "config.toml:1: key `listn`: it is unknown; did you mean `listen`?");
    assert_error(
        "[limits]\nsesions = 1",
        "config.toml:2: key `limits.sesions`: it is unknown; did you mean `sessions`?",
    );
    let error = parse("zzzzzzzzzz = 1").unwrap_err().to_string();
    assert!(error.contains("known are name, listen"), "{error}");
}

#[test]
fn broken_toml_and_repeated_services_are_refused() {
    let error = parse("name = \"a\"\nlisten = [").unwrap_err().to_string();
    assert!(error.starts_with("config.toml:2: "), "{error}");
    let two = "[[service]]\nname = \"a\"\ntype = \"echo\"\n";
    assert_error(
        &two.repeat(2),
        "config.toml:5: key `service[1].name`: the service `a` is already on line 1",
    );
}

#[test]
fn a_name_is_resolved_to_its_pinned_key() {
    let folder = tempfile::tempdir().unwrap();
    let known = Known::open(&folder.path().join("known.db")).unwrap();
    let config = parse("block = [\n\"alice\"]\nallow = [{ identity = \"alice\" }]").unwrap();
    let error = one(&config.block[0], &known).unwrap_err().to_string();
    assert!(
        error.starts_with("config.toml:2: key `block[0]`: no identity is known here as"),
        "{error}"
    );
    assert!(error.contains("levada peers add alice"), "{error}");
    known.pin("alice", &peer(), &[], UnixTime(1)).unwrap();
    for entry in [&config.block[0], &config.allow[0].identity] {
        assert_eq!(one(entry, &known).unwrap(), peer());
    }
    // A mistyped identity is not taken for a name.
    let mistyped = format!("{}a", &peer().to_string()[..59]);
    let config = parse(&format!("block = [\"{mistyped}\"]")).unwrap();
    let error = one(&config.block[0], &known).unwrap_err().to_string();
    assert!(error.contains("not an identity"), "{error}");
}

#[test]
fn a_service_file_is_read_like_the_configuration() {
    let file = Path::new("exec.toml");
    let text = "name = \"exec\"\ntype = \"exec\"\npty = false\n[[command]]\nprogram = \"cat\"\n";
    let service = ServiceSource::parse(file, text).unwrap();
    assert_eq!((service.name.as_str(), service.line), ("exec", 1));
    assert_eq!(service.table["pty"].as_bool(), Some(false));
    let wrong = |key, message: &str| service.wrong(key, message).to_string();
    assert_eq!(wrong("service", "no `cat`"), "exec.toml:1: key `service`: no `cat`");
    assert_eq!(wrong("service", "bad `program`"), "exec.toml:5: key `program`: bad `program`");
    assert_eq!(wrong("service", "in `command.program`").split(": key").next(), Some("exec.toml:5"));
    let text = service.wrong_text("program", "uname", "none").to_string();
    assert_eq!(text, "exec.toml:5: key `program`: none");
    assert_eq!(wrong("name", "twice"), "exec.toml:1: key `name`: twice");
    let error = ServiceSource::parse(file, "name = \"a/b\"\ntype = \"x\"").unwrap_err().to_string();
    assert!(
        error.starts_with("exec.toml:1: key `name`: it is \"a/b\"; allowed is a name"),
        "{error}"
    );
}

#[test]
fn tables_of_a_service_are_refused_at_the_top() {
    let service = "[[service]]\nname = \"a\"\ntype = \"exec\"\n";
    let at_top = |text: &str| parse(&format!("{service}{text}")).unwrap_err().to_string();
    for (text, form) in [
        ("[[command]]\nprogram = \"cat\"\n", "[[service.command]]"),
        ("[[middlebox]]\nidentity = \"gate\"\n", "[[service.middlebox]]"),
        ("[environment]\nA = \"1\"\n", "[service.environment]"),
    ] {
        let error = at_top(text);
        assert!(error.starts_with("config.toml:4: key `"), "{error}");
        assert!(error.contains(&format!("write `{form}` below its `[[service]]`")), "{error}");
    }
    // The middlebox that the node is for others is a table.
    let middlebox = "[middlebox]\nlisten = \"127.0.0.1:1\"\nnext = \"a.example:1\"\n";
    assert!(parse(middlebox).unwrap().middlebox.is_some());
}

#[test]
fn a_missing_file_is_the_default_and_a_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Config::load(&folder.path().join("none")).unwrap().listen.is_none());
    assert!(matches!(Config::load(folder.path()), Err(ConfigError::Io { .. })));
}

#[test]
fn arbitrary_text_never_panics() {
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(keys, text)| {
        let text = String::from_utf8_lossy(text);
        let _ = parse(&text);
        let _ = ServiceSource::parse(Path::new("service.toml"), &text);
        // Known keys with values of every type reach more code than arbitrary text.
        let values = ["1", "\"a\"", "[]", "[[]]", "{}", "true", "1.5", "2020-01-01", "[{a = 1}]"];
        let mixed: String = keys
            .iter()
            .map(|byte| usize::from(*byte))
            .map(|byte| {
                format!("{} = {}\n", KEYS[byte % KEYS.len()], values[byte / 16 % values.len()])
            })
            .collect();
        let _ = parse(&mixed);
    });
}

#[test]
fn advertised_addresses_must_be_reachable_from_other_machines() {
    let advertise = |text: &str| parse(text).map(|config| config.advertise);
    assert_eq!(advertise("advertise = 'box:1'").unwrap(), ["box:1"]);
    let error = advertise("name = 'a'\nadvertise = ['box:1', 'localhost:1']").unwrap_err();
    assert!(error.to_string().starts_with("config.toml:2: key `advertise[1]`: it is an address"));
    assert!(advertise("advertise = 'box'").unwrap_err().to_string().contains("HOST:PORT"));
}

#[test]
fn packages_are_provided_only_on_request() {
    let swarm = |text: &str| parse(text).unwrap().swarm;
    assert_eq!(swarm(""), Swarm { peers: 500, provide: false });
    assert_eq!(swarm("[swarm]\nprovide = true\npeers = 7"), Swarm { peers: 7, provide: true });
    let error = parse("[swarm]\nprovide = 1\n").unwrap_err().to_string();
    assert!(error.starts_with("config.toml:2: key `swarm.provide`"), "{error}");
}

#[test]
fn groups_stand_where_identities_do() {
    let identity = Identity::from_bytes([1; 32]).to_string();
    let text = format!(
        "allow = ['group:family', {{ identity = 'group:staff', services = ['echo'] }}]\n\
         block = ['group:bad']\n\
         [groups]\nfrom = 'admin'\nset = 'office'\nreaders = ['group:nodes', 'well']\n\
         [[group]]\nname = 'family'\nmembers = ['anna', '{identity}', 'group:others']\n\
         [[group]]\nname = 'others'\nmembers = []\n"
    );
    let config = parse(&text).unwrap();
    let groups: Vec<_> = config.allow.iter().map(|entry| entry.identity.group()).collect();
    assert_eq!(groups, [Some("family"), Some("staff")]);
    assert_eq!(config.block[0].group(), Some("bad"));
    assert_eq!(config.shared_groups.readers[0].group(), Some("nodes"));
    assert_eq!(config.shared_groups.set.as_deref(), Some("office"));
    let members: Vec<_> = config.groups[0].members.iter().map(Subject::group).collect();
    assert_eq!(members, [None, None, Some("others")]);
    assert!(config.groups[0].place().ends_with(":7"), "{}", config.groups[0].place());
}

#[test]
fn errors_of_groups_name_the_line() {
    for (text, place) in [
        ("allow = ['group:']\n", ":1: key `allow[0]`: after `group:`"),
        ("block = ['group:a b']\n", ":1: key `block[0]`: after `group:`"),
        ("[[group]]\nname = 'a'\n", ":1: key `group[0].members`: it is missing"),
        ("[[group]]\nname = 'a b'\nmembers = []\n", ":2: key `group[0].name`"),
        ("[[group]]\nname = 'a'\nmembers = [1]\n", ":3: key `group[0].members[0]`"),
        ("[[group]]\nname = 'a'\nmembers = []\nsize = 1\n", ":4: key `group[0].size`"),
        (
            "[[group]]\nname = 'a'\nmembers = []\n[[group]]\nname = 'a'\nmembers = []\n",
            ":4: key `group[1]`: the group `a` is defined at",
        ),
        ("[groups]\nfrom = 'group:a'\n", ":2: key `groups.from`"),
        ("[groups]\nset = 'a'\n", ":2: key `groups.set`: it needs `from`"),
        ("[groups]\nreader = ['a']\n", ":2: key `groups.reader`: it is unknown; did you mean"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(place), "{error}");
    }
}
