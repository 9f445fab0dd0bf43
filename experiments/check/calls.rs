//! The table of calls: the commit, the machine and its load, from `machine.jsonl`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::table::Table;

/// The title of the table.
pub const TITLE: &str = "Calls";

/// The calls of one experiment with one commit on one processor.
#[derive(Default)]
struct Calls {
    count: usize,
    dates: Vec<String>,
    load: f64,
}

/// A line for each experiment, commit and processor that rows in a folder are of.
pub fn table(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("machine.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut all: BTreeMap<[String; 3], Calls> = BTreeMap::new();
    for line in text.lines() {
        let call: Value = serde_json::from_str(line).context(line.to_owned())?;
        // The other lines have settings of the lab.
        if call.get("command").is_some() {
            let key = [word(&call, "experiment"), commit(&call), word(&call, "cpu")];
            all.entry(key).or_default().add(&call);
        }
    }
    let head = ["experiment", "commit", "processor", "calls", "date", "load before, at most"];
    let mut table = Table::new(TITLE, head);
    for (key, calls) in all {
        let least = calls.dates.iter().min().map_or("", String::as_str);
        let greatest = calls.dates.iter().max().map_or("", String::as_str);
        let date =
            if least == greatest { least.to_owned() } else { [least, greatest].join(" to ") };
        let cells = [calls.count.to_string(), date, format!("{:.1}", calls.load)];
        table.lines.push(key.into_iter().chain(cells).collect());
    }
    Ok(table.to_string() + "\n")
}

impl Calls {
    fn add(&mut self, call: &Value) {
        let load = word(call, "load");
        let load = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        self.count += 1;
        self.load = self.load.max(load);
        self.dates.push(word(call, "date").chars().take(10).collect());
    }
}

/// The commit of a call; `+` says that sources differed from it.
fn commit(call: &Value) -> String {
    let commit = word(call, "commit");
    let changed = if commit.ends_with('+') { "+" } else { "" };
    match commit.trim_end_matches('+') {
        "" => "none".to_owned(),
        commit => commit.chars().take(7).collect::<String>() + changed,
    }
}

fn word(call: &Value, name: &str) -> String {
    call.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
