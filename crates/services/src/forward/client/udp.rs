//! Datagrams. Those from one source address are a flow, which has its own stream.

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
use super::carry::{describe, open};

/// Maximum number of concurrent flows of a session. A further flow replaces the one that was idle
/// for the longest time. It is below the number of streams, because the node frees the slot of a
/// replaced flow with a delay.
pub const MAX_FLOWS: usize = 96;
/// Maximum number of datagrams of one flow that wait for the stream. Further ones are dropped, as a
/// router would.
const MAX_WAITING: usize = 32;
/// Maximum number of bytes of waiting datagrams, of all flows of one socket.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Datagrams of a flow that could not start are dropped for this time, before the next attempt.
/// Also the interval in which at most one such failure is reported: senders of datagrams determine
/// their number.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A waiting datagram, and the permit for its bytes.
type Datagram = (Vec<u8>, OwnedSemaphorePermit);

/// The datagrams of one source address.
struct Flow {
    datagrams: Sender<Datagram>,
    last: Instant,
}

/// Carries the datagrams that `socket` receives, and those in the other direction, in at most
/// `max_flows` concurrent flows. It ends when it is dropped.
pub async fn carry(
    socket: Arc<UdpSocket>,
    opener: Opener,
    target: Address,
    max_flows: usize,
    report: Reporter,
) {
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut carried = JoinSet::new();
    let mut buffer = vec![0; MAX_DATAGRAM];
    let permits = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    let mut reported: Option<Instant> = None;
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An error here is of an earlier datagram, such as an ICMP message.
                let Ok((length, from)) = received else { continue };
                let flow = flows.entry(from).or_insert_with(|| {
                    let (datagrams, mut receiver) = channel(MAX_WAITING);
                    let socket = socket.clone();
                    let opener = opener.clone();
                    let target = target.clone();
                    carried.spawn(async move {
                        let ended =
                            carry_flow(&socket, from, &opener, &target, &mut receiver).await;
                        if ended.is_err() {
                            discard(&mut receiver).await;
                        }
                        (from, ended)
                    });
                    Flow { datagrams, last: Instant::now() }
                });
                flow.last = Instant::now();
                let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                if let Ok(permit) = permits.clone().try_acquire_many_owned(bytes) {
                    let _ = flow.datagrams.try_send((buffer[..length].to_vec(), permit));
                }
                if flows.len() > max_flows {
                    end_idlest(&mut flows);
                }
            }
            Some(Ok((from, ended))) = carried.join_next() => {
                // A new flow of the same source may have started since.
                if flows.get(&from).is_some_and(|flow| flow.datagrams.is_closed()) {
                    flows.remove(&from);
                }
                if let Err(text) = ended
                    && reported.is_none_or(|reported| reported.elapsed() >= RETRY_PAUSE)
                {
                    reported = Some(Instant::now());
                    report.note(&format!("{from}: {text}"));
                }
            }
        }
    }
}

/// Ends the flow that was idle for the longest time, by dropping its sender.
fn end_idlest(flows: &mut HashMap<SocketAddr, Flow>) {
    let idlest = flows.iter().min_by_key(|(_, flow)| flow.last).map(|(from, _)| *from);
    if let Some(from) = idlest {
        flows.remove(&from);
    }
}

/// Discards the datagrams of a flow that could not start, for [`RETRY_PAUSE`] or until another flow
/// replaces it.
async fn discard(datagrams: &mut Receiver<Datagram>) {
    let dropped = async { while datagrams.recv().await.is_some() {} };
    let _ = timeout(RETRY_PAUSE, dropped).await;
}

/// Carries the datagrams of one flow until it was idle for [`IDLE`] or its stream ends. The error
/// says why it could not start.
async fn carry_flow(
    socket: &UdpSocket,
    from: SocketAddr,
    opener: &Opener,
    target: &Address,
    datagrams: &mut Receiver<Datagram>,
) -> Result<(), String> {
    let mut stream = open(opener, target).await.map_err(|error| describe(&error))?;
    match receive_answer(&mut stream).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => return Err(failure.text),
        Err(error) => return Err(describe(&error.into())),
    }
    let (mut send, mut receive) = stream.split();
    let mut message = Vec::new();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            datagram = datagrams.recv() => {
                let Some((datagram, _permit)) = datagram else { return Ok(()) };
                if send.send(&datagram).await.is_err() {
                    return Ok(());
                }
            }
            received = receive.receive_into(&mut message, MAX_DATAGRAM) => {
                if !matches!(received, Ok(true)) {
                    return Ok(());
                }
                // A datagram that cannot be sent is dropped.
                let _ = socket.send_to(&message, from).await;
                message.clear();
            }
            () = sleep_until(last + IDLE) => return Ok(()),
        }
        last = Instant::now();
    }
}
