//! Rotates the key of a home: the old key signs the new one, and sessions of the old key end. After
//! a crash at any step, the home still has a key that its peers accept.

use levada_capability::SessionId;
use levada_core::{Clock, Identity, SecretKey, Succession, SystemClock, SystemRandom};

use crate::store::Store;
use levada_home::known::Known;
use levada_home::{Home, HomeError};

use crate::error::UpError;

/// Gives `home` a new key. Every step can be repeated: the new key is on disk before the statement,
/// the statement before sessions end, and the key is replaced last. Sessions that the old key
/// requested for others at other nodes end, except `keep`; if the process is killed before the
/// statement is on disk, those end, too.
///
/// # Errors
/// [`UpError`] if a file could not be written; the old key stays in use.
pub fn rotate(
    home: &Home,
    store: &Store,
    keep: &[SessionId],
) -> Result<(Identity, Identity), UpError> {
    if let Some((old, new)) = interrupted(home)? {
        // An interrupted rotation: its new key may have been published, so it must not be replaced
        // by another.
        complete(home, store, &old, &new, keep)?;
        return Ok((old.identity(), new.identity()));
    }
    let old = home.key().map_err(UpError::of)?;
    let new = SecretKey::generate(&SystemRandom).map_err(UpError::of)?;
    home.stage_key(&new).map_err(UpError::of)?;
    complete(home, store, &old, &new, keep)?;
    Ok((old.identity(), new.identity()))
}

/// Completes an interrupted rotation.
pub(crate) fn finish_interrupted(home: &Home) -> Result<(), UpError> {
    let Some((old, new)) = interrupted(home)? else { return Ok(()) };
    let store = Store::open(&home.node_db()).map_err(UpError::of)?;
    complete(home, &store, &old, &new, &[])
}

/// The old and the new key of an interrupted rotation.
///
/// # Errors
/// [`UpError`] if a file has no usable key, or the rotation cannot be completed.
pub(crate) fn interrupted(home: &Home) -> Result<Option<(SecretKey, SecretKey)>, UpError> {
    let staged = home.staged_key_file();
    let key = home.key_file();
    let failed = |error| match error {
        // The remedy in its text is for the key in use.
        HomeError::KeyMalformed { path, reason } => UpError(format!(
            "an interrupted rotation cannot be completed: {} has no valid key ({reason}): restore it from a backup, or \
             remove it; this home then keeps its old key, which peers that already follow the rotation refuse",
            path.display()
        )),
        error => UpError(format!("an interrupted rotation cannot be completed: {error}")),
    };
    let Some(new) = home.staged_key().map_err(failed)? else { return Ok(None) };
    let no_key = || {
        UpError(format!(
            "an interrupted rotation cannot be completed: {} is missing; restore it from a backup",
            key.display()
        ))
    };
    let old = home.existing_key().map_err(UpError::of)?.ok_or_else(no_key)?;
    if old.identity() == new.identity() {
        return Err(UpError(format!(
            "{} has the same key as {}, so that it is not left from a rotation: remove it",
            staged.display(),
            key.display()
        )));
    }
    Ok(Some((old, new)))
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
