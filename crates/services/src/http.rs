//! `http`: carries HTTP to an origin behind a node, over an ordinary session or over one with
//! middleboxes. There the parts of requests and responses travel in contexts, so that each
//! middlebox sees what it may see, and nothing else. Where a body ends is said by the session, and
//! never by a field.

mod allowance;
mod allowed;
mod body;
mod carrier;
pub mod client;
mod exchange;
mod forwarded;
mod head;
mod layout;
mod message;
mod origin;
mod rewrite;
mod serve;
mod service;
mod trailers;

#[cfg(test)]
mod tests;

pub use allowance::{Allowance, right_text};
pub use head::{HeadError, MAX_HEAD};
pub(crate) use head::{RequestHead, ResponseHead};
pub use layout::{FIELDS, LayoutError, Strategy, TRAILERS, context_names, contexts};
pub(crate) use service::service_type;
