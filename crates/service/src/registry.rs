//! The table of service types: finds a type by its name, checks the options of a definition, and
//! builds the service.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::{Context, Definition, DefinitionError, Service};

type Build =
    dyn Fn(&Definition, &Context) -> Result<Arc<dyn Service>, DefinitionError> + Send + Sync;

/// One type of service, as the crate that implements it registers it.
pub struct ServiceType {
    name: &'static str,
    check_options: fn(&str) -> Result<(), toml::de::Error>,
    build: Box<Build>,
    find_missing: fn(&Definition) -> Vec<DefinitionError>,
}

impl ServiceType {
    /// The type called `name`: `O` are its options, and `build` makes its services. `O` is declared
    /// with [`crate::definition_options`], because it is also deserialized from the text of a whole
    /// definition.
    pub fn new<O, B>(name: &'static str, build: B) -> Self
    where
        O: DeserializeOwned,
        B: Fn(&Definition, &Context, O) -> Result<Arc<dyn Service>, DefinitionError>
            + Send
            + Sync
            + 'static,
    {
        Self {
            name,
            check_options: |text| toml::from_str::<O>(text).map(drop),
            build: Box::new(move |definition, context| {
                build(definition, context, definition.read_options()?)
            }),
            find_missing: |_| Vec::new(),
        }
    }

    /// The same type with `find_missing`, which returns what a definition names and this machine
    /// lacks.
    #[must_use]
    pub fn with_missing(mut self, find_missing: fn(&Definition) -> Vec<DefinitionError>) -> Self {
        self.find_missing = find_missing;
        self
    }
}

/// The service types of a node.
pub struct Registry(Vec<ServiceType>);

impl Registry {
    /// A table of `types`. Error messages list them in this order.
    pub fn new(types: Vec<ServiceType>) -> Self {
        Self(types)
    }

    /// The names of all types.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|one| one.name)
    }

    /// Parses the definition of one service from TOML, and checks the options of its type.
    ///
    /// # Errors
    /// [`DefinitionError`], with the line and the key.
    pub fn parse(&self, text: &str) -> Result<Definition, DefinitionError> {
        let locate = |error| DefinitionError::locate(text, &error);
        let definition: Definition = toml::from_str(text).map_err(locate)?;
        // The text a second time, for the type: the values in `options` have no position in the
        // text.
        (self.find(&definition)?.check_options)(text).map_err(locate)?;
        Ok(definition)
    }

    /// Builds the service that `definition` defines, for the node of `context`.
    ///
    /// # Errors
    /// [`DefinitionError`] if the type does not exist, or its options are invalid.
    pub fn build(
        &self,
        definition: &Definition,
        context: &Context,
    ) -> Result<Arc<dyn Service>, DefinitionError> {
        (self.find(definition)?.build)(definition, context)
    }

    /// What `definition` names and this machine lacks: programs and directories. The node still
    /// offers the service, because the rest of it works.
    pub fn missing(&self, definition: &Definition) -> Vec<DefinitionError> {
        self.find(definition).map(|one| (one.find_missing)(definition)).unwrap_or_default()
    }

    fn find(&self, definition: &Definition) -> Result<&ServiceType, DefinitionError> {
        let found = self.0.iter().find(|one| one.name == definition.kind);
        found.ok_or_else(|| DefinitionError::Type {
            name: definition.name.clone(),
            kind: definition.kind.clone(),
            types: self.names().collect(),
        })
    }
}
