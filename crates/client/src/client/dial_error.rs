//! The failure to connect to a node at any of its addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use levada_core::Identity;
use levada_home::address;
use levada_session::SessionError;

use super::ClientError;

/// How long one address may take to accept a connection.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of addresses in an error message.
const MAX_SHOWN: usize = 8;

/// Why no address led to the expected key.
#[derive(Debug)]
pub(super) struct DialError {
    /// The most specific error.
    error: SessionError,
    /// The addresses at which other keys answered, with these keys.
    others: Vec<(String, Identity)>,
    /// The addresses at which no node answered, each with the reason, for users.
    silent: Vec<String>,
}

impl DialError {
    /// No attempt was made.
    pub(super) fn closed() -> Self {
        Self::of(SessionError::Closed)
    }

    /// No address can be tried on this machine; `text` is the reason.
    pub(super) fn without_address(text: String) -> Self {
        Self::of(SessionError::Transport(text))
    }

    /// The name in an address was not resolved.
    pub(super) fn unresolved(address: &str, error: &io::Error) -> Self {
        let shown = address::shown(address);
        let silent = vec![format!("{shown} ({error})")];
        Self { silent, ..Self::of(SessionError::Transport(format!("{shown}: {error}"))) }
    }

    /// An attempt at `socket`, to which `address` resolves, failed.
    pub(super) fn at(address: &str, socket: SocketAddr, error: SessionError) -> Self {
        match error {
            SessionError::WrongPeer { presented, .. } => {
                Self { others: vec![(address.to_owned(), presented)], ..Self::of(error) }
            }
            SessionError::Transport(reason) => {
                let silent = vec![silent(address::shown(address), socket, &reason)];
                let error = SessionError::Transport(format!("{socket}: {reason}"));
                Self { silent, ..Self::of(error) }
            }
            other => Self::of(other),
        }
    }

    fn of(error: SessionError) -> Self {
        Self { error, others: Vec::new(), silent: Vec::new() }
    }

    /// Both failures as one.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.others.extend(other.others);
        self.silent.extend(other.silent);
        self.error = most_specific(self.error, other.error);
        self
    }

    /// The addresses at which other keys answered, with these keys.
    pub(super) fn others(&self) -> &[(String, Identity)] {
        &self.others
    }

    /// The most specific error.
    pub(super) fn into_session_error(self) -> SessionError {
        self.error
    }
}

impl From<DialError> for ClientError {
    fn from(failure: DialError) -> Self {
        let DialError { error, others, silent } = failure;
        match error {
            SessionError::WrongPeer { expected, .. } => {
                let one =
                    |(at, key): &(String, Identity)| format!("{} is {key}", address::shown(at));
                let others: Vec<String> = others.iter().map(one).collect();
                let others = others.join(", ");
                Self::OtherKey(format!(
                    "no address leads to {expected}: {others}; nothing was sent there"
                ))
            }
            SessionError::Transport(_) if !silent.is_empty() => {
                Self::NoAnswer(format!("no node answers at {}", listed(&silent)))
            }
            SessionError::Transport(text) => Self::NoAnswer(text),
            other => other.into(),
        }
    }
}

/// The reason why a connection was not accepted, for users.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused".to_owned(),
        io::ErrorKind::TimedOut => format!("no reply within {} s", DIAL_TIMEOUT.as_secs()),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route".to_owned(),
        _ => error.to_string(),
    }
}

/// An address, and why no node answered there; for a name, with the address that it resolves to.
fn silent(shown: &str, socket: SocketAddr, reason: &str) -> String {
    match shown.parse::<SocketAddr>() {
        Ok(_) => format!("{shown} ({reason})"),
        Err(_) => format!("{shown} ({}: {reason})", socket.ip()),
    }
}

fn listed(silent: &[String]) -> String {
    let shown = silent.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match silent.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown}, and at {more} more"),
    }
}

/// The more specific of two errors: a wrong answer rather than no answer.
fn most_specific(known: SessionError, new: SessionError) -> SessionError {
    match (known, new) {
        (known @ SessionError::WrongPeer { .. }, _) => known,
        (known, SessionError::Transport(_)) => known,
        (_, new) => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str, socket: &str) -> DialError {
        let reason = reason(&io::ErrorKind::ConnectionRefused.into());
        DialError::at(address, socket.parse().unwrap(), SessionError::Transport(reason))
    }

    #[test]
    fn every_address_is_named_with_the_reason() {
        let first = refused("well.example:7", "192.0.2.1:7");
        let late = reason(&io::ErrorKind::TimedOut.into());
        let second = "192.0.2.2:7".parse().unwrap();
        let second = DialError::at("192.0.2.2:7", second, SessionError::Transport(late));
        let text = ClientError::from(first.merge(second)).to_string();
        let expected = "unreachable: no node answers at well.example:7 (192.0.2.1: refused), \
                        192.0.2.2:7 (no reply within 5 s)";
        assert_eq!(text, expected);
        let many = (0..20).map(|_| refused("192.0.2.1:7", "192.0.2.1:7"));
        let text = ClientError::from(many.reduce(DialError::merge).unwrap()).to_string();
        assert!(text.ends_with(", and at 12 more"), "{text}");
    }

    #[test]
    fn an_answer_with_another_key_is_more_specific_than_none() {
        let expected = Identity::from_bytes([1; 32]);
        let presented = Identity::from_bytes([2; 32]);
        let wrong = SessionError::WrongPeer { expected, presented };
        let wrong = DialError::at("192.0.2.2:7", "192.0.2.2:7".parse().unwrap(), wrong);
        let merged = refused("192.0.2.1:7", "192.0.2.1:7").merge(wrong);
        let text = ClientError::from(merged).to_string();
        assert!(text.contains(&format!("192.0.2.2:7 is {presented}")), "{text}");
    }
}
