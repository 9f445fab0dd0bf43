//! Testbeds: the two ends of a measurement on this host, or in the lab with an emulated link
//! between them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use levada_harness::{Measured, Monitor, MonitorReport};
use levada_lab::{Attestation, Lab, LabError, Link, Node, Options};

/// A run whose limit should be the link's rate is flagged if the processors were idle for less than
/// this share.
const IDLE_LEAST: f64 = 0.1;

/// The two ends of a measurement, and parties between them.
pub enum Testbed {
    /// All on this host.
    Loopback,
    /// Network namespaces in a line, with a link between neighbours.
    Lab(Box<LabLine>),
}

/// Nodes of a lab in a line, with a link between neighbours.
pub struct LabLine {
    lab: Mutex<Lab>,
    near: Node,
    far: Node,
    /// Between them, the one next to `near` first.
    between: Vec<Node>,
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
        Self::line(options, std::slice::from_ref(link), rate_is_the_limit)
    }

    /// Nodes of a new lab in a line, joined by `links`, the first of which begins at the near end.
    pub fn line(
        options: Options,
        links: &[Link],
        rate_is_the_limit: bool,
    ) -> Result<Self, LabError> {
        let mut lab = Lab::new(options)?;
        let near = lab.node("near")?;
        let far = lab.node("far")?;
        let names = (1..links.len()).map(|number| format!("between{number}"));
        let between = names.map(|name| lab.node(&name)).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Node> = [&near].into_iter().chain(&between).chain([&far]).collect();
        for (pair, link) in all.windows(2).zip(links) {
            lab.link(pair[0], pair[1], link)?;
        }
        let lab = Mutex::new(lab);
        Ok(Self::Lab(Box::new(LabLine { lab, near, far, between, rate_is_the_limit })))
    }

    /// The address of the far end.
    pub fn far_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Lab(line) => line.far.address(),
        }
    }

    /// The address of the near end.
    pub fn near_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Lab(line) => line.near.address(),
        }
    }

    /// Runs `work` at the near end, on a thread that it may pin.
    pub fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Lab(line) => Ok(line.near.run(work)?),
        }
    }

    /// Runs `work` at the far end, on a thread that it may pin.
    pub fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Lab(line) => Ok(line.far.run(work)?),
        }
    }

    /// Runs `work` at party `number` between the ends, counted from 0, on a thread that it may pin.
    pub fn between<T: Send>(
        &self,
        number: usize,
        work: impl FnOnce() -> T + Send,
    ) -> anyhow::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Lab(line) => Ok(line.node(number)?.run(work)?),
        }
    }

    /// A listener at party `number` between the ends, and its address.
    pub fn listen_between(&self, number: usize) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let address = self.address_between(number)?;
        let bind = || TcpListener::bind(SocketAddr::new(address, 0));
        let listener = self.between(number, bind)??;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    /// Starts a program at the far end, configured by `configure`. It ends with the calling thread
    /// or with the lab, also if this process is killed.
    pub fn spawn_far(
        &self,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Child> {
        self.spawn(|line| Ok(&line.far), program.as_ref(), configure)
    }

    /// As [`Self::spawn_far`], at the near end.
    pub fn spawn_near(
        &self,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Child> {
        self.spawn(|line| Ok(&line.near), program.as_ref(), configure)
    }

    /// As [`Self::spawn_far`], at party `number` between the ends.
    pub fn spawn_between(
        &self,
        number: usize,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Child> {
        self.spawn(|line| line.node(number), program.as_ref(), configure)
    }

    fn spawn(
        &self,
        node: impl FnOnce(&LabLine) -> anyhow::Result<&Node>,
        program: &OsStr,
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
            Self::Lab(line) => Ok(node(line)?.spawn(program, configure)?),
        }
    }

    /// The address of party `number` between the ends.
    pub fn address_between(&self, number: usize) -> anyhow::Result<IpAddr> {
        match self {
            Self::Loopback => Ok(Ipv4Addr::LOCALHOST.into()),
            Self::Lab(line) => Ok(line.node(number)?.address()),
        }
    }

    /// The bytes that link `number` of the lab has carried in both directions, IP headers included;
    /// 0 on loopback.
    pub fn carried(&self, number: usize) -> anyhow::Result<u64> {
        let Self::Lab(line) = self else { return Ok(0) };
        let lab = line.lab();
        let link = lab.links().get(number).context("there is no such link in the lab")?;
        let measures = link.measures()?;
        Ok(measures.there.bytes + measures.back.bytes)
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
            Self::Lab(line) => Some(Box::new(LabMonitor(line))),
        }
    }

    /// The lab's TCP settings and link backends, to be recorded.
    pub fn settings(&self) -> Vec<(String, String)> {
        let Self::Lab(line) = self else { return Vec::new() };
        let lab = line.lab();
        let backends = lab.links().iter().map(|link| link.backend());
        let backends = backends.map(|backend| ("backend".to_owned(), backend.to_string()));
        lab.settings().iter().cloned().chain(backends).collect()
    }
}

impl LabLine {
    fn node(&self, number: usize) -> anyhow::Result<&Node> {
        self.between.get(number).context("there is no such party in the lab")
    }

    fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attest(&self) -> Result<Attestation, LabError> {
        self.lab().attest(&self.near, &self.far)
    }
}

struct LabMonitor<'a>(&'a LabLine);

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
