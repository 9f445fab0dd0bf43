//! What the attacker knows, and can compute from it.

use std::collections::{HashMap, HashSet};

use crate::term::{Node, Term, Terms};

/// The attacker's knowledge. It only grows.
#[derive(Default)]
pub(crate) struct Knowledge {
    known: HashSet<Term>,
    /// Encrypted terms that could not be opened so far.
    closed: Vec<Term>,
    /// What was computed for the current knowledge.
    answers: HashMap<Term, bool>,
}

impl Knowledge {
    /// Adds a term and what it shows: the fields of a tuple, the message of a signature.
    pub(crate) fn learn(&mut self, terms: &Terms, term: Term) {
        let mut open = vec![term];
        while let Some(term) = open.pop() {
            if !self.known.insert(term) {
                continue;
            }
            self.answers.clear();
            match terms.node(term) {
                Node::Tuple(fields) => open.extend(fields),
                Node::Signed { message, .. } => open.push(*message),
                Node::Sealed { .. } | Node::SealedTo { .. } => self.closed.push(term),
                _ => {}
            }
        }
    }

    /// Opens every encrypted term whose key can be computed; true if one was opened.
    pub(crate) fn open_all(&mut self, terms: &Terms) -> bool {
        let mut opened = false;
        for term in std::mem::take(&mut self.closed) {
            let (key, content) = match terms.node(term) {
                Node::Sealed { key, content } => (*key, *content),
                Node::SealedTo { key, content, .. } => match terms.node(*key) {
                    Node::KeyOf(secret) => (*secret, *content),
                    _ => continue,
                },
                _ => continue,
            };
            if self.can_make(terms, key) {
                self.learn(terms, content);
                opened = true;
            } else {
                self.closed.push(term);
            }
        }
        opened
    }

    /// How many terms are known; for noticing growth.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the attacker can compute the term.
    pub(crate) fn can_make(&mut self, terms: &Terms, term: Term) -> bool {
        if self.known.contains(&term) {
            return true;
        }
        if let Some(&answer) = self.answers.get(&term) {
            return answer;
        }
        let answer = match terms.node(term) {
            Node::Public(_) | Node::Attacker(_) => true,
            Node::Fresh(..) => false,
            Node::Tuple(fields) | Node::Hash(fields) => self.can_make_all(terms, fields),
            Node::KeyOf(secret) => self.can_make(terms, *secret),
            // Either secret and the other one's public key; which is sent in the clear whenever it
            // is used.
            Node::Shared(one, other) => self.can_make(terms, *one) || self.can_make(terms, *other),
            Node::Keyed(key, _, fields) => {
                self.can_make(terms, *key) && self.can_make_all(terms, fields)
            }
            Node::Sealed { key, content } => {
                self.can_make(terms, *key) && self.can_make(terms, *content)
            }
            Node::SealedTo { key, info, content } => {
                self.can_make_all(terms, &[*key, *info, *content])
            }
            Node::Signed { secret, message } => {
                self.can_make(terms, *secret) && self.can_make(terms, *message)
            }
        };
        self.answers.insert(term, answer);
        answer
    }

    fn can_make_all(&mut self, terms: &Terms, fields: &[Term]) -> bool {
        fields.iter().all(|field| self.can_make(terms, *field))
    }
}
