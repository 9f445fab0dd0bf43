//! Replacing the key of a home: old signs new, what names the old one ends, and no crash in between
//! leaves a home without a key that its peers can follow.

use levada_capability::SessionId;
use levada_core::{Clock, Identity, SecretKey, Succession, SystemClock, SystemRandom};

use crate::store::Store;
use levada_client::home::Home;
use levada_client::known::Known;

use crate::error::UpError;

/// Gives `home` a new key. The order makes every step repeatable: the new key is on disk before the
/// statement, the statement before sessions end, and the key changes last. Sessions that the old key requested for
/// others at other nodes end, but for `keep`; if the process is killed before the statement is on disk, those end too.
///
/// # Errors
/// [`UpError`] if a file could not be written; the old key still holds then.
pub fn rotate(
    home: &Home,
    store: &Store,
    keep: &[SessionId],
) -> Result<(Identity, Identity), UpError> {
    let old = home.key().map_err(UpError::of)?;
    if let Some(new) = home.staged_key().map_err(UpError::of)? {
        // One that was cut short: its key may be announced already, and another must not replace it.
        complete(home, store, &old, &new, keep)?;
        return Ok((old.identity(), new.identity()));
    }
    let new = SecretKey::generate(&SystemRandom).map_err(UpError::of)?;
    home.stage_key(&new).map_err(UpError::of)?;
    complete(home, store, &old, &new, keep)?;
    Ok((old.identity(), new.identity()))
}

/// Finishes a rotation that was cut short.
pub(crate) fn finish_interrupted(home: &Home) -> Result<(), UpError> {
    let Some(new) = home.staged_key().map_err(UpError::of)? else { return Ok(()) };
    let old = home.key().map_err(UpError::of)?;
    let store = Store::open(&home.node_db()).map_err(UpError::of)?;
    complete(home, &store, &old, &new, &[])
}

fn complete(
    home: &Home,
    store: &Store,
    old: &SecretKey,
    new: &SecretKey,
    keep: &[SessionId],
) -> Result<(), UpError> {
    let now = SystemClock.now();
    let keep: Vec<[u8; 16]> = keep.iter().map(|session| *session.as_bytes()).collect();
    let signed = Succession::sign_keeping(old, &new.identity(), now, &keep).map_err(UpError::of)?;
    let known = Known::open(&home.known_db()).map_err(UpError::of)?;
    known.add_succession(&signed).map_err(UpError::of)?;
    // One that was cut short had its statement on disk already: there is only one of each key.
    let all = known.successions().map_err(UpError::of)?;
    let succession = all.into_iter().find(|one| one.old() == old.identity()).unwrap_or(signed);
    // A node is pinned in its own home, too.
    known.follow(&succession).map_err(UpError::of)?;
    store.succeed(&succession, now).map_err(UpError::of)?;
    store.invalidate_sessions("the node's key was rotated", now).map_err(UpError::of)?;
    home.adopt_staged_key().map_err(UpError::of)
}
