//! The argument IDENTITY: the identity itself, abbreviated or not, or the name that is pinned for it
//! here.

use std::str::FromStr;

use levada_client::{Client, ClientError};
use levada_core::{Identity, check_name};
use levada_home::Home;
use levada_home::known::{Known, NameError};

use crate::abbreviation::expand;
use crate::failure::Failure;

/// An identity, abbreviated or not, or a pinned name; both are looked up when the verb runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOrName(String);

impl IdentityOrName {
    /// The identity.
    ///
    /// # Errors
    /// [`Failure`] 2 for a name that is not pinned here, 120 if the names cannot be read.
    pub async fn identity(&self, client: &Client) -> Result<Identity, Failure> {
        Ok(client.identity_of(&expand(&self.0).await?).await?)
    }
}

impl FromStr for IdentityOrName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.parse::<Identity>().is_err() && check_name(text).is_err() {
            return Err("expected an identity (lv…), or a name that is known here");
        }
        Ok(Self(text.to_owned()))
    }
}

/// The identities of `list`, in the same order.
///
/// # Errors
/// As for [`IdentityOrName::identity`].
pub async fn identities(home: &Home, list: &[IdentityOrName]) -> Result<Vec<Identity>, Failure> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    identities_in(&Known::open(&home.known_db())?, list).await
}

/// As [`identities`], with the names in `known`.
///
/// # Errors
/// As for [`IdentityOrName::identity`].
pub async fn identities_in(
    known: &Known,
    list: &[IdentityOrName],
) -> Result<Vec<Identity>, Failure> {
    let mut identities = Vec::new();
    for IdentityOrName(text) in list {
        identities.push(known.identity_of(&expand(text).await?)?);
    }
    Ok(identities)
}

/// Parses a name that an identity can be pinned under.
///
/// # Errors
/// A text that says what a name must be.
pub fn nickname(text: &str) -> Result<String, String> {
    check_name(text)?;
    match text.parse::<Identity>() {
        Ok(_) => Err("it is an identity, and cannot be a name".into()),
        Err(_) => Ok(text.to_owned()),
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        ClientError::from(error).into()
    }
}
