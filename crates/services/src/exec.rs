//! `exec`: runs a command that the configuration allows, and carries its standard input, output and
//! error, its terminal and its exit code. `shell`: the same for the login shell of the node's user.

mod options;
mod policy;
mod process;
pub mod program;
mod pty;
mod pump;
mod shell;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use levada_core::Params;
use levada_service::{
    Definition, DefinitionError, NoOptions, Over, Prepared, Refused, Service, ServiceError,
    ServiceType, fail,
};
use levada_session::Stream;

use options::Options;
pub use options::TERM;
pub use policy::is_term;
use policy::{PTY, Policy, Request};
use shell::Shell;

/// The type `exec`.
pub(crate) fn exec_type() -> ServiceType {
    ServiceType::new("exec", |_, _, options: Options| Ok(Arc::new(Exec::new(options))))
        .with_missing(missing)
}

/// The type `shell`.
pub(crate) fn shell_type() -> ServiceType {
    ServiceType::new("shell", |_, _, _: NoOptions| Ok(Arc::new(Shell)))
}

fn missing(definition: &Definition) -> Vec<DefinitionError> {
    match definition.read_options() {
        Ok(options) => Policy::new(options).missing(&definition.name),
        Err(error) => vec![error],
    }
}

/// The service of type `exec`.
struct Exec(Arc<Policy>);

impl Exec {
    /// Looks up the programs.
    fn new(options: Options) -> Self {
        Self(Arc::new(Policy::new(options)))
    }
}

async fn execute(
    policy: Arc<Policy>,
    request: Request,
    stream: Stream,
) -> Result<(), ServiceError> {
    match policy.plan(request) {
        Ok(plan) => pump::run(&plan, stream).await,
        Err(missing) => fail(stream, missing.into()).await,
    }
}

impl Service for Exec {
    fn category(&self) -> &'static str {
        "execution"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (Params::ARGS, "the program and its arguments"),
            (PTY, "gives the program a terminal of this size: rows, a space, columns"),
            ("env.NAME", "sets the environment variable NAME"),
        ]
    }

    fn named_values(&self) -> Vec<String> {
        self.0.programs().into_iter().map(str::to_owned).collect()
    }

    fn check(&self, params: &Params) -> Result<(), Refused> {
        self.0.check(params)
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let policy = self.0.clone();
        let request = self.0.request(params)?;
        Ok(Prepared::stream(move |_, stream| execute(policy, request, stream)))
    }

    fn summary(&self, params: &Params) -> Option<String> {
        self.0.summary(params)
    }
}
