//! Which addresses a session may use: the options of the type `forward`, narrowed by the session's
//! parameters.

use std::net::IpAddr;
use std::sync::Arc;

use levada_core::Params;
use levada_service::{Refused, definition_options};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::address::Address;
use super::hosts::Origin;
use super::pattern::Pattern;

/// The default number of connections that a service carries at a time, for all its sessions. Each
/// is an open file of the node.
const CONNECTIONS: usize = 256;

definition_options! {
    /// The options of a definition of type `forward`.
    pub(crate) struct Options {
        #[serde(deserialize_with = "patterns")]
        allow: Vec<Pattern>,
        #[serde(default = "connections", deserialize_with = "count")]
        connections: usize,
    }
}

/// What the configuration allows.
pub(super) struct Policy {
    allow: Arc<[Pattern]>,
    pub(super) connections: usize,
}

/// What one session may do.
pub(super) enum Scope {
    /// Connect to these addresses.
    Connect(Rules),
    /// Listen at this address.
    Listen(Address),
}

/// The addresses that a session may connect to: those that both the configuration and its
/// parameters allow.
#[derive(Clone)]
pub(super) struct Rules {
    node: Arc<[Pattern]>,
    session: Arc<[Pattern]>,
}

impl Policy {
    pub(super) fn new(options: Options) -> Self {
        Self { allow: options.allow.into(), connections: options.connections }
    }

    /// The addresses of the configuration, patterns included.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.allow.iter().map(Pattern::to_string).collect()
    }

    /// Checks the parameters that are present; a later link may name the addresses.
    pub(super) fn check(&self, params: &Params) -> Result<(), Refused> {
        match params.value(Params::ARGS) {
            None => check_keys(params),
            Some(_) => self.scope(params).map(drop),
        }
    }

    /// What a session with these parameters may do. One pair must name the addresses: the link that
    /// names them decides, and no later link can change them.
    pub(super) fn scope(&self, params: &Params) -> Result<Scope, Refused> {
        check_keys(params)?;
        let args = params.args()?.unwrap_or_default();
        let named = args.iter().map(|text| self.named(text)).collect::<Result<Vec<_>, _>>()?;
        match named.as_slice() {
            [] => Err(Refused::NotAccepted("no address is named".to_owned())),
            [listen] if listen.listen => {
                let address = listen.single();
                // A pattern of several addresses would need several listeners.
                address.map(Scope::Listen).ok_or_else(|| not_allowed(&listen.to_string()))
            }
            several => match several.iter().find(|pattern| pattern.listen) {
                // A session either listens or connects.
                Some(listen) => Err(not_allowed(&listen.to_string())),
                None => {
                    let rules = Rules { node: self.allow.clone(), session: several.into() };
                    Ok(Scope::Connect(rules))
                }
            },
        }
    }

    /// Parses an address or pattern of the parameters. The configuration must allow at least one of
    /// its addresses.
    fn named(&self, text: &str) -> Result<Pattern, Refused> {
        let pattern: Pattern = text.parse().map_err(|_| not_an_address(text))?;
        if self.allow.iter().any(|allowed| allowed.overlaps(&pattern, Origin::Node)) {
            return Ok(pattern);
        }
        Err(not_allowed(text))
    }
}

impl Rules {
    /// Whether a connection to `address` may be allowed, depending on the resolution of its name.
    pub(super) fn may_permit(&self, address: &Address) -> bool {
        let Ok(one) = address.to_string().parse::<Pattern>() else { return false };
        self.session.iter().any(|named| named.overlaps(&one, Origin::Session))
            && self.node.iter().any(|allowed| allowed.overlaps(&one, Origin::Node))
    }

    /// Whether a connection to `address` is allowed. `resolved` is the IP address of its host, if
    /// it has one.
    pub(super) fn permit(&self, address: &Address, resolved: Option<IpAddr>) -> bool {
        let any = |patterns: &[Pattern], origin| {
            patterns.iter().any(|pattern| pattern.permits(address, resolved, origin))
        };
        any(&self.session, Origin::Session) && any(&self.node, Origin::Node)
    }
}

fn check_keys(params: &Params) -> Result<(), Refused> {
    let mut keys = params.iter().map(|(key, _)| key);
    match keys.find(|key| ![Params::FRAMING, Params::ARGS].contains(key)) {
        Some(unknown) => Err(Refused::Unknown(unknown.to_owned())),
        None => Ok(()),
    }
}

fn not_allowed(address: &str) -> Refused {
    Refused::NotAccepted(format!("the address {address:?} is not allowed"))
}

fn not_an_address(text: &str) -> Refused {
    Refused::NotAccepted(format!(
        "{text:?} is not an address: expected HOST:PORT, udp:HOST:PORT, unix:/PATH or listen:ADDRESS:PORT"
    ))
}

fn connections() -> usize {
    CONNECTIONS
}

fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pattern>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    if texts.is_empty() {
        return Err(D::Error::custom("at least one address must be allowed"));
    }
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        count @ 1..=1_000_000 => Ok(count),
        _ => Err(D::Error::custom("expected a whole number from 1 to 1000000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::service_type;
    use levada_core::encode_list;
    use levada_service::testing::definition;

    fn policy(allow: &[&str]) -> Policy {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        Policy { allow, connections: 1 }
    }

    fn params(args: Option<&[&str]>) -> Params {
        let mut params = Params::new();
        params.add(Params::FRAMING, b"auto".to_vec()).unwrap();
        if let Some(args) = args {
            params.add(Params::ARGS, encode_list(args)).unwrap();
        }
        params
    }

    fn scope(policy: &Policy, args: &[&str]) -> Result<Scope, Refused> {
        policy.scope(&params(Some(args)))
    }

    fn rules(scope: Result<Scope, Refused>) -> Rules {
        match scope {
            Ok(Scope::Connect(rules)) => rules,
            Ok(Scope::Listen(address)) => panic!("listens at {address}"),
            Err(refused) => panic!("{refused}"),
        }
    }

    #[test]
    fn parameters_only_narrow_the_configuration() {
        let policy = policy(&["db.example:5432", "192.0.2.0/24:80", "listen:127.0.0.1:*"]);
        let at = Some(IpAddr::from([192, 0, 2, 1]));
        let db: Address = "db.example:5432".parse().unwrap();
        let web: Address = "www.example:80".parse().unwrap();
        let other: Address = "192.0.2.1:81".parse().unwrap();
        let one = rules(scope(&policy, &["db.example:5432"]));
        assert!(one.permit(&db, at) && !one.permit(&web, at));
        let wide = rules(scope(&policy, &["*:*", "0.0.0.0/0:*"]));
        assert!(wide.permit(&db, at) && wide.permit(&web, at) && !wide.permit(&other, at));
        // The same names with addresses that are not allowed.
        assert!(!wide.permit(&web, Some(IpAddr::from([192, 0, 3, 1]))));
        assert!(!wide.permit(&db, Some(IpAddr::from([127, 0, 0, 1]))));
    }

    #[test]
    fn a_session_listens_at_exactly_one_address() {
        let policy = policy(&["db.example:5432", "listen:127.0.0.1:*", "listen:unix:/run/a"]);
        let listen = |args: &[&str]| match scope(&policy, args) {
            Ok(Scope::Listen(address)) => Ok(address.to_string()),
            Ok(Scope::Connect(_)) => panic!("connects"),
            Err(refused) => Err(refused),
        };
        assert_eq!(listen(&["listen:127.0.0.1:0"]), Ok("127.0.0.1:0".into()));
        assert_eq!(listen(&["listen:unix:/run/a"]), Ok("unix:/run/a".into()));
        for args in [
            &["listen:127.0.0.1:1-2"][..],
            &["listen:127.0.0.0/8:1"],
            &["listen:192.0.2.1:1"],
            &["listen:127.0.0.1:1", "db.example:5432"],
            &["listen:127.0.0.1:1", "listen:127.0.0.1:2"],
        ] {
            let refused = listen(args).unwrap_err().to_string();
            assert!(refused.starts_with("the address \"listen:"), "{args:?}: {refused}");
            assert!(refused.ends_with("\" is not allowed"), "{args:?}: {refused}");
        }
    }

    #[test]
    fn parameters_that_are_not_allowed_are_refused() {
        let policy = policy(&["db.example:5432"]);
        let refused = |args: &[&str]| scope(&policy, args).err();
        let text = |refused: Option<Refused>| refused.unwrap().to_string();
        let other = "the address \"db.example:5433\" is not allowed";
        assert_eq!(text(refused(&["db.example:5433"])), other);
        let web = "the address \"www.example:80\" is not allowed";
        assert_eq!(text(refused(&["db.example:5432", "www.example:80"])), web);
        let nowhere = "\"no\\nwhere\" is not an address: expected HOST:PORT, udp:HOST:PORT, unix:/PATH or listen:ADDRESS:PORT";
        assert_eq!(text(refused(&["no\nwhere"])), nowhere);
        assert_eq!(text(refused(&[])), "no address is named");
        assert_eq!(text(policy.scope(&params(None)).err()), "no address is named");
        let mut pty = params(None);
        pty.add("pty", Vec::new()).unwrap();
        assert_eq!(policy.scope(&pty).err(), Some(Refused::Unknown("pty".into())));
    }

    #[test]
    fn errors_of_options_have_the_line_and_the_key() {
        let refused = |text: &str| {
            let text = format!("name = 'a'\ntype = 'forward'\n{text}");
            definition(service_type(), &text).unwrap_err().to_string()
        };
        assert!(refused("").contains("missing field `allow`"));
        assert!(refused("allow = []").starts_with("line 3: `allow`: at least one"));
        let error = refused("allow = ['db.example:5432', 'db.example']");
        assert!(error.contains("\"db.example\" is not an address"), "{error}");
        assert!(refused("allow = ['*:*']\nconnections = 0").starts_with("line 4: `connections`"));
        assert!(refused("allow = ['*:*']\nhosts = 0").starts_with("line 4: `hosts`: unknown"));
        let text = "name = 'a'\ntype = 'forward'\nallow = ['*:*']\nconnections = 3";
        assert!(definition(service_type(), text).is_ok());
    }
}
