//! Writes the secrets of every connection to the file named by `SSLKEYLOGFILE`, so that Wireshark
//! can read what was recorded. In test builds only: without the feature `keylog` this does not exist.

use rustls::{KeyLog as _, KeyLogFile};
use std::sync::LazyLock;

static FILE: LazyLock<KeyLogFile> = LazyLock::new(KeyLogFile::new);

/// Appends one line in the NSS key log format.
pub(crate) fn log(label: &str, client_random: &[u8], secret: &[u8]) {
    FILE.log(label, client_random, secret);
}
