//! The HTTP port: `/healthz`, `/readyz`, `/metrics`. Read-only.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::running::Node;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
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

/// Alive is not ready: a node that is stopping, or whose database does not answer, wants no new work.
async fn ready(State(node): State<Arc<Node>>) -> impl IntoResponse {
    if node.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    let sound =
        node.with_store(|store| store.blocked(&levada_core::Identity::from_bytes([0; 32]))).await;
    match sound {
        Ok(_) => (StatusCode::OK, "ready\n"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n"),
    }
}

async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    node.metrics.sessions.set(i64::try_from(node.live.count()).unwrap_or(i64::MAX));
    ([(header::CONTENT_TYPE, OPENMETRICS)], node.metrics.text())
}
