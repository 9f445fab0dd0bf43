//! The page at `/`, for browsers: lists, search and the details of objects. It works without
//! scripts; the script only copies commands.

mod html;
mod object;
mod respond;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::json::HitJson;
use super::query::{Query, decode, encode};
use super::reply::{HandlerResult, Job, Reply};
use super::request::Request;
use super::response::Response;
use super::site::Site;
use super::v1::{cursor, lists, objects};
use crate::model::Kind;
use html::Html;
use respond::{POLICY, error_page, not_found, of_store, respond};

/// The number of objects on a page.
const PAGE_SIZE: u32 = 50;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
const ICON: &str = include_str!("page/icon.svg");

/// The reply to a request outside of the APIs.
pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    match request.path {
        "/" => return home(site, request),
        "/page.css" => return Ok(file("text/css; charset=utf-8", STYLE, request)),
        "/page.js" => return Ok(file("text/javascript; charset=utf-8", SCRIPT, request)),
        "/icon.svg" => return Ok(file("image/svg+xml", ICON, request)),
        _ => {}
    }
    let Some(rest) = request.path.strip_prefix("/objects/") else { return Err(not_found()) };
    let segments: Option<Vec<Cow<'_, str>>> = rest.split('/').map(decode).collect();
    match segments.unwrap_or_default().as_slice() {
        [kind, name] => object::object(site, request, kind, name, objects::LATEST),
        [kind, name, version] => object::object(site, request, kind, name, version),
        _ => Err(not_found()),
    }
}

fn file(media_type: &str, text: &'static str, request: &Request<'_>) -> Reply {
    let body = Bytes::from_static(text.as_bytes());
    let response = Response::revalidated(request, media_type, body);
    Reply::Ready(response.field("Content-Security-Policy", POLICY))
}

/// The list or search that is shown.
struct View {
    words: String,
    kind: Option<Kind>,
    cursor: Option<String>,
}

fn home(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    let invalid = |response: Response| {
        error_page(response.status, "The parameters in this address are invalid")
    };
    let query = Query::parse(request.query, &["q", "kind", "cursor"]).map_err(invalid)?;
    // The form sends an empty kind for all kinds.
    let kind = query.text("kind").map(|_| query.kind()).transpose().map_err(invalid)?.flatten();
    let words = query.text("q").unwrap_or_default().trim().to_owned();
    if words.chars().count() > lists::MAX_QUERY_CHARS {
        return Err(error_page(400, "This query is too long"));
    }
    let view = View { words, kind, cursor: query.text("cursor").map(str::to_owned) };
    let site = Arc::clone(site);
    Ok(Reply::Job(Job::new(move || view.show(&site).unwrap_or_else(|response| response))))
}

impl View {
    fn show(&self, site: &Site) -> Result<Response, Response> {
        let (items, next) = self.items(site)?;
        let mut content = Html::default();
        content.raw("<h1>Catalogue</h1>");
        self.form(&mut content);
        self.kinds(site, &mut content);
        if items.is_empty() {
            content.raw("<p>Nothing was found.</p>");
        } else {
            list(&items, &mut content);
        }
        if let Some(next) = next {
            content
                .raw("<p><a rel=\"next\" href=\"")
                .text(&self.link(self.kind, Some(&next)))
                .raw("\">More</a></p>");
        }
        Ok(respond(200, "Catalogue", &content))
    }

    fn items(&self, site: &Site) -> Result<(Vec<HitJson>, Option<String>), Response> {
        let cursor = self.cursor.as_deref();
        if !self.words.is_empty() {
            let after = cursor.map(cursor::hit).transpose().map_err(|_| not_found())?;
            let found = lists::find(site, &self.words, self.kind, after.as_ref(), PAGE_SIZE);
            return found.map_err(|error| of_store(&error));
        }
        let after = cursor.map(cursor::key).transpose().map_err(|_| not_found())?;
        let found = lists::list(site, self.kind, "", after.as_ref(), PAGE_SIZE);
        let (keys, next) = found.map_err(|error| of_store(&error))?;
        let items = keys.into_iter().map(|key| {
            let object = site.index.object(&key);
            let newest = object.as_deref().and_then(|object| object.newest());
            let version =
                newest.map_or_else(|| "yanked".to_owned(), |(entry, _)| entry.version.to_string());
            HitJson { kind: key.kind.as_str(), name: key.name.as_str().to_owned(), version }
        });
        Ok((items.collect(), next.map(|key| cursor::of_key(&key))))
    }

    fn link(&self, kind: Option<Kind>, cursor: Option<&str>) -> String {
        let pairs = [
            ("q", Some(self.words.as_str()).filter(|words| !words.is_empty())),
            ("kind", kind.map(Kind::as_str)),
            ("cursor", cursor),
        ];
        let pairs = pairs
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", encode(value?))));
        format!("/?{}", pairs.collect::<Vec<_>>().join("&"))
    }

    fn form(&self, content: &mut Html) {
        content.raw("<form action=\"/\" role=\"search\"><label for=\"q\">Search</label><input id=\"q\" name=\"q\" type=\"search\" maxlength=\"255\" value=\"");
        content.text(&self.words).raw("\">");
        if let Some(kind) = self.kind {
            content
                .raw("<input type=\"hidden\" name=\"kind\" value=\"")
                .text(kind.as_str())
                .raw("\">");
        }
        content.raw("<button>Search</button></form>");
    }

    fn kinds(&self, site: &Site, content: &mut Html) {
        let counts = site.index.count();
        let all: usize = counts.iter().map(|(_, count)| count).sum();
        content.raw("<nav aria-label=\"Types\"><ul>");
        self.kind_link(None, "all", all, content);
        for (kind, count) in counts {
            self.kind_link(Some(kind), kind.as_str(), count, content);
        }
        content.raw("</ul></nav>");
    }

    fn kind_link(&self, kind: Option<Kind>, name: &str, count: usize, content: &mut Html) {
        let current = if kind == self.kind { "\" aria-current=\"true" } else { "" };
        content
            .raw("<li><a href=\"")
            .text(&self.link(kind, None))
            .raw(current)
            .raw("\">")
            .text(name);
        content.raw("</a> <small>").text(&count.to_string()).raw("</small></li>");
    }
}

fn list(items: &[HitJson], content: &mut Html) {
    content.raw("<table><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Type</th><th scope=\"col\">Newest version</th></tr></thead><tbody>");
    for item in items {
        let link = format!("/objects/{}/{}", item.kind, encode(&item.name));
        content
            .raw("<tr><td><a href=\"")
            .text(&link)
            .raw("\">")
            .text(&item.name)
            .raw("</a></td><td>");
        content.text(item.kind).raw("</td><td>").text(&item.version).raw("</td></tr>");
    }
    content.raw("</tbody></table>");
}
