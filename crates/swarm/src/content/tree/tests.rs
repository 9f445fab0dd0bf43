use super::*;
use crate::ChunkSize;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn geometry(length: usize) -> Geometry {
    Geometry::new(length as u64, ChunkSize::new(1024).unwrap()).unwrap()
}

fn part(content: &[u8], geometry: Geometry, index: u32) -> &[u8] {
    let range = geometry.range(index);
    &content[range.start as usize..range.end as usize]
}

fn whole(content: &[u8]) -> Tree {
    let geometry = geometry(content.len());
    let hash = |index| chunk_hash(geometry, index, part(content, geometry, index)).unwrap();
    Tree::build(geometry, (0..geometry.chunks()).map(hash))
}

const LENGTHS: [usize; 12] =
    [0, 1, 1023, 1024, 1025, 2048, 2049, 3000, 5 * 1024, 8 * 1024, 9 * 1024 + 1, 100_000];

#[test]
fn the_root_is_that_of_the_whole() {
    for length in LENGTHS {
        let content = bytes(length);
        assert_eq!(whole(&content).id().root, *blake3::hash(&content).as_bytes(), "{length}");
    }
}

#[test]
fn chunks_are_verified_in_any_order_and_passed_on() {
    for length in LENGTHS {
        let content = bytes(length);
        let source = whole(&content);
        let geometry = source.id().geometry;
        let mut tree = Tree::new(source.id());
        let count = geometry.chunks();
        // Another order: 7 is coprime to no multiple of itself, so the rest follows in sequence.
        let order = (0..count).map(|at| at * 7 % count.max(1)).chain(0..count);
        for index in order {
            let hash = chunk_hash(geometry, index, part(&content, geometry, index)).unwrap();
            let siblings = source.siblings(index, tree.missing_levels(index)).unwrap();
            tree.insert(index, hash, &siblings).unwrap();
            if count > 1 {
                assert_eq!(tree.missing_levels(index), 0);
            }
            // A proof that was asked for before its nodes were known.
            tree.insert(index, hash, &source.siblings(index, geometry.levels()).unwrap()).unwrap();
            // What was verified can be proved to a peer that knows only the root.
            let proof = tree.siblings(index, geometry.levels()).unwrap();
            Tree::new(source.id()).insert(index, hash, &proof).unwrap();
        }
        assert_eq!(tree.nodes().len(), source.nodes().len());
        if count > 1 {
            assert_eq!(tree.nodes(), source.nodes());
        }
    }
}

#[test]
fn a_wrong_chunk_or_sibling_is_refused_and_changes_nothing() {
    let content = bytes(5 * 1024 + 7);
    let source = whole(&content);
    let geometry = source.id().geometry;
    for index in 0..geometry.chunks() {
        let mut tree = Tree::new(source.id());
        let hash = chunk_hash(geometry, index, part(&content, geometry, index)).unwrap();
        let siblings = source.siblings(index, geometry.levels()).unwrap();
        let mut flipped = hash;
        flipped[3] ^= 1;
        assert_eq!(tree.insert(index, flipped, &siblings), Err(BadChunk));
        for at in 0..siblings.len() {
            let mut wrong = siblings.clone();
            wrong[at][31] ^= 0x80;
            assert_eq!(tree.insert(index, hash, &wrong), Err(BadChunk));
        }
        assert_eq!(tree.insert(index, hash, &siblings[1..]), Err(BadChunk));
        let more = [siblings.clone(), vec![[1; 32]]].concat();
        assert_eq!(tree.insert(index, hash, &more), Err(BadChunk));
        assert_eq!(tree.insert(index ^ 1, hash, &siblings), Err(BadChunk));
        assert_eq!(tree.insert(u32::MAX, hash, &siblings), Err(BadChunk));
        assert_eq!(tree.nodes(), Tree::new(source.id()).nodes());
    }
    assert_eq!(source.siblings(6, 1), None);
    assert_eq!(source.siblings(0, 200), None);
}

#[test]
fn stored_nodes_are_kept_only_if_they_lead_to_the_root() {
    let content = bytes(11 * 1024);
    let source = whole(&content);
    let restored = Tree::restore(source.id(), source.nodes().to_vec());
    assert_eq!(restored.nodes(), source.nodes());
    for at in 0..source.nodes().len() {
        let mut nodes = source.nodes().to_vec();
        nodes[at][0] ^= 1;
        let restored = Tree::restore(source.id(), nodes.clone());
        for (index, value) in restored.nodes().iter().enumerate() {
            assert!(*value == UNKNOWN || *value == source.nodes()[index], "{at} {index}");
        }
    }
    assert_eq!(
        Tree::restore(source.id(), vec![[1; 32]; 3]).nodes(),
        Tree::new(source.id()).nodes()
    );
}

#[test]
fn chunks_of_other_numbers_and_lengths_have_no_value() {
    let geometry = Geometry::new(5000, ChunkSize::new(1024).unwrap()).unwrap();
    for (index, length) in
        [(5, 0), (5, 904), (u32::MAX, 1024), (1, 1025), (1, 4000), (4, 905), (0, 0)]
    {
        assert_eq!(chunk_hash(geometry, index, &vec![0; length]), None, "{index} {length}");
    }
    assert!(chunk_hash(geometry, 4, &[0; 904]).is_some());
    let empty = Geometry::new(0, ChunkSize::DEFAULT).unwrap();
    assert_eq!(chunk_hash(empty, 0, &[]), None);
}
