//! Classes of contexts, and the keys that a middlebox gets for them.

use levada_core::Digest;

use super::context::ContextKeys;
use super::secret::Secret;
use crate::path::{Path, Right};

/// The classes of a path's contexts: contexts with the same row of rights share keys.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(super) rows: Vec<Vec<Right>>,
    of: Vec<Option<u8>>,
}

impl Classes {
    /// Classes are numbered from 0 by first appearance; a row without any right forms none.
    pub(crate) fn new(path: &Path) -> Self {
        let mut classes = Self { rows: Vec::new(), of: Vec::new() };
        for context in &path.contexts {
            if context.rights.iter().all(|right| *right == Right::None) {
                classes.of.push(None);
                continue;
            }
            let known = classes.rows.iter().position(|row| *row == context.rights);
            let class = known.unwrap_or_else(|| {
                classes.rows.push(context.rights.clone());
                classes.rows.len() - 1
            });
            classes.of.push(u8::try_from(class).ok());
        }
        classes
    }

    /// The class of a context; None for context 0 and private ones.
    pub(crate) fn of_context(&self, context: u8) -> Option<u8> {
        let at = usize::from(context).checked_sub(1)?;
        self.of.get(at).copied().flatten()
    }

    /// The classes in which a hop has rights, ascending.
    pub(crate) fn of_hop(&self, hop: u8) -> impl Iterator<Item = (u8, Right)> {
        let at = usize::from(hop).wrapping_sub(1);
        let rights = self.rows.iter().map(move |row| row.get(at).copied().unwrap_or_default());
        (0u8..).zip(rights).filter(|(_, right)| *right > Right::None)
    }

    /// The keys of a hop's contexts from the halves it got; None for those where it has no rights,
    /// and if the halves are of another number.
    pub(crate) fn keys_of_hop(
        &self,
        hop: u8,
        client: &[u8],
        server: &[u8],
        th2: &Digest,
    ) -> Option<Vec<Option<ContextKeys>>> {
        let (client, c_rest) = client.as_chunks::<32>();
        let (server, s_rest) = server.as_chunks::<32>();
        let given: Vec<_> = self.of_hop(hop).collect();
        let complete = c_rest.is_empty() && s_rest.is_empty();
        if !complete || client.len() != given.len() || server.len() != given.len() {
            return None;
        }
        let mut by_class = vec![None; self.rows.len()];
        for ((class, right), (client, server)) in given.into_iter().zip(client.iter().zip(server)) {
            let client = Secret::new(*client);
            let server = Secret::new(*server);
            let keys = match right {
                Right::Write => ContextKeys::from_halves(&client, &server, th2),
                _ => ContextKeys::from_read_halves(&client, &server, th2),
            };
            by_class[usize::from(class)] = Some(keys);
        }
        let of_class = |class: &Option<u8>| by_class[usize::from((*class)?)].clone();
        Some(self.of.iter().map(of_class).collect())
    }
}

#[cfg(test)]
mod tests {
    use levada_core::{Identity, label::derive};

    use super::*;
    use crate::path::tests::path;
    use crate::schedule::EndpointSecret;

    #[test]
    fn a_hop_derives_the_keys_of_the_endpoints_where_it_has_rights() {
        let key = |byte| Identity::from_bytes([byte; 32]);
        let rows: [&[Right]; 4] = [
            &[Right::Read, Right::None],
            &[Right::None, Right::None],
            &[Right::Write, Right::Read],
            &[Right::Read, Right::None],
        ];
        let classes = Classes::new(&path(key(9), &[key(2), key(3)], &rows));
        assert_eq!(classes.of, [Some(0), None, Some(1), Some(0)]);
        let secret = EndpointSecret(Secret::new([1; 32]));
        let th2 = [2; 32];
        for hop in [1, 2] {
            let client = secret.halves(&classes, hop, derive::CLIENT_HALF);
            let server = secret.halves(&classes, hop, derive::SERVER_HALF);
            let keys = classes.keys_of_hop(hop, &client, &server, &th2).unwrap();
            for context in 1..=4 {
                let own = secret.context(&classes, context, &th2);
                let right = rows[usize::from(context) - 1][usize::from(hop) - 1];
                let got = keys[usize::from(context) - 1].as_ref();
                assert_eq!(right > Right::None, got.is_some());
                let Some(got) = got else { continue };
                assert_eq!(got.read.bytes(), own.read.bytes());
                assert_eq!(got.write.is_some(), right == Right::Write);
                if let (Some(got), Some(own)) = (&got.write, &own.write) {
                    assert_eq!(got.bytes(), own.bytes());
                }
            }
            assert!(classes.keys_of_hop(hop, &client[32..], &server, &th2).is_none());
        }
        assert_eq!(classes.of_hop(2).collect::<Vec<_>>(), [(1, Right::Read)]);
    }
}
