//! What stands in for `engine` in a build without the feature `cluster`: refuses the keys of an
//! engine.

use std::convert::Infallible;
use std::sync::Arc;

use levada_catalogue::store::StoreError;
use levada_catalogue::store::cluster::Options;
use levada_core::Clock;

use super::ConfigError;
use super::reader::{Section, Value};

/// Why `[catalogue.engine]` without `store` is refused.
pub(super) const WITHOUT_STORE: &str = NO_SUPPORT;

const NO_SUPPORT: &str =
    "this build of levada has no engine support: several nodes cannot share its catalogue";

/// An engine, of which there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine(Infallible);

impl Engine {
    /// How the store is opened.
    ///
    /// # Errors
    /// None.
    pub fn options(&self, _: Arc<dyn Clock>) -> Result<Options, StoreError> {
        match self.0 {}
    }
}

/// Refuses `store`.
pub(super) fn read(_: &Section<'_>, store: &Value<'_>) -> Result<Engine, ConfigError> {
    Err(store.wrong(NO_SUPPORT))
}
