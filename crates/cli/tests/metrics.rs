//! `/metrics`, and the files that use it: the dashboard and the alerts of `pkg`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use regex_lite::Regex;

use crate::support::forward::{echo, listener, serve, with_timeouts};
use crate::support::{Home, Node, eventually};

mod exposition;

use exposition::{Family, Sample};

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];
/// The label of the service.
const FORWARD: [(&str, &str); 1] = [("service", "forward")];
/// Metrics of a catalogue that several nodes share.
const OF_CLUSTERS: [&str; 3] =
    ["levada_catalogue_behind", "levada_catalogue_away_seconds", "levada_catalogue_rejected"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn scrape(node: &Node<'_>) -> Vec<Family> {
    let (status, text) = node.http("/metrics");
    assert_eq!(status, 200);
    exposition::read(&text)
}

fn samples(families: &[Family]) -> impl Iterator<Item = &Sample> {
    families.iter().flat_map(|family| &family.samples)
}

/// The sum of the samples with this name that have all of these labels.
fn value(families: &[Family], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &&Sample| labels.iter().all(|(key, value)| sample.labels[*key] == *value);
    let mut found = samples(families).filter(|sample| sample.name == name).peekable();
    assert!(found.peek().is_some(), "{name} does not exist");
    found.filter(has).map(|sample| sample.value).sum()
}

/// A node that serves a share, forwards to itself, and is a middlebox.
fn up<'a>(home: &'a Home, target: &str) -> Node<'a> {
    home.run("id").ok();
    let text = format!(
        "[middlebox]\nlisten = '127.0.0.1:0'\nnext = ['127.0.0.1:1']\n\n\
         [[forward]]\nservice = 'well/forward'\ntarget = '{target}'\nlisten = '127.0.0.1:0'\n"
    );
    fs::write(home.path().join("config.toml"), text).unwrap();
    let node = home.up_forwarding(&[target]);
    let content = home.path().join("film.mkv");
    fs::write(&content, vec![7; 100_000]).unwrap();
    home.args(["share", content.to_str().unwrap()]).ok();
    node
}

/// The address of the node's forward, once it is open.
fn forward_address(home: &Home) -> String {
    let mut address = None;
    eventually("the forward is open", || {
        let status = home.json("status");
        let forward = &status["forwards"][0];
        let is_open = forward["state"] == "open";
        address = forward["listening"][0].as_str().filter(|_| is_open).map(str::to_owned);
        address.is_some()
    });
    address.unwrap()
}

#[test]
fn metrics_are_well_formed_and_count_what_happens() {
    let (listener, target) = listener();
    serve(listener, echo);
    let home = Home::new();
    let node = up(&home, &target);
    home.run("run well/clock").ok();
    assert_ne!(home.run("run well/unknown").code, 0);
    let mut stream = with_timeouts(std::net::TcpStream::connect(forward_address(&home)).unwrap());
    stream.write_all(&[1; 50_000]).unwrap();
    stream.read_exact(&mut [0; 50_000]).unwrap();
    let open = |found: &[Family]| value(found, "levada_forward_open_connections", &[]);
    assert_eq!(open(&scrape(&node)), 1.0);
    stream.shutdown(Shutdown::Write).unwrap();
    eventually("the connection has ended", || open(&scrape(&node)) == 0.0);
    let clock = [("service", "clock")];
    let running = |found: &[Family]| value(found, "levada_service_sessions", &clock);
    eventually("the session has ended", || running(&scrape(&node)) == 0.0);
    let sent = |found: &[Family]| value(found, "levada_service_sent_bytes_total", &FORWARD);
    eventually("the node's end of the connection has ended", || sent(&scrape(&node)) >= 50_000.0);
    eventually("the disk is known", || value(&scrape(&node), "levada_disk_size_bytes", &[]) > 0.0);

    let found = scrape(&node);
    let value = |name: &str, labels: &[(&str, &str)]| value(&found, name, labels);
    assert_eq!(value("levada_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(value("levada_ready", &[]), 1.0);
    assert_eq!(value("levada_clock_jumped", &[]), 0.0);
    assert_eq!(value("levada_shares", &[]), 1.0);
    assert_eq!(value("levada_share_content_bytes", &[]), 100_000.0);
    assert_eq!(value("levada_forwards", &[("state", "open")]), 1.0);
    assert_eq!(value("levada_forwards", &[]), 1.0);
    assert_eq!(value("levada_forward_connections_total", &[]), 1.0);
    // At each of its three ends, the connection has carried the bytes, with a few of the protocol.
    for count in [
        value("levada_forward_sent_bytes_total", &[]),
        value("levada_forward_received_bytes_total", &[]),
        value("levada_service_sent_bytes_total", &FORWARD),
        value("levada_service_received_bytes_total", &FORWARD),
    ] {
        assert!((50_000.0..51_000.0).contains(&count), "{count}");
    }
    for name in ["levada_connection_sent_bytes_total", "levada_connection_received_bytes_total"] {
        assert!(value(name, &[]) > 50_000.0, "{name}");
    }
    assert_eq!(value("levada_service_session_duration_seconds_count", &clock), 1.0);
    assert!(value("levada_service_sent_bytes_total", &clock) > 0.0);
    let done = [("operation", "connect"), ("outcome", "done")];
    let connects = value("levada_operations_total", &done);
    let measured = value("levada_operation_duration_seconds_count", &[("operation", "connect")]);
    assert!(connects >= 1.0 && connects == measured, "{connects} {measured}");
    assert!(value("levada_refusals_total", &[("reason", "unknown")]) >= 1.0);
    let database = fs::metadata(home.path().join("node.db")).unwrap().len();
    assert!(value("levada_database_bytes", &[]) >= database as f64);
    assert!(value("levada_disk_free_bytes", &[]) <= value("levada_disk_size_bytes", &[]));
    check_process(&found);
    // A name that a peer sends makes no label.
    let is_known = |name: &str| ["clock", "echo", "forward", "swarm"].contains(&name);
    let mut services = samples(&found).filter_map(|sample| sample.labels.get("service"));
    assert!(services.all(|name| is_known(name)));
}

/// Checks that `process_*` have values that a process can have.
fn check_process(found: &[Family]) {
    let value = |name: &str| value(found, name, &[]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - value("process_start_time_seconds");
    assert!((-5.0..3600.0).contains(&age), "{age}");
    let resident = value("process_resident_memory_bytes");
    assert!(resident > 1e6 && resident < value("process_virtual_memory_bytes"));
    let open = value("process_open_fds");
    assert!(open > 5.0 && open < value("process_max_fds"), "{open}");
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_threads") >= 1.0);
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\b(?:levada|process)_[a-z][a-z0-9_]*").unwrap();
    name.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// The strings of all `expr` of the dashboard.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| expressions(item, found));
        }
        _ => {}
    }
}

/// Checks that each metric in `text` exists, with the labels by which it is selected or grouped.
fn check_names(found: &[Family], text: &str) {
    let labels_of = |name: &str| -> Option<BTreeSet<&str>> {
        let all = samples(found).filter(|sample| sample.name == name);
        let labels: Vec<_> = all.map(|sample| &sample.labels).collect();
        let keys = labels.iter().flat_map(|labels| labels.keys().map(String::as_str));
        (!labels.is_empty()).then(|| keys.chain(ADDED).collect())
    };
    let mut grouped = BTreeSet::new();
    for name in named(text) {
        grouped.extend(labels_of(&name).unwrap_or_else(|| panic!("{name} does not exist")));
    }
    let selector = Regex::new(r"\b((?:levada|process)_[a-z][a-z0-9_]*)\{([^}]*)\}").unwrap();
    let key = Regex::new(r#"([a-z_]+)\s*(?:=~|!~|!=|=)"#).unwrap();
    for found in selector.captures_iter(text) {
        let labels = labels_of(&found[1]).unwrap();
        let mut keys = key.captures_iter(&found[2]);
        assert!(keys.all(|key| labels.contains(&key[1])), "{}", &found[0]);
    }
    let by = Regex::new(r"\bby \(([a-z_, ]+)\)").unwrap();
    for found in by.captures_iter(text) {
        let mut keys = found[1].split(", ");
        assert!(keys.all(|key| grouped.contains(key)), "{}", &found[0]);
    }
}

#[test]
fn every_metric_of_dashboard_and_alerts_exists_and_every_metric_is_documented() {
    let home = Home::new();
    let (_listener, target) = listener();
    let node = up(&home, &target);
    forward_address(&home);
    home.run("run well/clock").ok();
    let found = scrape(&node);
    let dashboard = serde_json::from_str(&file("pkg/grafana-dashboard.json")).unwrap();
    let mut all = Vec::new();
    expressions(&dashboard, &mut all);
    assert!(all.len() > 30, "{}", all.len());
    all.iter().for_each(|expression| check_names(&found, expression));
    let alerts = file("pkg/alerts.yml");
    let expressions: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() > 8 && expressions.len() == alerts.matches("- alert: ").count());
    expressions.iter().for_each(|expression| check_names(&found, expression));
    for field in ["for: ", "severity: ", "summary: ", "description: "] {
        assert_eq!(alerts.matches(field).count(), expressions.len(), "{field}");
    }

    let page = file("docs/running-a-node.md");
    let documented = named(&page);
    for family in &found {
        let total = format!("{}_total", family.name);
        let info = format!("{}_info", family.name);
        let is_documented = |name: &String| documented.contains(name);
        assert!([&family.name, &total, &info].into_iter().any(is_documented), "{}", family.name);
    }
    let exist: BTreeSet<_> = samples(&found).map(|sample| sample.name.as_str()).collect();
    let families: BTreeSet<_> = found.iter().map(|family| family.name.as_str()).collect();
    let exists = |name: &str| exist.contains(name) || families.contains(name);
    let unknown: Vec<_> = documented.iter().filter(|name| !exists(name)).collect();
    let unknown: Vec<_> =
        unknown.into_iter().filter(|name| !OF_CLUSTERS.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "the page names {unknown:?}");
}

#[test]
fn promtool_accepts_the_alerts() {
    let is_here = Command::new("promtool").arg("--version").output().is_ok();
    if !is_here {
        eprintln!("skipped: there is no promtool");
        return;
    }
    for words in [["check", "rules", "pkg/alerts.yml"], ["test", "rules", "pkg/tests/alerts.yml"]] {
        let ran = Command::new("promtool").args(words).current_dir(root()).output().unwrap();
        assert!(ran.status.success(), "{words:?}: {ran:?}");
    }
}
