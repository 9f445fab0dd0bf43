//! An echo server and its client on tokio.

use foreign_programs::{Job, Received, Role, part, role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() {
    match role() {
        Role::Server(address) => serve(address).await,
        Role::Client(job) => {
            let tasks: Vec<_> =
                (0..job.connections).map(|at| tokio::spawn(client(job.clone(), at))).collect();
            for task in tasks {
                println!("{}", task.await.unwrap());
            }
        }
    }
}

async fn serve(address: String) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..length]).await.is_err() {
                    break;
                }
            }
        });
    }
}

async fn client(job: Job, connection: usize) -> String {
    let mut stream = TcpStream::connect(&job.address).await.unwrap();
    let mut received = Received::default();
    let mut buffer = vec![0; 65_536];
    let mut at = 0;
    for round in 0..20 {
        let chunk = job.chunk(at, round * 37 + 1);
        stream.write_all(chunk).await.unwrap();
        stream.read_exact(&mut buffer[..chunk.len()]).await.unwrap();
        received.add(&buffer[..chunk.len()]);
        at += chunk.len();
    }
    let (mut input, mut output) = stream.into_split();
    let writer = tokio::spawn(async move {
        while at < job.bytes {
            let chunk = job.chunk(at, part(at));
            output.write_all(chunk).await.unwrap();
            at += chunk.len();
        }
        output.shutdown().await.unwrap();
    });
    while let length @ 1.. = input.read(&mut buffer).await.unwrap() {
        received.add(&buffer[..length]);
    }
    writer.await.unwrap();
    received.line(connection)
}
