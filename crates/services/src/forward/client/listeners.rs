//! The listening sockets of this side. They stay open while the connection to the node is lost.

use std::io;
use std::sync::Arc;

use crate::forward::{Address, Listener, Socket, resolve};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

use super::ForwardError;

/// Maximum number of accepted connections that wait for [`Listeners::accept`].
const MAX_WAITING: usize = 16;

/// The sockets at which this side listens.
pub struct Listeners {
    /// Their addresses, in the form of the option `--listen`.
    pub addresses: Vec<String>,
    /// The sockets for datagrams.
    pub sockets: Vec<Arc<UdpSocket>>,
    accepted: Receiver<(Socket, String)>,
    /// The tasks that accept connections; dropping them closes the sockets.
    accepting: JoinSet<()>,
}

impl Listeners {
    /// Listens at `addresses`, for datagrams if `udp`.
    ///
    /// # Errors
    /// [`ForwardError`] 120 names the address that cannot be bound.
    pub async fn open(addresses: &[Address], udp: bool) -> Result<Self, ForwardError> {
        let (sender, accepted) = channel(MAX_WAITING);
        let mut listeners = Self {
            addresses: Vec::new(),
            sockets: Vec::new(),
            accepted,
            accepting: JoinSet::new(),
        };
        for address in addresses {
            let refuse = |error: io::Error| {
                ForwardError::local(format_args!("cannot listen at {address}: {error}"))
            };
            if udp {
                let sockets = resolve(address).await.map_err(refuse)?;
                let socket = UdpSocket::bind(sockets.as_slice()).await.map_err(refuse)?;
                let bound = socket.local_addr().map_err(refuse)?;
                listeners.addresses.push(bound.to_string());
                listeners.sockets.push(Arc::new(socket));
                continue;
            }
            let listener = Listener::bind(address).await.map_err(refuse)?;
            listeners.addresses.push(listener.address());
            let sender = sender.clone();
            listeners
                .accepting
                .spawn(async move { while sender.send(listener.accept().await).await.is_ok() {} });
        }
        Ok(listeners)
    }

    /// The next connection, and the address of its peer. Never returns if no socket accepts
    /// connections.
    pub async fn accept(&mut self) -> (Socket, String) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }
}
