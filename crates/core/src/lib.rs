//! Identities, keys, text and wire encodings, clock and randomness, which every other crate uses.
//! The crate does no I/O.

mod abbreviation;
mod backoff;
mod clock;
mod closest;
mod digest;
mod duration;
mod framing;
mod group_set;
mod identity;
pub mod label;
mod listed;
mod name;
mod params;
pub mod printable;
mod random;
mod seal;
mod shell;
mod signature;
mod size;
mod source;
mod succession;
mod text;
pub mod wire;

pub use abbreviation::{
    Digits, MIN_ABBREVIATION, abbreviate, byte_range, identity_range, is_abbreviation,
    with_beginning,
};
pub use backoff::Backoff;
pub use clock::{Clock, ManualClock, SystemClock, UnixTime};
pub use closest::closest;
pub use digest::{Digest, Hasher, hmac_sha256, sha256};
pub use duration::{DurationError, format_duration, parse_duration};
pub use framing::{Framing, FramingError};
pub use group_set::{GroupSet, GroupSetError, NamedMembers};
pub use identity::{Identity, IdentityError, SecretKey};
pub use listed::listed;
pub use name::{MAX_NAME, NAME_RULE, check_name};
pub use params::{Params, ParamsError, decode_list, encode_list};
pub use random::{Random, RandomError, SystemRandom, shuffle};
pub use seal::{OpeningKey, SealError, Sealed, seal};
pub use shell::shell_word;
pub use signature::{BadSignature, Signature};
pub use size::{SizeError, format_size, parse_size};
pub use source::source_of;
pub use succession::{Succession, SuccessionError};
pub use text::{TextError, base32, decode_text, encode_text};

/// The lowest and the highest version of the protocol inside a channel that this build speaks.
/// Version 2 adds further streams of a session, which either side may open. Version 3 adds a
/// request and start in one operation, a limit of the running time, and the list of sessions that
/// an identity requested for others, which a key rotation ends.
pub const WIRE_VERSIONS: std::ops::RangeInclusive<u32> = 1..=4;
