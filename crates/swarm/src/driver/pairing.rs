//! Links whose two streams are of two connections, one over TCP and one over QUIC. The identity
//! that both connections have proved brings the streams together.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::Identity;
use levada_session::{Stream, StreamError};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::link::Link;
use crate::UdpStream;

/// How long one stream waits for the other.
const PAIR_TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection carries: the first message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// Both streams; this message is the first of the control stream.
    Both,
    /// Only the control stream.
    Control,
    /// Only the data stream.
    Data,
}

impl Carries {
    /// The longest message, in bytes.
    pub(super) const MAX: usize = 13;

    pub(super) fn encode(self) -> &'static [u8] {
        match self {
            Self::Both => b"control",
            Self::Control => b"control alone",
            Self::Data => b"data alone",
        }
    }

    /// `None` for other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        [Self::Both, Self::Control, Self::Data].into_iter().find(|one| one.encode() == bytes)
    }
}

impl Link {
    /// Tells the coordinator of a share with UDP that both streams are of this connection.
    ///
    /// # Errors
    /// [`StreamError`] if the connection ended.
    pub async fn together(mut self) -> Result<Self, StreamError> {
        self.control.send(Carries::Both.encode()).await?;
        Ok(self)
    }

    /// The link of one stream of each of two connections, `udp` of that over QUIC. The other side
    /// brings them together.
    ///
    /// # Errors
    /// [`StreamError`] if a connection ended.
    pub async fn split(mut tcp: Self, mut quic: Self, udp: UdpStream) -> Result<Self, StreamError> {
        let (of_tcp, of_quic) = match udp {
            UdpStream::Control => (Carries::Data, Carries::Control),
            UdpStream::Data => (Carries::Control, Carries::Data),
        };
        tcp.control.send(of_tcp.encode()).await?;
        quic.control.send(of_quic.encode()).await?;
        let (link, mut unused) = match udp {
            UdpStream::Control => (Self { control: quic.control, data: tcp.data }, tcp.control),
            UdpStream::Data => (Self { control: tcp.control, data: quic.data }, quic.control),
        };
        // Dropping it resets it, which could overtake the message. The other side drops it once it
        // has read that.
        let _ = timeout(PAIR_TIMEOUT, unused.receive(1)).await;
        Ok(link)
    }
}

/// One of the two streams of a link.
pub(super) enum Half {
    Control(Stream),
    Data(Stream),
}

/// Streams that wait for the other one of their link.
pub(super) struct Pairing {
    waiting: Mutex<Table>,
    most: usize,
}

#[derive(Default)]
struct Table {
    next: u64,
    halves: HashMap<Identity, Waiting>,
}

struct Waiting {
    number: u64,
    half: Half,
    /// Dropped to end the call that waits.
    end: oneshot::Sender<()>,
}

/// While it exists, the call that has brought the first stream waits.
pub(super) struct Paired {
    _end: oneshot::Sender<()>,
}

impl Pairing {
    /// At most `most` streams wait at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), most }
    }

    /// Brings the streams of a peer together. The call that comes second returns the link. The
    /// first one returns `None`, once the second has dropped the [`Paired`], or when no other
    /// stream has come in time.
    pub(super) async fn pair(&self, identity: Identity, half: Half) -> Option<(Link, Paired)> {
        let (number, mut ended) = match self.put(identity, half)? {
            Put::Link(link, paired) => return Some((*link, paired)),
            Put::Waits(number, ended) => (number, ended),
        };
        if timeout(PAIR_TIMEOUT, &mut ended).await.is_err() && !self.remove(&identity, number) {
            // The other stream came before, and the link is there.
            let _ = ended.await;
        }
        None
    }

    fn put(&self, identity: Identity, half: Half) -> Option<Put> {
        let mut table = self.lock();
        // Calls that were dropped wait no longer.
        table.halves.retain(|_, waiting| !waiting.end.is_closed());
        let half = match (table.halves.remove(&identity), half) {
            (Some(Waiting { half: Half::Control(control), end, .. }), Half::Data(data))
            | (Some(Waiting { half: Half::Data(data), end, .. }), Half::Control(control)) => {
                let link = Box::new(Link { control, data });
                return Some(Put::Link(link, Paired { _end: end }));
            }
            // A peer that has connected again; its earlier stream ends.
            (_, half) => half,
        };
        if table.halves.len() >= self.most {
            return None;
        }
        table.next += 1;
        let number = table.next;
        let (end, ended) = oneshot::channel();
        table.halves.insert(identity, Waiting { number, half, end });
        Some(Put::Waits(number, ended))
    }

    /// False if it does not wait any more.
    fn remove(&self, identity: &Identity, number: u64) -> bool {
        let mut table = self.lock();
        let waits = table.halves.get(identity).is_some_and(|waiting| waiting.number == number);
        waits && table.halves.remove(identity).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Put {
    Link(Box<Link>, Paired),
    Waits(u64, oneshot::Receiver<()>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(carries) = Carries::decode(bytes) {
                assert_eq!(carries.encode(), bytes);
                assert!(bytes.len() <= Carries::MAX);
            }
        });
    }
}
