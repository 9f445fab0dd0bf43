//! Drives a channel over a transport with tokio: the thin layer between bytes and time on one side and
//! `async` streams on the other. One task per connection moves bytes; handles share it.

mod budget;
mod connection;
mod driver;
mod error;
mod pace;
mod rate;
mod shared;
mod stream;
pub mod testing;

pub use budget::Budget;
pub use connection::{Caller, Connection, accept, connect, first_record};
pub use error::{SessionError, StreamError};
pub use levada_channel::{
    Class, ClientConfig, Close, Error as ChannelError, Options, ServerConfig,
};
pub use stream::{ReceiveHalf, SendHalf, Stream, StreamAborter};
