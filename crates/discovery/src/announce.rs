//! Announcement of a node.

use std::time::Duration;

use levada_core::check_name;
use mdns_sd::{IfKind, Metrics, ServiceDaemon};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::records::{Announcement, interfaces, ports, service};
use crate::{DiscoveryError, multicast};

/// How often the responder checks for added and removed interfaces, in seconds.
const INTERFACE_CHECK: u32 = 1;
/// The interval of health checks of the responder.
const HEALTH_CHECK: Duration = Duration::from_secs(2);
/// How long the responder may take to return its metrics. One that takes longer is flooded, not
/// dead: it handles received packets before commands.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);
/// Most cached records and timers of one responder. It sends no queries, but mdns-sd also caches
/// the records of unsolicited packets without a PTR record.
const MAX_CACHED: i64 = 4096;
/// The lifetime of one responder, because its metrics do not count all that it caches.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The interval between a goodbye and its repetition, which covers the loss of one packet.
const GOODBYE_REPEAT: Duration = Duration::from_millis(150);
/// The time limit for all goodbyes.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Announces a node until it is dropped, which sends a goodbye (RFC 6762 section 10.1).
pub struct Announcer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Starts to announce; other nodes can find it after about one second. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`DiscoveryError`] if the name is invalid, or this machine cannot use multicast DNS.
    pub fn start(announcement: Announcement) -> Result<Self, DiscoveryError> {
        check_name(&announcement.name).map_err(DiscoveryError::Name)?;
        multicast::usable_interfaces()?;
        let responder = Responder::start(&announcement)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(supervise(announcement, responder, stopped));
        Ok(Self { stop, task })
    }

    /// Sends a goodbye, so that caches drop the node; takes one second at most.
    pub async fn goodbye(self) {
        drop(self.stop);
        let _ = timeout(GOODBYE_TIMEOUT, self.task).await;
    }
}

/// Announces until `stopped`. A responder that has ended, exceeds [`MAX_CACHED`] or [`MAX_AGE`] is
/// replaced.
async fn supervise(
    announcement: Announcement,
    responder: Responder,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut responder = responder;
    let mut replaced = None::<Responder>;
    loop {
        let check = async {
            sleep(HEALTH_CHECK).await;
            responder.is_healthy().await
        };
        let is_healthy = tokio::select! {
            _ = &mut stopped => break,
            is_healthy = check => is_healthy,
        };
        // The old responder runs until its successor has announced, so that the node is never
        // missing.
        if let Some(replaced) = replaced.take() {
            replaced.end_without_goodbye();
        }
        if is_healthy {
            continue;
        }
        match Responder::start(&announcement) {
            Ok(new) => replaced = Some(std::mem::replace(&mut responder, new)),
            Err(error) => tracing::warn!(%error, "this node may not be announced for the moment"),
        }
    }
    responder.goodbye().await;
}

/// The mDNS thread that answers queries for the node.
struct Responder {
    daemon: ServiceDaemon,
    instances: Vec<String>,
    since: Instant,
}

impl Responder {
    fn start(announcement: &Announcement) -> Result<Self, DiscoveryError> {
        let daemon = ServiceDaemon::new()?;
        let mut responder = Self { daemon, instances: Vec::new(), since: Instant::now() };
        let daemon = &responder.daemon;
        daemon.set_ip_check_interval(INTERFACE_CHECK)?;
        let ports = ports(&announcement.listening);
        match interfaces(&ports) {
            Some(needed) => {
                daemon.disable_interface(IfKind::All)?;
                daemon.enable_interface(needed)?;
            }
            None => daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?,
        }
        for (index, (port, bound)) in ports.iter().enumerate() {
            let service = service(announcement, index, *port, bound)?;
            responder.instances.push(service.get_fullname().to_owned());
            responder.daemon.register(service)?;
        }
        Ok(responder)
    }

    /// Whether the thread runs, and is below [`MAX_AGE`] and [`MAX_CACHED`].
    async fn is_healthy(&self) -> bool {
        if self.since.elapsed() > MAX_AGE {
            return false;
        }
        let answer = match self.daemon.get_metrics() {
            Ok(answer) => answer,
            Err(mdns_sd::Error::Again) => return true,
            Err(_) => return false,
        };
        match timeout(METRICS_TIMEOUT, answer.recv_async()).await {
            Ok(Ok(metrics)) => cached(&metrics) <= MAX_CACHED,
            Ok(Err(_)) => false,
            Err(_) => {
                tracing::warn!(
                    "multicast DNS is flooded: this node may not be found, and may need more memory"
                );
                true
            }
        }
    }

    /// Ends the thread without a goodbye: with all interfaces disabled, none is sent.
    fn end_without_goodbye(self) {
        let _ = self.daemon.disable_interface(IfKind::All);
    }

    async fn goodbye(&self) {
        for instance in &self.instances {
            if let Ok(sent) = self.daemon.unregister(instance) {
                let _ = timeout(GOODBYE_TIMEOUT, sent.recv_async()).await;
            }
        }
        sleep(GOODBYE_REPEAT).await;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Also sends a goodbye if none was sent yet.
        let _ = self.daemon.shutdown();
    }
}

/// The number of cached records and timers.
fn cached(metrics: &Metrics) -> i64 {
    let counted = |name: &str| name.starts_with("cached-") || name == "timer";
    metrics.iter().filter(|(name, _)| counted(name)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use levada_core::Identity;
    use std::net::{Ipv4Addr, SocketAddr};

    fn announcement(name: &str) -> Announcement {
        Announcement {
            name: name.into(),
            identity: Identity::from_bytes([7; 32]),
            listening: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 7))],
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_responder_with_too_many_cached_records_is_unhealthy() {
        let responder = Responder::start(&announcement("well")).unwrap();
        let sender = testing::MulticastSender::new(Ipv4Addr::LOCALHOST).unwrap();
        let flood = async {
            let mut number = 0;
            while responder.is_healthy().await {
                for _ in 0..500 {
                    sender.send(&testing::unsolicited_response(number)).unwrap();
                    number += 1;
                }
            }
        };
        timeout(Duration::from_secs(60), flood).await.unwrap();
        assert!(Responder::start(&announcement("well")).unwrap().is_healthy().await);
    }

    #[tokio::test]
    async fn an_invalid_name_is_not_announced() {
        let wrong = Announcer::start(announcement("a b"));
        assert!(matches!(wrong, Err(DiscoveryError::Name(_))));
    }
}
