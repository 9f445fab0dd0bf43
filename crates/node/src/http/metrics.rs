//! The text of `/metrics`: metrics of the node, the HTTP port and its catalogue.

use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use levada_catalogue::http::{Counters, Site};
use levada_catalogue::store::Lag;

use crate::forwards;
use crate::metrics::{PeerCounts, ShareCounts};
use crate::node::Node;

/// The last line of OpenMetrics.
const END: &str = "# EOF\n";

/// The metrics of `node`, and of `site`, which serves its catalogue.
pub(super) fn text(node: &Node, site: Option<&Site>, ready: bool) -> String {
    refresh(node, ready);
    let mut text = node.metrics.text(&peers(node));
    if let Some(site) = site {
        text.truncate(text.strip_suffix(END).map_or(text.len(), str::len));
        // Writing to a String cannot fail.
        let _ = write_counters(&mut text, site);
        if let Some(lag) = node.catalogue.as_ref().and_then(|handle| handle.lag()) {
            let _ = write_lag(&mut text, &lag);
        }
        text.push_str(END);
    }
    text
}

/// The numbers of peers. Read here: tasks that set a gauge after each change could do so in another
/// order than the changes.
fn peers(node: &Node) -> PeerCounts {
    let peers = &node.peers;
    PeerCounts {
        half_open: peers.half_open.count(),
        connections: peers.connections.count(),
        sessions: peers.sessions.count(),
        unproved_memory: peers.unproved.used(),
        unproved_closed: peers.unproved.closed(),
    }
}

/// Sets the metrics of the node's state.
fn refresh(node: &Node, ready: bool) {
    let metrics = &node.metrics;
    metrics.health.set_ready(ready);
    let clock = node.clock.now();
    let now = node.rights.store.now(clock);
    metrics.health.set_clock(now.jumped, now.time.0.saturating_sub(clock.0));
    let sharing = &node.sharing;
    let not_served = sharing.not_served.lock().unwrap_or_else(PoisonError::into_inner).len();
    metrics.shares.refresh(&ShareCounts {
        served: sharing.shares.count(),
        not_served,
        bytes: sharing.shares.bytes(),
        peers: sharing.shares.peers(),
    });
    for state in forwards::STATES {
        metrics.forwards.set_state(state, node.forwards.count(state));
    }
    metrics.forwards.refresh(&node.forwards.traffic);
    if let Some(middlebox) = &node.network.middlebox {
        metrics.middlebox.refresh(middlebox.sessions(), middlebox.traffic());
    }
}

fn write_counters(text: &mut String, site: &Site) -> std::fmt::Result {
    let Counters { connections, open, answers, sent } = site.counters();
    let metric = "levada_catalogue_http";
    writeln!(text, "# HELP {metric}_connections Connections that were accepted.")?;
    writeln!(text, "# TYPE {metric}_connections counter")?;
    writeln!(text, "{metric}_connections_total {}", connections.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP {metric}_open Connections that are open.")?;
    writeln!(text, "# TYPE {metric}_open gauge")?;
    writeln!(text, "{metric}_open {}", open.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP {metric}_evicted Connections evicted for others.")?;
    writeln!(text, "# TYPE {metric}_evicted counter")?;
    writeln!(text, "{metric}_evicted_total {}", site.evicted())?;
    writeln!(text, "# HELP {metric}_answers Answers by the first digit of their status.")?;
    writeln!(text, "# TYPE {metric}_answers counter")?;
    for (digit, count) in (1..).zip(answers) {
        let count = count.load(Ordering::Relaxed);
        writeln!(text, "{metric}_answers_total{{status=\"{digit}xx\"}} {count}")?;
    }
    writeln!(text, "# HELP {metric}_sent_bytes Bytes that were sent.")?;
    writeln!(text, "# TYPE {metric}_sent_bytes counter")?;
    writeln!(text, "{metric}_sent_bytes_total {}", sent.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP levada_catalogue_objects Objects that are public.")?;
    writeln!(text, "# TYPE levada_catalogue_objects gauge")?;
    for (kind, count) in site.index().count() {
        writeln!(text, "levada_catalogue_objects{{kind=\"{kind}\"}} {count}")?;
    }
    Ok(())
}

fn write_lag(text: &mut String, lag: &Lag) -> std::fmt::Result {
    writeln!(text, "# HELP levada_catalogue_behind Changes that are known and not applied yet.")?;
    writeln!(text, "# TYPE levada_catalogue_behind gauge")?;
    writeln!(text, "levada_catalogue_behind {}", lag.changes)?;
    writeln!(
        text,
        "# HELP levada_catalogue_away_seconds For how long the engine has had no news."
    )?;
    writeln!(text, "# TYPE levada_catalogue_away_seconds gauge")?;
    writeln!(text, "levada_catalogue_away_seconds {}", lag.away.as_secs_f64())?;
    let metric = "levada_catalogue_rejected";
    writeln!(text, "# HELP {metric} Records of the log that conflict with earlier ones.")?;
    writeln!(text, "# TYPE {metric} gauge")?;
    writeln!(text, "{metric} {}", lag.rejected)
}
