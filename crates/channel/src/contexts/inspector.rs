//! What a middlebox does with what it may see.

use super::path::Path;
use super::schedule::Direction;

/// What a middlebox sees of a record.
#[derive(Clone, Copy, Debug)]
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

/// What a middlebox does with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Passes it on as it is.
    Pass,
    /// Puts this in its place; it may be longer or empty. Only with the right to write.
    Replace(Vec<u8>),
    /// Ends the session.
    Block(String),
}

/// A part of an answer that a middlebox gives in place of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What a middlebox does with what it may see.
pub trait Inspector: Send {
    /// Whether [`Self::exchange`] says which answers the server has endorsed. It costs a reader as much as decrypting; without it, no answer
    /// counts as endorsed. Called once, before the first record.
    fn wants_endorsements(&self) -> bool {
        true
    }

    /// The keys of a session are here: what was granted to middlebox `hop` of `path`.
    fn granted(&mut self, _path: &Path, _hop: u8) {}

    /// The server has decided on the session; before that, no request may be emptied. `realm` names those who may share stored answers; None: they must not be shared.
    /// Without a start, only context 0 follows.
    fn started(&mut self, _started: bool, _realm: Option<[u8; 16]>) {}

    /// A record in a context that this middlebox may read.
    fn record(&mut self, piece: Piece<'_>) -> Action;

    /// A request (towards the server) or an answer has passed as a whole; numbers count from 0. `endorsed`: the server has proved that it gave
    /// this very answer to the request that this middlebox sent on. Without that, an answer must not be stored.
    fn exchange(&mut self, _direction: Direction, _number: u64, _endorsed: bool) {}

    /// The next part of the answer to a request that this middlebox has emptied: it has replaced the head, and every other message, by nothing.
    /// Called when the client can take it, until a part is the last one. The session ends if there is none.
    fn answer(&mut self, _number: u64) -> Option<AnswerPart> {
        None
    }
}
