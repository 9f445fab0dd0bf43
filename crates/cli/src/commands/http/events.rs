//! The events of `levada http --json`, one object on a line of standard output each.

use std::sync::Arc;

use levada_services::http::client::{GrantedMiddlebox, Report, SessionEvent};
use levada_services::http::right_text;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output;

/// Prints the events of sessions if `json`.
pub fn report(json: bool) -> Report {
    Arc::new(move |event| {
        if json {
            // A closed standard output must not end the sessions.
            let _ = output::json(describe(&event));
        }
    })
}

/// The local origin is ready. `plain` is its address without a name that has to be resolved.
pub fn listening(address: &str, plain: &str) -> Result<(), Failure> {
    output::json(json!({ "event": "listening", "address": address, "plain_address": plain }))
}

fn describe(event: &SessionEvent) -> Value {
    match event {
        SessionEvent::Opened { number, resumed, middleboxes } => {
            let middleboxes: Vec<Value> = middleboxes.iter().map(middlebox).collect();
            json!({
                "event": "opened",
                "session": number,
                "resumed": resumed,
                "middleboxes": middleboxes,
            })
        }
        SessionEvent::Ended { number, error } => {
            json!({ "event": "ended", "session": number, "error": error })
        }
    }
}

fn middlebox(granted: &GrantedMiddlebox) -> Value {
    let rights = granted.grants.iter();
    let rights = rights.map(|(context, right)| ((*context).to_owned(), json!(right_text(*right))));
    let rights: Map<String, Value> = rights.collect();
    json!({ "identity": granted.identity.to_string(), "rights": rights })
}
