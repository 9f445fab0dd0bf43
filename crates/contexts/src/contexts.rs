//! The contexts of one direction, as a party counts their records.

use std::ops::{Index, IndexMut};

use super::path::Path;
use super::record::{Head, Layout};

/// The contexts of one direction, by number, from 0. `K` is what a party has of their keys.
pub(crate) struct Contexts<K> {
    all: Vec<Context<K>>,
    /// Records with a slot, in all contexts.
    pub(crate) slots: u64,
}

/// A context, and the state of its message in the current exchange.
pub(crate) struct Context<K> {
    pub(crate) layout: Layout,
    pub(crate) keys: K,
    /// Records with a slot.
    pub(crate) slots: u64,
    /// The current exchange has records here…
    pub(crate) begun: bool,
    /// …and the last one.
    pub(crate) ended: bool,
}

impl<K> Contexts<K> {
    /// The contexts of a path, with the keys of each.
    pub(crate) fn new(path: &Path, keys: impl Fn(u8) -> K) -> Self {
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let context = |number| Context {
            layout: Layout::new(path, number),
            keys: keys(number),
            slots: 0,
            begun: false,
            ended: false,
        };
        Self { all: (0..=count).map(context).collect(), slots: 0 }
    }

    /// The context of a number, if the path has it.
    pub(crate) fn get(&self, number: u8) -> Option<&Context<K>> {
        self.all.get(usize::from(number))
    }

    /// See [`Self::get`].
    pub(crate) fn get_mut(&mut self, number: u8) -> Option<&mut Context<K>> {
        self.all.get_mut(usize::from(number))
    }

    /// All contexts, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Context<K>> {
        self.all.iter()
    }

    /// All contexts but 0: their messages make up an exchange.
    pub(crate) fn of_messages(&self) -> &[Context<K>] {
        &self.all[1..]
    }

    /// Counts a record that consumes a slot.
    pub(crate) fn count_slot(&mut self, number: u8) {
        self[number].slots += 1;
        self.slots += 1;
    }

    /// Counts a record that has arrived.
    pub(crate) fn add(&mut self, head: Head) {
        if head.slot {
            self.count_slot(head.context);
        }
        let context = &mut self[head.context];
        context.begun = true;
        context.ended |= head.end;
    }

    /// Tells whether the current exchange has a record.
    pub(crate) fn is_begun(&self) -> bool {
        self.of_messages().iter().any(|context| context.begun)
    }

    /// The current exchange has ended.
    pub(crate) fn end_messages(&mut self) {
        for context in &mut self.all {
            context.begun = false;
            context.ended = false;
        }
    }

    /// The number of slots of each context from 1, as the end of a direction carries them.
    pub(crate) fn slot_counts(&self) -> impl Iterator<Item = u8> {
        self.of_messages().iter().flat_map(|context| context.slots.to_be_bytes())
    }
}

impl<K> Index<u8> for Contexts<K> {
    type Output = Context<K>;

    fn index(&self, number: u8) -> &Context<K> {
        &self.all[usize::from(number)]
    }
}

impl<K> IndexMut<u8> for Contexts<K> {
    fn index_mut(&mut self, number: u8) -> &mut Context<K> {
        &mut self.all[usize::from(number)]
    }
}
