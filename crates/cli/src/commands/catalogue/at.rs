//! The option `--at` of the verbs of the catalogue.

use std::str::FromStr;

use clap::Args;
use levada_client::Client;
use levada_home::Home;

use super::connection::{CatalogueConnection, open};
use super::nodes::Nodes;
use super::own_store::Missing;
use crate::destination::{Destination, Search};
use crate::failure::Failure;
use crate::names::Names;

/// The option `--at`, for commands that any node of a catalogue can execute.
#[derive(Debug, Args)]
pub struct At {
    /// The catalogue of another node, or a capability for it (text, @file or -); this home's own if
    /// not given. For a catalogue on several nodes a list: one of them is asked at random, and the
    /// next one if that one fails
    #[arg(long, value_name = "NODE/CATALOGUE[,…]")]
    at: Vec<Destinations>,

    #[command(flatten)]
    names: Names,
}

/// The option `--at`, for commands that concern what one node stores.
#[derive(Debug, Args)]
pub struct AtOne {
    /// The catalogue of another node, or a capability for it (text, @file or -); this home's own if
    /// not given
    #[arg(long, value_name = "NODE/CATALOGUE", value_parser = one)]
    at: Option<Destination>,

    #[command(flatten)]
    names: Names,
}

/// One capability, or services that are separated by commas.
#[derive(Clone, Debug)]
struct Destinations(Vec<Destination>);

impl FromStr for Destinations {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The name of a file with a capability may have commas.
        if let Ok(one @ Destination::Capability(_)) = text.parse() {
            return Ok(Self(vec![one]));
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

fn one(text: &str) -> Result<Destination, &'static str> {
    let Destinations(mut list) = text.parse()?;
    match (list.pop(), list.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err("this concerns what one node stores: expected one NODE/SERVICE"),
    }
}

impl AtOne {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits.
    pub async fn open(&self) -> Result<CatalogueConnection, Failure> {
        open(self.at.as_ref(), (self.names, Search::Network), Missing::Refuse).await
    }
}

impl At {
    /// The services, separated by commas, unless it is this home's own catalogue or a capability.
    pub fn services(&self) -> Option<String> {
        let service = |one: &Destination| match one {
            Destination::Service(target) => Some(target.to_string()),
            Destination::Capability(_) => None,
        };
        let services: Option<Vec<String>> = self.destinations().map(service).collect();
        services.filter(|services| !services.is_empty()).map(|services| services.join(","))
    }

    /// The nodes, in random order, so that the reads of many clients spread over them.
    ///
    /// # Errors
    /// [`Failure`] if one of several names is new here and is not accepted: that does not depend on
    /// the order.
    pub async fn nodes(&self) -> Result<Nodes, Failure> {
        let destinations: Vec<Destination> = self.destinations().cloned().collect();
        if destinations.len() > 1 {
            self.identify().await?;
        }
        Ok(Nodes::new(destinations, self.names))
    }

    /// Connects to one of the nodes.
    ///
    /// # Errors
    /// As for [`Nodes::run`].
    pub async fn open(&self) -> Result<CatalogueConnection, Failure> {
        self.nodes().await?.open().await
    }

    /// As [`Nodes::run`].
    ///
    /// # Errors
    /// As for [`Nodes::run`].
    pub async fn run<T>(
        &self,
        request: impl AsyncFnMut(&mut CatalogueConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.nodes().await?.run(request).await
    }

    fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.at.iter().flat_map(|list| &list.0)
    }

    /// Pins the names that are new here. Nodes with a pinned name are not contacted.
    async fn identify(&self) -> Result<(), Failure> {
        let client = Client::new(&Home::open()?)?;
        for destination in self.destinations() {
            let Destination::Service(target) = destination else { continue };
            match self.names.identify(&client, &target.node).await {
                Err(failure) if !failure.is_of_node() => return Err(failure),
                // If it does not answer, it fails when it is its turn.
                _ => {}
            }
        }
        client.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_and_a_capability_is_not() {
        let read = |text: &str| {
            let list = text.parse::<Destinations>().ok()?;
            Some(list.0.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("a/catalogue").unwrap(), ["a/catalogue"]);
        assert_eq!(read("a/x,lvb@[::1]:7/y").unwrap(), ["a/x", "lvb@[::1]:7/y"]);
        assert_eq!(read("@a,b.cap").unwrap(), ["@a,b.cap"]);
        for text in ["", "a", "a/x,", ",a/x", "a/x,b", "a/x,,b/y"] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
