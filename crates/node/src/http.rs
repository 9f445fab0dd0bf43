//! The HTTP port: `/healthz`, `/readyz`, `/metrics`, and the catalogue if the node keeps one. Read-only.

mod site;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::config::Catalogue;
use crate::running::Node;

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

/// Alive is not ready: a node that is stopping, or whose database does not answer, wants no new work. One whose catalogue
/// is served answers elsewhere.
async fn ready(State(node): State<Arc<Node>>) -> impl IntoResponse {
    if node.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if node.catalogue.is_some() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the catalogue cannot be read: see the log\n");
    }
    match is_sound(&node).await {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n"),
    }
}

/// Whether the databases answer.
async fn is_sound(node: &Node) -> bool {
    let nobody = levada_core::Identity::from_bytes([0; 32]);
    let own = node.with_store(move |store| store.blocked(&nobody)).await.is_ok();
    let catalogue = match &node.catalogue {
        Some(keeper) => keeper.with(|store| store.revision()).await.is_ok(),
        None => true,
    };
    own && catalogue
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
