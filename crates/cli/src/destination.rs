//! Where a session is wanted, as one types it: NODE/SERVICE, or a capability.

use crate::capability_text;
use crate::failure::{Failure, NO, USAGE};
use crate::names::Names;
use crate::output::plain;
use crate::service_target::ServiceTarget;
use levada_capability::Capability;
use levada_core::Framing;
use levada_node::client::{Client, RequestSpec, Target};
use levada_node::home::Home;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A service at which a session is requested, or a capability for one: its text, `@file`, or `-`.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// A session is requested there.
    Service(ServiceTarget),
    /// A session that was requested before.
    Capability(Zeroizing<String>),
}

impl Destination {
    /// The capability for one session with a service of type `kind`: requested now, unless it was before.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits; 2 if the service is of another type.
    pub async fn capability(
        &self,
        client: &Client,
        names: Names,
        framing: Option<Framing>,
        kind: &str,
    ) -> Result<Capability, Failure> {
        let place = match self {
            Self::Service(place) => place,
            Self::Capability(text) => {
                let capability = capability_text::read(text)?;
                check_capability(client, &capability, kind).await?;
                return Ok(capability);
            }
        };
        let target = names.resolve(client, &place.node).await?;
        check_type(client, &target, &place.service, kind).await?;
        let service = place.service.clone();
        let spec = RequestSpec { service, framing, uses: 1, ..RequestSpec::default() };
        Ok(client.request(&target, spec).await?)
    }
}

impl Destination {
    /// The same without `@file`, `-` or a name that is new here: what was meant by them is read, and asked
    /// about, now, while there may be a terminal to ask at. The service is of type `kind`.
    ///
    /// # Errors
    /// [`Failure`] as for [`capability_text::read`] and [`Names::resolve`]; 2 if the service is of another type.
    pub async fn resolved(self, names: Names, kind: &str) -> Result<Self, Failure> {
        let client = Client::new(&Home::open()?)?;
        match self {
            Self::Capability(text) => {
                let capability = capability_text::read(&text)?;
                check_capability(&client, &capability, kind).await?;
                client.close();
                Ok(Self::Capability(capability.to_text()))
            }
            Self::Service(place) => {
                let target = names.resolve(&client, &place.node).await?;
                check_type(&client, &target, &place.service, kind).await?;
                client.close();
                Ok(Self::Service(place))
            }
        }
    }

    /// What it is called where people read it; the text of a capability is never shown.
    pub fn label(&self) -> String {
        match self {
            Self::Service(place) => place.to_string(),
            Self::Capability(text) => match Capability::from_text(text) {
                Ok(capability) => {
                    format!("{}/{}", capability.node().short(), plain(capability.service()))
                }
                Err(_) => "a capability".to_owned(),
            },
        }
    }
}

/// Fails if `service` is of another type than `kind`: before anything is requested, or started here.
///
/// # Errors
/// [`Failure`] 2; 1 if there is no such service, otherwise as for [`Client::query`].
pub async fn check_type(
    client: &Client,
    target: &Target,
    service: &str,
    kind: &str,
) -> Result<(), Failure> {
    let services = client.query(target, Some(service)).await?;
    let other = services.iter().find(|one| one.name == service && one.r#type != kind);
    let Some(other) = other else { return Ok(()) };
    let text = format!(
        "the service `{}` is of type `{}`, and a service of type `{kind}` is needed; `levada query` shows which \
         there are",
        plain(&other.name),
        plain(&other.r#type)
    );
    Err(Failure::new(USAGE, text))
}

/// The same for the service that `capability` names. That is a hint: a service that is not there is for the node to
/// say.
///
/// # Errors
/// As for [`check_type`], without 1.
pub async fn check_capability(
    client: &Client,
    capability: &Capability,
    kind: &str,
) -> Result<(), Failure> {
    let target = client.target_of(capability)?;
    match check_type(client, &target, capability.service(), kind).await {
        Err(failure) if failure.code() == NO => Ok(()),
        checked => checked,
    }
}

impl FromStr for Destination {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "-" || text.starts_with('@') || text.starts_with("lvcap1") {
            return Ok(Self::Capability(Zeroizing::new(text.to_owned())));
        }
        let place = text.parse().map_err(|_| "expected NODE/SERVICE, or a capability")?;
        Ok(Self::Service(place))
    }
}

/// A capability's text is a secret.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(place) => write!(f, "{place:?}"),
            Self::Capability(_) => f.write_str("a capability"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_told_from_services() {
        for text in ["-", "@file", "lvcap1abc"] {
            let Ok(Destination::Capability(read)) = text.parse() else { panic!("{text}") };
            assert_eq!(read.as_str(), text);
        }
        let place = ServiceTarget { node: "well".into(), service: "screen".into() };
        assert_eq!("well/screen".parse(), Ok(Destination::Service(place)));
        assert!("well".parse::<Destination>().is_err());
        let secret: Destination = "lvcap1abc".parse().unwrap();
        assert!(!format!("{secret:?}").contains("abc"));
    }
}
