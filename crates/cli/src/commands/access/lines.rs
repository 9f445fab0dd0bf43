//! The lines of `access test`, and the rights of a configuration.

use std::path::Path;

use levada_config::Config;
use levada_core::{Identity, Params, encode_list};
use levada_home::Home;
use levada_node::check::Names;
use levada_node::explain::{Answer, Configured};

use crate::failure::{Failure, USAGE};
use crate::output;

/// The node's identity of a home that has none yet.
const UNKNOWN_NODE: Identity = Identity::from_bytes([0; 32]);

/// The rights of a configuration, and the names of the home.
pub struct Rights {
    pub configured: Configured,
    names: Names,
}

/// A line of a file.
#[derive(Debug, PartialEq)]
pub struct Line {
    pub expected: Answer,
    pub identity: String,
    pub service: String,
    pub params: Params,
}

/// Reads the rights in the configuration `file`.
///
/// # Errors
/// [`Failure`] 120 with the file and the line.
pub fn configured(home: &Home, file: &Path) -> Result<Rights, Failure> {
    let config = Config::load(file)?;
    let names = Names::open(home).map_err(Failure::local)?;
    let node = home.existing_key()?.map_or(UNKNOWN_NODE, |key| key.identity());
    let configured = Configured::new(home, &config, &names.known, node).map_err(Failure::local)?;
    for group in configured.unknown_groups() {
        output::note(format_args!(
            "group:{group} has no members here: only the running node knows it"
        ));
    }
    Ok(Rights { configured, names })
}

impl Rights {
    /// The identity that `text` names.
    ///
    /// # Errors
    /// [`Failure`] 2 if it is no identity, and no name that is pinned here.
    pub fn identity(&self, text: &str) -> Result<Identity, Failure> {
        self.names.known.identity_of(text).map_err(|error| Failure::new(USAGE, error))
    }
}

/// Reads a line; `None` for an empty one.
///
/// # Errors
/// The text of the problem.
pub fn parse(text: &str) -> Result<Option<Line>, String> {
    const FORM: &str = "expected `may`, `may not` or `asks`, then IDENTITY SERVICE";
    let words = words(text)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (expected, rest) = match words.as_slice() {
        [] => return Ok(None),
        ["may", "not", rest @ ..] => (Answer::No, rest),
        ["may", rest @ ..] => (Answer::Yes, rest),
        ["asks", rest @ ..] => (Answer::Ask, rest),
        _ => return Err(FORM.to_owned()),
    };
    let [identity, service, rest @ ..] = rest else { return Err(FORM.to_owned()) };
    let mut params = Params::new();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        if *word == "--" {
            let args: Vec<&str> = rest.by_ref().copied().collect();
            params.add(Params::ARGS, encode_list(&args)).map_err(|error| error.to_string())?;
            break;
        }
        match word.split_once('=') {
            Some((Params::ARGS, _)) => return Err("write arguments after `--`".to_owned()),
            Some((key, value)) if !key.is_empty() => {
                let added = params.add(key, value.as_bytes().to_vec());
                added.map_err(|error| error.to_string())?;
            }
            _ => return Err(format!("`{word}` is not NAME=VALUE; arguments follow `--`")),
        }
    }
    let identity = (*identity).to_owned();
    let service = (*service).to_owned();
    Ok(Some(Line { expected, identity, service, params }))
}

/// The words of a line: blanks separate them, except in single or double quotes; `#` at the
/// beginning of a word begins a comment.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote has no end".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        parse(text).unwrap().unwrap()
    }

    #[test]
    fn lines_name_identity_service_and_parameters() {
        let exec = line("may alice exec pty='24 80' -- uname \"-a b\" '' # a comment");
        assert_eq!(
            (exec.expected, &*exec.identity, &*exec.service),
            (Answer::Yes, "alice", "exec")
        );
        assert_eq!(exec.params.args().unwrap().unwrap(), ["uname", "-a b", ""]);
        assert_eq!(exec.params.value("pty"), Some(b"24 80".as_slice()));
        assert_eq!(line("  may not bob clock").expected, Answer::No);
        assert_eq!(line("asks bob clock#1").service, "clock#1");
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("  # may alice exec").unwrap(), None);
    }

    #[test]
    fn other_lines_are_refused() {
        for text in [
            "alice exec",
            "may alice",
            "may not alice",
            "may alice exec uname",
            "may alice exec =a",
            "may alice exec args=a",
            "may alice exec a=1 a=2",
            "may alice 'exec",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| drop(parse(text)));
    }
}
