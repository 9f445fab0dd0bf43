//! Keys of pinned names, and names of pinned keys. A name alone never authenticates a key.

use levada_core::Identity;

use super::{Client, ClientError};

impl Client {
    /// The key that `text` stands for: an identity, or a nickname pinned here.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a name that is not pinned.
    pub async fn identity_of(&self, text: &str) -> Result<Identity, ClientError> {
        let text = text.to_owned();
        self.with_known(move |known| known.identity_of(&text)).await
    }

    /// The nicknames that `identities` are pinned under here, in the same order.
    pub async fn names_of<const N: usize>(&self, identities: [Identity; N]) -> [Option<String>; N] {
        // The names are only shown, so an error of the database is ignored.
        let found = self.with_known(move |known| {
            let name = |identity| known.by_identity(&identity).ok().flatten().map(|pin| pin.name);
            Ok::<_, ClientError>(identities.map(name))
        });
        found.await.unwrap_or([const { None }; N])
    }
}
