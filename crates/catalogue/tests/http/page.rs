//! The web page without scripts.

use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{Server, draft, draft_with};

#[test]
fn lists_searches_and_shows_objects() {
    let server = Server::start();
    for number in 0..120 {
        server.publish(&draft(
            &format!("service/s{number:03}"),
            "1.0.0",
            r#"{"description":"thing"}"#,
        ));
    }
    let mut signed = draft_with(&server, "hyperty/Connector", "1.0.0", "text/javascript", b"code");
    signed.descriptor = br#"{"description":"connects things"}"#.to_vec();
    server.publish(&signed);
    server.publish(&draft("hyperty/Connector", "2.0.0", "{}"));
    server.yank("hyperty/Connector", "2.0.0");

    let mut path = "/".to_owned();
    let mut seen = 0;
    loop {
        let page = server.get(&path);
        assert_eq!(
            (page.status, page.field("content-type")),
            (200, Some("text/html; charset=utf-8"))
        );
        seen += page.text().matches("<td><a href=\"/objects/").count();
        let Some(at) = page.text().find("rel=\"next\" href=\"") else { break };
        let link = page.text()[at..].split('"').nth(3).unwrap();
        path = link.replace("&amp;", "&");
    }
    assert_eq!(seen, 121);
    let found = server.get("/?q=connects&kind=");
    assert!(found.text().contains("href=\"/objects/hyperty/Connector\""));
    assert!(server.get("/?q=nothing+like+this").text().contains("Nothing was found"));
    let only = server.get("/?kind=hyperty");
    assert!(only.text().contains("Connector") && !only.text().contains("s000"));

    let object = server.get("/objects/hyperty/Connector");
    let descriptor = digest_text(&signed.digest());
    let package = digest_text(&sha256(&[b"code"]));
    for part in [
        "Version 1.0.0",
        "connects things",
        "curl -fsS &#39;http://h:1/v1/objects/hyperty/Connector/1.0.0&#39;",
        &format!("http://h:1/v1/blobs/{package}"),
        &descriptor,
        "2.0.0</a> yanked",
        "Tue, 14 Nov 2023 22:13:20 GMT",
    ] {
        assert!(object.text().contains(part), "{part}: {}", object.text());
    }
    let yanked = server.get("/objects/hyperty/Connector/2.0.0");
    assert!(yanked.text().contains("Version 2.0.0 (yanked)"));
}

#[test]
fn errors_are_pages() {
    let server = Server::start();
    for (path, status) in [
        ("/nothing", 404),
        ("/objects/service/none", 404),
        ("/objects/x/none", 404),
        ("/?x=1", 400),
        ("/?kind=x", 400),
        ("/?cursor=x", 404),
        ("/?q=a&cursor=x", 404),
    ] {
        let page = server.get(path);
        assert_eq!(
            (page.status, page.field("content-type")),
            (status, Some("text/html; charset=utf-8")),
            "{path}"
        );
    }
    for (path, media_type) in
        [("/page.css", "text/css"), ("/page.js", "text/javascript"), ("/icon.svg", "image/svg")]
    {
        let file = server.get(path);
        assert!(file.status == 200 && file.field("content-type").unwrap().starts_with(media_type));
        let tag = file.field("etag").unwrap();
        assert_eq!(server.ask("GET", path, &format!("If-None-Match: {tag}\r\n")).status, 304);
    }
}
