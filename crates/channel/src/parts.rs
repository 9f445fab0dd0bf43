//! TLS 1.3 in parts, for a protocol that carries it in its own frames: the handshake, its exporter,
//! and sealed records.
//!
//! Sessions with middleboxes are built from them. Everything else uses [`crate::Connection`].

pub use crate::config::{IDLE_TIMEOUT, KEEP_ALIVE};
pub use crate::exporter::{Capture, Exporter};
pub use crate::handshake::{Established, Handshake, Keys};
pub use crate::record::{ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, HEADER, RecordKey, TAG};
pub use crate::tls::{CLOSE_NOTIFY, NEW_SESSION_TICKET, take_message};
