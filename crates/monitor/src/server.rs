//! The loop of the monitor: one thread, which sleeps until a client sends something or an offer
//! expires.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clients::Clients;
use crate::listener::{ListenError, Listener};
use crate::options::Options;
use crate::packet::user_of;

/// Events and connections that are taken at a time.
const BATCH: usize = 64;
/// A client waits for a list until no request of others is left, but not for more rounds of the
/// loop than this.
const LIST_ROUNDS: u32 = 100;
/// How long no connection is accepted after that has failed: there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The data of the events that are not of clients, whose numbers have 32 bits.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A monitor that listens.
pub struct Monitor {
    listener: Listener,
    epoll: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    clients: Clients,
    started: Instant,
    idle: Option<Duration>,
    /// Since when there is no client.
    alone_since: Option<Duration>,
    /// Until when no connection is accepted.
    paused_until: Option<Duration>,
    list_rounds: u32,
}

/// Ends a [`Monitor`] from another thread.
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Lets [`Monitor::run`] return.
    pub fn stop(&self) {
        // It fails only if the monitor was told more than 2^64 times.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl Monitor {
    /// Listens at `path`, in a folder of this user only.
    ///
    /// # Errors
    /// [`ListenError::Running`] if another monitor listens there.
    pub fn bind(path: &Path, options: Options) -> Result<Self, ListenError> {
        let listener = Listener::bind(path)?;
        let failed = |error: Errno| ListenError::Io {
            action: "wait for connections at",
            path: path.to_owned(),
            source: error.into(),
        };
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC).map_err(failed)?);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(eventfd(0, flags).map_err(failed)?);
        for (source, data) in [(listener.as_fd(), LISTENER), (stop.as_fd(), STOP)] {
            epoll::add(&epoll, source, EventData::new_u64(data), EventFlags::IN).map_err(failed)?;
        }
        Ok(Self {
            listener,
            stop,
            clients: Clients::new(Arc::clone(&epoll), options).map_err(failed)?,
            epoll,
            started: Instant::now(),
            idle: options.idle,
            alone_since: None,
            paused_until: None,
            list_rounds: 0,
        })
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        Stop(Arc::clone(&self.stop))
    }

    /// Serves clients until it was idle for long enough, or is stopped. The socket is removed then.
    ///
    /// # Errors
    /// Those of epoll_wait(2).
    pub fn run(mut self) -> io::Result<()> {
        raise_limits();
        let mut events = Vec::with_capacity(BATCH);
        while !self.is_over() {
            events.clear();
            let timeout = self.timeout().and_then(|timeout| Timespec::try_from(timeout).ok());
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept(),
                    client => self.clients.receive(u32::try_from(client).unwrap_or_default()),
                }
            }
            self.advance(events.is_empty());
        }
        Ok(())
    }

    /// Handles what was received, and what is due.
    fn advance(&mut self, is_quiet: bool) {
        let now = self.now();
        self.clients.handle(now);
        self.clients.expire(now);
        self.list_rounds = if self.clients.awaits_list() { self.list_rounds + 1 } else { 0 };
        if is_quiet || self.list_rounds > LIST_ROUNDS {
            self.clients.answer_lists();
            self.clients.handle(now);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            let data = EventData::new_u64(LISTENER);
            let _ = epoll::add(&self.epoll, &self.listener, data, EventFlags::IN);
        }
    }

    fn accept(&mut self) {
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok(Some(socket)) => self.add(socket),
                Ok(None) => return,
                Err(_) => {
                    let _ = epoll::delete(&self.epoll, &self.listener);
                    self.paused_until = Some(self.now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Adds a client of this user; others are closed.
    fn add(&mut self, socket: OwnedFd) {
        if user_of(&socket).is_ok_and(|user| user == rustix::process::geteuid().as_raw()) {
            self.clients.add(socket);
        }
    }

    /// Whether it was idle for long enough. If so, no client can find it any more.
    fn is_over(&mut self) -> bool {
        let Some(idle) = self.idle else { return false };
        if !self.clients.is_empty() {
            self.alone_since = None;
            return false;
        }
        let now = self.now();
        if now < *self.alone_since.get_or_insert(now) + idle {
            return false;
        }
        let late = self.listener.close_unless_connected();
        let is_over = late.is_none();
        late.into_iter().for_each(|socket| self.add(socket));
        self.alone_since = None;
        is_over
    }

    /// How long to wait for events; `None` while nothing is due.
    fn timeout(&self) -> Option<Duration> {
        if self.clients.awaits_list() {
            return Some(Duration::ZERO);
        }
        let end = self.alone_since.and_then(|since| Some(since + self.idle?));
        let due = [self.clients.next_expiry(), self.paused_until, end];
        due.into_iter().flatten().min().map(|due| due.saturating_sub(self.now()))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Clients have seven descriptors each, and segments are files of 2.1 MiB.
pub(crate) fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}
