//! The parameters of a session on the command line: PARAMS, `--pty`, `--env`.

use crate::attach::window;
use clap::Args;
use levada_core::{Params, ParamsError, encode_list};
use levada_service::stdio::Window;
use levada_services::exec::{TERM, is_term};

/// The window size of a `--pty` session when the client has no terminal.
const DEFAULT_WINDOW: Window = Window { rows: 24, columns: 80 };

/// Parameters for the service.
#[derive(Debug, Args)]
pub struct Parameters {
    /// Run the program in a terminal
    #[arg(long)]
    pty: bool,

    /// Set an environment variable of the program, where the service allows it
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Arguments for the service, in order; everything after the first one, or after --, is passed
    /// unchanged
    #[arg(trailing_var_arg = true, value_name = "PARAMS")]
    params: Vec<String>,
}

impl Parameters {
    /// The pairs: `args`, `pty` with the size of this terminal and its TERM, and one `env.NAME` per
    /// variable.
    ///
    /// # Errors
    /// [`ParamsError`] if a variable is set twice.
    pub fn pairs(&self) -> Result<Params, ParamsError> {
        let mut pairs = Params::new();
        if !self.params.is_empty() {
            pairs.add(Params::ARGS, encode_list(&self.params))?;
        }
        if self.pty {
            self.add_terminal(&mut pairs)?;
        }
        for (name, value) in &self.env {
            pairs.add(&format!("env.{name}"), value.clone().into_bytes())?;
        }
        Ok(pairs)
    }

    /// Returns true if `--pty` may be implied: it was not given, and there are no arguments, which
    /// a shell does not take.
    pub fn may_imply_terminal(&self) -> bool {
        !self.pty && self.params.is_empty()
    }

    /// Adds the pairs of `--pty`: the size of this terminal, and its TERM unless `--env` has one.
    ///
    /// # Errors
    /// [`ParamsError`] if they are there already.
    pub fn add_terminal(&self, pairs: &mut Params) -> Result<(), ParamsError> {
        let size = window().unwrap_or(DEFAULT_WINDOW);
        pairs.add("pty", size.to_string().into_bytes())?;
        if self.env.iter().any(|(name, _)| name == TERM) {
            return Ok(());
        }
        match std::env::var(TERM).ok().filter(|term| is_term(term)) {
            Some(term) => pairs.add(&format!("env.{TERM}"), term.into_bytes()),
            None => Ok(()),
        }
    }
}

fn variable(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_arguments_become_pairs() {
        let parameters = Parameters {
            pty: true,
            env: vec![("A".into(), "x=y".into())],
            params: vec!["uname".into(), "-a".into()],
        };
        let pairs = parameters.pairs().unwrap();
        assert_eq!(pairs.args().unwrap().unwrap(), ["uname", "-a"]);
        assert_eq!(pairs.value("env.A"), Some(b"x=y".as_slice()));
        assert!(pairs.value("pty").is_some());
        let twice =
            Parameters { pty: false, env: vec![("A".into(), "".into()); 2], params: vec![] };
        assert_eq!(twice.pairs(), Err(ParamsError::AlreadySet("env.A".into())));
    }

    #[test]
    fn rejects_a_variable_without_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
