//! Ids, identities and starts for the tests of the store. A byte stands for an id or a key made of
//! this byte.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, SecretKey, UnixTime};
use levada_node::store::{NewStart, StartError, Store};
use zeroize::Zeroizing;

pub const NOW: UnixTime = UnixTime(1_000_000);
pub const LATER: UnixTime = UnixTime(2_000_000);

pub fn id(byte: u8) -> SessionId {
    SessionId::from_bytes([byte; 16])
}

pub fn link(byte: u8) -> LinkId {
    LinkId::from_bytes([byte; 32])
}

pub fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Zeroizing::new([byte; 32])).unwrap()
}

pub fn identity(byte: u8) -> Identity {
    key(byte).identity()
}

/// Counts a start by a chain whose only identity is `by`.
pub fn start_by(
    store: &Store,
    session: &SessionId,
    uses: &[(LinkId, u32)],
    by: &Identity,
    now: UnixTime,
) -> Result<(), StartError> {
    let session = *session;
    let identities = &[*by];
    let requester = store.session(&session)?.map_or(*by, |record| record.requester);
    store.start(
        &NewStart {
            session,
            uses,
            identities,
            expires: UnixTime::NEVER,
            requester,
            by: *by,
            about: "",
        },
        now,
    )
}
