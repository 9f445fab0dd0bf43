//! The values of `--via`.

use std::str::FromStr;

/// A middlebox with its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// The middlebox, as a node is named.
    pub node: String,
    /// Such as `request-head=r`; empty for nothing.
    pub grants: String,
}

impl FromStr for Via {
    type Err = &'static str;

    /// Grants begin behind the last colon, if there is a `=` behind it: IDENTITY@host:port has a
    /// colon, too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, grants) = match text.rsplit_once(':') {
            Some((node, grants)) if grants.contains('=') => (node, grants),
            _ => (text, ""),
        };
        if node.is_empty() {
            return Err("expected NODE, or NODE:CONTEXT=r");
        }
        Ok(Self { node: node.to_owned(), grants: grants.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_told_from_a_port() {
        let via = |text: &str| text.parse::<Via>().map(|via| (via.node, via.grants));
        let own = |node: &str, grants: &str| Ok((node.to_owned(), grants.to_owned()));
        assert_eq!(via("office"), own("office", ""));
        assert_eq!(via("office:request-head=r"), own("office", "request-head=r"));
        assert_eq!(via("lv1@h:5382"), own("lv1@h:5382", ""));
        assert_eq!(via("lv1@h:5382:a=r,b=rw"), own("lv1@h:5382", "a=r,b=rw"));
        assert!(via(":a=r").is_err());
    }
}
