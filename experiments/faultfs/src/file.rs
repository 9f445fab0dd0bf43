//! The content of one file: the cached and the durable state, and the changes between them.

use std::collections::HashMap;

use crate::Survival;

/// The unit of atomic writes, in bytes.
const SECTOR: usize = 512;

#[derive(Default)]
pub(crate) struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { to: usize },
}

impl Content {
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Fills `out` from offset `at`, with zeros beyond the end. `false` for a short read.
    pub fn read(&self, at: usize, out: &mut [u8]) -> bool {
        let available = self.seen.get(at..).unwrap_or_default();
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        out[count..].fill(0);
        count == out.len()
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        write(&mut self.seen, at, bytes);
        self.pending.push(Change::Write { at, bytes: bytes.to_vec() });
    }

    pub fn truncate(&mut self, to: usize) {
        self.seen.resize(to, 0);
        self.pending.push(Change::Truncate { to });
    }

    pub fn sync(&mut self) {
        self.durable.clone_from(&self.seen);
        self.pending.clear();
    }

    /// Drops changes that do not survive the loss of power.
    pub fn restart(&mut self, survival: Survival, salt: u64) {
        if let Survival::Part(seed) = survival {
            self.durable = self.part(Choice { seed: mix(seed ^ mix(salt)) });
        }
        self.pending.clear();
        self.seen.clone_from(&self.durable);
    }

    /// Each sector, and the length, in a state that it had since the last sync.
    fn part(&self, choice: Choice) -> Vec<u8> {
        let count = self.pending.len() as u64;
        let mut lasts = HashMap::new();
        let mut survives = |change: u64, sector: usize| {
            let last = lasts.entry(sector).or_insert_with(|| choice.up_to(sector as u64, count));
            change < *last
        };
        let mut image = self.durable.clone();
        for (number, change) in (0..).zip(&self.pending) {
            match change {
                Change::Write { at, bytes } => {
                    for (at, piece) in sectors(*at, bytes) {
                        if survives(number, at / SECTOR) {
                            write(&mut image, at, piece);
                        }
                    }
                }
                Change::Truncate { to } => {
                    for (at, byte) in image.iter_mut().enumerate().skip(*to) {
                        if survives(number, at / SECTOR) {
                            *byte = 0;
                        }
                    }
                }
            }
        }
        image.resize(self.length_after(choice.up_to(u64::MAX, count)), 0);
        image
    }

    fn length_after(&self, changes: u64) -> usize {
        let surviving = (0..changes).zip(&self.pending);
        surviving.fold(self.durable.len(), |length, (_, change)| match change {
            Change::Write { at, bytes } => length.max(at + bytes.len()),
            Change::Truncate { to } => *to,
        })
    }
}

/// Pseudo-random choices that depend only on the seed.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    pub seed: u64,
}

impl Choice {
    /// A number from 0 to `most`; 0 and `most` are more likely than those between.
    pub fn up_to(self, what: u64, most: u64) -> u64 {
        let random = mix(self.seed ^ mix(what.wrapping_add(1)));
        match random % 4 {
            0 => 0,
            1 => most,
            _ => (random >> 8) % (most + 1),
        }
    }
}

/// SplitMix64's finalizer: every bit of the result depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn write(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

/// `bytes` cut at sector boundaries, each piece with its offset in the file.
fn sectors(mut at: usize, mut bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let length = (SECTOR - at % SECTOR).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        let here = at;
        (at, bytes) = (at + length, rest);
        (length > 0).then_some((here, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0; content.len()];
        assert!(content.read(0, &mut bytes));
        bytes
    }

    #[test]
    fn only_synced_changes_survive() {
        let mut content = Content::default();
        content.write(3, b"abc");
        content.sync();
        content.write(4, b"XYZ");
        content.truncate(5);
        assert_eq!(read(&content), b"\0\0\0aX");
        content.restart(Survival::Synced, 0);
        assert_eq!(read(&content), b"\0\0\0abc");
        let mut out = [9; 4];
        assert!(!content.read(4, &mut out));
        assert_eq!(&out, b"bc\0\0");
        assert!(!content.read(400, &mut out));
    }

    #[test]
    fn a_sector_survives_in_one_of_the_states_it_had() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..400 {
            let mut content = Content::default();
            content.write(0, &[1; 2 * SECTOR]);
            content.sync();
            content.write(SECTOR - 2, &[2; 4]);
            content.write(SECTOR - 1, &[3; 2]);
            content.restart(Survival::Part(seed), 0);
            let bytes = read(&content);
            assert_eq!(bytes.len(), 2 * SECTOR);
            assert!(bytes[..SECTOR - 2].iter().all(|byte| *byte == 1));
            seen.insert(bytes[SECTOR - 2..SECTOR + 2].to_vec());
        }
        let halves = [[1, 1], [2, 2], [2, 3]];
        let wanted: std::collections::HashSet<_> =
            halves.iter().flat_map(|a| halves.map(|b| vec![a[0], a[1], b[1], b[0]])).collect();
        assert_eq!(seen, wanted, "every combination, and no other");
    }

    #[test]
    fn lengths_survive_in_part() {
        let mut lengths = std::collections::HashSet::new();
        for seed in 0..100 {
            let mut content = Content::default();
            content.write(0, &[1; 10]);
            content.sync();
            content.write(10, &[2; 10]);
            content.truncate(5);
            content.restart(Survival::Part(seed), 0);
            lengths.insert(content.len());
        }
        assert_eq!(lengths, [5, 10, 20].into());
    }
}
