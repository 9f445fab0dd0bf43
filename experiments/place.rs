//! Where the two ends are: both on this host, or in the lab with a link between them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use levada_harness::{Attested, Measured, Witness};
use levada_lab::{Attestation, Lab, LabError, Link, Node, Options};

/// A run is doubted if the link's rate was to be the limit and the processors were idle for less than this share.
const IDLE_LEAST: f64 = 0.1;

/// Two hosts.
pub enum Place {
    /// Both are this one.
    Loopback,
    /// Two namespaces and a link.
    Lab(Box<Pair>),
}

/// Two nodes of a lab.
pub struct Pair {
    lab: Mutex<Lab>,
    near: Node,
    far: Node,
    rate_is_the_limit: bool,
}

impl Place {
    /// Two ends with this round trip; without one, both are on this host, as in Capone's.
    pub fn with_rtt(rtt_ms: u64) -> Result<Self, LabError> {
        Self::with_round_trip(Duration::from_millis(rtt_ms))
    }

    /// As [`Self::with_rtt`].
    pub fn with_round_trip(round_trip: Duration) -> Result<Self, LabError> {
        if round_trip.is_zero() {
            return Ok(Self::Loopback);
        }
        let link = Link::new().delay(round_trip / 2);
        Self::lab(Options::default(), &link, false)
    }

    /// Two nodes with `link` between them.
    pub fn lab(options: Options, link: &Link, rate_is_the_limit: bool) -> Result<Self, LabError> {
        let mut lab = Lab::new(options)?;
        let (near, far) = (lab.node("near")?, lab.node("far")?);
        lab.link(&near, &far, link)?;
        Ok(Self::Lab(Box::new(Pair { lab: Mutex::new(lab), near, far, rate_is_the_limit })))
    }

    /// Where the far end is reached.
    pub fn far_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Lab(pair) => pair.far.address(),
        }
    }

    /// Where the near end is reached.
    pub fn near_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Lab(pair) => pair.near.address(),
        }
    }

    /// Runs `work` at the near end, on a thread that it may pin.
    pub fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Lab(pair) => Ok(pair.near.run(work)?),
        }
    }

    /// Runs `work` at the far end, on a thread that it may pin.
    pub fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Lab(pair) => Ok(pair.far.run(work)?),
        }
    }

    /// Starts a program at the far end, with what `configure` gives it. It ends with the thread that calls this, or with
    /// the lab, whatever becomes of this process.
    pub fn spawn_far(
        &self,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Child> {
        match self {
            Self::Loopback => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "TERM", "--"]).arg(program);
                configure(&mut command);
                command
                    .spawn()
                    .with_context(|| format!("start {command:?} (setpriv is in util-linux)"))
            }
            Self::Lab(pair) => Ok(pair.far.spawn(program, configure)?),
        }
    }

    /// A listener at the far end, and its address.
    pub fn listen(&self) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let address = SocketAddr::new(self.far_address(), 0);
        let listener = self.far(|| TcpListener::bind(address))??;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    /// Two ends of one TCP connection, ready for tokio.
    pub fn connected(&self) -> anyhow::Result<(TcpStream, TcpStream)> {
        let (listener, address) = self.listen()?;
        let near = self.near(|| TcpStream::connect(address))??;
        let (far, _) = listener.accept()?;
        for socket in [&near, &far] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        Ok((near, far))
    }

    /// Says of each run whether the lab kept its word.
    pub fn witness(&self) -> Option<Box<dyn Witness + '_>> {
        match self {
            Self::Loopback => None,
            Self::Lab(pair) => Some(Box::new(LabWitness(pair))),
        }
    }

    /// What the lab pinned and what emulates its link, for the record.
    pub fn settings(&self) -> Vec<(String, String)> {
        let Self::Lab(pair) = self else { return Vec::new() };
        let lab = pair.lab();
        let backends = lab.joints().iter().map(|joint| joint.backend());
        let backends = backends.map(|backend| ("backend".to_owned(), backend.to_string()));
        lab.settings().iter().cloned().chain(backends).collect()
    }
}

impl Pair {
    fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attest(&self) -> Result<Attestation, LabError> {
        self.lab().attest(&self.near, &self.far)
    }
}

struct LabWitness<'a>(&'a Pair);

impl Witness for LabWitness<'_> {
    fn begin(&mut self) {
        // What cannot be begun anew shows as a doubt at the end.
        let _ = self.0.lab().reset_measures();
    }

    fn end(&mut self) -> Attested {
        let seen = match self.0.attest() {
            Ok(seen) => seen,
            Err(error) => {
                return Attested { measured: Vec::new(), flag: Some(error.to_string()) };
            }
        };
        let late = |microseconds: u64| microseconds as f64 / 1e3;
        let measured = vec![
            Measured::new("ping error", "ms", seen.error_ms),
            Measured::new("lateness p50", "ms", late(seen.lateness.p50_us)),
            Measured::new("lateness p99", "ms", late(seen.lateness.p99_us)),
            Measured::new("lateness max", "ms", late(seen.lateness.max_us)),
            Measured::new("CPU idle", "1", seen.idle),
        ];
        let busy = self.0.rate_is_the_limit && seen.idle < IDLE_LEAST;
        let flag = if seen.flagged {
            Some(format!("lateness p99 {:.1} ms", late(seen.lateness.p99_us)))
        } else {
            busy.then(|| format!("CPU idle {:.0} %", seen.idle * 100.0))
        };
        Attested { measured, flag }
    }
}
