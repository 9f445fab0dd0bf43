//! The control socket of a running node: [`levada_client::control`] has its requests and replies.

mod access;
mod explain;
mod groups;
mod identities;
mod invitations;
mod list;
mod log;
mod remaining;
mod reply;
mod revoke;
mod rights;
mod serve;
mod share;

pub(crate) use serve::{bind, serve};
