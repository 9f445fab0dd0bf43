//! A middlebox: passes on what it receives, and sees or changes what both endpoints have granted.

use std::time::{Duration, Instant};

use super::flow::Flow;
use super::frame;
use super::hop::{HopHandshake, HopSetup};
use super::inspector::Inspector;
use super::keepalive::Keepalive;
use super::messages;
use super::path::Path;
use super::schedule::Direction;
use super::{ContextError, Role};
use levada_channel::parts::{ALERT, DATA};

/// The time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer of a middlebox waits while this many bytes are to be sent to the client.
const MAX_ANSWERS: usize = 256 * 1024;

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A middlebox in one session: no I/O, time and bytes are passed in.
pub struct Relay {
    handshake: HopHandshake,
    inspector: Box<dyn Inspector>,
    /// By direction, once the keys are here.
    flows: Option<[Flow; 2]>,
    /// What is to be sent, by direction.
    out: [Vec<u8>; 2],
    /// Of the handshake.
    deadline: Option<Instant>,
    /// Of the neighbour that sends in each direction, from READY on.
    keepalives: Option<[Keepalive; 2]>,
    ended: bool,
}

impl Relay {
    /// A middlebox that waits for PATH.
    pub fn new(setup: HopSetup, inspector: Box<dyn Inspector>, now: Instant) -> Self {
        Self {
            handshake: HopHandshake::new(setup),
            inspector,
            flows: None,
            out: [Vec::new(), Vec::new()],
            deadline: Some(now + HANDSHAKE_TIMEOUT),
            keepalives: None,
            ended: false,
        }
    }

    /// The path and the number of this middlebox in it, once PATH has arrived: the next party can
    /// be connected to.
    pub fn path(&self) -> Option<(&Path, u8)> {
        self.flows.as_ref().map(|[flow, _]| (&flow.path, flow.number)).or(self.handshake.path())
    }

    /// Whether the session has started: everything from here on is records.
    pub fn is_open(&self) -> bool {
        self.handshake.is_open(Direction::ToServer) && self.handshake.is_open(Direction::ToClient)
    }

    /// Whether the server and this middlebox have resumed an earlier session; None before SBIND.
    pub fn is_resumed(&self) -> Option<bool> {
        self.handshake.is_resumed()
    }

    /// Whether a part of an own answer waits until the client has taken what was sent before;
    /// [`Self::advance`] continues it. Until then nothing of the server is consumed.
    pub fn is_answering(&self) -> bool {
        self.flows.as_ref().is_some_and(|[_, to_client]| to_client.is_answering())
    }

    /// Takes what arrived from the party that sends in this direction. Returns how many bytes were
    /// consumed: whole frames.
    ///
    /// # Errors
    /// Everything that ends the session. What is then left in [`Self::transmit`] must still be
    /// sent.
    pub fn receive(
        &mut self,
        direction: Direction,
        input: &mut [u8],
        now: Instant,
    ) -> Result<usize, ContextError> {
        let mut consumed = 0;
        loop {
            if self.ended {
                return Err(ContextError::Closed);
            }
            // What comes from behind must not stand within an own answer.
            if direction == Direction::ToClient && self.is_answering() {
                return Ok(consumed);
            }
            let rest = &mut input[consumed..];
            let length = frame::length(rest);
            let length = length.map_err(|error| error.within(rest, self.neighbour(direction)));
            let Some(length) = self.fatal(length)? else { return Ok(consumed) };
            let whole = &mut rest[..length];
            let result = self.receive_frame(direction, whole, now);
            let result = result.map_err(|error| error.within(whole, self.neighbour(direction)));
            self.fatal(result)?;
            self.put_pings();
            consumed += length;
        }
    }

    /// The neighbour that sends in this direction.
    fn neighbour(&self, direction: Direction) -> Role {
        match (self.path(), direction) {
            (Some((path, own)), Direction::ToServer) => Role::at(own - 1, path.hops.len()),
            (Some((path, own)), Direction::ToClient) => Role::at(own + 1, path.hops.len()),
            (None, Direction::ToServer) => Role::Client,
            (None, Direction::ToClient) => Role::Server,
        }
    }

    /// After an error the session is over; both sides get an ALERT, which is a hint only.
    fn fatal<T>(&mut self, result: Result<T, ContextError>) -> Result<T, ContextError> {
        if let Err(error) = &result {
            self.ended = true;
            (self.deadline, self.keepalives) = (None, None);
            let hop = self.path().map_or(0, |(_, hop)| hop);
            let alert = match *error {
                ContextError::Alert { code, hop } => Some((code, hop)),
                _ => error.alert_code().map(|code| (code, hop)),
            };
            for (out, (code, hop)) in self.out.iter_mut().zip(alert.into_iter().cycle()) {
                frame::put(out, frame::ALERT, &[&[code, hop]]);
            }
        }
        result
    }

    fn receive_frame(
        &mut self,
        direction: Direction,
        whole: &mut [u8],
        now: Instant,
    ) -> Result<(), ContextError> {
        if let Some(keepalives) = &mut self.keepalives {
            keepalives[direction as usize].on_frame(now);
        }
        let out = &mut self.out[direction as usize];
        if !self.handshake.is_open(direction) {
            let started = self.handshake.start().is_some();
            match direction {
                Direction::ToServer => self.handshake.receive_from_client(whole, out, now)?,
                Direction::ToClient => self.handshake.receive_from_server(whole, out, now)?,
            }
            self.open_flows(now)?;
            if !started && let Some(start) = self.handshake.start() {
                if start.started {
                    self.flows.iter_mut().flatten().for_each(Flow::start);
                }
                let realm = (start.realm != [0; 16]).then_some(start.realm);
                self.inspector.started(start.started, realm);
            }
            return self.answer();
        }
        let Some(flows) = &mut self.flows else {
            return Err(ContextError::Unexpected("a frame before the handshake is over"));
        };
        let [to_server, to_client] = flows;
        let inspector = self.inspector.as_mut();
        match (whole[0], direction) {
            (frame::RECORD, Direction::ToServer) => to_server.pass_record(whole, inspector, out)?,
            (frame::RECORD, Direction::ToClient) => to_client.pass_record(whole, inspector, out)?,
            (frame::AUDIT, _) => {
                let ended = match direction {
                    Direction::ToServer => to_server.pass_audit(whole, || None, out)?,
                    Direction::ToClient => {
                        to_client.pass_audit(whole, || to_server.take_request(), out)?
                    }
                };
                if let Some(ended) = ended {
                    inspector.exchange(direction, ended.number, ended.endorsed);
                }
                self.answer()?;
            }
            (DATA | ALERT, _) if !flows[direction as usize].awaits_audit() => {
                out.extend_from_slice(whole);
            }
            (frame::PING, _) if !flows[direction as usize].awaits_audit() => {
                let before = ContextError::Unexpected("a PING before READY");
                let keepalives = self.keepalives.as_mut().ok_or(before)?;
                keepalives[direction as usize].receive(messages::split(whole)?.1)?;
            }
            (frame::ALERT, _) => return Err(messages::alert(messages::split(whole)?.1)),
            _ => return Err(ContextError::Unexpected("a frame in a session")),
        }
        Ok(())
    }

    /// Goes on with answers of this middlebox that waited because much was to be sent. Called after
    /// [`Self::transmit`].
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn advance(&mut self) -> Result<(), ContextError> {
        if self.ended {
            return Ok(());
        }
        let result = self.answer();
        self.fatal(result)
    }

    /// Answers the requests that this middlebox has emptied, each when it is the lowest without an
    /// answer.
    fn answer(&mut self) -> Result<(), ContextError> {
        let started = self.handshake.start().is_some_and(|start| start.started);
        if !started || !self.is_open() {
            return Ok(());
        }
        let Some([to_server, to_client]) = &mut self.flows else { return Ok(()) };
        while self.out[Direction::ToClient as usize].len() < MAX_ANSWERS
            && to_client.is_between_exchanges()
            && let number = to_client.answered()
            && to_server.request(number).is_some_and(|request| request.emptied)
        {
            let part = self.inspector.answer(number);
            let part = part.ok_or(ContextError::State("an emptied request without an answer"))?;
            to_client.answer(&part, &mut self.out[Direction::ToClient as usize])?;
        }
        Ok(())
    }

    /// Makes the flows when the keys are here: a client sends records before the server's READY.
    fn open_flows(&mut self, now: Instant) -> Result<(), ContextError> {
        if self.is_open() && self.deadline.take().is_some() {
            let neighbours = DIRECTIONS.map(|from| self.neighbour(from));
            self.keepalives = Some(neighbours.map(|role| Keepalive::new(role, now)));
        }
        if self.flows.is_none()
            && self.handshake.is_open(Direction::ToServer)
            && let Some((bound, keys)) = self.handshake.keys()
        {
            let wants_endorsements = self.inspector.wants_endorsements();
            let flow = |direction| Flow::new(bound, keys, direction, wants_endorsements);
            self.flows = Some([flow(Direction::ToServer)?, flow(Direction::ToClient)?]);
            self.inspector.granted(&bound.path, bound.number);
        }
        Ok(())
    }

    /// Appends the PINGs and PONGs that are due. Those to a side wait while the audits that belong
    /// to a record on its way there are not complete.
    fn put_pings(&mut self) {
        let Some(keepalives) = &mut self.keepalives else { return };
        for from in DIRECTIONS {
            let to = from.reverse() as usize;
            if !self.flows.as_ref().is_some_and(|flows| flows[to].awaits_audit()) {
                keepalives[from as usize].put(&mut self.out[to]);
            }
        }
    }

    /// Ends the session because the next party cannot be reached.
    pub fn unreachable(&mut self) {
        let hop = self.path().map_or(0, |(_, hop)| hop);
        let _ = self.fatal::<()>(Err(ContextError::Alert { code: 4, hop }));
    }

    /// Ends the session because this middlebox carries as many as it may.
    pub fn busy(&mut self) {
        let hop = self.path().map_or(0, |(_, hop)| hop);
        let _ = self.fatal::<()>(Err(ContextError::Alert { code: 5, hop }));
    }

    /// How many bytes wait to be sent in this direction.
    pub fn pending(&self, direction: Direction) -> usize {
        self.out[direction as usize].len()
    }

    /// Appends what is to be sent in this direction to `out`.
    pub fn transmit(&mut self, direction: Direction, out: &mut Vec<u8>) {
        if let Some(keepalives) = &mut self.keepalives {
            keepalives[direction.reverse() as usize].on_transmit();
        }
        let own = &mut self.out[direction as usize];
        if out.is_empty() {
            std::mem::swap(out, own);
        } else {
            out.append(own);
        }
    }

    /// Whether [`Self::receive`] will be called when bytes arrive in this direction. While it will
    /// not, because the other side does not take what it sends on, the neighbour's silence means
    /// nothing.
    pub fn set_reading(&mut self, direction: Direction, reading: bool, now: Instant) {
        if let Some(keepalives) = &mut self.keepalives {
            keepalives[direction as usize].set_reading(reading, now);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn timeout(&self) -> Option<Instant> {
        let neighbours = self.keepalives.iter().flatten().map(Keepalive::timeout).min();
        self.deadline.or(neighbours)
    }

    /// What a malicious middlebox has.
    #[cfg(test)]
    pub(crate) fn handshake(&self) -> &HopHandshake {
        &self.handshake
    }

    /// What a malicious middlebox sends records with.
    #[cfg(test)]
    pub(crate) fn flow(&mut self, direction: Direction) -> Option<&mut Flow> {
        self.flows.as_mut().map(|flows| &mut flows[direction as usize])
    }

    /// Ends the session if its handshake takes too long or a neighbour is dead; sends a PING to one
    /// that is silent.
    ///
    /// # Errors
    /// [`ContextError::Timeout`].
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ContextError> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            let (what, from) = self.handshake.awaited();
            self.fatal(Err(ContextError::Timeout { what, from }))?;
        }
        let mut neighbours = self.keepalives.iter_mut().flatten();
        let alive = neighbours.try_for_each(|neighbour| neighbour.check(now));
        self.put_pings();
        self.fatal(alive)
    }
}
