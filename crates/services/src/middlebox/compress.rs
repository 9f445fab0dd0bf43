//! Compresses bodies of responses.

mod head;

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use levada_contexts::{Action, Direction, Inspector, Path, Piece, Purpose};

use super::{Granted, Need, SessionLog};
use crate::http::{MAX_HEAD, RequestHead};
use head::{Plan, accepts_gzip};

/// The level: a middlebox serves many sessions, and higher ones take several times as long for a
/// few per cent.
const LEVEL: u32 = 5;

/// Compresses the bodies of responses with gzip where the client takes that and the response says
/// that it is text.
///
/// It does not know how long a body is when its head passes, since lengths do not travel; so short
/// ones are compressed, too.
pub struct Compress {
    log: SessionLog,
    granted: Granted,
    disabled: bool,
    /// The head of the request that passes.
    request: Vec<u8>,
    /// By number: whether the response to a request that has none yet may be compressed. The relay
    /// bounds them.
    waiting: BTreeMap<u64, bool>,
    answered: u64,
    /// The head of the response that passes, while it is held back.
    head: Vec<u8>,
    head_ended: bool,
    body: Option<Body>,
}

/// A body that is compressed.
struct Body {
    encoder: GzEncoder<Vec<u8>>,
    arrived: usize,
    left: usize,
}

impl Body {
    fn new() -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        Self { encoder, arrived: 0, left: 0 }
    }

    /// Everything of `data` is in what is returned, so that a body that is made slowly arrives as
    /// slowly.
    fn compress(&mut self, data: &[u8], end: bool) -> std::io::Result<Vec<u8>> {
        self.encoder.write_all(data)?;
        if end {
            self.encoder.try_finish()?;
        } else if !data.is_empty() {
            self.encoder.flush()?;
        }
        let compressed = std::mem::take(self.encoder.get_mut());
        self.arrived += data.len();
        self.left += compressed.len();
        Ok(compressed)
    }
}

impl Compress {
    /// Compresses responses of one session; `log` is the log of the session.
    pub fn new(log: SessionLog) -> Self {
        Self {
            log,
            granted: Granted::default(),
            disabled: false,
            request: Vec::new(),
            waiting: BTreeMap::new(),
            answered: 0,
            head: Vec::new(),
            head_ended: false,
            body: None,
        }
    }

    /// A record of a response's head: it is held back until the head is whole, and then passes on
    /// in one.
    fn response_head(&mut self, piece: &Piece<'_>) -> Action {
        // An answer of a middlebox behind has no record that ends its head, so it cannot be held
        // back; the server's answer to a request that was answered on the way has no bytes.
        let Some(accepts) = self.waiting.get(&self.answered).copied() else { return Action::Pass };
        let held = !self.head.is_empty();
        if self.head_ended || !held && (piece.data.is_empty() || !piece.end && piece.origin != 0) {
            return Action::Pass;
        }
        self.head.extend_from_slice(piece.data);
        if self.head.len() > MAX_HEAD {
            return Action::Block("a response with a head that is too long".to_owned());
        }
        if !piece.end {
            return Action::Replace(Vec::new());
        }
        self.head_ended = true;
        let whole = std::mem::take(&mut self.head);
        match Plan::of(&whole, accepts) {
            Plan::Pass if held => Action::Replace(whole),
            Plan::Pass => Action::Pass,
            Plan::Vary(head) => Action::Replace(head),
            Plan::Compress(head) => {
                self.body = Some(Body::new());
                Action::Replace(head)
            }
        }
    }

    fn end_response(&mut self, number: u64) {
        (self.head_ended, self.head) = (false, Vec::new());
        let body = self.body.take();
        // The server's answer to a request that was answered on the way.
        if number < self.answered {
            return;
        }
        self.answered = number + 1;
        self.waiting.remove(&number);
        if let Some(Body { arrived, left, .. }) = body {
            self.log.note(format!("compress: response {number}: {arrived} B to {left} B"));
        }
    }
}

impl Inspector for Compress {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
        if let Err(reason) = Need::COMPRESS.check_granted(&self.granted) {
            self.disabled = true;
            self.log.note(format!("compress: nothing is compressed in this session: {reason}"));
        }
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if self.disabled {
            return Action::Pass;
        }
        match self.granted.purpose(piece.context) {
            Purpose::RequestHead => {
                // One that is too long is cut, and then not read.
                if self.request.len() <= MAX_HEAD {
                    self.request.extend_from_slice(piece.data);
                }
                Action::Pass
            }
            Purpose::ResponseHead => self.response_head(&piece),
            Purpose::ResponseBody => {
                let Some(body) = &mut self.body else { return Action::Pass };
                match body.compress(piece.data, piece.end) {
                    Ok(compressed) => Action::Replace(compressed),
                    Err(error) => {
                        Action::Block(format!("a body that cannot be compressed: {error}"))
                    }
                }
            }
            _ => Action::Pass,
        }
    }

    fn exchange(&mut self, direction: Direction, number: u64, _: bool) {
        if self.disabled {
            return;
        }
        match direction {
            Direction::ToServer => {
                let request = std::mem::take(&mut self.request);
                let accepts = RequestHead::decode(&request).is_ok_and(|head| accepts_gzip(&head));
                self.waiting.insert(number, accepts);
            }
            Direction::ToClient => self.end_response(number),
        }
    }
}

#[cfg(test)]
mod tests;
