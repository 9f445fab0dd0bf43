//! The HTTP port: `/healthz`, `/readyz`, `/metrics`, and the catalogue if the node keeps one. Read-only.

mod site;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use levada_core::Identity;
use tokio::net::TcpListener;

use crate::config::Catalogue;
use crate::running::Node;
use crate::store::Disk;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener, catalogue: Catalogue) {
    match node.catalogue.clone() {
        Some(keeper) => site::serve(node, keeper, listener, catalogue).await,
        None => serve_node(node, listener).await,
    }
}

async fn serve_node(node: Arc<Node>, listener: TcpListener) {
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(node.clone());
    let stopped = async move { node.stopping().await };
    if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the HTTP port failed");
    }
}

/// Alive is not ready: a node that is stopping, whose database does not answer or whose disk is full wants no new work. One whose catalogue
/// is served answers elsewhere.
async fn ready(State(node): State<Arc<Node>>) -> impl IntoResponse {
    if node.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if node.catalogue.is_some() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the catalogue cannot be read: see the log\n");
    }
    match trouble(&node).await {
        None => (StatusCode::OK, "ready\n"),
        Some(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

/// Why the node should get no new work, in a line: a database does not answer, or the disk takes nothing.
async fn trouble(node: &Node) -> Option<&'static str> {
    const SILENT: &str = "the database does not answer\n";
    let (any, folder) = (Identity::from_bytes([0; 32]), node.home.state_folder().to_owned());
    let asked = node.with_store(move |store| store.blocked(&any).map(|_| Disk::of(&folder))).await;
    if let Some(keeper) = &node.catalogue
        && keeper.with(|store| store.revision()).await.is_err()
    {
        return Some(SILENT);
    }
    match asked {
        Ok(Disk::Writable) => None,
        Ok(Disk::Full) => Some("the disk is full\n"),
        Ok(Disk::ReadOnly) => Some("the disk is read-only\n"),
        Err(_) => Some(SILENT),
    }
}

async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPENMETRICS)], counted(&node))
}

fn counted(node: &Node) -> String {
    node.metrics.sessions.set(i64::try_from(node.live.count()).unwrap_or(i64::MAX));
    let held = i64::try_from(node.unproved.used()).unwrap_or(i64::MAX);
    node.metrics.unproved_memory.set(held);
    node.metrics.unproved_closed.inner().store(node.unproved.closed(), Ordering::Relaxed);
    node.metrics.text()
}
