//! What the two ends of a connection in memory exchange.

use super::end::Exchange;

/// The state of one end: a client makes each request when it has the response before, and a server
/// answers each.
pub struct Script {
    client: bool,
    exchanges: Vec<Exchange>,
    at: usize,
    /// A client: the request of the current exchange is sent.
    waiting: bool,
    /// Of the message that arrives, in a stream.
    received: usize,
    closed: bool,
    /// The longest write, in bytes.
    longest: usize,
}

/// What an end does next.
pub enum Step<'a> {
    /// Sends these bytes of each context.
    Send(&'a [usize]),
    /// Ends the connection.
    Close,
}

impl Script {
    /// A client that makes these exchanges.
    pub fn client(exchanges: &[Exchange]) -> Self {
        Self::new(true, exchanges)
    }

    /// A server that answers them.
    pub fn server(exchanges: &[Exchange]) -> Self {
        Self::new(false, exchanges)
    }

    fn new(client: bool, exchanges: &[Exchange]) -> Self {
        let exchanges = exchanges.to_vec();
        let at = 0;
        let received = 0;
        let longest = usize::MAX;
        Self { client, exchanges, at, waiting: false, received, closed: false, longest }
    }

    /// The same, with writes of at most this many bytes, to the contexts in turn: each becomes a
    /// record.
    pub fn in_writes_of(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// The longest write, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// A whole message has arrived.
    pub fn received_message(&mut self) {
        if self.client {
            self.at += 1;
            self.waiting = false;
        } else {
            self.waiting = true;
        }
    }

    /// Bytes of a stream have arrived.
    pub fn received_bytes(&mut self, bytes: usize) {
        self.received += bytes;
        let Some(exchange) = self.exchanges.get(self.at) else { return };
        let expected = if self.client { &exchange.response } else { &exchange.request };
        if self.received >= expected.iter().sum() {
            self.received = 0;
            self.received_message();
        }
    }

    /// What to do when nothing is on the way.
    pub fn next(&mut self) -> Option<Step<'_>> {
        let Some(exchange) = self.exchanges.get(self.at) else {
            return (!std::mem::replace(&mut self.closed, true)).then_some(Step::Close);
        };
        // A client waits after its request, a server before its response.
        if self.waiting == self.client {
            return None;
        }
        if self.client {
            self.waiting = true;
            return Some(Step::Send(&exchange.request));
        }
        self.waiting = false;
        self.at += 1;
        Some(Step::Send(&exchange.response))
    }

    /// Whether every exchange is complete.
    pub fn is_done(&self) -> bool {
        self.at == self.exchanges.len()
    }
}
