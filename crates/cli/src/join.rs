//! `levada join`: become known to a node, and pin it.

use crate::failure::{Failure, Outcome, USAGE};
use crate::output::{self, plain};
use crate::who::nickname;
use clap::Args;
use levada_capability::Invitation;
use levada_node::client::Client;
use levada_node::home::Home;

const PREFIX: &str = "lvinv1";

/// Become known to the node that made an invitation, and know it by a nickname
///
/// Prints the nickname.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada join lvinv1… --as alpha")]
pub struct Arguments {
    /// The invitation; the whole pasted line will do
    #[arg(value_name = "CODE", required = true)]
    code: Vec<String>,

    /// The nickname; what the node calls itself if not given
    #[arg(long = "as", value_name = "NAME", value_parser = nickname)]
    name: Option<String>,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let code = find(&arguments.code).ok_or_else(|| {
        Failure::new(USAGE, format!("not an invitation: nothing here begins with `{PREFIX}`"))
    })?;
    let invitation = Invitation::from_text(code)?;
    let client = Client::new(&Home::open()?)?;
    let joined = client.join(&invitation, arguments.name.as_deref()).await?;
    client.close();
    let name = plain(&joined.name);
    let services: Vec<String> = joined.services.iter().map(|service| plain(service)).collect();
    output::note(format_args!("{} is known here as {name}.", joined.identity));
    if let Some(first) = services.first() {
        let list = services.join(", ");
        output::note(format_args!("Open to you: {list}. Try it:  levada run {name}/{first}"));
    }
    output::data(name)?;
    Ok(0)
}

/// The code in what was typed, be it the whole `levada join …` line, quoted or not.
fn find(typed: &[String]) -> Option<&str> {
    typed.iter().flat_map(|text| text.split_whitespace()).find(|word| word.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_found_in_the_pasted_line() {
        let typed = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(find(&typed(&["lvinv1abc"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&["levada", "join", "lvinv1abc"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&[" levada join lvinv1abc\n"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&["lvcap1abc"])), None);
    }
}
