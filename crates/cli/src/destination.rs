//! Where a session is wanted, as one types it: NODE/SERVICE, or a capability.

use crate::capability_text;
use crate::failure::Failure;
use crate::names::Names;
use crate::output::plain;
use crate::place::Place;
use levada_capability::Capability;
use levada_core::Framing;
use levada_node::client::{Client, RequestSpec};
use levada_node::home::Home;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A service at which a session is requested, or a capability for one: its text, `@file`, or `-`.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// A session is requested there.
    Service(Place),
    /// A session that was requested before.
    Capability(Zeroizing<String>),
}

impl Destination {
    /// The capability for one session: requested now, unless it was before.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits.
    pub async fn capability(
        &self,
        client: &Client,
        names: Names,
        framing: Option<Framing>,
    ) -> Result<Capability, Failure> {
        let place = match self {
            Self::Service(place) => place,
            Self::Capability(text) => return capability_text::read(text),
        };
        let target = names.resolve(client, &place.node).await?;
        let service = place.service.clone();
        let spec = RequestSpec { service, framing, uses: 1, ..RequestSpec::default() };
        Ok(client.request(&target, spec).await?)
    }
}

impl Destination {
    /// The same without `@file`, `-` or a name that is new here: what was meant by them is read, and asked
    /// about, now, while there may be somebody to ask.
    ///
    /// # Errors
    /// [`Failure`] as for [`capability_text::read`] and [`Names::resolve`].
    pub async fn resolved(self, names: Names) -> Result<Self, Failure> {
        match self {
            Self::Capability(text) => Ok(Self::Capability(capability_text::read(&text)?.to_text())),
            Self::Service(place) => {
                let client = Client::new(&Home::open()?)?;
                names.resolve(&client, &place.node).await?;
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
        let place = Place { node: "well".into(), service: "screen".into() };
        assert_eq!("well/screen".parse(), Ok(Destination::Service(place)));
        assert!("well".parse::<Destination>().is_err());
        let secret: Destination = "lvcap1abc".parse().unwrap();
        assert!(!format!("{secret:?}").contains("abc"));
    }
}
