//! Testbeds: the two ends of a measurement on this host, or in the lab with an emulated link between them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use levada_harness::{Measured, Monitor, MonitorReport};
use levada_lab::{Attestation, Lab, LabError, Link, Node, Options};

/// A run whose limit should be the link's rate is flagged if the processors were idle for less than this share.
const IDLE_LEAST: f64 = 0.1;

/// The two ends of a measurement.
pub enum Testbed {
    /// Both on this host.
    Loopback,
    /// Two network namespaces with a link between them.
    Lab(Box<LabPair>),
}

/// Two nodes of a lab, with a link between them.
pub struct LabPair {
    lab: Mutex<Lab>,
    near: Node,
    far: Node,
    rate_is_the_limit: bool,
}

impl Testbed {
    /// A testbed with this round trip; 0 for loopback, as in Capone's measurements.
    pub fn with_rtt(rtt_ms: u64) -> Result<Self, LabError> {
        Self::with_round_trip(Duration::from_millis(rtt_ms))
    }

    /// As [`Self::with_rtt`], with a resolution below one millisecond.
    pub fn with_round_trip(round_trip: Duration) -> Result<Self, LabError> {
        if round_trip.is_zero() {
            return Ok(Self::Loopback);
        }
        let link = Link::new().delay(round_trip / 2);
        Self::lab(Options::default(), &link, false)
    }

    /// Two nodes of a new lab with `link` between them.
    pub fn lab(options: Options, link: &Link, rate_is_the_limit: bool) -> Result<Self, LabError> {
        let mut lab = Lab::new(options)?;
        let (near, far) = (lab.node("near")?, lab.node("far")?);
        lab.link(&near, &far, link)?;
        Ok(Self::Lab(Box::new(LabPair { lab: Mutex::new(lab), near, far, rate_is_the_limit })))
    }

    /// The address of the far end.
    pub fn far_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Lab(pair) => pair.far.address(),
        }
    }

    /// The address of the near end.
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

    /// Starts a program at the far end, configured by `configure`. It ends with the calling thread or with the lab, also
    /// if this process is killed.
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

    /// A TCP connection between the two ends: nonblocking, with TCP_NODELAY.
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

    /// The monitor that checks the lab's link during each run; `None` on loopback.
    pub fn monitor(&self) -> Option<Box<dyn Monitor + '_>> {
        match self {
            Self::Loopback => None,
            Self::Lab(pair) => Some(Box::new(LabMonitor(pair))),
        }
    }

    /// The lab's TCP settings and link backends, to be recorded.
    pub fn settings(&self) -> Vec<(String, String)> {
        let Self::Lab(pair) = self else { return Vec::new() };
        let lab = pair.lab();
        let backends = lab.links().iter().map(|link| link.backend());
        let backends = backends.map(|backend| ("backend".to_owned(), backend.to_string()));
        lab.settings().iter().cloned().chain(backends).collect()
    }
}

impl LabPair {
    fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attest(&self) -> Result<Attestation, LabError> {
        self.lab().attest(&self.near, &self.far)
    }
}

struct LabMonitor<'a>(&'a LabPair);

impl Monitor for LabMonitor<'_> {
    fn begin(&mut self) {
        // After a failure the attestation covers more than the run, and may flag it.
        let _ = self.0.lab().reset_measures();
    }

    fn end(&mut self) -> MonitorReport {
        let attestation = match self.0.attest() {
            Ok(attestation) => attestation,
            Err(error) => {
                return MonitorReport { measured: Vec::new(), flag: Some(error.to_string()) };
            }
        };
        let late = |microseconds: u64| microseconds as f64 / 1e3;
        let measured = vec![
            Measured::new("ping error", "ms", attestation.error_ms),
            Measured::new("lateness p50", "ms", late(attestation.lateness.p50_us)),
            Measured::new("lateness p99", "ms", late(attestation.lateness.p99_us)),
            Measured::new("lateness max", "ms", late(attestation.lateness.max_us)),
            Measured::new("CPU idle", "1", attestation.idle),
        ];
        let busy = self.0.rate_is_the_limit && attestation.idle < IDLE_LEAST;
        let flag = if attestation.flagged {
            Some(format!("lateness p99 {:.1} ms", late(attestation.lateness.p99_us)))
        } else {
            busy.then(|| format!("CPU idle {:.0} %", attestation.idle * 100.0))
        };
        MonitorReport { measured, flag }
    }
}
