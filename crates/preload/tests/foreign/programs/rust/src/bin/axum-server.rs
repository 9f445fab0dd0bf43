//! Serves the files of a folder with axum: `HOST PORT FOLDER`.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;

async fn file(State(folder): State<String>, Path(name): Path<String>) -> (StatusCode, Vec<u8>) {
    match tokio::fs::read(format!("{folder}/{name}")).await {
        Ok(content) => (StatusCode::OK, content),
        Err(_) => (StatusCode::NOT_FOUND, Vec::new()),
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let echo = |body: Bytes| async move { body };
    let router = Router::new()
        .route("/{name}", get(file).post(echo))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(arguments[3].clone());
    let address = format!("{}:{}", arguments[1], arguments[2]);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    axum::serve(listener, router).await.unwrap();
}
