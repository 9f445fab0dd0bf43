//! Checks the type of a service before anything is requested from it or started.

use levada_capability::Capability;
use levada_core::printable::escape;
use levada_core::wire;

use super::{Client, ClientError, Target};

impl Client {
    /// Fails if `service` is not of type `kind`; returns what the node says of it.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if it is of another type, [`ClientError::No`] if there is no such
    /// service, otherwise as for [`Self::query`].
    pub async fn check_type(
        &self,
        target: &Target,
        service: &str,
        kind: &str,
    ) -> Result<Vec<wire::Service>, ClientError> {
        let services = self.query(target, Some(service)).await?;
        let other = services.iter().find(|one| one.name == service && one.r#type != kind);
        let Some(other) = other else { return Ok(services) };
        Err(ClientError::Usage(format!(
            "the service `{}` is of type `{}`, and a service of type `{kind}` is needed; `levada query` shows which \
             there are",
            escape(&other.name),
            escape(&other.r#type)
        )))
    }

    /// As [`Self::check_type`] for the service that `capability` names. A service that does not
    /// exist is no error here: the node reports it when the session is started.
    ///
    /// # Errors
    /// As for [`Self::check_type`], without [`ClientError::No`].
    pub async fn check_type_of(
        &self,
        capability: &Capability,
        kind: &str,
    ) -> Result<(), ClientError> {
        let target = self.target_of(capability).await?;
        match self.check_type(&target, capability.service(), kind).await {
            Err(ClientError::No(_)) => Ok(()),
            checked => checked.map(|_| ()),
        }
    }
}
