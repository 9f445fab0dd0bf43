//! Why a service does not accept the parameters of a session.

use levada_core::{Params, ParamsError};
use thiserror::Error;

/// Why a service does not accept parameters. Each text is one line: values from the parameters are
/// escaped.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The service has no such parameter.
    #[error("there is no parameter {0:?}")]
    Unknown(String),
    /// A required parameter that is missing.
    #[error("the parameter {0:?} is missing")]
    Missing(&'static str),
    /// A value that cannot be parsed.
    #[error("the parameter {0:?} is malformed")]
    Malformed(String),
    /// The service takes no arguments.
    #[error("this service takes no arguments")]
    Arguments,
    /// A value that this service or its machine does not accept, in the service's own words. They
    /// escape a value by its `Debug` form.
    #[error("{0}")]
    NotAccepted(String),
}

impl From<ParamsError> for Refused {
    fn from(_: ParamsError) -> Self {
        Self::Malformed(Params::ARGS.to_owned())
    }
}
