//! Both ends of `http` over connections in memory, each with a hand-made party on the other side.

mod paths;
mod streams;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::client::{Local, LocalOptions, Route};
use crate::forward::Listener;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(30);

async fn within<T>(task: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, task).await.expect("nothing happened for 30 seconds")
}

/// Starts a local origin.
async fn local_origin(route: Route) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Listener::Tcp(listener);
    let local =
        Local::new(&listener, LocalOptions::default(), route, Arc::new(|_| ())).await.unwrap();
    tokio::spawn(local.serve(listener));
    address
}

/// A local client with one connection.
struct LocalClient {
    socket: TcpStream,
    host: SocketAddr,
}

impl LocalClient {
    async fn connect(host: SocketAddr) -> Self {
        Self { socket: TcpStream::connect(host).await.unwrap(), host }
    }

    /// Makes a request without waiting for its response.
    async fn request(&mut self, line: &str, body: &str) {
        let host = self.host;
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}");
        self.socket.write_all(request.as_bytes()).await.unwrap();
    }

    /// The status of a response; the body must have a Content-Length.
    async fn status(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.socket.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        within(self.socket.read_exact(&mut body)).await.unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    }
}
