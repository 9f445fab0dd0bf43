//! What becomes of a question: judged by the policy, shown to a person, and asked of the other node.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use levada_capability::exchange::{Question, Reply, SessionRequest};
use levada_core::wire::{Reason, Refusal, SealedReply};
use levada_core::{Clock, Identity, SystemClock, UnixTime};
use levada_node::client::{Client, ClientError, RequestSpec};

use super::policy::{Policy, Verdict};
use super::terminal::Terminal;
use crate::commands::inspect;
use crate::output::{self, plain};

/// A question that takes more to be shown cannot be judged at a glance, in characters.
const MAX_SHOWN: usize = 4096;
/// So much of what others wrote stands in one row, in columns.
const ROW: usize = 60;
/// How long a person has at least and at most, whatever the clock of the requester says.
const SHORTEST: u64 = 30;
const LONGEST: u64 = 3600;

/// Decides questions. Several at once, but a person sees one at a time.
pub struct Decider {
    pub client: Arc<Client>,
    pub policy: Policy,
    pub terminal: Option<Terminal>,
}

impl Decider {
    /// The reply to a question that was heard.
    pub async fn decide(&self, question: &Question) -> Reply {
        let now = SystemClock.now();
        let whose =
            || format!("{} for {}", self.what(&question.request), self.who(&question.requester));
        if question.is_expired(now) {
            output::note(format_args!("Too late: {}.", whose()));
            let text = "the question came too late, or our clocks differ by more than five minutes";
            return Reply::Failed(Refusal::new(Reason::Expired, text));
        }
        let expires = match self.policy.judge(&question.requester, &question.request, now) {
            Verdict::Allow { expires } => expires,
            Verdict::Deny => {
                output::note(format_args!("Denied by the policy: {}.", whose()));
                return Reply::No(Refusal::new(Reason::Denied, "no rule allows it"));
            }
            Verdict::Ask => match self.ask(question, now).await {
                Ok(()) => question.request.expires,
                Err(text) => {
                    output::note(format_args!("Denied: {}.", whose()));
                    return Reply::No(Refusal::new(Reason::Denied, text));
                }
            },
        };
        match self.request(question, expires).await {
            Ok(reply) => {
                output::note(format_args!("Allowed: {}.", whose()));
                reply
            }
            Err(error) => {
                output::note(format_args!("Allowed, but it failed: {}: {error}", whose()));
                Reply::Failed(refusal(&error))
            }
        }
    }

    /// Seals a reply for the requester; `None` if the question's key is none.
    pub fn seal(&self, question: &Question, reply: &Reply) -> Option<SealedReply> {
        let sealed = question.reply(self.client.key(), reply);
        sealed.inspect_err(|error| output::note(format_args!("Not answered: {error}."))).ok()
    }

    /// Shows the question and waits for a yes; the error is what the requester is told.
    async fn ask(&self, question: &Question, now: UnixTime) -> Result<(), &'static str> {
        let Some(terminal) = &self.terminal else { return Err("nobody is there to be asked") };
        let shown = self.shown(question);
        if shown.chars().count() > MAX_SHOWN {
            return Err("it is too long for a person to judge");
        }
        let left = question.route.until.0.saturating_sub(now.0).clamp(SHORTEST, LONGEST);
        if terminal.ask(shown, Duration::from_secs(left)).await { Ok(()) } else { Err("") }
    }

    /// Asks the other node for the session, in our own name, bound to the requester.
    async fn request(
        &self,
        question: &Question,
        expires: Option<UnixTime>,
    ) -> Result<Reply, ClientError> {
        let wish = &question.request;
        let spec = RequestSpec {
            max_run: None,
            service: wish.service.clone(),
            holder: Some(question.requester),
            expires,
            uses: wish.uses,
            params: wish.params.clone(),
            framing: None,
        };
        // Apart: requesters name the node, and must not make connections that stay.
        let target = self.client.pinned_or(wish.node, &wish.addresses)?;
        let capability = self.client.request_apart(&target, spec).await?;
        Ok(Reply::Granted(Box::new(capability)))
    }

    /// The question as a person sees it. All of it is there, and nothing in it steers the terminal.
    fn shown(&self, question: &Question) -> String {
        let wish = &question.request;
        let mut text = String::new();
        row(&mut text, "from", &self.who(&question.requester));
        rows(&mut text, "service", &plain(&wish.service));
        row(&mut text, "of", &self.who(&wish.node));
        for (key, value) in wish.params.iter() {
            let value = plain(&inspect::shown(key, value).to_string());
            rows(&mut text, "parameter", &format!("{} = {value}", plain(key)));
        }
        if wish.params.is_empty() {
            row(&mut text, "parameters", "none are fixed");
        }
        match wish.expires {
            Some(time) => row(&mut text, "expires", &output::time(time)),
            None => row(&mut text, "expires", "as that node says"),
        }
        row(&mut text, "uses", &wish.uses.to_string());
        text
    }

    fn what(&self, wish: &SessionRequest) -> String {
        format!("{} at {}", plain(&wish.service), self.who(&wish.node))
    }

    /// By our own name for that key, if we have one, and always with the key.
    fn who(&self, identity: &Identity) -> String {
        match self.client.name_of(identity) {
            Some(name) => format!("{} ({identity})", plain(&name)),
            None => format!("somebody unknown here ({identity})"),
        }
    }
}

fn row(text: &mut String, name: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {name:11} {value}");
}

/// What others wrote, in as many rows as it takes: where the terminal broke a line, blanks in a value could make its
/// rest look like another row.
fn rows(text: &mut String, name: &str, value: &str) {
    for (at, part) in parts(value).iter().enumerate() {
        row(text, if at == 0 { name } else { "" }, part);
    }
}

fn parts(value: &str) -> Vec<String> {
    let (mut parts, mut width) = (vec![String::new()], 0);
    for c in value.chars() {
        // Others may be twice as wide.
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

/// What the requester is told when we could not.
fn refusal(error: &ClientError) -> Refusal {
    match error {
        ClientError::No(text) => Refusal::new(Reason::Unknown, text),
        ClientError::Denied(text) | ClientError::OtherKey(text) => {
            Refusal::new(Reason::Denied, text)
        }
        ClientError::Unreachable(_) => Refusal::new(Reason::Busy, "that node was not reached"),
        _ => Refusal::new(Reason::Failed, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_makes_no_row_of_its_own() {
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
