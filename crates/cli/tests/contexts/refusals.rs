//! Each refusal of a path, as its user sees it: exit code and message.

use super::{Parties, Service};
use crate::support::{Home, Ran};

/// Runs `levada http` along a path that is refused.
fn http(parties: &Parties, target: &str, vias: &[&str]) -> Ran {
    let mut args = vec!["http"];
    vias.iter().for_each(|via| args.extend(["--via", via]));
    args.push(target);
    parties.client.args(args)
}

#[test]
fn a_node_refuses_more_than_it_allows_and_less_than_it_requires() {
    let parties = Parties::new();
    let file = parties.definition(["request-head=r", ""], true);
    let node = parties.node.up(&format!("--service {file} --allow {}", parties.client.identity()));
    let second = Service::start(&parties.hops[1], &["middlebox", "--next", &node.address()]);
    let next = ["middlebox", "--next", second.host_port(), "--next", &node.address()];
    let first = Service::start(&parties.hops[0], &next);
    let target = format!("{}@{}/web", parties.node.identity(), node.address());
    let http = |vias: &[&str]| http(&parties, &target, vias);
    let [one, two] = [0, 1].map(|hop: usize| parties.hops[hop].identity());
    let short = |identity: &str| identity[..10].to_owned();

    let more = format!("{}:request-head=rw", first.address);
    let text = format!("middlebox {} (1) may not write `request-head` here", short(&one));
    http(&[&more, &second.address]).denied(&text);
    let granted = format!("{}:request-head=r", first.address);
    let more = format!("{}:response-body=r", second.address);
    let text = format!("middlebox {} (2) may not read `response-body` here", short(&two));
    http(&[&granted, &more]).denied(&text);
    http(&[&granted]).denied(&format!("requires the middlebox {two}"));
    // A required one gets all that it is allowed: a client can neither grant less nor hide parts of
    // it.
    let all = "is granted all of `request-head=r`; `levada http` grants that with --strategy four";
    http(&[&first.address, &second.address]).denied(all);
    for strategy in ["one", "per-header"] {
        let grant = if strategy == "one" { &first.address } else { &granted };
        let args = ["http", "--strategy", strategy, "--via", grant, "--via", &second.address];
        parties.client.args([&args[..], &[&target]].concat()).denied(all);
    }
    let unknown = Home::new();
    let unlisted = Service::start(&unknown, &["middlebox", "--next", &node.address()]);
    let text = format!("may not lead through the middlebox {}", unknown.identity());
    http(&[&unlisted.address]).denied(&text);
    http(&["lv1:x"]).fails(2, "lv1:x");
}

#[test]
fn a_middlebox_leads_only_where_it_was_told_to() {
    let parties = Parties::new();
    let file = parties.definition(["", ""], false);
    let node = parties.node.up(&format!("--service {file} --allow {}", parties.client.identity()));
    let at = node.address();
    let [one, two] = [0, 1].map(|hop: usize| parties.hops[hop].identity());
    let target = format!("{}@{at}/web", parties.node.identity());
    let http = |vias: &[&str]| http(&parties, &target, vias);

    // Its next party is another one. Nothing authenticates this refusal, so it is no denial of the
    // node.
    let first = Service::start(&parties.hops[0], &["middlebox", "--next", "box.example:1"]);
    let text = format!(
        "middlebox 1 ended the session: its policy refuses this; {} must list {at} as a next party",
        first.address
    );
    http(&[&first.address]).fails(123, &text);
    // As the second middlebox; the first one leads to it.
    let to_first = ["middlebox", "--next", first.host_port()];
    let second = Service::start(&parties.hops[1], &to_first);
    let text = format!(
        "middlebox 2 ended the session: its policy refuses this; {} must list {at} as a next party",
        first.address
    );
    http(&[&second.address, &first.address]).fails(123, &text);
    drop(first);

    // The second middlebox does not run.
    let gone = format!("{one}@127.0.0.1:1");
    let to_gone = ["middlebox", "--next", "127.0.0.1:1"];
    drop(second);
    let second = Service::start(&parties.hops[1], &to_gone);
    let text = format!("{} leads to 127.0.0.1:1", second.address);
    http(&[&second.address, &gone]).fails(122, &text);
    // Nor does the first.
    http(&[&gone, &second.address]).fails(122, "127.0.0.1:1");
    drop(second);

    // Another server.
    let other = Home::new().identity();
    let options = ["middlebox", "--next", &at, "--server", &other];
    let second = Service::start(&parties.hops[1], &options);
    let text =
        format!("must list {at} as a next party (`--next`), and the node {}", node.home.identity());
    let refused = http(&[&second.address]);
    assert!(refused.stderr.contains(&two), "{}", refused.stderr);
    refused.fails(123, &text);
}
