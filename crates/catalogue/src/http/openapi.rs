//! The OpenAPI 3.1 description of `/v1`, which is also committed as `docs/openapi.json`.

use serde_json::{Map, Value, json};

use super::query::{DEFAULT_LIMIT, MAX_LIMIT};
use super::v1::lists::MAX_QUERY_CHARS;
use crate::model::{Kind, MAX_NAME};

/// The OpenAPI document.
pub fn document() -> Value {
    let paths: Map<String, Value> = operations()
        .into_iter()
        .map(|one| (one.path.to_owned(), one.item()))
        .chain([watch()])
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Levada catalogue",
            "version": "1",
            "description": "Descriptors and their packages. Read-only: publish with `levada catalogue`. Every path answers GET, HEAD and OPTIONS. An error is a problem document (RFC 9457). A parameter that is not listed is an error.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas()},
    })
}

/// A path and its operations.
struct Operation {
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    /// The content of status 200, by media type.
    content: Value,
    /// The other responses, by status.
    others: Vec<(&'static str, Value)>,
}

impl Operation {
    fn item(&self) -> Value {
        let mut responses = Map::new();
        responses
            .insert("200".to_owned(), json!({"description": "Success.", "content": self.content}));
        for (status, response) in &self.others {
            responses.insert((*status).to_owned(), response.clone());
        }
        let problem = json!({
            "description": "An error.",
            "content": {"application/problem+json": {"schema": reference("Problem")}},
        });
        responses.insert("default".to_owned(), problem);
        // A response to HEAD has the header fields of one to GET, and no content.
        let head: Map<String, Value> = responses
            .iter()
            .map(|(status, response)| {
                (status.clone(), json!({"description": response["description"]}))
            })
            .collect();
        json!({
            "parameters": self.parameters,
            "get": {"operationId": self.id, "summary": self.summary, "responses": responses},
            "head": {"operationId": format!("{}Head", self.id), "summary": format!("{} Without the content.", self.summary), "responses": head},
        })
    }
}

fn operations() -> Vec<Operation> {
    let json_content = |schema: &str| json!({"application/json": {"schema": reference(schema)}});
    let unchanged = || ("304", json!({"description": "If-None-Match lists its entity tag."}));
    let kind = path_kind();
    let name = path_name();
    let version = path_version();
    vec![
        Operation {
            path: "/v1/objects",
            id: "listObjects",
            summary: "The objects, by kind and name.",
            parameters: vec![query_kind(), query_prefix(), query_cursor(), query_limit()],
            content: json_content("Objects"),
            others: Vec::new(),
        },
        Operation {
            path: "/v1/objects/{kind}/{name}",
            id: "getObject",
            summary: "An object and its versions, ascending.",
            parameters: vec![kind.clone(), name.clone()],
            content: json_content("Object"),
            others: vec![unchanged()],
        },
        Operation {
            path: "/v1/objects/{kind}/{name}/{version}",
            id: "getDescriptor",
            summary: "The descriptor of a version, as it was published. For a range, Content-Location has the version.",
            parameters: vec![kind.clone(), name.clone(), version.clone()],
            content: json!({"application/json": {"schema": {"type": "object"}}}),
            others: vec![unchanged()],
        },
        Operation {
            path: "/v1/objects/{kind}/{name}/{version}/meta",
            id: "getMeta",
            summary: "Digests, package, signatures, publisher and time of a version.",
            parameters: vec![kind, name, version],
            content: json_content("Meta"),
            others: vec![unchanged()],
        },
        Operation {
            path: "/v1/blobs/{digest}",
            id: "getPackage",
            summary: "A package by its digest. It never changes. Supports Range, If-Range and gzip.",
            parameters: vec![path_digest()],
            content: json!({"*/*": {"schema": {}}}),
            others: vec![
                (
                    "206",
                    json!({"description": "The part that Range names.", "content": {"*/*": {"schema": {}}}}),
                ),
                unchanged(),
            ],
        },
        Operation {
            path: "/v1/search",
            id: "search",
            summary: "The objects that have every word in their name, kind, or any text of the descriptor of their newest version; those with all words in the name first. The last word may be the beginning of one.",
            parameters: vec![query_words(), query_kind(), query_cursor(), query_limit()],
            content: json_content("Hits"),
            others: Vec::new(),
        },
        Operation {
            path: "/v1/openapi.json",
            id: "getDescription",
            summary: "This description.",
            parameters: Vec::new(),
            content: json!({"application/json": {"schema": {"type": "object"}}}),
            others: vec![unchanged()],
        },
    ]
}

/// `/v1/watch` has no operation, because a client that is generated from this document would wait
/// for the end of the stream.
fn watch() -> (String, Value) {
    let item = json!({
        "summary": "GET: changes as they happen, as an endless stream of server-sent events (text/event-stream).",
        "description": "Parameters, all optional: `after`, a revision (the changes behind it are sent first; without it, only new changes are sent), `kind`, `prefix`. The id of an event is the revision of the change; Last-Event-ID resumes behind it. The event is `published`, `yanked` or `unyanked`, its data a Change. 404: the revision does not exist yet. 410: some changes behind it are no longer available; read the whole catalogue again. 503: too many watches.",
    });
    ("/v1/watch".to_owned(), item)
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn kinds() -> Value {
    json!({"type": "string", "enum": Kind::ALL.map(Kind::as_str)})
}

fn path_kind() -> Value {
    json!({"name": "kind", "in": "path", "required": true, "description": "The kind of the object.", "schema": kinds()})
}

fn path_name() -> Value {
    json!({
        "name": "name", "in": "path", "required": true,
        "description": "The name of the object, unique within its kind: 1 to 255 bytes of UTF-8, percent-encoded.",
        "schema": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
    })
}

fn path_version() -> Value {
    json!({
        "name": "version", "in": "path", "required": true,
        "description": "A version such as `1.2.3`, a range such as `^1.2` or `>=1, <3`, or `latest`. A range selects its newest version that is not yanked.",
        "schema": {"type": "string", "minLength": 1},
    })
}

fn path_digest() -> Value {
    json!({
        "name": "digest", "in": "path", "required": true,
        "description": "SHA-256 of the package.", "schema": digest(),
    })
}

fn query_kind() -> Value {
    json!({"name": "kind", "in": "query", "description": "Only objects of this kind.", "schema": kinds()})
}

fn query_prefix() -> Value {
    json!({
        "name": "prefix", "in": "query",
        "description": "Only names with this prefix.", "schema": {"type": "string"},
    })
}

fn query_cursor() -> Value {
    json!({
        "name": "cursor", "in": "query",
        "description": "`next` of the previous page. The last page may have no items.",
        "schema": {"type": "string"},
    })
}

fn query_limit() -> Value {
    json!({
        "name": "limit", "in": "query", "description": "The maximum number of items on a page.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    })
}

fn query_words() -> Value {
    json!({
        "name": "q", "in": "query", "required": true, "description": "Words. Without a word there are no hits.",
        "schema": {"type": "string", "maxLength": MAX_QUERY_CHARS},
    })
}

fn digest() -> Value {
    json!({"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"})
}

/// An object with these members, all of them required.
fn object(properties: Value) -> Value {
    let names: Vec<&String> =
        properties.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    let mut names: Vec<String> = names.into_iter().cloned().collect();
    names.sort();
    json!({"type": "object", "properties": properties, "required": names})
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn page(item: &str) -> Value {
    object(json!({
        "items": {"type": "array", "items": reference(item)},
        "next": {"type": ["string", "null"], "description": "The cursor to the next page; null at the end."},
    }))
}

fn schemas() -> Value {
    let text = || json!({"type": "string"});
    let number = || json!({"type": "integer", "minimum": 0});
    let time = || json!({"type": "integer", "minimum": 0, "description": "Seconds since 1970-01-01 00:00 UTC."});
    let flag = || json!({"type": "boolean"});
    json!({
        "Problem": {
            "type": "object",
            "properties": {"type": text(), "title": text(), "status": number(), "detail": text()},
            "required": ["detail", "status", "title", "type"],
        },
        "Objects": page("Item"),
        "Item": object(json!({
            "kind": kinds(), "name": text(), "newest": or_null(text()), "digest": or_null(digest()), "versions": number(),
        })),
        "Object": object(json!({
            "kind": kinds(), "name": text(), "newest": or_null(text()),
            "versions": {"type": "array", "items": reference("Version")},
        })),
        "Version": object(json!({
            "version": text(), "digest": digest(), "package": or_null(reference("PackageReference")),
            "published": time(), "yanked": flag(), "revision": number(),
        })),
        "PackageReference": object(json!({"digest": digest(), "length": number()})),
        "Package": object(json!({
            "digest": digest(), "length": number(), "mediaType": text(), "description": {"type": "object"},
        })),
        "Signature": object(json!({
            "identity": text(),
            "signature": {"type": "string", "description": "Ed25519, in base64."},
        })),
        "Meta": object(json!({
            "kind": kinds(), "name": text(), "version": text(), "digest": digest(),
            "package": or_null(reference("Package")),
            "signatures": {"type": "array", "items": reference("Signature")},
            "publisher": or_null(text()), "published": time(), "yanked": flag(), "revision": number(),
        })),
        "Hits": page("Hit"),
        "Hit": object(json!({"kind": kinds(), "name": text(), "version": text()})),
        "Change": object(json!({
            "revision": number(), "kind": kinds(), "name": text(), "version": text(),
            "event": {"type": "string", "enum": ["published", "yanked", "unyanked"]},
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `LEVADA_UPDATE=1` the test writes the file.
    #[test]
    fn the_committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("LEVADA_UPDATE").is_some() {
            let text = serde_json::to_string_pretty(&document()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        let committed: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(
            committed == document(),
            "docs/openapi.json is stale: run this test with LEVADA_UPDATE=1"
        );
    }

    #[test]
    fn every_reference_has_its_schema() {
        let document = document();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
