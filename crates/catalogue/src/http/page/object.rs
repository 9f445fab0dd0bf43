//! The page of an object: one of its versions, and the list of all versions.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use levada_core::UnixTime;

use super::html::Html;
use super::respond::{error_page, not_found, of_store, respond};
use crate::host::Host;
use crate::http::query::{Query, encode};
use crate::http::reply::{HandlerResult, Job, Reply};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::http::site::Site;
use crate::http::v1::objects;
use crate::index::{Object, VersionEntry};
use crate::model::{Published, digest_text};

/// How much of a descriptor is shown, in bytes; the page has the command for the whole.
const MAX_DESCRIPTOR: usize = 64 * 1024;
/// How much of a description is shown, in characters.
const MAX_DESCRIPTION: usize = 500;
/// How many versions are listed.
const MAX_VERSIONS: usize = 200;

/// The page of an object with the version that `version` selects.
pub(super) fn object(
    site: &Arc<Site>,
    request: &Request<'_>,
    kind: &str,
    name: &str,
    version: &str,
) -> HandlerResult {
    Query::parse(request.query, &[]).map_err(|_| not_found())?;
    let object = objects::find(site, kind, name).map_err(|_| not_found())?;
    let chosen = objects::choose(&object, version).ok().map(|(entry, _)| entry.version.clone());
    if chosen.is_none() && version != objects::LATEST {
        return Err(error_page(404, "There is no such version"));
    }
    let base = request.host.map(base);
    let site = Arc::clone(site);
    Ok(Reply::Job(Job::new(move || {
        let Some(version) = chosen else { return show(&object, None, base.as_deref()) };
        match site.store.get(&object.key, &version) {
            Ok(published) => show(&object, published.as_ref(), base.as_deref()),
            Err(error) => of_store(&error),
        }
    })))
}

/// The base URL of this catalogue, for shell commands. A host with characters that are special in a
/// shell, such as `$`, is replaced by the placeholder `HOST`.
fn base(host: Host<'_>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let host = host.as_str();
    format!("http://{}", if host.bytes().all(plain) { host } else { "HOST" })
}

fn show(object: &Object, published: Option<&Published>, base: Option<&str>) -> Response {
    let mut content = Html::default();
    content.raw("<p><a href=\"/\">All objects</a></p><h1>").text(object.key.name.as_str());
    content.raw(" <small>").text(object.key.kind.as_str()).raw("</small></h1>");
    match published {
        Some(published) => show_version(published, base.unwrap_or("http://HOST"), &mut content),
        None => {
            content.raw("<p>Every version of this object is yanked.</p>");
        }
    }
    show_versions(object, &mut content);
    respond(200, &object.key.to_string(), &content)
}

fn show_version(published: &Published, base: &str, content: &mut Html) {
    if let Some(description) = description(&published.descriptor) {
        content.raw("<p>").text(&description).raw("</p>");
    }
    let key = &published.key;
    let version = published.version.to_string();
    let url = format!(
        "{base}/v1/objects/{}/{}/{}",
        key.kind,
        encode(key.name.as_str()),
        encode(&version)
    );
    content.raw("<h2>Version ").text(&version);
    content.raw(if published.yanked { " (yanked)</h2>" } else { "</h2>" });
    command("The descriptor", &format!("curl -fsS '{url}'"), content);
    if let Some(package) = &published.package {
        let blob = format!("{base}/v1/blobs/{}", digest_text(&package.digest));
        command("The package", &format!("curl -fsS -o package '{blob}'"), content);
    }
    facts(published, content);
    content.raw("<h3>Descriptor</h3><pre class=\"descriptor\">");
    let shown = published.descriptor.split_at(published.descriptor.len().min(MAX_DESCRIPTOR)).0;
    content.text(&String::from_utf8_lossy(shown)).raw("</pre>");
    if published.descriptor.len() > MAX_DESCRIPTOR {
        content.raw("<p>The rest of the descriptor is not shown.</p>");
    }
}

/// The member `description` of the descriptor.
fn description(descriptor: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(descriptor).ok()?;
    let text = value.get("description")?.as_str()?;
    Some(text.chars().take(MAX_DESCRIPTION).collect())
}

fn command(title: &str, text: &str, content: &mut Html) {
    content.raw("<h3>").text(title).raw("</h3><pre class=\"command\"><code>").text(text);
    content.raw("</code></pre>");
}

fn facts(published: &Published, content: &mut Html) {
    content.raw("<dl>");
    fact("Digest", &digest_text(&published.digest), content);
    if let Some(package) = &published.package {
        fact("Package", &digest_text(&package.digest), content);
        fact("Package type", &package.media_type, content);
        fact("Package length", &format!("{} bytes", package.length), content);
    }
    fact("Published", &date(published.published), content);
    let publisher = published.publisher.map(|identity| identity.to_string());
    fact("Published by", publisher.as_deref().unwrap_or("the owner of this catalogue"), content);
    for signature in &published.signatures {
        let verified = signature.verify(&published.signed_digest()).is_ok();
        let text = if verified { "" } else { " (does not verify)" };
        fact("Signed by", &format!("{}{text}", signature.identity), content);
    }
    content.raw("</dl>");
}

fn fact(name: &str, value: &str, content: &mut Html) {
    content.raw("<dt>").text(name).raw("</dt><dd>").text(value).raw("</dd>");
}

fn show_versions(object: &Object, content: &mut Html) {
    content.raw("<h2>Versions</h2><table><thead><tr><th scope=\"col\">Version</th><th scope=\"col\">Published</th><th scope=\"col\">Digest</th><th scope=\"col\">Package</th></tr></thead><tbody>");
    for entry in object.versions.iter().rev().take(MAX_VERSIONS) {
        show_row(object, entry, content);
    }
    content.raw("</tbody></table>");
    if object.versions.len() > MAX_VERSIONS {
        content.raw("<p>Older versions are listed by the API.</p>");
    }
}

fn show_row(object: &Object, entry: &VersionEntry, content: &mut Html) {
    let version = entry.version.to_string();
    let link = format!(
        "/objects/{}/{}/{}",
        object.key.kind,
        encode(object.key.name.as_str()),
        encode(&version)
    );
    content.raw("<tr><td><a href=\"").text(&link).raw("\">").text(&version).raw("</a>");
    content
        .raw(if entry.yanked { " yanked" } else { "" })
        .raw("</td><td>")
        .text(&date(entry.published));
    content.raw("</td><td><code>").text(&digest_text(&entry.digest)).raw("</code></td><td>");
    if let Some((digest, length)) = &entry.package {
        let digest = digest_text(digest);
        content.raw("<a href=\"/v1/blobs/").text(&digest).raw("\" download><code>").text(&digest);
        content.raw("</code></a> ").text(&length.to_string()).raw(" bytes");
    }
    content.raw("</td></tr>");
}

/// The last second of the year 9999, the latest that an HTTP date can express.
const MAX_DATE: u64 = 253_402_300_799;

fn date(time: UnixTime) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(time.0.min(MAX_DATE)));
    time.map(httpdate::fmt_http_date).unwrap_or_default()
}
