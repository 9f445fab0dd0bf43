//! The rules of `approve --policy FILE`.

use std::path::Path;

use levada_capability::exchange::SessionRequest;
use levada_config::{Asked, ConfigError, PolicyFile, Rules};
use levada_core::{Identity, UnixTime};
use levada_home::known::Known;

/// Rules in order. The first that matches decides; if none does, the terminal is asked or the
/// question denied.
#[derive(Debug)]
pub struct Policy {
    ask: bool,
    rules: Rules,
}

/// The result of evaluating a policy.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The question is allowed.
    Allow {
        /// When the right to start expires; `None` leaves it to the node.
        expires: Option<UnixTime>,
    },
    /// The question is denied.
    Deny,
    /// No rule matches.
    Ask,
}

impl Policy {
    /// A policy without rules: every question is asked on the terminal.
    pub fn ask_always() -> Self {
        Self { ask: true, rules: Rules::default() }
    }

    /// Reads a file. Nicknames are resolved now, to the keys that are pinned under them.
    ///
    /// # Errors
    /// [`ConfigError`] with the file, the line, and what is wrong there.
    pub fn load(file: &Path, known: &Known) -> Result<Self, ConfigError> {
        let PolicyFile { ask, rules } = PolicyFile::load(file)?;
        Ok(Self { ask, rules: Rules::resolve(&rules, known)? })
    }

    /// Whether a question may be asked on the terminal.
    pub fn asks(&self) -> bool {
        self.ask
    }

    /// The verdict of the first rule that matches `request`.
    pub fn evaluate(
        &self,
        requester: &Identity,
        request: &SessionRequest,
        now: UnixTime,
    ) -> Verdict {
        let asked = Asked {
            identity: requester,
            node: &request.node,
            service: &request.service,
            // The other node decides.
            by_name: false,
            params: &request.params,
            expires: request.expires,
            uses: request.uses,
        };
        match self.rules.evaluate(&asked, now).map(|decision| decision.verdict) {
            Some(levada_config::Verdict::Allow { expires }) => Verdict::Allow { expires },
            None if self.ask => Verdict::Ask,
            _ => Verdict::Deny,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::Params;

    const RULE: &str = "[[rule]]\nrequesters = ['*']\nservices = ['*/clock']\n";

    fn evaluate(policy: &Policy, service: &str) -> Verdict {
        let node = Identity::from_bytes([3; 32]);
        let addresses = Vec::new();
        let service = service.to_owned();
        let params = Params::new();
        let request = SessionRequest { node, addresses, service, params, expires: None, uses: 1 };
        policy.evaluate(&node, &request, UnixTime(1000))
    }

    #[test]
    fn asks_if_no_rule_matches_and_the_policy_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let known = Known::open(&folder.path().join("known.db")).unwrap();
        let file = folder.path().join("rules.toml");
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Policy::load(&file, &known).unwrap()
        };
        let policy = load(RULE);
        assert_eq!(evaluate(&policy, "clock"), Verdict::Allow { expires: None });
        assert_eq!(evaluate(&policy, "exec"), Verdict::Deny);
        let policy = load(&format!("ask = true\n{RULE}"));
        assert_eq!(evaluate(&policy, "exec"), Verdict::Ask);
        assert!(policy.asks() && Policy::ask_always().asks() && !load("").asks());
    }
}
