//! `http`: carries HTTP over a session with middleboxes. The head and the body of requests and responses travel in contexts, so that
//! each middlebox sees what it may see, and nothing else. Where a body ends is said by the session, and never by a field.

mod body;
pub mod client;
mod exchange;
mod head;
mod layout;
mod origin;
mod service;

pub use head::HeadError;
pub use layout::{LayoutError, Strategy, context_names, contexts};
pub(crate) use service::service_type;
