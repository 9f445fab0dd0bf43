//! Writes the secrets of every connection to the file named by `SSLKEYLOGFILE`, so that Wireshark
//! can decrypt a capture. For test builds: compiled only with the feature `keylog`.

use rustls::{KeyLog as _, KeyLogFile};
use std::sync::LazyLock;

static FILE: LazyLock<KeyLogFile> = LazyLock::new(KeyLogFile::new);

/// Appends one line in the NSS key log format.
pub(crate) fn log(label: &str, client_random: &[u8], secret: &[u8]) {
    FILE.log(label, client_random, secret);
}
