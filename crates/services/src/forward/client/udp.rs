//! Datagrams: whoever sends some from one address has a flow of his own, on a stream of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::forward::{Address, IDLE, MAX_DATAGRAM, receive_answer};
use levada_service::streams::Opener;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Reporter;
use super::carry::{ask, why};

/// Flows of a session at a time, less than the streams that it may have: one more takes the place of the one that was
/// silent for longest, as its place at the node is not free at once.
pub const FLOWS: usize = 96;
/// Datagrams of one flow that wait for the stream; more are lost, as they would be elsewhere on the way.
const WAITING: usize = 32;
/// Bytes of datagrams that wait, of all flows of one socket.
const WAITING_BYTES: usize = 8 << 20;
/// What comes for a flow that could not begin is lost for so long, before it is tried anew; and of flows that could
/// not begin, one is told of in this time. Whoever sends datagrams decides how many there are.
const PAUSE: Duration = Duration::from_secs(1);

/// A datagram that waits, and its bytes' places.
type Datagram = (Vec<u8>, OwnedSemaphorePermit);

/// One that sends datagrams to us.
struct Flow {
    datagrams: Sender<Datagram>,
    last: Instant,
}

/// Carries the datagrams that come to `socket`, and what comes back, until it is dropped; at most `most` flows at a time.
pub async fn carry(
    socket: Arc<UdpSocket>,
    opener: Opener,
    target: Address,
    most: usize,
    report: Reporter,
) {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    let room = Arc::new(Semaphore::new(WAITING_BYTES));
    let mut told: Option<Instant> = None;
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // What is said of datagrams sent before concerns nobody else.
                let Ok((length, from)) = received else { continue };
                let flow = flows.entry(from).or_insert_with(|| {
                    let (datagrams, mut receiver) = channel(WAITING);
                    let (socket, opener, target) = (socket.clone(), opener.clone(), target.clone());
                    carried.spawn(async move {
                        let ended =
                            carry_flow(&socket, from, &opener, &target, &mut receiver).await;
                        if ended.is_err() {
                            lose(&mut receiver).await;
                        }
                        (from, ended)
                    });
                    Flow { datagrams, last: Instant::now() }
                });
                flow.last = Instant::now();
                let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                if let Ok(places) = room.clone().try_acquire_many_owned(bytes) {
                    let _ = flow.datagrams.try_send((buffer[..length].to_vec(), places));
                }
                if flows.len() > most {
                    end_oldest(&mut flows);
                }
            }
            Some(Ok((from, ended))) = carried.join_next() => {
                // Not one that has begun anew since.
                if flows.get(&from).is_some_and(|flow| flow.datagrams.is_closed()) {
                    flows.remove(&from);
                }
                if let Err(text) = ended
                    && told.is_none_or(|told| told.elapsed() >= PAUSE)
                {
                    told = Some(Instant::now());
                    report.note(&format!("{from}: {text}"));
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

/// Takes what comes for a flow that could not begin, for a while, or until another takes its place.
async fn lose(datagrams: &mut Receiver<Datagram>) {
    let lost = async { while datagrams.recv().await.is_some() {} };
    let _ = timeout(PAUSE, lost).await;
}

/// Carries the datagrams of one flow until nothing passes any more. The error is a line that says why it could not begin.
async fn carry_flow(
    socket: &UdpSocket,
    from: SocketAddr,
    opener: &Opener,
    target: &Address,
    datagrams: &mut Receiver<Datagram>,
) -> Result<(), String> {
    let mut stream = ask(opener, target).await.map_err(|error| why(&error))?;
    match receive_answer(&mut stream).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => return Err(failure.text),
        Err(error) => return Err(why(&error.into())),
    }
    let (mut send, mut receive) = stream.split();
    let mut message = Vec::new();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            datagram = datagrams.recv() => {
                let Some((datagram, _places)) = datagram else { return Ok(()) };
                if send.send(&datagram).await.is_err() {
                    return Ok(());
                }
            }
            received = receive.receive_into(&mut message, MAX_DATAGRAM) => {
                if !matches!(received, Ok(true)) {
                    return Ok(());
                }
                // It may be lost here as well.
                let _ = socket.send_to(&message, from).await;
                message.clear();
            }
            () = sleep_until(last + IDLE) => return Ok(()),
        }
        last = Instant::now();
    }
}
