//! Drives a channel over a transport with tokio: a thin layer between bytes and time on one side
//! and `async` streams on the other. Each connection has one task that moves bytes; its handles
//! share the state.

mod budget;
mod connection;
mod driver;
mod error;
mod half_open;
mod memory;
mod pacer;
pub mod parts;
mod pipe;
mod rate;
mod rounds;
mod shared;
mod stream;
pub mod testing;
mod timer;

pub use budget::Budget;
pub use connection::{Connection, Incoming, IncomingParts, accept, connect, first_record};
pub use error::{SessionError, StreamError};
pub use half_open::{Evicted, HalfOpen, HalfOpenEntry};
pub use levada_channel::{
    Class, ClientConfig, Close, Error as ChannelError, Options, ServerConfig,
};
pub use levada_transport::Traffic;
pub use stream::{ReceiveHalf, SendHalf, Stream, StreamAborter};
