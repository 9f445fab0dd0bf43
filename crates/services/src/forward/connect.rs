//! Connects to an address that the peer has named, if the rules allow it. A name is resolved once,
//! and the result is both checked and connected to.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{Address, Host, HostPort};
use super::config::Rules;
use super::message::{Cause, Failure};
use super::socket::{Socket, connect_unix};

/// How long a connect may take, with the resolution of the name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Names that are resolved at a time. The system's resolver occupies a thread until its own
/// timeout.
const LOOKUPS: usize = 32;

/// Connects within the rules of a session.
#[derive(Clone)]
pub(super) struct Connector {
    rules: Rules,
    lookups: Arc<Semaphore>,
}

/// The limit of concurrent lookups, shared by all sessions of a service.
pub(super) fn lookups() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LOOKUPS))
}

impl Connector {
    pub(super) fn new(rules: Rules, lookups: Arc<Semaphore>) -> Self {
        Self { rules, lookups }
    }

    /// Connects to `address`, which is not a UDP address.
    pub(super) async fn connect(&self, address: &Address) -> Result<Socket, Failure> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        let connected = timeout_at(until, async {
            match address {
                Address::Unix(path) => {
                    self.permitted(address, &[None])?;
                    let connected = connect_unix(path).await;
                    connected.map(Socket::unix).map_err(|error| Failure::of(address, &error))
                }
                Address::Tcp(target) => self.connect_tcp(address, target).await,
                Address::Udp(_) => Err(Failure::new(Cause::Failed, "UDP carries no connections")),
            }
        });
        connected.await.unwrap_or_else(|_| Err(Failure::timed_out(address)))
    }

    /// A connected UDP socket, which exchanges datagrams with `target` only.
    pub(super) async fn connect_udp(
        &self,
        address: &Address,
        target: &HostPort,
    ) -> Result<UdpSocket, Failure> {
        let resolved = timeout(CONNECT_TIMEOUT, self.resolve(address, target)).await;
        let mut last = Failure::new(Cause::UnknownName, format_args!("{address}: no address"));
        for found in resolved.unwrap_or_else(|_| Err(Failure::timed_out(address)))? {
            let any: SocketAddr = match found {
                SocketAddr::V4(_) => ([0_u8; 4], 0).into(),
                SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
            };
            let connected = async {
                let socket = UdpSocket::bind(any).await?;
                socket.connect(found).await?;
                Ok::<_, io::Error>(socket)
            };
            match connected.await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = Failure::of(address, &error),
            }
        }
        Err(last)
    }

    async fn connect_tcp(&self, address: &Address, target: &HostPort) -> Result<Socket, Failure> {
        let found = self.resolve(address, target).await?;
        let connected = Socket::connect_any(&found, CONNECT_TIMEOUT).await;
        connected.map_err(|error| Failure::of(address, &error))
    }

    /// The allowed addresses of `target`. The caller connects to exactly these: if the name is
    /// resolved differently a moment later (DNS rebinding), that does not matter.
    async fn resolve(
        &self,
        address: &Address,
        target: &HostPort,
    ) -> Result<Vec<SocketAddr>, Failure> {
        // No lookup for a name that cannot be allowed.
        if !self.rules.may_permit(address) {
            return Err(not_allowed(format_args!("{address} is")));
        }
        let found = match &target.host {
            Host::Address(host) => vec![SocketAddr::new(*host, target.port)],
            Host::Name(name) => self.look_up(address, name.clone(), target.port).await?,
        };
        let hosts: Vec<_> = found.iter().map(|found| Some(found.ip())).collect();
        self.permitted(address, &hosts)?;
        let permitted = |found: &SocketAddr| self.rules.permit(address, Some(found.ip()));
        Ok(found.into_iter().filter(permitted).collect())
    }

    /// Fails if none of these addresses is allowed.
    fn permitted(&self, address: &Address, resolved: &[Option<IpAddr>]) -> Result<(), Failure> {
        if resolved.iter().any(|resolved| self.rules.permit(address, *resolved)) {
            return Ok(());
        }
        let is_name = matches!(address.host_port(), Some(HostPort { host: Host::Name(_), .. }));
        match resolved.first() {
            Some(Some(found)) if is_name => {
                Err(not_allowed(format_args!("{address} is {found} here, which is")))
            }
            _ => Err(not_allowed(format_args!("{address} is"))),
        }
    }

    async fn look_up(
        &self,
        address: &Address,
        name: String,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let Ok(permit) = self.lookups.clone().acquire_owned().await else {
            return Err(Failure::new(Cause::Failed, "the service has ended"));
        };
        // The thread holds the permit until it ends, also if this future is dropped.
        let found = spawn_blocking(move || {
            let _permit = permit;
            (name.as_str(), port).to_socket_addrs().map(|found| found.collect::<Vec<_>>())
        });
        match found.await {
            Ok(Ok(found)) if !found.is_empty() => Ok(found),
            Ok(Err(error)) => {
                Err(Failure::new(Cause::UnknownName, format_args!("{address}: {error}")))
            }
            _ => Err(Failure::new(Cause::UnknownName, format_args!("{address}: no address"))),
        }
    }
}

fn not_allowed(what: fmt::Arguments<'_>) -> Failure {
    Failure::new(Cause::NotAllowed, format_args!("{what} not allowed"))
}
