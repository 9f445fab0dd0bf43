//! The values of arguments, by the names that the help gives them: from the files of this home, and
//! from its node if that runs.

use std::time::Duration;

use clap::Arg;
use levada_catalogue::model::Kind;
use levada_client::control::{self, Filter, GroupRequest, Request};
use levada_config::GROUP_PREFIX;
use levada_home::Home;
use levada_home::known::{Known, Pin};
use levada_services::registry;
use serde_json::Value;

use super::candidate::Candidate;
use crate::seen::Seen;

/// The maximum time for an answer of the node of this home.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The sessions that are listed: the newest.
const MAX_SESSIONS: u32 = 100;

/// The values of `argument` of a verb.
pub(super) fn of(argument: &Arg, verb: &[&str]) -> Vec<Candidate> {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| Candidate::new(value.get_name())).collect();
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map(|name| name.as_str()).unwrap_or_default();
    match (verb, name) {
        (["query"], "NODE/SERVICE") => [nodes(), services()].concat(),
        (_, name) if name.starts_with("NODE/") => services(),
        (_, name) if name.starts_with("NODE") => nodes(),
        (["revoke"], _) => [nodes(), sessions()].concat(),
        (["group", ..], "GROUP") => groups(""),
        (["group" | "access", ..], "IDENTITY") => [nodes(), groups(GROUP_PREFIX)].concat(),
        (_, name) if name.starts_with("IDENTITY") || name == "ENTITY" => nodes(),
        (["peers", "forget"], "NAME") | (["peers", "rename"], "OLD") => nodes(),
        (["show"], "NAME") if argument.get_long() != Some("name") => shows(),
        (["invite"] | ["sessions"], "S") => own_services(),
        (["ls"], "T") => registry(None).names().map(Candidate::new).collect(),
        (["swarm", _], "SHARE") => shares(),
        (["swarm", _], "TICKET") => tickets(),
        (_, "SESSION") => sessions(),
        (_, "TYPE") => kinds(""),
        (_, "TYPE[/NAME]") => [kinds(""), kinds("/"), objects()].concat(),
        (_, name) if name.starts_with("TYPE/NAME") => [kinds("/"), objects()].concat(),
        _ => Vec::new(),
    }
}

/// The pinned names, without a change on disk.
fn pins() -> Vec<Pin> {
    let known = || Known::examine(&Home::find().ok()?.known_db()).ok()?.0.names().ok();
    known().unwrap_or_default()
}

fn nodes() -> Vec<Candidate> {
    pins().into_iter().map(|pin| Candidate::new(pin.name)).collect()
}

/// The services of pinned nodes that were seen; `NODE/` for a node without any.
fn services() -> Vec<Candidate> {
    let seen = Home::find().map(|home| Seen::read(&home)).unwrap_or_default();
    let of_pin = |pin: Pin| {
        let services = seen.services(&pin.identity);
        let named = |service: &str| format!("{}/{service}", pin.name);
        if services.is_empty() {
            return vec![Candidate::new(named(""))];
        }
        let described = |(service, kind): (&str, &str)| Candidate {
            text: named(service),
            help: if kind == service { String::new() } else { kind.to_owned() },
        };
        services.into_iter().map(described).collect()
    };
    pins().into_iter().flat_map(of_pin).collect()
}

/// The answer of this home's node, `null` if there is none in time.
fn ask(request: &Request) -> Value {
    let Ok(home) = Home::find() else { return Value::Null };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Value::Null };
    let answer = async { tokio::time::timeout(NODE_TIMEOUT, control::call(&home, request)).await };
    runtime.block_on(answer).ok().and_then(Result::ok).unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn own_services() -> Vec<Candidate> {
    let status = ask(&Request::Status);
    items(&status["services"]).filter_map(Value::as_str).map(Candidate::new).collect()
}

fn sessions() -> Vec<Candidate> {
    let answer =
        ask(&Request::Sessions { limit: MAX_SESSIONS, running: false, filter: Filter::default() });
    let described = |session: &Value| {
        let text = session["session"].as_str()?.to_owned();
        let holder = session["holder_name"].as_str().unwrap_or_default();
        let service = session["service"].as_str().unwrap_or_default();
        let state = session["state"].as_str().unwrap_or_default();
        Some(Candidate { text, help: format!("{service} {state} {holder}").trim_end().to_owned() })
    };
    items(&answer["sessions"]).filter_map(described).collect()
}

/// The groups of this home's node.
fn groups(before: &str) -> Vec<Candidate> {
    let answer = ask(&Request::Group(GroupRequest::List));
    let names = items(&answer["groups"]).filter_map(|group| group["group"].as_str());
    names.map(|name| Candidate::new(format!("{before}{name}"))).collect()
}

fn shares() -> Vec<Candidate> {
    let answer = ask(&Request::Shares);
    let described = |share: &Value| Candidate {
        text: share["share"].to_string(),
        help: share["name"].as_str().unwrap_or_default().to_owned(),
    };
    items(&answer["shares"]).map(described).collect()
}

fn tickets() -> Vec<Candidate> {
    let answer = ask(&Request::Shares);
    let of_share = |share: &Value| {
        let name = share["name"].as_str().unwrap_or_default().to_owned();
        let ids = items(&share["tickets"]).filter_map(|ticket| ticket["ticket"].as_str());
        let described = |id: &str| Candidate { text: id.to_owned(), help: name.clone() };
        ids.map(described).collect::<Vec<_>>()
    };
    items(&answer["shares"]).flat_map(of_share).collect()
}

fn kinds(end: &str) -> Vec<Candidate> {
    Kind::ALL.iter().map(|kind| Candidate::new(format!("{kind}{end}"))).collect()
}

/// The objects of catalogues that were seen.
fn objects() -> Vec<Candidate> {
    let seen = Home::find().map(|home| Seen::read(&home)).unwrap_or_default();
    seen.objects().map(Candidate::new).collect()
}

/// The programs of `levada show` on this machine.
#[cfg(feature = "desktop")]
fn shows() -> Vec<Candidate> {
    use levada_services::desktop::show::Registry;
    let registry = Home::find().ok().and_then(|home| Registry::open(&home).ok());
    let entries = registry.and_then(|registry| registry.all().ok()).unwrap_or_default();
    entries.into_iter().map(|entry| Candidate::new(entry.name)).collect()
}

#[cfg(not(feature = "desktop"))]
fn shows() -> Vec<Candidate> {
    Vec::new()
}
