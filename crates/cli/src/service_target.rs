//! The argument NODE/SERVICE.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A service of a node. NODE is a nickname or `IDENTITY@host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTarget {
    /// The node.
    pub node: String,
    /// The service's name.
    pub service: String,
}

impl FromStr for ServiceTarget {
    type Err = &'static str;

    /// Splits at the last `/`: no service has one in its name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once('/') {
            Some((node, service)) if !node.is_empty() && !service.is_empty() => {
                Ok(Self { node: node.into(), service: service.into() })
            }
            _ => Err("expected NODE/SERVICE, such as alpha/echo"),
        }
    }
}

impl fmt::Display for ServiceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.service)
    }
}

/// A node, or one of its services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOrService {
    /// The node.
    pub node: String,
    /// The service's name.
    pub service: Option<String>,
}

impl FromStr for NodeOrService {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match ServiceTarget::from_str(text) {
            Ok(ServiceTarget { node, service }) => Self { node, service: Some(service) },
            Err(_) => Self { node: text.trim_end_matches('/').into(), service: None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_last_slash() {
        let target: ServiceTarget = "lvabc@[::1]:5382/exec".parse().unwrap();
        assert_eq!((target.node.as_str(), target.service.as_str()), ("lvabc@[::1]:5382", "exec"));
        for text in ["", "alpha", "alpha/", "/exec"] {
            assert!(text.parse::<ServiceTarget>().is_err(), "{text}");
        }
    }

    #[test]
    fn accepts_a_node_without_a_service() {
        for text in ["alpha", "alpha/"] {
            let node: NodeOrService = text.parse().unwrap();
            assert_eq!((node.node.as_str(), node.service), ("alpha", None));
        }
    }
}
