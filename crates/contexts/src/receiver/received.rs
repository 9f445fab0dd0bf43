//! What is handed up.

use std::fmt;

/// What was received and audited. Its `Debug` shows lengths and no data.
#[derive(Clone, PartialEq, Eq)]
pub enum Received {
    /// A part of the message of a context.
    Data {
        /// The context, from 1.
        context: u8,
        /// The bytes; may be empty.
        data: Vec<u8>,
        /// Who wrote them last: 0 the sending endpoint, otherwise the number of a middlebox.
        origin: u8,
        /// The message ends with them.
        end: bool,
    },
    /// The exchange has ended, and with it every message of it: one whole request, or its answer.
    Exchange {
        /// The middlebox that answers in place of the server; 0 the other endpoint.
        by: u8,
    },
    /// A message of the other endpoint in context 0.
    Control(Vec<u8>),
    /// The other endpoint ends the session because of an error.
    Error(Vec<u8>),
    /// The other endpoint has sent everything.
    Finished,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { context, data, origin, end } => {
                let length = data.len();
                write!(f, "Data {{ context: {context}, {length} B, origin: {origin}, end: {end} }}")
            }
            Self::Exchange { by } => write!(f, "Exchange {{ by: {by} }}"),
            Self::Control(data) => write!(f, "Control({} B)", data.len()),
            Self::Error(reason) => write!(f, "Error({} B)", reason.len()),
            Self::Finished => f.write_str("Finished"),
        }
    }
}
