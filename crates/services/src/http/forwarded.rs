//! Fields with which a proxy tells an origin about its client. Origins trust them from loopback,
//! where the node connects from: so the node removes those of a client, and adds its own if the
//! service says so.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The name of the identity, for the many origins that know no `Forwarded`.
const USER: HeaderName = HeaderName::from_static("x-forwarded-user");

/// Returns true for a field that says who the client is, or replaces the method, host or target of
/// a request. Origins with CGI, WSGI or PHP take other characters in a name for `-`, so that these
/// are not told apart.
pub(super) fn is_trusted_by_origins(name: &HeaderName) -> bool {
    const NAMES: &[&str] = &[
        "forwarded",
        "forwarded-for",
        "x-forwarded",
        "x-forward-for",
        "proxy",
        "client-ip",
        "x-client-ip",
        "x-real-ip",
        "x-realip",
        "x-cluster-client-ip",
        "cluster-client-ip",
        "x-originating-ip",
        "x-orig-client-ip",
        "x-remote-ip",
        "x-remote-addr",
        "true-client-ip",
        "cf-connecting-ip",
        "fastly-client-ip",
        "proxy-client-ip",
        "wl-proxy-client-ip",
        "x-proxyuser-ip",
        "x-azure-clientip",
        "x-envoy-external-address",
        "x-host",
        "x-scheme",
        "x-url-scheme",
        "front-end-https",
        "x-override-url",
        "x-method-override",
        "x-envoy-original-path",
        "x-client-cert",
        "ssl-client-cert",
        "x-arr-clientcert",
        "x-consumer-username",
        "x-authentik-username",
        "x-webauth-user",
        "x-auth-user",
        "x-auth-request-user",
        "x-auth-request-email",
        "tailscale-user-login",
        "cf-access-authenticated-user-email",
        "x-goog-authenticated-user-email",
        "x-ms-client-principal",
    ];
    const BEGINS: &[&str] = &[
        "x-forwarded-",
        "x-http-",
        "x-original-",
        "x-rewrite-",
        "remote-",
        "x-remote-",
        "x-ssl-client-",
    ];
    let folded = fold(name);
    NAMES.contains(&folded.as_str()) || BEGINS.iter().any(|prefix| folded.starts_with(prefix))
}

/// A name with one `-` for each run of characters that are neither letters nor digits.
fn fold(name: &HeaderName) -> String {
    let parts = name.as_str().split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// What a service does with such fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwarding {
    /// Fields of clients that pass, in lower case.
    trusted: Vec<HeaderName>,
    /// The node adds its own.
    adds: bool,
}

impl Forwarding {
    /// # Errors
    /// A line that names the key and what is wrong.
    pub(super) fn new(trusted: &[String], adds: bool) -> Result<Self, String> {
        let name = |text: &String| {
            let name = text.parse::<HeaderName>().ok().filter(is_trusted_by_origins);
            name.ok_or_else(|| {
                format!("`trusted_fields`: the node does not remove the field `{text}`")
            })
        };
        let trusted: Vec<HeaderName> = trusted.iter().map(name).collect::<Result<_, _>>()?;
        let own = [header::FORWARDED, USER];
        if let Some(both) = own.iter().find(|own| adds && trusted.contains(own)) {
            let text = "with `forwarded = true`, the node sets this field itself";
            return Err(format!("`trusted_fields`: `{both}`: {text}"));
        }
        Ok(Self { trusted, adds })
    }

    /// Returns true if answers may depend on who asks, or on what clients write into such fields.
    pub(super) fn varies(&self) -> bool {
        self.adds || !self.trusted.is_empty()
    }

    /// Removes the fields of the client, and adds those of the node. `user` is the pinned name of
    /// the client's identity, or the identity.
    pub(super) fn apply(&self, fields: &mut HeaderMap, user: &str) {
        let removed =
            |name: &&HeaderName| is_trusted_by_origins(name) && !self.trusted.contains(name);
        let removed: Vec<HeaderName> = fields.keys().filter(removed).cloned().collect();
        removed.iter().for_each(|name| drop(fields.remove(name)));
        if !self.adds {
            return;
        }
        // An identifier that is no address begins with `_` (RFC 7239 section 6.3).
        for (name, value) in [(header::FORWARDED, format!("for=_{user}")), (USER, user.to_owned())]
        {
            if let Ok(value) = HeaderValue::from_str(&value) {
                fields.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_origins_trust_are_removed_unless_they_are_listed() {
        let names = [
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-User",
            "X.Forwarded.For",
            "-X--Forwarded!User",
            "X-Original-URI",
            "Proxy",
            "Remote_Addr",
            "x_forwarded_for",
            "X-Real-IP",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "Remote-User",
            "Accept",
            "X-Forward",
            "X-Request-Id",
        ];
        let sent = || {
            let field = |name: &&str| (name.parse().unwrap(), HeaderValue::from_static("a"));
            names.iter().map(field).collect::<HeaderMap>()
        };
        let kept = |forwarding: &Forwarding| {
            let mut fields = sent();
            forwarding.apply(&mut fields, "alice");
            let mut kept: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            kept.sort();
            kept
        };
        let harmless = ["accept: a", "x-forward: a", "x-request-id: a"];
        assert_eq!(kept(&Forwarding::default()), harmless);
        let trusting = Forwarding::new(&["X-Real-IP".to_owned()], false).unwrap();
        assert_eq!(
            kept(&trusting),
            ["accept: a", "x-forward: a", "x-real-ip: a", "x-request-id: a"]
        );
        let own =
            ["forwarded: for=_alice", "x-forward: a", "x-forwarded-user: alice", "x-request-id: a"];
        assert_eq!(kept(&Forwarding::new(&[], true).unwrap())[1..], own);
    }

    #[test]
    fn a_list_with_another_field_or_one_of_the_node_is_refused() {
        let new = |name: &str, adds| Forwarding::new(&[name.to_owned()], adds).map(drop);
        assert!(new("Accept", false).unwrap_err().contains("does not remove the field `Accept`"));
        assert!(new("a b", false).is_err());
        assert!(new("forwarded", true).unwrap_err().contains("sets this field itself"));
        assert!(new("forwarded", false).is_ok());
    }
}
