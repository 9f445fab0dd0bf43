//! Which peers provide a chunk.

use super::MAX_REPLICAS;
use crate::PeerId;

/// Marks a provider that does not have the chunk yet.
const PROMISED: u32 = 1 << 31;

/// For each chunk, up to `replicas` peers that have it, or are to receive it: 4 bytes each.
pub(super) struct Owners {
    replicas: usize,
    /// Those of chunk 0 first; 0 is a free place.
    places: Vec<u32>,
}

/// What [`Owners::confirm`] has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// The peer was to receive it.
    Kept,
    /// The peer took a free place.
    Added,
    /// The peer took the place of this one, which has not received it yet.
    Replaced(PeerId),
}

impl Owners {
    pub(super) fn new(chunks: u32, replicas: usize) -> Self {
        let replicas = replicas.clamp(1, MAX_REPLICAS);
        Self { replicas, places: vec![0; chunks as usize * replicas] }
    }

    pub(super) fn replicas(&self) -> usize {
        self.replicas
    }

    /// The peers that have the chunk.
    pub(super) fn confirmed(&self, index: u32) -> impl Iterator<Item = PeerId> + '_ {
        let places = self.of(index).iter();
        places.filter(|place| **place != 0 && **place & PROMISED == 0).map(|place| PeerId(*place))
    }

    /// The peers that are to receive it.
    pub(super) fn promised(&self, index: u32) -> impl Iterator<Item = PeerId> + '_ {
        let places = self.of(index).iter().filter(|place| **place & PROMISED != 0);
        places.map(|place| PeerId(place & !PROMISED))
    }

    /// Whether the peer has the chunk, or is to receive it.
    pub(super) fn names(&self, index: u32, peer: PeerId) -> bool {
        self.of(index).iter().any(|place| place & !PROMISED == peer.0)
    }

    /// The number of free places of a chunk.
    pub(super) fn vacant(&self, index: u32) -> usize {
        self.of(index).iter().filter(|place| **place == 0).count()
    }

    /// The number of providers that a chunk lacks.
    pub(super) fn lacks(&self, index: u32) -> usize {
        self.replicas - self.confirmed(index).count()
    }

    /// The peer is to receive the chunk. False if there is no place, or it has one.
    pub(super) fn promise(&mut self, index: u32, peer: PeerId) -> bool {
        if self.names(index, peer) {
            return false;
        }
        let place = self.of_mut(index).iter_mut().find(|place| **place == 0);
        place.map(|place| *place = peer.0 | PROMISED).is_some()
    }

    /// The peer has the chunk: it takes its place, a free one, or that of a peer that has not
    /// received it yet.
    pub(super) fn confirm(&mut self, index: u32, peer: PeerId) -> Option<Confirmed> {
        let places = self.of_mut(index);
        if places.contains(&peer.0) {
            return None;
        }
        if let Some(place) = places.iter_mut().find(|place| **place == peer.0 | PROMISED) {
            *place = peer.0;
            return Some(Confirmed::Kept);
        }
        let free = places.iter().position(|place| *place == 0);
        let at = free.or_else(|| places.iter().position(|place| place & PROMISED != 0))?;
        let before = std::mem::replace(&mut places[at], peer.0);
        Some(match before {
            0 => Confirmed::Added,
            promised => Confirmed::Replaced(PeerId(promised & !PROMISED)),
        })
    }

    /// The peer does not have the chunk. False if it was not said to have it, or to receive it.
    pub(super) fn remove(&mut self, index: u32, peer: PeerId) -> bool {
        let mut places = self.of_mut(index).iter_mut();
        let place = places.find(|place| **place & !PROMISED == peer.0);
        place.map(|place| *place = 0).is_some()
    }

    /// Removes the peer everywhere; returns the chunks, in ascending order.
    pub(super) fn remove_all(&mut self, peer: PeerId) -> Vec<u32> {
        let mut chunks = Vec::new();
        for (at, place) in self.places.iter_mut().enumerate() {
            if *place & !PROMISED == peer.0 {
                *place = 0;
                chunks.push((at / self.replicas) as u32);
            }
        }
        chunks
    }

    fn of(&self, index: u32) -> &[u32] {
        let start = index as usize * self.replicas;
        self.places.get(start..start + self.replicas).unwrap_or_default()
    }

    fn of_mut(&mut self, index: u32) -> &mut [u32] {
        let start = index as usize * self.replicas;
        self.places.get_mut(start..start + self.replicas).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_a_chunk_takes_the_place_of_one_that_has_not() {
        let mut owners = Owners::new(2, 2);
        assert!(owners.promise(1, PeerId(5)) && !owners.promise(1, PeerId(5)));
        assert!(owners.promise(1, PeerId(6)) && !owners.promise(1, PeerId(7)));
        assert_eq!(owners.confirm(1, PeerId(6)), Some(Confirmed::Kept));
        assert_eq!(owners.confirm(1, PeerId(6)), None);
        assert_eq!(owners.confirm(1, PeerId(7)), Some(Confirmed::Replaced(PeerId(5))));
        assert_eq!(owners.confirm(1, PeerId(8)), None);
        assert!(owners.confirmed(1).eq([PeerId(7), PeerId(6)]));
        assert_eq!((owners.promised(1).count(), owners.vacant(1), owners.vacant(0)), (0, 0, 2));
    }

    #[test]
    fn a_peer_that_leaves_frees_its_places() {
        let mut owners = Owners::new(4, 2);
        for index in [0, 2, 3] {
            owners.promise(index, PeerId(1));
        }
        owners.confirm(2, PeerId(1));
        owners.confirm(3, PeerId(2));
        assert!(owners.remove(0, PeerId(1)) && !owners.remove(0, PeerId(1)));
        assert_eq!(owners.remove_all(PeerId(1)), [2, 3]);
        assert_eq!(owners.vacant(3), 1);
        assert_eq!(owners.confirm(3, PeerId(4)), Some(Confirmed::Added));
    }

    #[test]
    fn chunks_behind_the_end_have_no_place() {
        let mut owners = Owners::new(1, 2);
        assert!(!owners.promise(1, PeerId(1)) && owners.confirm(1, PeerId(1)).is_none());
        assert!(!owners.remove(9, PeerId(1)) && owners.confirmed(9).next().is_none());
    }
}
