//! Serves the files of a folder with hyper on one thread: `HOST PORT FOLDER`.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

async fn file(
    folder: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let content = tokio::fs::read(format!("{folder}{}", request.uri().path())).await;
    let status = if content.is_ok() { 200 } else { 404 };
    let body = Full::new(Bytes::from(content.unwrap_or_default()));
    Ok(Response::builder().status(status).body(body).unwrap())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let folder: &'static str = arguments[3].clone().leak();
    let address = format!("{}:{}", arguments[1], arguments[2]);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let service = service_fn(|request| file(folder, request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
