//! An echo server and its client on smol.

use foreign_programs::{Job, Received, Role, part, role};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

fn main() {
    smol::block_on(async {
        match role() {
            Role::Server(address) => serve(address).await,
            Role::Client(job) => {
                let tasks: Vec<_> =
                    (0..job.connections).map(|at| smol::spawn(client(job.clone(), at))).collect();
                for task in tasks {
                    println!("{}", task.await);
                }
            }
        }
    });
}

async fn serve(address: String) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        smol::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..length]).await.is_err() {
                    break;
                }
            }
        })
        .detach();
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
    let mut output = stream.clone();
    let writer = smol::spawn(async move {
        while at < job.bytes {
            let chunk = job.chunk(at, part(at));
            output.write_all(chunk).await.unwrap();
            at += chunk.len();
        }
        output.shutdown(std::net::Shutdown::Write).unwrap();
    });
    while let length @ 1.. = stream.read(&mut buffer).await.unwrap() {
        received.add(&buffer[..length]);
    }
    writer.await;
    received.line(connection)
}
