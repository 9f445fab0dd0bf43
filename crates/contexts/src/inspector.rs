//! What a middlebox does with what it may see.

use std::fmt;

use super::path::Path;
use super::schedule::Direction;

/// What a middlebox sees of a record. Its `Debug` shows the length and no data.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// Where it travels.
    pub direction: Direction,
    /// Its context, from 1.
    pub context: u8,
    /// The data; may be empty.
    pub data: &'a [u8],
    /// The message of the context ends with it.
    pub end: bool,
    /// Who wrote it last: 0 the sending endpoint, otherwise a middlebox.
    pub origin: u8,
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, context, data, end, origin } = self;
        let length = data.len();
        write!(
            f,
            "Piece {{ {direction:?}, context: {context}, {length} B, end: {end}, origin: {origin} }}"
        )
    }
}

/// What a middlebox does with a record. Its `Debug` shows the length and no data.
#[derive(Clone, PartialEq, Eq)]
pub enum Action {
    /// Passes it on as it is.
    Pass,
    /// Puts this in its place; it may be longer or empty. Only with the right to write.
    Replace(Vec<u8>),
    /// Ends the session.
    Block(String),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("Pass"),
            Self::Replace(data) => write!(f, "Replace({} B)", data.len()),
            Self::Block(why) => write!(f, "Block({why:?})"),
        }
    }
}

/// A part of an answer that a middlebox gives in place of the server. Its `Debug` shows the length
/// and no data.
#[derive(Clone, PartialEq, Eq)]
pub struct AnswerPart {
    /// Its context.
    pub context: u8,
    /// The data; may be empty, except in the last part.
    pub data: Vec<u8>,
    /// The message of the context ends with it.
    pub end: bool,
    /// The answer ends with it.
    pub last: bool,
}

impl fmt::Debug for AnswerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, data, end, last } = self;
        let length = data.len();
        write!(f, "AnswerPart {{ context: {context}, {length} B, end: {end}, last: {last} }}")
    }
}

/// What a middlebox does with what it may see.
pub trait Inspector: Send {
    /// Whether [`Self::exchange`] says which answers the server has endorsed. It costs a reader as
    /// much as decrypting; without it, no answer counts as endorsed. Called once, before the first
    /// record.
    fn wants_endorsements(&self) -> bool {
        true
    }

    /// The keys of a session are here: what was granted to middlebox `hop` of `path`.
    fn granted(&mut self, _path: &Path, _hop: u8) {}

    /// The server has decided on the session; before that, no request may be emptied. `realm` names
    /// those who may share stored answers; None: they must not be shared. Without a start, only
    /// context 0 follows.
    fn started(&mut self, _started: bool, _realm: Option<[u8; 16]>) {}

    /// A record in a context that this middlebox may read.
    fn record(&mut self, piece: Piece<'_>) -> Action;

    /// A request (towards the server) or an answer has passed as a whole; numbers count from 0.
    /// `endorsed`: the server has proved that it gave this very answer to the request that this
    /// middlebox sent on. Without that, an answer must not be stored.
    fn exchange(&mut self, _direction: Direction, _number: u64, _endorsed: bool) {}

    /// The next part of the answer to a request that this middlebox has emptied: it has replaced
    /// the head, and every other message, by nothing. Called when the client can take it, until a
    /// part is the last one. The session ends if there is none.
    fn answer(&mut self, _number: u64) -> Option<AnswerPart> {
        None
    }
}
