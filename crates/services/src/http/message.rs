//! Assembles a message from its parts, in the order in which they may arrive (`docs/protocol.md`,
//! "Exchanges of `http`"); no I/O.

use hyper::header::{HeaderMap, HeaderName};

use super::head::{HeadError, MAX_HEAD, take_fields};
use super::layout::{FIELDS, Layout, Part, Strategy, index_of};
use super::trailers::{Trailers, decode_names};

/// The longest content of a message of a stream, in bytes.
pub(super) const MAX_CONTENT: usize = 64 * 1024;
/// The longest trailers, and the longest list of their names, in bytes.
const MAX_TRAILERS: usize = 16 * 1024;

/// The first byte of a message of a stream.
pub(super) mod tag {
    /// The head. Body and trailers may follow.
    pub(in crate::http) const HEAD: u8 = 1;
    /// The head of a message that ends with it.
    pub(in crate::http) const HEAD_ONLY: u8 = 2;
    /// A part of the body.
    pub(in crate::http) const BODY: u8 = 3;
    /// Before the head the names of the trailers, after it the trailers.
    pub(in crate::http) const TRAILERS: u8 = 4;
    /// The message is complete.
    pub(in crate::http) const END: u8 = 5;
}

/// What arrives of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part of what a context carries; nothing follows there if `end`.
    Data { part: Part, data: Vec<u8>, end: bool },
    /// The message is complete.
    End,
}

/// Decodes a message of a stream, which is one piece, or two.
pub(super) fn decode(mut message: Vec<u8>) -> Result<(Piece, Option<Piece>), HeadError> {
    let (part, end) = match message.first() {
        Some(&(tag::HEAD | tag::HEAD_ONLY)) => (Part::Head, true),
        Some(&tag::BODY) => (Part::Body, false),
        Some(&tag::TRAILERS) => (Part::Trailers, false),
        Some(&tag::END) if message.len() == 1 => return Ok((Piece::End, None)),
        _ => return Err(HeadError("a message of an unknown kind")),
    };
    let last = (message[0] == tag::HEAD_ONLY).then_some(Piece::End);
    message.remove(0);
    Ok((Piece::Data { part, data: message, end }, last))
}

/// How far a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Head,
    Body,
    Over,
}

/// A message that arrives.
pub(super) struct Assembler {
    layout: Layout,
    pub(super) stage: Stage,
    head: Vec<u8>,
    fields: Vec<Vec<u8>>,
    names: Vec<u8>,
    trailers: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(layout: Layout) -> Self {
        let fields = match layout.strategy {
            Strategy::PerHeader => vec![Vec::new(); FIELDS.len()],
            _ => Vec::new(),
        };
        let (head, names, trailers) = Default::default();
        Self { layout, stage: Stage::Head, head, fields, names, trailers }
    }

    /// Whether anything has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::Head
            || !(self.head.is_empty() && self.names.is_empty())
            || self.fields.iter().any(|part| !part.is_empty())
    }

    /// Takes a piece, and returns what it has of the body.
    pub(super) fn add(&mut self, piece: Piece) -> Result<Vec<u8>, HeadError> {
        let Piece::Data { part, data, end } = piece else {
            return self.end();
        };
        match self.stage {
            Stage::Head => self.add_to_head(part, data, end),
            Stage::Body => self.add_to_body(part, data),
            Stage::Over => Err(HeadError("data after the end")),
        }
    }

    fn add_to_head(&mut self, part: Part, data: Vec<u8>, end: bool) -> Result<Vec<u8>, HeadError> {
        match part {
            Part::Whole => return self.add_whole(&data),
            Part::Head => {
                append(&mut self.head, &data, MAX_HEAD)?;
                if end {
                    self.stage = Stage::Body;
                }
            }
            Part::Fields(at) => {
                let held: usize = self.fields.iter().map(Vec::len).sum();
                let part = self.fields.get_mut(at).ok_or(HeadError("an unknown part"))?;
                append(part, &data, MAX_HEAD.saturating_sub(held - part.len()))?;
            }
            Part::Trailers => append(&mut self.names, &data, MAX_TRAILERS)?,
            Part::Body if data.is_empty() => {}
            // An answer of a middlebox has no end of the head.
            Part::Body => {
                self.stage = Stage::Body;
                return Ok(data);
            }
        }
        Ok(Vec::new())
    }

    fn add_to_body(&mut self, part: Part, data: Vec<u8>) -> Result<Vec<u8>, HeadError> {
        match part {
            // A context may end, without bytes, after others.
            _ if data.is_empty() => Ok(data),
            Part::Head | Part::Fields(_) => Err(HeadError("data of a head after its end")),
            Part::Trailers => {
                append(&mut self.trailers, &data, MAX_TRAILERS)?;
                Ok(Vec::new())
            }
            Part::Body | Part::Whole if !self.trailers.is_empty() => {
                Err(HeadError("a body after trailers"))
            }
            Part::Body | Part::Whole => Ok(data),
        }
    }

    fn end(&mut self) -> Result<Vec<u8>, HeadError> {
        let whole = self.layout.strategy == Strategy::One;
        if self.stage == Stage::Over || (whole && self.stage == Stage::Head) {
            return Err(HeadError("an end without a head"));
        }
        self.stage = Stage::Over;
        Ok(Vec::new())
    }

    /// The head ends at the first empty line.
    fn add_whole(&mut self, data: &[u8]) -> Result<Vec<u8>, HeadError> {
        const END: &[u8] = b"\r\n\r\n";
        let from = self.head.len().saturating_sub(END.len() - 1);
        // No more of a body is held than one piece, which the carrier bounds.
        self.head.extend_from_slice(data);
        match self.head[from..].windows(END.len()).position(|window| window == END) {
            Some(at) => {
                let body = self.head.split_off(from + at + END.len());
                self.head.truncate(from + at + 2);
                self.stage = Stage::Body;
                Ok(body)
            }
            None if self.head.len() > MAX_HEAD => Err(HeadError("too long")),
            None => Ok(Vec::new()),
        }
    }

    /// The whole head, for the decoder of heads, when its end has arrived.
    pub(super) fn head(&mut self) -> Result<Vec<u8>, HeadError> {
        let mut head = std::mem::take(&mut self.head);
        if self.layout.strategy == Strategy::PerHeader {
            // Only whole lines are put together, so that no part continues a line of another.
            let first = head.iter().position(|byte| *byte == b'\n');
            let fields = first.map(|at| &head[at + 1..]).ok_or(HeadError("the first line"))?;
            check_names(&take_fields(fields)?, None)?;
            for (at, part) in self.fields.iter().enumerate() {
                check_names(&take_fields(part)?, Some(at))?;
                head.extend_from_slice(part);
            }
        }
        Ok(head)
    }

    /// The names of trailers that the head announces.
    pub(super) fn trailer_names(&self) -> Result<Vec<HeaderName>, HeadError> {
        decode_names(&self.names)
    }

    /// The trailers, at the end: those that were announced.
    pub(super) fn trailers(&self) -> Result<HeaderMap, HeadError> {
        let trailers = Trailers::decode(&self.trailers)?;
        trailers.announced(&self.trailer_names()?)
    }
}

fn append(to: &mut Vec<u8>, data: &[u8], most: usize) -> Result<(), HeadError> {
    if to.len() + data.len() > most {
        return Err(HeadError("too long"));
    }
    to.extend_from_slice(data);
    Ok(())
}

/// A field belongs into one context: elsewhere a middlebox could add what it may not write.
fn check_names(fields: &HeaderMap, context: Option<usize>) -> Result<(), HeadError> {
    match fields.keys().all(|name| index_of(name) == context) {
        true => Ok(()),
        false => Err(HeadError("a field in the context of others")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::{RequestHead, ResponseHead};

    fn assembler(strategy: Strategy) -> Assembler {
        Assembler::new(Layout { strategy, trailers: true })
    }

    fn data(part: Part, data: &[u8]) -> Piece {
        Piece::Data { part, data: data.to_vec(), end: false }
    }

    #[test]
    fn a_head_in_one_context_ends_at_the_first_empty_line_wherever_it_is_divided() {
        let bytes = b"POST /\r\na: b\r\n\r\nGET /other\r\n\r\n";
        for cut in 0..bytes.len() {
            let mut message = assembler(Strategy::One);
            let mut body = message.add(data(Part::Whole, &bytes[..cut])).unwrap();
            body.extend(message.add(data(Part::Whole, &bytes[cut..])).unwrap());
            assert_eq!(message.head().unwrap(), b"POST /\r\na: b\r\n");
            assert_eq!(body, b"GET /other\r\n\r\n");
            message.add(Piece::End).unwrap();
        }
        let mut message = assembler(Strategy::One);
        message.add(data(Part::Whole, b"GET /\r\na: b\r\n")).unwrap();
        assert!(message.add(Piece::End).is_err());
        let mut message = assembler(Strategy::One);
        let endless = std::iter::repeat_with(|| message.add(data(Part::Whole, &[b'a'; 1000])));
        assert!(endless.take(70).any(|added| added.is_err()));
    }

    #[test]
    fn a_head_in_several_contexts_is_put_together_from_whole_fields_of_the_right_names() {
        let put = |head: &[u8], cookie: &[u8]| {
            let mut message = assembler(Strategy::PerHeader);
            message.add(data(Part::Fields(0), cookie)).unwrap();
            message.add(Piece::Data { part: Part::Head, data: head.to_vec(), end: true }).unwrap();
            assert_eq!(message.stage, Stage::Body);
            message.head().and_then(|head| RequestHead::decode(&head))
        };
        let head = put(b"GET /\r\naccept-charset: a\r\n", b"cookie: a=b\r\n").unwrap();
        assert_eq!(head.fields.len(), 2);
        let wrong: [(&[u8], &[u8]); 8] = [
            (b"GET /\r\n", b"user-agent: a\r\n"),
            (b"GET /\r\n", b"x: a\r\n"),
            (b"GET /\r\n", b"cookie: a=b"),
            (b"GET /\r\n", b"cookie: a=b\r\n\r\n"),
            (b"GET /\r\n", b"cookie: a=b\r\ncontent-length: 3\r\n"),
            (b"GET /\r\ncookie: a=b\r\n", b""),
            (b"GET /", b"cookie: a=b\r\n"),
            (b"GET /\r\nx: a", b"cookie: a=b\r\n"),
        ];
        for (head, cookie) in wrong {
            let text = String::from_utf8_lossy(cookie);
            assert!(put(head, cookie).is_err(), "{} {text}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn nothing_of_a_head_follows_its_end_and_no_body_follows_trailers() {
        let begun = || {
            let mut message = assembler(Strategy::Four);
            let head = b"GET /\r\n".to_vec();
            message.add(Piece::Data { part: Part::Head, data: head, end: true }).unwrap();
            message
        };
        assert!(begun().add(data(Part::Head, b"a: b\r\n")).is_err());
        let mut message = begun();
        message.add(data(Part::Body, b"a")).unwrap();
        message.add(data(Part::Trailers, b"x: y\r\n")).unwrap();
        assert!(message.add(data(Part::Body, b"b")).is_err());
        let mut message = begun();
        message.add(Piece::End).unwrap();
        assert!(message.add(Piece::End).is_err());
        assert!(message.add(data(Part::Body, b"a")).is_err());
    }

    #[test]
    fn trailers_are_those_that_were_announced() {
        let trailers = |names: &[u8], fields: &[u8]| {
            let mut message = assembler(Strategy::Four);
            message.add(data(Part::Trailers, names)).unwrap();
            let head = b"200\r\n".to_vec();
            message.add(Piece::Data { part: Part::Head, data: head, end: true }).unwrap();
            message.add(data(Part::Trailers, fields)).unwrap();
            message.add(Piece::End).unwrap();
            message.trailers()
        };
        assert_eq!(trailers(b"x-sum", b"x-sum: 1\r\n").unwrap()["x-sum"], "1");
        assert!(trailers(b"", b"").unwrap().is_empty());
        for (names, fields) in [
            (&b"x-sum"[..], &b"x-other: 1\r\n"[..]),
            (b"host", b"host: a\r\n"),
            (b"x-sum", b"content-length: 1\r\n"),
            (b"x-sum", b"x-sum: 1\r\n\r\nGET /\r\n"),
            (b"x-sum\r\n", b"x-sum: 1\r\n"),
        ] {
            assert!(trailers(names, fields).is_err(), "{}", String::from_utf8_lossy(fields));
        }
    }

    #[test]
    fn arbitrary_messages_of_a_stream_never_panic_and_stay_bounded() {
        bolero::check!().with_type::<Vec<Vec<u8>>>().for_each(|messages| {
            let mut message = Assembler::new(Layout::STREAM);
            for bytes in messages {
                let Ok((first, second)) = decode(bytes.clone()) else { return };
                for piece in std::iter::once(first).chain(second) {
                    let Ok(body) = message.add(piece) else { return };
                    assert!(body.len() < bytes.len() || body.is_empty());
                }
            }
            if message.stage != Stage::Head {
                let head = message.head().unwrap();
                let _ = (RequestHead::decode(&head), ResponseHead::decode(&head));
                let _ = message.trailers();
            }
        });
    }
}
