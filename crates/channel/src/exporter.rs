//! Exported keying material, bound to one connection (RFC 8446 section 7.5).
//!
//! An unbuffered rustls connection has no exporter. So each connection has a key log of its own,
//! which stores the exporter secret and ignores every other secret.

use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::OkmBlock;
use std::fmt;
use std::sync::Mutex;

use crate::Error;

const EXPORTER_SECRET: &str = "EXPORTER_SECRET";

/// The key log of one connection: stores its exporter secret.
#[derive(Default)]
pub struct Capture(Mutex<Option<OkmBlock>>);

impl Capture {
    /// The exporter of the connection. On the server the secret exists before the client has proved
    /// its key.
    pub fn exporter(&self, suite: &'static Tls13CipherSuite) -> Option<Exporter> {
        let secret = self.0.lock().ok()?.clone()?;
        Some(Exporter { suite, secret })
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capture")
    }
}

impl rustls::KeyLog for Capture {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == EXPORTER_SECRET
            && let Ok(mut stored) = self.0.lock()
        {
            *stored = Some(OkmBlock::new(secret));
        }
        #[cfg(feature = "keylog")]
        crate::keylog::log(label, _client_random, secret);
    }

    fn will_log(&self, label: &str) -> bool {
        cfg!(feature = "keylog") || label == EXPORTER_SECRET
    }
}

/// Derives keying material that only the two ends of one connection share.
pub struct Exporter {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
}

impl Exporter {
    /// TLS-Exporter(label, context, out.len()) of RFC 8446 section 7.5.
    ///
    /// # Errors
    /// [`Error::Internal`] if `out` or `label` is longer than TLS can export.
    pub fn export(&self, label: &str, context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let hash = self.suite.common.hash_provider;
        let derived = self.derive(&self.secret, label.as_bytes(), hash.hash(&[]).as_ref())?;
        let length = u16::try_from(out.len()).map_err(|_| TOO_LONG)?;
        let expander = self.suite.hkdf_provider.expander_for_okm(&derived);
        let context = hash.hash(context);
        with_info(length, b"exporter", context.as_ref(), |info| {
            expander.expand_slice(info, out).map_err(|_| TOO_LONG)
        })?
    }

    /// HKDF-Expand-Label to one hash length (RFC 8446 section 7.1).
    fn derive(&self, secret: &OkmBlock, label: &[u8], context: &[u8]) -> Result<OkmBlock, Error> {
        let expander = self.suite.hkdf_provider.expander_for_okm(secret);
        let length = u16::try_from(expander.hash_len()).map_err(|_| TOO_LONG)?;
        with_info(length, label, context, |info| expander.expand_block(info))
    }
}

const TOO_LONG: Error =
    Error::Internal("more keying material, or a longer label, than TLS can export");

/// Calls `f` with the HkdfLabel of RFC 8446 section 7.1.
fn with_info<T>(
    length: u16,
    label: &[u8],
    context: &[u8],
    f: impl FnOnce(&[&[u8]]) -> T,
) -> Result<T, Error> {
    const PREFIX: &[u8] = b"tls13 ";
    let label_len = u8::try_from(PREFIX.len() + label.len()).map_err(|_| TOO_LONG)?;
    let context_len = u8::try_from(context.len()).map_err(|_| TOO_LONG)?;
    Ok(f(&[&length.to_be_bytes(), &[label_len], PREFIX, label, &[context_len], context]))
}
