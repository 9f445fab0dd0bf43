//! Connects to an address that somebody else has named: only where the rules allow it, and to what its name is now.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{Address, Host, Place};
use super::config::Rules;
use super::message::{Cause, Failure};
use super::socket::{Socket, connect_unix};

/// How long all of it may take, the name included.
const CONNECT: Duration = Duration::from_secs(10);
/// Names that are looked up at a time. The system's resolver occupies a thread until it gives up by itself.
const LOOKUPS: usize = 32;

/// Connects, within the rules of a session.
#[derive(Clone)]
pub(super) struct Connector {
    rules: Rules,
    lookups: Arc<Semaphore>,
}

/// The places for looking up names, shared by all sessions of a service.
pub(super) fn lookups() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LOOKUPS))
}

impl Connector {
    pub(super) fn new(rules: Rules, lookups: Arc<Semaphore>) -> Self {
        Self { rules, lookups }
    }

    /// A connection to `address`, which is for bytes.
    pub(super) async fn connect(&self, address: &Address) -> Result<Socket, Failure> {
        let until = Instant::now() + CONNECT;
        let connected = timeout_at(until, async {
            match address {
                Address::Unix(path) => {
                    self.permitted(address, &[None])?;
                    let connected = connect_unix(path).await;
                    connected.map(Socket::unix).map_err(|error| Failure::of(address, &error))
                }
                Address::Tcp(place) => self.connect_tcp(address, place).await,
                Address::Udp(_) => Err(Failure::new(Cause::Failed, "not for bytes")),
            }
        });
        connected.await.unwrap_or_else(|_| Err(Failure::timed_out(address)))
    }

    /// A socket whose datagrams go to and come from `place` alone.
    pub(super) async fn connect_udp(
        &self,
        address: &Address,
        place: &Place,
    ) -> Result<UdpSocket, Failure> {
        let resolved = timeout(CONNECT, self.resolve(address, place)).await;
        let mut last = Failure::new(Cause::UnknownName, format_args!("{address}: no address"));
        for place in resolved.unwrap_or_else(|_| Err(Failure::timed_out(address)))? {
            let any: SocketAddr = match place {
                SocketAddr::V4(_) => ([0_u8; 4], 0).into(),
                SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
            };
            let connected = async {
                let socket = UdpSocket::bind(any).await?;
                socket.connect(place).await?;
                Ok::<_, io::Error>(socket)
            };
            match connected.await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = Failure::of(address, &error),
            }
        }
        Err(last)
    }

    async fn connect_tcp(&self, address: &Address, place: &Place) -> Result<Socket, Failure> {
        let places = self.resolve(address, place).await?;
        let connected = Socket::connect_any(&places, CONNECT).await;
        connected.map_err(|error| Failure::of(address, &error))
    }

    /// The addresses of a place that are allowed. They are looked up now, and what is found is what is connected to:
    /// a name that means another address a moment later leads nowhere else.
    async fn resolve(&self, address: &Address, place: &Place) -> Result<Vec<SocketAddr>, Failure> {
        // Nobody is asked for names that lead nowhere.
        if !self.rules.may_permit(address) {
            return Err(not_allowed(format_args!("{address} is")));
        }
        let found = match &place.host {
            Host::Address(host) => vec![SocketAddr::new(*host, place.port)],
            Host::Name(name) => self.look_up(address, name.clone(), place.port).await?,
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
        let is_name = matches!(address.place(), Some(Place { host: Host::Name(_), .. }));
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
        let Ok(place) = self.lookups.clone().acquire_owned().await else {
            return Err(Failure::new(Cause::Failed, "the service has ended"));
        };
        // The place is held for as long as the thread is, even if nobody waits for it any more.
        let found = spawn_blocking(move || {
            let _place = place;
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
