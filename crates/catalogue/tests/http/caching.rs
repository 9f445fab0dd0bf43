//! What a shared cache or a CDN may store: versions and packages for ever, anything else not
//! without asking again, and no error.

use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{Answer, Server, draft, draft_with, eventually, noise};

const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// A server with a version, a yanked version, a package of code and a picture; the paths of the
/// packages.
fn server() -> (Server, [String; 2]) {
    let server = Server::start();
    let code = b"function f() { return 1; }\n".repeat(1000);
    let picture = noise(3_000_000);
    server.publish(&draft("hyperty/a", "1.0.0", r#"{ "v": 1 }"#));
    server.publish(&draft("hyperty/a", "1.1.0", r#"{ "v": 2 }"#));
    server.yank("hyperty/a", "1.1.0");
    server.publish(&draft_with(&server, "runtime/code", "1.0.0", "text/javascript", &code));
    server.publish(&draft_with(&server, "runtime/picture", "1.0.0", "image/png", &picture));
    let packages =
        [code, picture].map(|content| format!("/v1/blobs/{}", digest_text(&sha256(&[&content]))));
    // Long packages are verified in the background.
    eventually(|| server.ask("HEAD", &packages[1], "").field("cache-control") == Some(IMMUTABLE));
    (server, packages)
}

/// The fields that a cache stores with an answer, and that scripts of other sites need.
fn stored(answer: &Answer) -> Vec<(&str, Option<&str>)> {
    let names = [
        "cache-control",
        "etag",
        "vary",
        "access-control-allow-origin",
        "access-control-expose-headers",
    ];
    names.iter().map(|name| (*name, answer.field(name))).collect()
}

#[test]
fn immutable_answers_can_be_stored_by_shared_caches() {
    let (server, [code, picture]) = server();
    for (path, vary, has_ranges) in [
        ("/v1/objects/hyperty/a/1.0.0", None, false),
        ("/v1/objects/hyperty/a/1.1.0", None, false),
        (&code, Some("Accept-Encoding"), true),
        (&picture, None, true),
    ] {
        let whole = server.get(path);
        assert_eq!((whole.status, whole.field("cache-control")), (200, Some(IMMUTABLE)), "{path}");
        let tag = whole.field("etag").unwrap();
        assert!(tag.starts_with("\"sha256:"), "{path}: {tag} is not strong");
        let length = whole.body.len().to_string();
        assert_eq!(whole.field("content-length"), Some(length.as_str()));
        assert_eq!(whole.field("accept-ranges"), has_ranges.then_some("bytes"), "{path}");
        assert_eq!(whole.field("vary"), vary, "{path}");
        // It is the same for each client, whatever its origin and its cookies are.
        assert_eq!(whole.field("access-control-allow-origin"), Some("*"));
        for none in ["set-cookie", "pragma", "expires", "age", "levada-catalogue-behind"] {
            assert_eq!(whole.field(none), None, "{path}");
        }
        let other = "Origin: https://a.example\r\nCookie: a=b\r\nAuthorization: Basic YTpi\r\n";
        assert_eq!(stored(&server.ask("GET", path, other)), stored(&whole));
        let head = server.ask("HEAD", path, "");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.field("content-length"), Some(length.as_str()));
        assert_eq!(stored(&head), stored(&whole));
        let known = server.ask("GET", path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((known.status, known.body.len()), (304, 0));
        assert_eq!(stored(&known), stored(&whole));
        if has_ranges {
            let part = server.ask("GET", path, "Range: bytes=1-9\r\n");
            assert_eq!((part.status, part.field("content-length")), (206, Some("9")));
            assert_eq!(stored(&part), stored(&whole));
        }
    }
    // The compressed form has its own tag, and the same policy.
    let packed = server.ask("GET", &code, "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.field("content-encoding"), Some("gzip"));
    assert_eq!(packed.field("cache-control"), Some(IMMUTABLE));
    assert_eq!(packed.field("vary"), Some("Accept-Encoding"));
    assert_ne!(packed.field("etag"), server.get(&code).field("etag"));
}

#[test]
fn answers_that_may_change_are_revalidated_or_not_stored() {
    let (server, _) = server();
    for path in [
        "/v1/objects/hyperty/a",
        "/v1/objects/hyperty/a/latest",
        "/v1/objects/hyperty/a/%5E1",
        "/v1/objects/hyperty/a/1.0.0/meta",
        "/v1/openapi.json",
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-cache")));
        let tag = answer.field("etag").unwrap();
        let known = server.ask("GET", path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((known.status, stored(&known)), (304, stored(&answer)), "{path}");
    }
    for path in ["/v1/objects", "/v1/search?q=a", "/"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")));
    }
    let watch = server.ask("HEAD", "/v1/watch", "");
    assert_eq!((watch.status, watch.field("cache-control")), (200, Some("no-store")));
}

/// A node that lags answers 404 for a version that another one has: a cache that kept this answer
/// would hide the version.
#[test]
fn errors_are_not_stored() {
    let (server, [code, picture]) = server();
    let missing = format!("/v1/blobs/sha256:{}", "0".repeat(64));
    for (method, path, fields, status) in [
        ("GET", "/v1/objects/hyperty/a/9.0.0", "", 404),
        ("HEAD", "/v1/objects/hyperty/a/9.0.0", "", 404),
        ("GET", "/v1/objects/hyperty/b/1.0.0", "", 404),
        ("GET", "/v1/objects/hyperty/b", "", 404),
        ("GET", "/v1/objects/hyperty/a/%5E9", "", 404),
        ("GET", &missing, "", 404),
        ("GET", "/v1/nowhere", "", 404),
        ("GET", "/v1/objects?limit=0", "", 400),
        ("GET", "/v1/watch?after=99", "", 404),
        ("PUT", "/v1/objects/hyperty/a/1.0.0", "", 405),
        ("GET", &code, "Range: bytes=99999999-\r\n", 416),
        ("GET", &picture, "Content-Length: 5\r\n", 413),
        ("GET", "/nowhere", "", 404),
        ("GET", "/.well-known/hyperty/b", "", 404),
    ] {
        let answer = server.ask(method, path, fields);
        assert_eq!(
            (answer.status, answer.field("cache-control")),
            (status, Some("no-store")),
            "{path}"
        );
        assert_eq!(answer.field("etag"), None, "{path}");
    }
    // What was not found is found as soon as it is published.
    server.publish(&draft("hyperty/b", "1.0.0", "{}"));
    assert_eq!(server.get("/v1/objects/hyperty/b/1.0.0").field("cache-control"), Some(IMMUTABLE));
}
