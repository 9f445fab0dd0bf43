//! Several inspectors in one middlebox.

use levada_contexts::{Action, AnswerPart, Direction, Inspector, Path, Piece};

/// Several inspectors in the order of the path: the first is next to the client. Each sees what the
/// one before it has made, also of an answer that one of them gives itself.
#[derive(Default)]
pub struct Chain {
    inspectors: Vec<Box<dyn Inspector>>,
    /// The number of this middlebox.
    hop: u8,
}

impl Chain {
    /// A middlebox with these inspectors.
    pub fn new(inspectors: Vec<Box<dyn Inspector>>) -> Self {
        Self { inspectors, hop: 0 }
    }
}

/// Passes a record through inspectors, in the order in which it meets them.
fn pass(inspectors: &mut [Box<dyn Inspector>], piece: Piece<'_>) -> Action {
    let mut replaced: Option<Vec<u8>> = None;
    let mut inspect = |one: &mut Box<dyn Inspector>| {
        let data = replaced.as_deref().unwrap_or(piece.data);
        match one.record(Piece { data, ..piece }) {
            Action::Pass => None,
            Action::Replace(data) => {
                replaced = Some(data);
                None
            }
            Action::Block(why) => Some(Action::Block(why)),
        }
    };
    let blocked = match piece.direction {
        Direction::ToServer => inspectors.iter_mut().find_map(&mut inspect),
        Direction::ToClient => inspectors.iter_mut().rev().find_map(&mut inspect),
    };
    blocked.unwrap_or_else(|| replaced.map_or(Action::Pass, Action::Replace))
}

impl Inspector for Chain {
    fn wants_endorsements(&self) -> bool {
        self.inspectors.iter().any(|one| one.wants_endorsements())
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.hop = hop;
        for one in &mut self.inspectors {
            one.granted(path, hop);
        }
    }

    fn started(&mut self, started: bool, realm: Option<[u8; 16]>) {
        for one in &mut self.inspectors {
            one.started(started, realm);
        }
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        pass(&mut self.inspectors, piece)
    }

    fn exchange(&mut self, direction: Direction, number: u64, endorsed: bool) {
        for one in &mut self.inspectors {
            one.exchange(direction, number, endorsed);
        }
    }

    fn answer(&mut self, number: u64) -> Option<AnswerPart> {
        let answers = |one: (usize, &mut Box<dyn Inspector>)| Some((one.0, one.1.answer(number)?));
        let (at, mut part) = self.inspectors.iter_mut().enumerate().find_map(answers)?;
        let (before, _) = self.inspectors.split_at_mut(at);
        let piece = Piece {
            direction: Direction::ToClient,
            context: part.context,
            data: &part.data,
            end: part.end,
            origin: self.hop,
        };
        match pass(before, piece) {
            Action::Pass => {}
            Action::Replace(data) => part.data = data,
            Action::Block(_) => return None,
        }
        if part.last {
            for one in before {
                one.exchange(Direction::ToClient, number, false);
            }
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends its letter, and answers if it is told so.
    struct Letter(u8, bool);

    impl Inspector for Letter {
        fn record(&mut self, piece: Piece<'_>) -> Action {
            Action::Replace([piece.data, &[self.0]].concat())
        }

        fn answer(&mut self, _: u64) -> Option<AnswerPart> {
            let part = AnswerPart { context: 3, data: b"own ".to_vec(), end: true, last: true };
            self.1.then_some(part)
        }
    }

    #[test]
    fn records_and_answers_meet_inspectors_in_the_order_of_the_path() {
        let letters = [(b'a', false), (b'b', false), (b'c', true), (b'd', false)];
        let letters = letters.map(|(letter, answers)| Box::new(Letter(letter, answers)) as _);
        let mut chain = Chain::new(letters.into());
        let mut passed = |direction| {
            let piece = Piece { direction, context: 1, data: b"", end: true, origin: 0 };
            chain.record(piece)
        };
        assert_eq!(passed(Direction::ToServer), Action::Replace(b"abcd".to_vec()));
        assert_eq!(passed(Direction::ToClient), Action::Replace(b"dcba".to_vec()));
        assert_eq!(chain.answer(0).unwrap().data, b"own ba");
    }
}
