//! Parties in a line, in memory, and the CPU time of each.

use std::time::Duration;

use levada_harness::own_cpu_time;

/// A party of a line. Bytes to the server travel forward, bytes to the client backward.
pub trait Party {
    /// Takes bytes of the neighbour on one side; leaves what it needs more of in `bytes`.
    fn receive(&mut self, forward: bool, bytes: &mut Vec<u8>) -> anyhow::Result<()>;

    /// Appends what it sends to the neighbour on one side.
    fn transmit(&mut self, forward: bool, out: &mut Vec<u8>) -> anyhow::Result<()>;

    /// What it does when no bytes move, such as the next step of a connection. True if it did
    /// something.
    fn advance(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Whether it has done all that it was to do.
    fn is_done(&self) -> bool {
        true
    }
}

/// What a line has measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// CPU time of each party.
    pub cpu: Vec<Duration>,
    /// Bytes on each link, both ways.
    pub bytes: Vec<u64>,
}

/// Moves bytes between neighbours until none has anything to do, and adds up CPU time and bytes.
pub fn run(parties: &mut [Box<dyn Party + '_>], measured: &mut Measured) -> anyhow::Result<()> {
    let links = parties.len() - 1;
    measured.cpu.resize(parties.len(), Duration::ZERO);
    measured.bytes.resize(links, 0);
    let mut wires = vec![[Vec::new(), Vec::new()]; links];
    loop {
        let mut moved = false;
        for (link, wire) in wires.iter_mut().enumerate() {
            for forward in [true, false] {
                let (from, to) = if forward { (link, link + 1) } else { (link + 1, link) };
                let wire = &mut wire[usize::from(!forward)];
                let before = wire.len();
                timed(&mut measured.cpu[from], || parties[from].transmit(forward, wire))?;
                measured.bytes[link] += (wire.len() - before) as u64;
                if !wire.is_empty() {
                    let length = wire.len();
                    timed(&mut measured.cpu[to], || parties[to].receive(forward, wire))?;
                    moved |= wire.len() != length;
                }
            }
        }
        for (party, cpu) in parties.iter_mut().zip(&mut measured.cpu) {
            moved |= timed(cpu, || party.advance())?;
        }
        if !moved {
            return Ok(());
        }
    }
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let before = own_cpu_time();
    let result = work();
    *total += own_cpu_time() - before;
    result
}
