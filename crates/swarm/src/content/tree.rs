//! The hash tree of BLAKE3 over the chunks of a content.
//!
//! A chunk is a complete subtree of BLAKE3's tree ("BLAKE3: one function, fast everywhere", section
//! 2.1), so the tree above the chunks gives the same root as hashing the whole. Level 0 has one
//! node for each chunk; a level above has half as many, and the last node of an odd level has the
//! same value in the level above.

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use thiserror::Error;

use crate::{ContentId, Geometry};

/// The value of one node: the chaining value of a subtree, 32 bytes.
pub type ChunkHash = [u8; 32];

/// Stands for a node that is not known. No subtree has this value but with a probability of 2^-256.
const UNKNOWN: ChunkHash = [0; 32];

/// A chunk that does not belong to the content, or a wrong number of siblings.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the chunk does not match the root of the content")]
pub struct BadChunk;

/// The nodes that are known. The root is always known.
#[derive(Clone)]
pub struct Tree {
    id: ContentId,
    nodes: Vec<ChunkHash>,
    /// The first node of each level, and the end of the last.
    levels: Vec<usize>,
}

/// The value of chunk `index` with these bytes; None if the content has no such chunk, or its
/// length is another.
pub fn chunk_hash(geometry: Geometry, index: u32, bytes: &[u8]) -> Option<ChunkHash> {
    let range = geometry.range(index);
    // `blake3` panics at other offsets and lengths.
    if index >= geometry.chunks() || range.end - range.start != bytes.len() as u64 {
        return None;
    }
    if geometry.chunks() == 1 {
        return Some(*blake3::hash(bytes).as_bytes());
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(range.start);
    hasher.update(bytes);
    Some(hasher.finalize_non_root())
}

impl Tree {
    /// A tree of which only the root is known.
    pub fn new(id: ContentId) -> Self {
        let levels = level_starts(id.geometry);
        let nodes = vec![UNKNOWN; levels.last().copied().unwrap_or_default()];
        Self { id, nodes, levels }
    }

    /// The whole tree over the values of all chunks, in order; missing values are an error of the
    /// caller, and give a tree of another content.
    pub fn build(geometry: Geometry, chunks: impl IntoIterator<Item = ChunkHash>) -> Self {
        let root = *blake3::hash(&[]).as_bytes();
        let mut tree = Self::new(ContentId { root, geometry });
        for (node, value) in
            tree.nodes.iter_mut().zip(chunks.into_iter().take(geometry.chunks() as usize))
        {
            *node = value;
        }
        for level in 1..tree.levels.len().saturating_sub(1) {
            for index in 0..tree.width(level) {
                let value = tree.parent_of(level - 1, index * 2);
                let at = tree.levels[level] + index;
                tree.nodes[at] = value;
            }
        }
        if let Some(root) = tree.root_of_children() {
            tree.id.root = root;
        }
        tree
    }

    /// The content.
    pub fn id(&self) -> ContentId {
        self.id
    }

    /// Whether chunk `index` is known, and has the value `chunk`.
    pub fn has(&self, index: u32, chunk: ChunkHash) -> bool {
        let single = self.id.geometry.chunks() == 1 && chunk == self.id.root;
        index < self.id.geometry.chunks() && (single || self.node(0, index) == Some(&chunk))
    }

    /// How many levels are between chunk `index` and its lowest known ancestor: 0 if its own value
    /// is known.
    pub fn missing_levels(&self, index: u32) -> u8 {
        let top = self.id.geometry.levels();
        let known = (0..top).find(|level| self.node(*level, index >> level).is_some());
        known.unwrap_or(top)
    }

    /// The values of the siblings of chunk `index` and of its ancestors, from below, as far as
    /// `levels`. None if one of them is not known, or if the content has no such chunk or level.
    pub fn siblings(&self, index: u32, levels: u8) -> Option<Vec<ChunkHash>> {
        if index >= self.id.geometry.chunks() || levels > self.id.geometry.levels() {
            return None;
        }
        let places = (0..levels).map(|level| (level, (index >> level) ^ 1));
        let present = places.filter(|(level, sibling)| self.exists(*level, *sibling));
        present.map(|(level, sibling)| self.node(level, sibling).copied()).collect()
    }

    /// Checks that chunk `index` has the value `chunk`, which is computed by [`chunk_hash`], and
    /// remembers all values on the way. Returns the positions of the nodes that were not known
    /// before.
    ///
    /// # Errors
    /// [`BadChunk`]; nothing was remembered then.
    pub fn insert(
        &mut self,
        index: u32,
        chunk: ChunkHash,
        siblings: &[ChunkHash],
    ) -> Result<Vec<usize>, BadChunk> {
        if index >= self.id.geometry.chunks() {
            return Err(BadChunk);
        }
        let top = self.id.geometry.levels();
        if top == 0 {
            return if chunk == self.id.root { Ok(Vec::new()) } else { Err(BadChunk) };
        }
        let mut found = Vec::new();
        let mut siblings = siblings.iter();
        let mut value = chunk;
        let mut level = 0;
        // More siblings than needed are no error: the nodes may have become known after they were
        // asked for.
        while level < top && (siblings.len() > 0 || self.node(level, index >> level).is_none()) {
            let at = index >> level;
            found.push((level, at, value));
            if self.exists(level, at ^ 1) {
                let sibling = *siblings.next().ok_or(BadChunk)?;
                found.push((level, at ^ 1, sibling));
                let (left, right) = if at & 1 == 0 { (value, sibling) } else { (sibling, value) };
                value = if level + 1 == top {
                    *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
                } else {
                    merge_subtrees_non_root(&left, &right, Mode::Hash)
                };
            }
            level += 1;
        }
        let expected =
            if level == top { Some(&self.id.root) } else { self.node(level, index >> level) };
        if expected != Some(&value) || siblings.next().is_some() {
            return Err(BadChunk);
        }
        Ok(found
            .into_iter()
            .filter_map(|(level, at, value)| self.remember(level, at, value))
            .collect())
    }

    /// All nodes, unknown ones as zeros: what [`Tree::restore`] takes.
    pub fn nodes(&self) -> &[ChunkHash] {
        &self.nodes
    }

    /// A tree of stored nodes. Those that do not lead to the root of `id` become unknown.
    pub fn restore(id: ContentId, nodes: Vec<ChunkHash>) -> Self {
        let mut tree = Self::new(id);
        if nodes.len() != tree.nodes.len() {
            return tree;
        }
        tree.nodes = nodes;
        let top = usize::from(id.geometry.levels());
        if top == 0 {
            return Self::new(id);
        }
        if tree.root_of_children() != Some(id.root) {
            tree.forget(top - 1, 0);
            tree.forget(top - 1, 1);
        }
        for level in (1..top).rev() {
            for index in 0..tree.width(level) {
                let node = tree.nodes[tree.levels[level] + index];
                if node == UNKNOWN || tree.parent_of(level - 1, index * 2) != node {
                    tree.forget(level - 1, index * 2);
                    tree.forget(level - 1, index * 2 + 1);
                }
            }
        }
        tree
    }

    fn remember(&mut self, level: u8, index: u32, value: ChunkHash) -> Option<usize> {
        let at = self.levels[usize::from(level)] + index as usize;
        let changed = self.nodes[at] == UNKNOWN;
        self.nodes[at] = value;
        changed.then_some(at)
    }

    fn forget(&mut self, level: usize, index: usize) {
        if index < self.width(level) {
            let at = self.levels[level] + index;
            self.nodes[at] = UNKNOWN;
        }
    }

    /// The value above the node `left` of `level` and its right sibling, if it has one.
    fn parent_of(&self, level: usize, left: usize) -> ChunkHash {
        let at = self.levels[level] + left;
        if left + 1 < self.width(level) {
            merge_subtrees_non_root(&self.nodes[at], &self.nodes[at + 1], Mode::Hash)
        } else {
            self.nodes[at]
        }
    }

    fn root_of_children(&self) -> Option<ChunkHash> {
        match self.id.geometry.levels() {
            0 => self.nodes.first().copied(),
            top => {
                let at = self.levels[usize::from(top) - 1];
                let root = merge_subtrees_root(&self.nodes[at], &self.nodes[at + 1], Mode::Hash);
                Some(*root.as_bytes())
            }
        }
    }

    fn node(&self, level: u8, index: u32) -> Option<&ChunkHash> {
        let at =
            self.exists(level, index).then(|| self.levels[usize::from(level)] + index as usize)?;
        self.nodes.get(at).filter(|value| **value != UNKNOWN)
    }

    fn exists(&self, level: u8, index: u32) -> bool {
        (index as usize) < self.width(usize::from(level))
    }

    fn width(&self, level: usize) -> usize {
        match (self.levels.get(level), self.levels.get(level + 1)) {
            (Some(start), Some(end)) => end - start,
            _ => 0,
        }
    }
}

/// Where each level below the root starts, and the end of the last; only the chunk's own level if
/// there is one chunk.
fn level_starts(geometry: Geometry) -> Vec<usize> {
    let mut starts = vec![0];
    let mut width = geometry.chunks() as usize;
    let mut end = 0;
    for _ in 0..geometry.levels().max(u8::from(width > 0)) {
        end += width;
        starts.push(end);
        width = width.div_ceil(2);
    }
    starts
}

#[cfg(test)]
mod tests;
