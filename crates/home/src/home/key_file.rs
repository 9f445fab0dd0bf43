//! The file of a secret key: `lvkey1` and base32 of the seed, readable by its owner only.

use levada_core::{Identity, SecretKey, SystemRandom, TextError, decode_text, encode_text};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use zeroize::Zeroizing;

use super::{HomeError, write_private};

const PREFIX: &str = "lvkey1";
const SEED_LEN: usize = 32;
/// Maximum number of bytes that are read: more than the text of a key and its line end.
const MAX_FILE: u64 = 256;

/// A function that reports a new identity and the file of its key.
type NewKeyHook = fn(&Identity, &Path);

static NEW_KEY_HOOK: OnceLock<NewKeyHook> = OnceLock::new();

/// Sets the function that this process calls after it created the key of a new identity: a wrong
/// `LEVADA_HOME` creates one, too, and must be noticed. Only the first call has an effect.
pub fn set_new_key_hook(hook: NewKeyHook) {
    let _ = NEW_KEY_HOOK.set(hook);
}

pub(super) fn load_or_create(path: &Path) -> Result<SecretKey, HomeError> {
    if let Some(key) = load(path)? {
        return Ok(key);
    }
    let key = SecretKey::generate(&SystemRandom)?;
    if write_private(path, text(&key).as_bytes(), false)? {
        if let Some(hook) = NEW_KEY_HOOK.get() {
            hook(&key.identity(), path);
        }
        return Ok(key);
    }
    // Another process has created the key in the meantime.
    load(path)?.ok_or_else(|| {
        HomeError::io("read", path)(io::Error::new(io::ErrorKind::NotFound, "it was removed"))
    })
}

/// The key in the file at `path`, or `None` if there is no such file.
///
/// # Errors
/// [`HomeError`] if it cannot be read, other users can read it, or it has no valid key.
pub fn load(path: &Path) -> Result<Option<SecretKey>, HomeError> {
    // A FIFO without a writer would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HomeError::io("read", path)(error)),
    };
    let metadata = file.metadata().map_err(HomeError::io("read", path))?;
    if !metadata.is_file() {
        return Err(HomeError::NotAFile { path: path.to_owned() });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(HomeError::KeyExposed { path: path.to_owned(), mode });
    }
    let mut content = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize));
    file.take(MAX_FILE).read_to_end(&mut content).map_err(HomeError::io("read", path))?;
    parse(&content)
        .map(Some)
        .map_err(|reason| HomeError::KeyMalformed { path: path.to_owned(), reason })
}

pub(super) fn replace(path: &Path, key: &SecretKey) -> Result<(), HomeError> {
    write_private(path, text(key).as_bytes(), true).map(drop)
}

fn text(key: &SecretKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(encode_text(PREFIX, key.seed().as_ref()));
    text.push('\n');
    text
}

fn parse(content: &[u8]) -> Result<SecretKey, TextError> {
    let text = std::str::from_utf8(content.trim_ascii_end()).map_err(|_| TextError::Encoding)?;
    let bytes = Zeroizing::new(decode_text(PREFIX, text, SEED_LEN)?);
    let seed = bytes.as_slice().try_into().map_err(|_| TextError::Content)?;
    SecretKey::from_seed(Zeroizing::new(seed)).map_err(|_| TextError::Content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_content_never_panics() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(key) = parse(bytes) {
                assert_eq!(text(&key).trim_end().as_bytes(), bytes.trim_ascii_end());
            }
        });
    }

    #[test]
    fn rejects_a_changed_character() {
        let key = SecretKey::generate(&SystemRandom).unwrap();
        let written = text(&key);
        assert_eq!(parse(written.as_bytes()).unwrap().identity(), key.identity());
        let mut bytes = written.as_bytes().to_vec();
        bytes[10] = if bytes[10] == b'a' { b'b' } else { b'a' };
        assert!(parse(&bytes).is_err());
    }
}
