//! Where connections come in at this side. They stay open while the connection to the node is lost.

use std::io;
use std::sync::Arc;

use crate::forward::{Address, Listener, Socket, resolve};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

use super::ForwardError;

/// Connections that were accepted, and that nobody has taken yet.
const WAITING: usize = 16;

/// The sockets at which this side listens.
pub struct Listeners {
    /// Where they are, as one types it.
    pub addresses: Vec<String>,
    /// For datagrams.
    pub sockets: Vec<Arc<UdpSocket>>,
    accepted: Receiver<(Socket, String)>,
    /// Dropped, it closes them.
    accepting: JoinSet<()>,
}

impl Listeners {
    /// Listens at `addresses`, for datagrams if `udp`.
    ///
    /// # Errors
    /// [`ForwardError`] 120 names the one where that is not possible.
    pub async fn open(addresses: &[Address], udp: bool) -> Result<Self, ForwardError> {
        let (sender, accepted) = channel(WAITING);
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
                let places = resolve(address).await.map_err(refuse)?;
                let socket = UdpSocket::bind(places.as_slice()).await.map_err(refuse)?;
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

    /// The next connection, and whose it is; never returns if there can be none.
    pub async fn accept(&mut self) -> (Socket, String) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }
}
