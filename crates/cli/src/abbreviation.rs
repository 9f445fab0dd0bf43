//! Abbreviated identities in arguments: every verb replaces them here, before it uses them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use levada_client::ClientError;
use levada_client::control::{self, Request};
use levada_core::{Identity, is_abbreviation};
use levada_home::Home;
use levada_home::known::{Known, NameError};
use serde_json::Value;

use crate::directory;
use crate::failure::Failure;
use crate::output;

/// Replaces an abbreviated identity by the whole one, if this home knows it: from a pin, from a
/// capability, or from the sessions and the log of its node. Any other text is unchanged. An
/// address after `@` is kept.
///
/// The identity is printed: 40 bits of a key can be forged, so that the user should see which key
/// is meant.
///
/// # Errors
/// [`Failure`] 2 if several identities begin with `text`; it lists them.
pub async fn expand(text: &str) -> Result<String, Failure> {
    let (short, address) = text.split_once('@').map_or((text, None), |(a, b)| (a, Some(b)));
    if !is_abbreviation(short) {
        return Ok(text.to_owned());
    }
    let home = Home::find()?;
    let pinned = pinned_as(&home, short);
    let found = candidates(&home, short).await;
    match (pinned, found.iter().next()) {
        (Some(pinned), _) if found.iter().all(|one| *one == pinned) => Ok(text.to_owned()),
        (Some(pinned), _) => Err(ambiguous(short, found.into_iter().chain([pinned]))),
        (None, Some(only)) if found.len() == 1 => {
            note_once(short, only);
            Ok(address.map_or_else(|| only.to_string(), |address| format!("{only}@{address}")))
        }
        (None, Some(_)) => Err(ambiguous(short, found)),
        (None, None) => Ok(text.to_owned()),
    }
}

/// Prints which identity an abbreviation stands for. A verb may look its argument up again.
fn note_once(short: &str, identity: &Identity) {
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.insert(short.to_owned()) {
        let shown = directory::labelled(identity);
        output::note(format_args!("note: {short} is {shown}"));
    }
}

/// The key that is pinned under `name`, which may look like an abbreviation.
fn pinned_as(home: &Home, name: &str) -> Option<Identity> {
    let (known, _) = Known::examine(&home.known_db()).ok()?;
    known.by_name(name).ok().flatten().map(|pin| pin.identity)
}

/// The identities of this home that begin with `beginning`. What cannot be read has none: the verb
/// that uses the argument reports that.
async fn candidates(home: &Home, beginning: &str) -> BTreeSet<Identity> {
    let known = Known::examine(&home.known_db());
    let known = known.ok().and_then(|(known, _)| known.identities_with_beginning(beginning).ok());
    let mut found = known.unwrap_or_default();
    let request = Request::Identities { beginning: beginning.to_owned() };
    // A node that does not run has no sessions to act on.
    let answer = control::call(home, &request).await.unwrap_or_default();
    let answered = answer["identities"].as_array().into_iter().flatten();
    let answered = answered.filter_map(Value::as_str);
    found.extend(answered.filter_map(|text| text.parse::<Identity>().ok()));
    found
}

fn ambiguous(text: &str, found: impl IntoIterator<Item = Identity>) -> Failure {
    let named = |one: Identity| (one, directory::name_of(&one).map(str::to_owned));
    let candidates: Vec<_> = found.into_iter().map(named).collect();
    ClientError::from(NameError::ambiguous(text, &candidates)).into()
}
