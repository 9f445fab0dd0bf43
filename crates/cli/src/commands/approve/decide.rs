//! Decides a question by the policy or on the terminal, and requests the session from the other
//! node.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use levada_capability::exchange::{Question, Reply};
use levada_client::{Client, ClientError, RequestSpec};
use levada_core::wire::{Reason, Refusal, SealedReply};
use levada_core::{Clock, Identity, SystemClock, UnixTime};

use super::policy::{Policy, Verdict};
use super::terminal::Terminal;
use crate::commands::inspect;
use crate::output::{self, plain};

/// Characters of the longest question that is shown; longer ones are denied, because they do not
/// fit on a screen.
const MAX_SHOWN: usize = 4096;
/// Columns of a row that hold the requester's text.
const ROW: usize = 60;
/// Seconds that a question is shown for at least and at most, whatever time limit the requester
/// set.
const SHORTEST: u64 = 30;
const LONGEST: u64 = 3600;

/// Decides questions: several at once, but the terminal shows one at a time.
pub struct Decider {
    pub client: Arc<Client>,
    pub policy: Policy,
    pub terminal: Option<Terminal>,
}

impl Decider {
    /// The reply to a valid question.
    pub async fn decide(&self, question: &Question) -> Reply {
        let now = SystemClock.now();
        let parties = self.parties(question).await;
        let summary = || {
            let service = plain(&question.request.service);
            format!("{service} at {} for {}", parties.node, parties.requester)
        };
        if question.is_expired(now) {
            output::note(format_args!("Expired: {}.", summary()));
            let text = "the question has expired, or the clocks differ by more than five minutes";
            return Reply::Failed(Refusal::new(Reason::Expired, text));
        }
        let expires = match self.policy.evaluate(&question.subject(), &question.request, now) {
            Verdict::Allow { expires } => expires,
            Verdict::Deny => {
                output::note(format_args!("Denied by the policy: {}.", summary()));
                return Reply::No(Refusal::new(Reason::Denied, "no rule allows it"));
            }
            Verdict::Ask => match self.ask(question, &parties, now).await {
                Ok(()) => question.request.expires,
                Err(text) => {
                    output::note(format_args!("Denied: {}.", summary()));
                    return Reply::No(Refusal::new(Reason::Denied, text));
                }
            },
        };
        if question.subject.is_some() {
            // The node asks, and gives the session itself.
            output::note(format_args!("Allowed: {}.", summary()));
            return Reply::Permitted;
        }
        match self.request(question, expires).await {
            Ok(reply) => {
                output::note(format_args!("Allowed: {}.", summary()));
                reply
            }
            Err(error) => {
                output::note(format_args!(
                    "Allowed, but the request failed: {}: {error}",
                    summary()
                ));
                Reply::Failed(refusal(&error))
            }
        }
    }

    /// Seals a reply for the requester; `None` if the question's public key is invalid.
    pub fn seal(&self, question: &Question, reply: &Reply) -> Option<SealedReply> {
        let sealed = question.reply(self.client.key(), reply);
        sealed.inspect_err(|error| output::note(format_args!("Not answered: {error}."))).ok()
    }

    /// Shows the question and waits for a yes; the error is the text for the requester.
    async fn ask(
        &self,
        question: &Question,
        parties: &Parties,
        now: UnixTime,
    ) -> Result<(), &'static str> {
        let Some(terminal) = &self.terminal else {
            return Err("the entity has no terminal to ask on");
        };
        let shown = render(question, parties);
        if shown.chars().count() > MAX_SHOWN {
            return Err("the question is too long to be shown");
        }
        let left = question.route.until.0.saturating_sub(now.0).clamp(SHORTEST, LONGEST);
        if terminal.ask(shown, Duration::from_secs(left)).await { Ok(()) } else { Err("") }
    }

    /// Requests the session from the other node under our identity, bound to the requester.
    async fn request(
        &self,
        question: &Question,
        expires: Option<UnixTime>,
    ) -> Result<Reply, ClientError> {
        let request = &question.request;
        let spec = RequestSpec {
            max_run: None,
            service: request.service.clone(),
            holder: Some(question.requester),
            expires,
            uses: request.uses,
            params: request.params.clone(),
            framing: None,
        };
        // On a dedicated connection: requesters name the node, and must not cause connections that
        // stay open.
        let target = self.client.pinned_or(request.node, &request.addresses).await?;
        let capability = self.client.request_dedicated(&target, spec).await?;
        Ok(Reply::Granted(Box::new(capability)))
    }

    /// Looks up the names of the requester and of the node.
    async fn parties(&self, question: &Question) -> Parties {
        let requester = question.subject();
        let node = question.request.node;
        let [requester_name, node_name] = self.client.names_of([requester, node]).await;
        Parties { requester: label(&requester, requester_name), node: label(&node, node_name) }
    }
}

/// The identities of a question as they are shown.
struct Parties {
    requester: String,
    node: String,
}

/// The name that is pinned here for `identity`, if any, and the identity.
fn label(identity: &Identity, name: Option<String>) -> String {
    match name {
        Some(name) => format!("{} ({identity})", plain(&name)),
        None => format!("an identity without a name here ({identity})"),
    }
}

/// The whole question as it is shown, with control characters escaped.
fn render(question: &Question, parties: &Parties) -> String {
    let request = &question.request;
    let mut text = String::new();
    row(&mut text, "from", &parties.requester);
    rows(&mut text, "service", &plain(&request.service));
    row(&mut text, "of", &parties.node);
    for (key, value) in request.params.iter() {
        let value = plain(&inspect::shown(key, value).to_string());
        rows(&mut text, "parameter", &format!("{} = {value}", plain(key)));
    }
    if request.params.is_empty() {
        row(&mut text, "parameters", "none are fixed");
    }
    match request.expires {
        Some(time) => row(&mut text, "expires", &output::time(time)),
        None => row(&mut text, "expires", "as that node decides"),
    }
    row(&mut text, "uses", &request.uses.to_string());
    if question.subject.is_some() {
        row(&mut text, "asked by", "a rule of that node, which gives the session itself");
    }
    text
}

fn row(text: &mut String, name: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {name:11} {value}");
}

/// Text of the requester, wrapped into several rows: if the terminal wrapped it, blanks in a value
/// could make its rest look like another row.
fn rows(text: &mut String, name: &str, value: &str) {
    for (at, part) in parts(value).iter().enumerate() {
        row(text, if at == 0 { name } else { "" }, part);
    }
}

fn parts(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut width = 0;
    for c in value.chars() {
        // A character outside of ASCII may be two columns wide.
        let columns = if c.is_ascii() { 1 } else { 2 };
        if width + columns > ROW {
            parts.push(String::new());
            width = 0;
        }
        width += columns;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// The refusal for the requester after a failed request.
fn refusal(error: &ClientError) -> Refusal {
    match error {
        ClientError::No(text) => Refusal::new(Reason::Unknown, text),
        ClientError::Denied(text) | ClientError::OtherKey(text) => {
            Refusal::new(Reason::Denied, text)
        }
        error if error.is_unreachable() => Refusal::new(Reason::Busy, "that node was not reached"),
        _ => Refusal::new(Reason::Failed, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_a_value_so_that_no_part_looks_like_another_row() {
        let mut text = String::new();
        let value = format!("a = \"{}  uses        1\"", " ".repeat(100));
        rows(&mut text, "parameter", &value);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("  parameter   a = "), "{text}");
        assert!(lines[1..].iter().all(|line| line.starts_with(&" ".repeat(14))), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 14 + ROW), "{text}");
        let shown: String = lines.iter().map(|line| &line[14..]).collect();
        assert_eq!(shown, value);
        assert_eq!(parts(&"\u{6c34}".repeat(40)), ["\u{6c34}".repeat(30), "\u{6c34}".repeat(10)]);
        assert_eq!(parts(""), [""]);
    }
}
