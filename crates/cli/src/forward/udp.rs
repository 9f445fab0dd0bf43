//! Datagrams: whoever sends some from one address has a flow of his own, on a stream of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use levada_services::forward::{Address, IDLE, MAX_DATAGRAM, answer};
use levada_services::streams::Opener;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::carry::ask;
use crate::output::{note, plain};

/// Flows at a time, less than the streams that a session may have: one more takes the place of the one that was silent
/// for longest, as its place at the node is not free at once.
const FLOWS: usize = 96;
/// Datagrams of one flow that wait for the stream; more are lost, as they would be elsewhere on the way.
const WAITING: usize = 32;

/// One that sends datagrams to us.
struct Flow {
    datagrams: Sender<Vec<u8>>,
    last: Instant,
}

/// Carries the datagrams that come to `socket`, and what comes back, until it is dropped.
pub async fn carry(socket: Arc<UdpSocket>, opener: Opener, target: Address) {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // What is said of datagrams sent before concerns nobody else.
                let Ok((length, from)) = received else { continue };
                let flow = flows.entry(from).or_insert_with(|| {
                    let (datagrams, receiver) = channel(WAITING);
                    let (socket, opener, target) = (socket.clone(), opener.clone(), target.clone());
                    carried.spawn(async move {
                        carry_flow(&socket, from, &opener, &target, receiver).await;
                        from
                    });
                    Flow { datagrams, last: Instant::now() }
                });
                flow.last = Instant::now();
                let _ = flow.datagrams.try_send(buffer[..length].to_vec());
                if flows.len() > FLOWS {
                    end_oldest(&mut flows);
                }
            }
            Some(Ok(from)) = carried.join_next() => {
                // Not one that has begun anew since.
                if flows.get(&from).is_some_and(|flow| flow.datagrams.is_closed()) {
                    flows.remove(&from);
                }
            }
        }
    }
}

/// A flow without its sender ends.
fn end_oldest(flows: &mut HashMap<SocketAddr, Flow>) {
    let oldest = flows.iter().min_by_key(|(_, flow)| flow.last).map(|(from, _)| *from);
    if let Some(from) = oldest {
        flows.remove(&from);
    }
}

/// Carries the datagrams of one flow until nothing passes any more.
async fn carry_flow(
    socket: &UdpSocket,
    from: SocketAddr,
    opener: &Opener,
    target: &Address,
    mut datagrams: Receiver<Vec<u8>>,
) {
    let mut stream = match ask(opener, target).await {
        Ok(stream) => stream,
        Err(error) => return note(format_args!("levada: {from}: {error}")),
    };
    match answer(&mut stream).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => return note(format_args!("levada: {from}: {}", plain(&failure.text))),
        Err(_) => return,
    }
    let (mut send, mut receive) = stream.split();
    let mut message = Vec::new();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            datagram = datagrams.recv() => {
                let Some(datagram) = datagram else { return };
                if send.send(&datagram).await.is_err() {
                    return;
                }
            }
            received = receive.receive_into(&mut message, MAX_DATAGRAM) => {
                if !matches!(received, Ok(true)) {
                    return;
                }
                // It may be lost here as well.
                let _ = socket.send_to(&message, from).await;
                message.clear();
            }
            () = sleep_until(last + IDLE) => return,
        }
        last = Instant::now();
    }
}
