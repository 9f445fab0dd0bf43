//! The key schedule: `docs/protocol.md`, "Keys of contexts".

use crate::setting::{CONTEXTS, Protection, Right, Setting};
use crate::term::{Term, Terms};
use crate::world::Path;

/// The keys that follow from a TLS session with its transcript TH1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionKeys {
    /// E: both endpoints have it.
    pub(crate) exported: Term,
}

/// Which of the two endpoints a half comes from.
pub(crate) const HALVES: [&str; 2] = ["client half", "server half"];

impl SessionKeys {
    /// a_i: the endpoints and middlebox i.
    pub(crate) fn a(self, terms: &mut Terms, hop: usize) -> Term {
        let number = number(terms, hop);
        terms.keyed(self.exported, "box", &[number])
    }

    /// One endpoint's half of the write key of a class.
    pub(crate) fn half(self, terms: &mut Terms, side: &'static str, class: usize) -> Term {
        let number = number(terms, class);
        terms.keyed(self.exported, side, &[number])
    }

    /// The halves of one endpoint that a hop gets: those it may write, and of those it may only
    /// read the derived value.
    pub(crate) fn halves(
        self,
        terms: &mut Terms,
        path: &Path,
        hop: usize,
        side: &'static str,
    ) -> Term {
        let classes = path.classes();
        let mut fields = Vec::new();
        for (class, row) in classes.rows.iter().enumerate() {
            match row[hop] {
                Right::Nothing => {}
                Right::Write => fields.push(self.half(terms, side, class)),
                Right::Read => {
                    let half = self.half(terms, side, class);
                    fields.push(terms.keyed(half, "read", &[]));
                }
            }
        }
        terms.tuple(&fields)
    }
}

/// The classes of a path's contexts.
pub(crate) struct Classes {
    /// The rights of each class, by hop.
    pub(crate) rows: Vec<Vec<Right>>,
    /// The class of each context; None if no middlebox has rights there.
    pub(crate) of: [Option<usize>; CONTEXTS],
}

impl Path {
    /// Contexts with the same rights form a class, numbered by first appearance.
    pub(crate) fn classes(&self) -> Classes {
        let mut rows = Vec::<Vec<Right>>::new();
        let mut of = [None; CONTEXTS];
        for (context, class) in of.iter_mut().enumerate() {
            let row: Vec<Right> = self.rights.iter().map(|rights| rights[context]).collect();
            if row.iter().all(|right| *right == Right::Nothing) {
                continue;
            }
            let at = rows.iter().position(|known| *known == row).unwrap_or_else(|| {
                rows.push(row);
                rows.len() - 1
            });
            *class = Some(at);
        }
        Classes { rows, of }
    }
}

/// The read key and the write key of a class, from the halves of both endpoints.
pub(crate) fn class_keys(terms: &mut Terms, th2: Term, client: Term, server: Term) -> (Term, Term) {
    let (reads, halves) = {
        let read = [client, server].map(|half| terms.keyed(half, "read", &[]));
        (terms.tuple(&read), terms.tuple(&[client, server]))
    };
    (terms.keyed(reads, "read key", &[th2]), terms.keyed(halves, "write key", &[th2]))
}

/// b_i: what a middlebox proves itself with to the server (direction 0) or the client (direction
/// 1).
pub(crate) fn b(
    terms: &mut Terms,
    setting: &Setting,
    to_server: bool,
    (a, z): (Term, Term),
    th2: Term,
) -> Term {
    if to_server && setting.has(Protection::ReadyUnderZ) {
        terms.keyed(z, "to server", &[th2])
    } else {
        a
    }
}

/// READY of a middlebox or an endpoint, under its key, in a direction.
pub(crate) fn ready(terms: &mut Terms, key: Term, to_server: bool, th2: Term) -> Term {
    let direction = direction(terms, to_server);
    terms.keyed(key, "ready", &[direction, th2])
}

/// The two directions as constants.
pub(crate) fn direction(terms: &mut Terms, to_server: bool) -> Term {
    terms.public(if to_server { "0" } else { "1" })
}

/// A small number as a constant.
pub(crate) fn number(terms: &mut Terms, number: usize) -> Term {
    terms.public(["0", "1", "2", "3", "4", "5", "6", "7"][number])
}
