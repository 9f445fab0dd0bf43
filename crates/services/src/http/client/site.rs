//! A site for each service: the host name under which browsers keep its cookies apart from those of
//! other services. On 127.0.0.1, every port would share them.

use hyper::Request;
use hyper::header::{self, HeaderMap, HeaderValue};
use levada_core::{Identity, base32, label, sha256};

/// The longest name of a service or node in a site. Both, with the hash, fit into a label of DNS
/// (63).
const MAX_NAME: usize = 24;
/// The characters of the hash, 5 bits each.
const HASH: usize = 8;

/// Returns the host name of a service, `SERVICE--NODE-XXXXXXXX.localhost`. `node` is the name that
/// the user gives to it. The hash tells apart services and keys whose names are equal; a rotation
/// of the key changes it.
///
/// Browsers and curl resolve such a name to loopback (RFC 6761 section 6.3), and take each for a
/// site.
pub fn site(service: &str, node: &str, identity: &Identity) -> String {
    let hash = sha256(&[label::SITE.as_bytes(), identity.as_bytes(), service.as_bytes()]);
    let node = node.split('@').next().unwrap_or_default();
    let text = format!("{}--{}-{}", plain(service), plain(node), &base32(&hash)[..HASH]);
    // A label with this prefix is another one in Punycode (RFC 5890 section 2.3.1).
    let text = text.strip_prefix("xn--").map_or(text.clone(), |rest| format!("x--{rest}"));
    format!("{text}.localhost")
}

/// A name in the characters of host names.
fn plain(name: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    };
    let text: String = name.chars().map(letter).take(MAX_NAME).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "x".to_owned() } else { text.to_owned() }
}

/// Returns true if a page of another site has a browser send a request that can change something:
/// cross-site request forgery. `host` is the value of Host. Browsers send Sec-Fetch-Site; older
/// ones send Origin only.
pub(super) fn is_forged<B>(request: &Request<B>, host: &str) -> bool {
    let fields = request.headers();
    !request.method().is_safe()
        && match fields.get("sec-fetch-site") {
            Some(_) => !only(fields, "sec-fetch-site", |site| {
                matches!(site.as_bytes(), b"same-origin" | b"none")
            }),
            None => {
                fields.contains_key(header::ORIGIN)
                    && !only(fields, "origin", |origin| {
                        let own =
                            origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
                        own.is_some_and(|own| own.eq_ignore_ascii_case(host))
                    })
            }
        }
}

/// Returns true if a field stands once, and its value passes.
fn only(fields: &HeaderMap, name: &str, passes: impl Fn(&HeaderValue) -> bool) -> bool {
    let mut values = fields.get_all(name).iter();
    values.next().is_some_and(passes) && values.next().is_none()
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;

    #[test]
    fn a_site_has_the_names_and_a_hash_of_service_and_key() {
        let [one, two] = [1, 2].map(|byte| Identity::from_bytes([byte; 32]));
        let first = site("web", "well", &one);
        assert!(first.starts_with("web--well-") && first.ends_with(".localhost"), "{first}");
        assert_eq!(first.len(), "web--well-".len() + HASH + ".localhost".len());
        assert_ne!(first, site("web", "well", &two));
        assert_ne!(site("a", "b", &one)[4..], site("c", "b", &one)[4..]);
        let odd = site("Web_1", &format!("{one}@[::1]:5382"), &one);
        assert!(odd.starts_with("web-1--lv"), "{odd}");
        assert!(odd.split('.').next().unwrap().len() <= 63, "{odd}");
        assert!(site("xn", "a", &one).starts_with("x--a-"));
        assert!(site("-", "-", &one).starts_with("x--x-"));
    }

    #[test]
    fn unsafe_requests_of_other_sites_are_forged() {
        let host = "web.localhost:80";
        let forged = |method: Method, fields: &[(&'static str, &'static str)]| {
            let mut request = Request::new(());
            *request.method_mut() = method;
            for (name, value) in fields {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            is_forged(&request, host)
        };
        let own = ("origin", "http://WEB.localhost:80");
        for fields in [
            &[][..],
            &[own],
            &[("sec-fetch-site", "same-origin"), own],
            &[("sec-fetch-site", "none")],
            // A page of the site in a frame without an origin.
            &[("sec-fetch-site", "same-origin"), ("origin", "null")],
        ] {
            assert!(!forged(Method::POST, fields), "{fields:?}");
        }
        for fields in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site"), own],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://web.localhost:81")],
            &[("origin", "https://web.localhost:80")],
            &[("origin", "null")],
            &[own, ("origin", "http://evil.test")],
        ] {
            for method in [Method::POST, Method::DELETE] {
                assert!(forged(method, fields), "{fields:?}");
            }
            assert!(!forged(Method::GET, fields), "{fields:?}");
        }
    }
}
