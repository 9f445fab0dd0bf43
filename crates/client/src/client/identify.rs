//! Keys of pinned names, and names of pinned keys. A name alone never authenticates a key.

use levada_core::Identity;

use super::{Client, ClientError};
use crate::known::NameError;

impl Client {
    /// The key that `text` stands for: an identity, or a nickname pinned here.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a name that is not pinned.
    pub fn identity_of(&self, text: &str) -> Result<Identity, ClientError> {
        self.known.identity_of(text).map_err(|error| match error {
            NameError::Store(error) => ClientError::local(error),
            unknown => ClientError::usage(unknown),
        })
    }

    /// The nickname that `identity` is pinned under here.
    pub fn name_of(&self, identity: &Identity) -> Option<String> {
        // The name is only shown, so an error of the database is ignored.
        self.known.by_identity(identity).ok().flatten().map(|pin| pin.name)
    }
}
