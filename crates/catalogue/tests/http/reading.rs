//! `/v1`: objects, versions, packages, lists and search.

use levada_catalogue::http::Config;
use levada_catalogue::index::{Open, Options};
use levada_catalogue::model::digest_text;
use levada_core::{SecretKey, SystemRandom, sha256};
use serde_json::Value;

use super::server::{Server, draft, draft_with, noise};

#[test]
fn resolves_versions_ranges_and_latest() {
    let server = Server::start();
    for version in ["1.0.0", "1.2.0", "1.10.0", "2.0.0-beta.1"] {
        server.publish(&draft("service/a", version, &format!(r#"{{ "v": "{version}" }}"#)));
    }
    server.yank("service/a", "1.10.0");
    let base = "/v1/objects/service/a";
    for (asked, version, exact) in [
        ("1.0.0", "1.0.0", true),
        ("1.10.0", "1.10.0", true),
        ("^1", "1.2.0", false),
        ("%3E%3D1,%20%3C1.2", "1.0.0", false),
        ("*", "1.2.0", false),
        ("latest", "1.2.0", false),
    ] {
        let answer = server.get(&format!("{base}/{asked}"));
        assert_eq!(
            (answer.status, answer.text()),
            (200, format!(r#"{{ "v": "{version}" }}"#).as_str()),
            "{asked}"
        );
        let location = format!("{base}/{version}");
        assert_eq!(answer.field("content-location"), (!exact).then_some(location.as_str()));
        assert_eq!(answer.field("cache-control").unwrap().contains("immutable"), exact);
        let tag = format!("\"{}\"", digest_text(&sha256(&[&answer.body])));
        assert_eq!(answer.field("etag"), Some(tag.as_str()));
        let again = server.get(&format!("{base}/{asked}"));
        assert_eq!((again.text(), again.field("etag")), (answer.text(), Some(tag.as_str())));
        assert_eq!(again.field("content-location"), answer.field("content-location"));
        let known =
            server.ask("GET", &format!("{base}/{asked}"), &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((known.status, known.body.len()), (304, 0));
    }
    for none in ["3", "1.3.0", "y", "^3", "1.0.0.0", ""] {
        server.get(&format!("{base}/{none}")).assert_problem(404);
    }
    let object = server.get(base).json();
    assert_eq!(object["newest"], "1.2.0");
    let versions: Vec<_> =
        object["versions"].as_array().unwrap().iter().map(|one| &one["version"]).collect();
    assert_eq!(versions, ["1.0.0", "1.2.0", "1.10.0", "2.0.0-beta.1"]);
    assert_eq!(object["versions"][2]["yanked"], true);
}

#[test]
fn meta_has_digests_signatures_and_publication() {
    let server = Server::start();
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut signed = draft_with(&server, "hyperty/ç d", "1.0.0", "text/javascript", b"code");
    signed.sign(&key);
    server.publish(&signed);
    let path = "/v1/objects/hyperty/%C3%A7%20d/latest/meta";
    let answer = server.get(path);
    let meta = answer.json();
    assert_eq!(meta["name"], "ç d");
    assert_eq!(meta["digest"], digest_text(&signed.digest()).as_str());
    assert_eq!(meta["package"]["digest"], digest_text(&sha256(&[b"code"])).as_str());
    assert_eq!(meta["package"]["length"], 4);
    assert_eq!(meta["package"]["description"]["encoding"], "UTF-8");
    assert_eq!(meta["signatures"][0]["identity"], key.identity().to_string());
    assert_eq!(
        (&meta["publisher"], &meta["yanked"], &meta["revision"]),
        (&Value::Null, &Value::Bool(false), &Value::from(1))
    );
    assert_eq!(answer.field("content-location"), Some("/v1/objects/hyperty/%C3%A7%20d/1.0.0/meta"));
    let tag = answer.field("etag").unwrap();
    assert_eq!(server.ask("GET", path, &format!("If-None-Match: {tag}\r\n")).status, 304);
    server.yank("hyperty/ç d", "1.0.0");
    server.get(path).assert_problem(404);
    let exact =
        server.ask("GET", &path.replace("latest", "1.0.0"), &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((exact.status, &exact.json()["yanked"]), (200, &Value::Bool(true)));
}

#[test]
fn serves_packages_and_ranges() {
    let server = Server::start();
    for length in [0, 1, 1000, 20_000, 3_000_000] {
        let content = noise(length);
        server.publish(&draft_with(
            &server,
            &format!("runtime/r{length}"),
            "1.0.0",
            "image/png",
            &content,
        ));
        let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
        let whole = server.get(&path);
        assert_eq!((whole.status, whole.field("content-type")), (200, Some("image/png")));
        assert!(whole.body == content, "{length}");
        assert!(whole.field("content-security-policy").unwrap().contains("sandbox"));
        let tag = whole.field("etag").unwrap().to_owned();
        assert_eq!(server.ask("GET", &path, &format!("If-None-Match: {tag}\r\n")).status, 304);
        let end = server.ask("GET", &path, &format!("Range: bytes={length}-\r\n"));
        end.assert_problem(416);
        assert_eq!(end.field("content-range"), Some(format!("bytes */{length}").as_str()));
        if length == 0 {
            continue;
        }
        let from = length / 3;
        let part =
            server.ask("GET", &path, &format!("Range: bytes={from}-\r\nIf-Range: {tag}\r\n"));
        let range = format!("bytes {from}-{}/{length}", length - 1);
        assert_eq!((part.status, part.field("content-range")), (206, Some(range.as_str())));
        assert!(part.body == content[from..]);
        let other =
            server.ask("GET", &path, &format!("Range: bytes={from}-\r\nIf-Range: \"other\"\r\n"));
        assert!(other.status == 200 && other.body == content);
        let several = server.ask("GET", &path, "Range: bytes=0-0,2-2\r\n");
        assert!(several.status == 200 && several.body == content);
        let head = server.ask("HEAD", &path, "Range: bytes=0-0\r\n");
        assert_eq!(
            (head.status, head.field("content-length")),
            (200, Some(length.to_string().as_str()))
        );
    }
}

#[test]
fn code_is_compressed_if_the_client_accepts_gzip() {
    let server = Server::start();
    let content = b"function f() { return 1; }\n".repeat(1000);
    server.publish(&draft_with(&server, "runtime/r", "1.0.0", "text/javascript", &content));
    server.publish(&draft_with(&server, "runtime/n", "1.0.0", "text/javascript", &noise(10_000)));
    let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
    let plain = server.get(&path);
    assert_eq!(
        (plain.field("content-encoding"), plain.field("vary")),
        (None, Some("Accept-Encoding"))
    );
    for _ in 0..2 {
        let packed = server.ask("GET", &path, "Accept-Encoding: br, gzip\r\n");
        assert_eq!(packed.field("content-encoding"), Some("gzip"));
        assert!(packed.body.len() < content.len() / 10);
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(
            &mut flate2::read::GzDecoder::new(&packed.body[..]),
            &mut unpacked,
        )
        .unwrap();
        assert!(unpacked == content);
        let tag = packed.field("etag").unwrap();
        assert_ne!(Some(tag), plain.field("etag"));
        assert_eq!(server.ask("GET", &path, &format!("If-None-Match: {tag}\r\n")).status, 304);
    }
    let part = server.ask("GET", &path, "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n");
    assert_eq!((part.status, part.field("content-encoding"), part.text()), (206, None, "un"));
    let noise = format!("/v1/blobs/{}", digest_text(&sha256(&[&noise(10_000)])));
    for _ in 0..2 {
        assert_eq!(
            server.ask("GET", &noise, "Accept-Encoding: gzip\r\n").field("content-encoding"),
            None
        );
    }
}

#[test]
fn lists_and_searches_are_paged() {
    let server = Server::start();
    for number in 0..7 {
        server.publish(&draft(
            &format!("service/s{number}"),
            "1.0.0",
            r#"{"description":"a great thing"}"#,
        ));
    }
    server.publish(&draft("hyperty/great", "1.0.0", "{}"));
    for (first, expected) in [
        ("/v1/objects?limit=3", 8),
        ("/v1/objects?limit=3&kind=service", 7),
        ("/v1/objects?limit=2&prefix=s1", 1),
        ("/v1/search?limit=3&q=great", 8),
        ("/v1/search?limit=3&q=thing+great&kind=service", 7),
        ("/v1/search?q=none", 0),
        ("/v1/search?q=%22%20OR%20*", 0),
        ("/v1/search?q=", 0),
    ] {
        let mut path = first.to_owned();
        let mut names = Vec::new();
        loop {
            let page = server.get(&path).json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 3 || !first.contains("limit"));
            names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("{first}&cursor={next}");
        }
        assert_eq!(names.len(), expected, "{first}: {names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), expected, "{first} has a name twice");
    }
    let first = server.get("/v1/search?limit=1&q=great").json();
    assert_eq!(first["items"][0]["name"], "great", "a match in the name comes first");
    let next = first["next"].as_str().unwrap();
    server.get(&format!("/v1/objects?cursor={next}")).assert_problem(404);
}

#[test]
fn invalid_parameters_are_refused() {
    let server = Server::start();
    let long = "x".repeat(256);
    for target in [
        "/v1/objects?limit=0",
        "/v1/objects?limit=1001",
        "/v1/objects?limit=a",
        "/v1/objects?kind=x",
        "/v1/objects?kind=",
        "/v1/objects?limit=1&limit=2",
        "/v1/objects?unknown=1",
        "/v1/objects?prefix=%",
        "/v1/objects?prefix=%ff",
        "/v1/search",
        &format!("/v1/search?q={long}"),
        "/v1/watch?after=x",
        "/v1/watch?after=-1",
        "/v1/openapi.json?a",
    ] {
        server.get(target).assert_problem(400);
    }
    let words = "a ".repeat(127).replace(' ', "+");
    assert_eq!(server.get(&format!("/v1/search?q={words}")).status, 200);
    for target in [
        "/v1/objects?cursor=x",
        "/v1/search?q=a&cursor=bA",
        "/v1",
        "/v1/",
        "/v1/objects/",
        "/v1/objects/runtime",
    ] {
        server.get(target).assert_problem(404);
    }
}

#[test]
fn objects_that_are_not_open_are_not_served() {
    let open = Open::only(vec!["service/public*".parse().unwrap()]);
    let server = Server::start_with(Config::default(), Options { open, ..Options::default() });
    for name in ["public", "secret"] {
        server.publish(&draft_with(
            &server,
            &format!("service/{name}"),
            "1.0.0",
            "text/plain",
            name.as_bytes(),
        ));
    }
    let blob = |name: &str| format!("/v1/blobs/{}", digest_text(&sha256(&[name.as_bytes()])));
    for path in ["/v1/objects/service/public".to_owned(), blob("public")] {
        assert_eq!(server.get(&path).status, 200);
    }
    for path in [
        "/v1/objects/service/secret".to_owned(),
        "/v1/objects/service/secret/1.0.0".to_owned(),
        blob("secret"),
    ] {
        server.get(&path).assert_problem(404);
    }
    for path in ["/v1/objects", "/v1/search?q=javascript", "/"] {
        let answer = server.get(path);
        assert!(answer.text().contains("public") && !answer.text().contains("secret"), "{path}");
    }
    assert_eq!(server.get("/objects/service/secret").status, 404);
}

/// The text of every page of a list, up to the one without `next`.
fn pages(server: &Server, first: &str) -> Vec<String> {
    let mut pages = Vec::new();
    let mut target = first.to_owned();
    loop {
        let answer = server.get(&target);
        pages.push(answer.text().to_owned());
        let Some(next) = answer.json()["next"].as_str().map(str::to_owned) else { return pages };
        target = format!("{first}&cursor={next}");
        assert!(pages.len() < 9, "{pages:?}");
    }
}

#[test]
fn pages_do_not_reveal_objects_that_are_not_open() {
    let open = Open::only(vec!["service/public*".parse().unwrap()]);
    let server = Server::start_with(Config::default(), Options { open, ..Options::default() });
    let publish = |names: &[&str]| {
        for name in names {
            server.publish(&draft(&format!("service/{name}"), "1.0.0", r#"{"w":"word"}"#));
        }
    };
    publish(&["public-1", "public-2", "public-3"]);
    let lists = ["/v1/objects?limit=1", "/v1/search?limit=1&q=word", "/v1/objects?limit=2"];
    let before = lists.map(|list| pages(&server, list));
    assert_eq!(before.each_ref().map(Vec::len), [4, 4, 2]);
    publish(&["a", "pubic", "q-1", "q-2", "q-3", "z"]);
    assert_eq!(lists.map(|list| pages(&server, list)), before);
    let none = server.get("/v1/search?limit=1&q=q-1").json();
    assert_eq!(none, serde_json::json!({ "items": [], "next": null }));
}

#[test]
fn a_repaired_package_is_served_again() {
    let server = Server::start();
    let code = "the code of a package ".repeat(500);
    server.publish(&draft_with(&server, "hyperty/A", "1.0.0", "text/plain", code.as_bytes()));
    let digest = sha256(&[code.as_bytes()]);
    let text = digest_text(&digest);
    let path = format!("/v1/blobs/{text}");
    let hex = text.strip_prefix("sha256:").unwrap();
    let file = server.folder().join("blobs").join(&hex[..2]).join(&hex[2..]);
    let damaged = code.replace("code", "c0de");
    std::fs::write(&file, &damaged).unwrap();
    let compressed = || server.ask("GET", &path, "Accept-Encoding: gzip\r\n").body;
    let wrong = compressed();
    server.get(&path).assert_problem(500);
    server.upload(code.as_bytes());
    assert_eq!(server.get(&path).text(), code);
    assert_ne!(compressed(), wrong);
}

#[test]
fn an_unreferenced_package_is_not_served() {
    let server = Server::start();
    let digest = server.upload(b"not published");
    server.get(&format!("/v1/blobs/{}", digest_text(&digest))).assert_problem(404);
    for wrong in ["sha256:00", "sha1:00", "x", &format!("sha256:{}", "G".repeat(64))] {
        server.get(&format!("/v1/blobs/{wrong}")).assert_problem(404);
    }
}

#[test]
fn serves_the_openapi_description() {
    let server = Server::start();
    let answer = server.get("/v1/openapi.json");
    assert_eq!(answer.json(), levada_catalogue::http::openapi_document());
}
