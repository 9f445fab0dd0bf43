//! Rotates the key of a home: the old key signs the new one, and sessions of the old key end. After a crash at any step, the
//! home still has a key that its peers accept.

use levada_capability::SessionId;
use levada_core::{Clock, Identity, SecretKey, Succession, SystemClock, SystemRandom};

use crate::store::Store;
use levada_client::home::Home;
use levada_client::known::Known;

use crate::error::UpError;

/// Gives `home` a new key. Every step can be repeated: the new key is on disk before the statement, the statement before
/// sessions end, and the key is replaced last. Sessions that the old key requested for others at other nodes end, except `keep`;
/// if the process is killed before the statement is on disk, those end, too.
///
/// # Errors
/// [`UpError`] if a file could not be written; the old key stays in use.
pub fn rotate(
    home: &Home,
    store: &Store,
    keep: &[SessionId],
) -> Result<(Identity, Identity), UpError> {
    let old = home.key().map_err(UpError::of)?;
    if let Some(new) = home.staged_key().map_err(UpError::of)? {
        // An interrupted rotation: its new key may have been published, so it must not be replaced by another.
        complete(home, store, &old, &new, keep)?;
        return Ok((old.identity(), new.identity()));
    }
    let new = SecretKey::generate(&SystemRandom).map_err(UpError::of)?;
    home.stage_key(&new).map_err(UpError::of)?;
    complete(home, store, &old, &new, keep)?;
    Ok((old.identity(), new.identity()))
}

/// Completes an interrupted rotation.
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
    // An interrupted rotation may have stored its statement: each key has only one.
    let all = known.successions().map_err(UpError::of)?;
    let succession = all.into_iter().find(|one| one.old() == old.identity()).unwrap_or(signed);
    // The node is also pinned in its own home.
    known.follow(&succession).map_err(UpError::of)?;
    store.apply_succession(&succession, now).map_err(UpError::of)?;
    store.invalidate_sessions("the node's key was rotated", now).map_err(UpError::of)?;
    home.activate_staged_key().map_err(UpError::of)
}
