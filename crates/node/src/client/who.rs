//! Who somebody is here: names for keys, and keys for names. A name never vouches for a key.

use levada_core::Identity;

use super::{Client, ClientError};

impl Client {
    /// The key that `text` stands for: an identity, or a nickname pinned here.
    ///
    /// # Errors
    /// [`ClientError::Denied`] for a name that is not pinned.
    pub fn identity_of(&self, text: &str) -> Result<Identity, ClientError> {
        if let Ok(identity) = text.parse() {
            return Ok(identity);
        }
        match self.known.by_name(text).map_err(ClientError::local)? {
            Some(pin) => Ok(pin.identity),
            None => Err(ClientError::Denied(format!(
                "nobody is known here as `{text}`: write the identity (lv…), or join first"
            ))),
        }
    }

    /// The nickname that `identity` is pinned under here.
    pub fn name_of(&self, identity: &Identity) -> Option<String> {
        // Without the pins there is no name, and nothing depends on one.
        self.known.by_identity(identity).ok().flatten().map(|pin| pin.name)
    }
}
