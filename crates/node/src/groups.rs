//! Changes of groups by the owner, and the exchange of groups with other nodes.

mod change;
mod export;
mod follow;
mod take;

pub(crate) use change::GroupsError;
pub(crate) use follow::follow;
