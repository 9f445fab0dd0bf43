//! Fields of responses of the origin, changed so that they hold for the client's address.

use hyper::header::{self, HeaderMap, HeaderValue};

/// Makes what names the origin name no host, so that it holds for the client's address.
pub(super) fn rewrite(fields: &mut HeaderMap, authority: &str) {
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        let Some(value) = fields.get(&name).and_then(|value| value.to_str().ok()) else {
            continue;
        };
        let local = without_origin(value, authority);
        let Some(local) = local else { continue };
        if let Ok(local) = HeaderValue::from_str(&local) {
            fields.insert(&name, local);
        }
    }
    let cookies: Vec<HeaderValue> =
        fields.get_all(header::SET_COOKIE).iter().map(without_domain).collect();
    fields.remove(header::SET_COOKIE);
    for cookie in cookies {
        fields.append(header::SET_COOKIE, cookie);
    }
}

/// A URL of the origin as a reference of the same host; `None` for any other. Scheme and host are
/// compared without case, and port 80 may be left out (RFC 3986 section 6.2).
fn without_origin(url: &str, authority: &str) -> Option<String> {
    let short = authority.strip_suffix(":80").unwrap_or(authority);
    let rest = ["http://", "//"].iter().find_map(|scheme| without_prefix(url, scheme))?;
    let after = |own| without_prefix(rest, own).and_then(without_host);
    after(authority).or_else(|| after(short))
}

/// What follows a prefix, whose case does not count.
fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// What follows the host of a URL, as a reference of the same host. `None` if the host goes on.
///
/// Browsers take `//` and `/\` at the start as the beginning of a host, and drop tabs before they
/// look for it: such a path begins with `/.` instead.
fn without_host(rest: &str) -> Option<String> {
    match rest.strip_prefix('/') {
        Some(path) if path.trim_start_matches('\t').starts_with(['/', '\\']) => {
            Some(format!("/.{rest}"))
        }
        Some(_) => Some(rest.to_owned()),
        None if rest.is_empty() || rest.starts_with(['?', '#']) => Some(format!("/{rest}")),
        None => None,
    }
}

/// A cookie of the origin for the host of the client's local address only, which has no TLS.
/// Browsers refuse some cookies without `Secure`, and take them with it from `localhost`: these
/// keep it.
fn without_domain(cookie: &HeaderValue) -> HeaderValue {
    let text = cookie.as_bytes().to_ascii_lowercase();
    let named = [b"__host-".as_slice(), b"__secure-"];
    let mut secure = named.iter().any(|prefix| text.trim_ascii_start().starts_with(prefix));
    for attribute in text.split(|byte| *byte == b';').skip(1) {
        let (name, value) = name_and_value(attribute);
        secure |= name == b"partitioned" || (name == b"samesite" && value == b"none");
    }
    let keep = |attribute: &&[u8]| {
        let (name, _) = name_and_value(attribute);
        !name.eq_ignore_ascii_case(b"domain") && (secure || !name.eq_ignore_ascii_case(b"secure"))
    };
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
    let kept: Vec<&[u8]> = parts.next().into_iter().chain(parts.filter(keep)).collect();
    HeaderValue::from_bytes(&kept.join(&b';')).unwrap_or_else(|_| cookie.clone())
}

fn name_and_value(attribute: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = attribute.splitn(2, |byte| *byte == b'=');
    let mut part = || parts.next().unwrap_or_default().trim_ascii();
    (part(), part())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_origin_does_not_become_another_host() {
        for (rest, local) in [
            ("", "/"),
            ("?a", "/?a"),
            ("#a", "/#a"),
            ("/", "/"),
            ("/a//b", "/a//b"),
            ("//evil", "/.//evil"),
            ("/\\evil", "/./\\evil"),
            ("/\t/evil", "/./\t/evil"),
        ] {
            assert_eq!(without_host(rest).as_deref(), Some(local), "{rest}");
        }
        for (url, local) in [
            ("http://o.test:80/a", Some("/a")),
            ("HTTP://O.Test:80/a", Some("/a")),
            ("//o.test/a", Some("/a")),
            ("http://o.test", Some("/")),
            ("http://o.test:8080/a", None),
            ("https://o.test/a", None),
            ("http://o.test.evil/a", None),
            ("/a", None),
        ] {
            assert_eq!(without_origin(url, "o.test:80").as_deref(), local, "{url}");
        }
        for other in [".evil", "@evil", ":99/"] {
            assert_eq!(without_host(other), None, "{other}");
        }
    }

    #[test]
    fn cookies_lose_only_what_binds_them_to_the_origin() {
        let changed = |text: &'static str| {
            let cookie = HeaderValue::from_bytes(text.as_bytes()).unwrap();
            String::from_utf8(without_domain(&cookie).as_bytes().to_vec()).unwrap()
        };
        assert_eq!(changed("a=b; Domain=origin.test; Path=/; Secure"), "a=b; Path=/");
        assert_eq!(changed("a=b; domain=.Origin.test"), "a=b");
        assert_eq!(changed("a=b; Domain=other.test; HttpOnly"), "a=b; HttpOnly");
        assert_eq!(changed("a=\u{e9}; domain = x.localhost ; HttpOnly"), "a=\u{e9}; HttpOnly");
        assert_eq!(changed("secure=1; SameSite=Lax"), "secure=1; SameSite=Lax");
        for kept in [
            "__Host-a=b; Path=/; Secure",
            "__secure-a=b; secure",
            "a=b; Secure; Partitioned",
            "a=b; SameSite = None; Secure",
        ] {
            assert_eq!(changed(kept), kept);
        }
    }
}
