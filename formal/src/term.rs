//! Values as terms: each is stored once, so that equal values have equal handles.

use std::collections::HashMap;

/// A handle of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term(u32);

impl Term {
    /// A number that stands for the term.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a value was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A public constant.
    Public(&'static str),
    /// A secret that an honest role draws; it depends on what the role had received when it drew
    /// it.
    Fresh(&'static str, Vec<Term>),
    /// A long-term or one-time secret of the attacker.
    Attacker(&'static str),
    /// Fields in a row.
    Tuple(Vec<Term>),
    /// The public key of a secret: of Diffie-Hellman, of a KEM, or of signatures.
    KeyOf(Term),
    /// The shared secret of two Diffie-Hellman secrets, the lesser handle first.
    Shared(Term, Term),
    /// A hash.
    Hash(Vec<Term>),
    /// A key derived from a key, or a tag under it: both need the key and cannot be inverted.
    Keyed(Term, &'static str, Vec<Term>),
    /// Authenticated encryption under a symmetric key.
    Sealed { key: Term, content: Term },
    /// HPKE in base mode to a public key; anybody can make it.
    SealedTo { key: Term, info: Term, content: Term },
    /// A signature; it shows what it signs.
    Signed { secret: Term, message: Term },
}

/// All terms.
#[derive(Default)]
pub(crate) struct Terms {
    nodes: Vec<Node>,
    handles: HashMap<Node, Term>,
}

impl Terms {
    pub(crate) fn node(&self, term: Term) -> &Node {
        &self.nodes[term.0 as usize]
    }

    fn add(&mut self, node: Node) -> Term {
        if let Some(&term) = self.handles.get(&node) {
            return term;
        }
        let term = Term(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node.clone());
        self.handles.insert(node, term);
        term
    }

    pub(crate) fn public(&mut self, name: &'static str) -> Term {
        self.add(Node::Public(name))
    }

    pub(crate) fn fresh(&mut self, name: &'static str, received: &[Term]) -> Term {
        self.add(Node::Fresh(name, received.to_vec()))
    }

    pub(crate) fn attacker(&mut self, name: &'static str) -> Term {
        self.add(Node::Attacker(name))
    }

    pub(crate) fn tuple(&mut self, fields: &[Term]) -> Term {
        self.add(Node::Tuple(fields.to_vec()))
    }

    pub(crate) fn key_of(&mut self, secret: Term) -> Term {
        self.add(Node::KeyOf(secret))
    }

    /// The shared secret of `secret` and the public key `of`; None if that is no public key.
    pub(crate) fn shared(&mut self, secret: Term, of: Term) -> Option<Term> {
        let &Node::KeyOf(other) = self.node(of) else { return None };
        Some(self.add(Node::Shared(secret.min(other), secret.max(other))))
    }

    pub(crate) fn hash(&mut self, fields: &[Term]) -> Term {
        self.add(Node::Hash(fields.to_vec()))
    }

    pub(crate) fn keyed(&mut self, key: Term, label: &'static str, fields: &[Term]) -> Term {
        self.add(Node::Keyed(key, label, fields.to_vec()))
    }

    pub(crate) fn sealed(&mut self, key: Term, content: Term) -> Term {
        self.add(Node::Sealed { key, content })
    }

    pub(crate) fn sealed_to(&mut self, key: Term, info: Term, content: Term) -> Term {
        self.add(Node::SealedTo { key, info, content })
    }

    pub(crate) fn signed(&mut self, secret: Term, message: Term) -> Term {
        self.add(Node::Signed { secret, message })
    }

    /// The fields of a tuple.
    pub(crate) fn fields(&self, term: Term) -> &[Term] {
        match self.node(term) {
            Node::Tuple(fields) => fields,
            _ => &[],
        }
    }
}
