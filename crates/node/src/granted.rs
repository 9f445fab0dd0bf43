//! What a session with middleboxes has granted.

use std::fmt;

use levada_contexts::{Kem, Path, Right};
use levada_core::Identity;

/// The path of a running session: the middleboxes in their order from the client, and what both
/// endpoints let each of them read or write.
#[derive(Clone, Debug)]
pub(crate) struct GrantedPath {
    pub(crate) kem: Kem,
    /// Whether the session has resumed keys of an earlier one.
    pub(crate) resumed: bool,
    pub(crate) middleboxes: Vec<GrantedHop>,
}

/// A middlebox of a path.
#[derive(Clone, Debug)]
pub(crate) struct GrantedHop {
    pub(crate) identity: Identity,
    /// Where the client has reached it: `host:port`.
    pub(crate) address: String,
    /// The contexts, by name, in which it has a right.
    pub(crate) rights: Vec<(String, Right)>,
}

impl GrantedPath {
    /// What `path` grants; `names` are those of its contexts, from context 1 on.
    pub(crate) fn new(path: &Path, resumed: bool, names: &[&str]) -> Self {
        let hop = |(number, hop): (u8, &levada_contexts::Hop)| GrantedHop {
            identity: hop.party.identity,
            address: hop.party.address.clone(),
            rights: rights(path, number, names),
        };
        let middleboxes = (1..).zip(&path.hops).map(hop).collect();
        Self { kem: path.kem, resumed, middleboxes }
    }

    /// The name of the key encapsulation.
    pub(crate) fn kem_name(&self) -> &'static str {
        match self.kem {
            Kem::X25519 => "X25519",
            Kem::Hybrid => "X25519MLKEM768",
        }
    }
}

fn rights(path: &Path, hop: u8, names: &[&str]) -> Vec<(String, Right)> {
    let numbers = (1..).take(path.contexts.len());
    let names = names.iter().map(Some).chain(std::iter::repeat(None));
    let named = numbers.zip(names).map(|(number, name)| {
        let name = name.map_or_else(|| format!("context-{number}"), |name| (*name).to_owned());
        (name, path.right(number, hop))
    });
    named.filter(|(_, right)| *right != Right::None).collect()
}

/// The right as in `--via`: `r` or `rw`.
pub(crate) fn right_text(right: Right) -> &'static str {
    match right {
        Right::None => "",
        Right::Read => "r",
        Right::Write => "rw",
    }
}

/// For the audit log: `through IDENTITY (CONTEXT=RIGHT,…), …`.
impl fmt::Display for GrantedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "through ";
        for GrantedHop { identity, rights, .. } in &self.middleboxes {
            let rights: Vec<String> = rights
                .iter()
                .map(|(name, right)| format!("{name}={}", right_text(*right)))
                .collect();
            let rights = if rights.is_empty() { "nothing".to_owned() } else { rights.join(",") };
            write!(f, "{separator}{identity} ({rights})")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_contexts::{Context, Hop, Party, Purpose};

    #[test]
    fn rights_are_shown_by_the_names_of_contexts_in_the_order_of_the_path() {
        let party = |byte| Party {
            identity: Identity::from_bytes([byte; 32]),
            address: format!("host{byte}.example:1"),
        };
        let context = |rights: [Right; 2]| Context {
            purpose: Purpose::Other,
            pad: 0,
            rights: rights.to_vec(),
        };
        let path = Path {
            kem: Kem::Hybrid,
            server: party(9),
            hops: [1, 2].map(|byte| Hop { party: party(byte), resume: None }).to_vec(),
            contexts: vec![
                context([Right::None, Right::None]),
                context([Right::Write, Right::None]),
                context([Right::Read, Right::None]),
            ],
        };
        let granted = GrantedPath::new(&path, true, &["head", "body"]);
        let one = path.hops[0].party.identity;
        let two = path.hops[1].party.identity;
        assert_eq!(
            granted.to_string(),
            format!("through {one} (body=rw,context-3=r), {two} (nothing)")
        );
        assert_eq!(granted.middleboxes[1].address, "host2.example:1");
        assert_eq!((granted.kem_name(), granted.resumed), ("X25519MLKEM768", true));
    }
}
