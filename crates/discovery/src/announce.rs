//! Announcing a node.

use std::net::SocketAddr;
use std::time::Duration;

use levada_core::{Identity, check_name};
use mdns_sd::{IfKind, Metrics, ServiceDaemon};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::records::{interfaces, ports, service};
use crate::{DiscoveryError, multicast};

/// How often interfaces that come and go are looked for, in seconds.
const INTERFACES: u32 = 1;
/// How often the thread that announces is looked after.
const WATCH: Duration = Duration::from_secs(2);
/// How long it may take to answer. One that takes longer is busy, not dead: it reads whatever comes before it
/// listens to us.
const PATIENCE: Duration = Duration::from_secs(5);
/// Records of others, and times to look at them again, that it may have gathered. It asks for no records, but
/// mdns-sd keeps those of packets in which no PTR record says whom they are for.
const MOST_GATHERED: i64 = 4096;
/// How long one thread announces: not all that it may gather can be counted.
const FRESH: Duration = Duration::from_secs(600);
/// A goodbye is said twice, this long apart, in case the first is lost.
const TWICE: Duration = Duration::from_millis(150);
/// How long all goodbyes may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a node announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// Where it listens. An unspecified address stands for every one that an interface has, now or later.
    /// On each interface only those are announced that can be reached there.
    pub listening: Vec<SocketAddr>,
}

/// Announces a node for as long as it is there. When it is dropped, it says goodbye.
pub struct Announcer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Begins to announce: others learn of it within a second or so. To be called within a tokio runtime.
    ///
    /// # Errors
    /// [`DiscoveryError`] if the name is none, or this machine cannot announce.
    pub fn start(announcement: Announcement) -> Result<Self, DiscoveryError> {
        check_name(&announcement.name).map_err(DiscoveryError::Name)?;
        multicast::usable()?;
        let responder = Responder::start(&announcement)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(announcement, responder, stopped));
        Ok(Self { stop, task })
    }

    /// Says goodbye, so that nobody shows the node any more; takes a second at most.
    pub async fn goodbye(self) {
        drop(self.stop);
        let _ = timeout(FAREWELL, self.task).await;
    }
}

/// Announces until it is told to stop; a thread that has ended, was made to swell or is old is replaced.
async fn keep(
    announcement: Announcement,
    responder: Responder,
    mut stopped: oneshot::Receiver<()>,
) {
    let (mut responder, mut replaced) = (responder, None::<Responder>);
    loop {
        let watch = async {
            sleep(WATCH).await;
            responder.is_well().await
        };
        let is_well = tokio::select! {
            _ = &mut stopped => break,
            is_well = watch => is_well,
        };
        // Only now, when its successor has been heard: nobody is to miss the node.
        if let Some(replaced) = replaced.take() {
            replaced.fall_silent();
        }
        if is_well {
            continue;
        }
        match Responder::start(&announcement) {
            Ok(new) => replaced = Some(std::mem::replace(&mut responder, new)),
            Err(error) => tracing::warn!(%error, "this node may not be announced for the moment"),
        }
    }
    responder.goodbye().await;
}

/// The thread that answers questions about the node.
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
        daemon.set_ip_check_interval(INTERFACES)?;
        let ports = ports(&announcement.listening);
        match interfaces(&ports) {
            Some(few) => {
                daemon.disable_interface(IfKind::All)?;
                daemon.enable_interface(few)?;
            }
            None => daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?,
        }
        for (place, (port, bound)) in ports.iter().enumerate() {
            let service = service(announcement, place, *port, bound)?;
            responder.instances.push(service.get_fullname().to_owned());
            responder.daemon.register(service)?;
        }
        Ok(responder)
    }

    /// Whether the thread lives, is not old, and has not gathered what it does not need.
    async fn is_well(&self) -> bool {
        if self.since.elapsed() > FRESH {
            return false;
        }
        let answer = match self.daemon.get_metrics() {
            Ok(answer) => answer,
            Err(mdns_sd::Error::Again) => return true,
            Err(_) => return false,
        };
        match timeout(PATIENCE, answer.recv_async()).await {
            Ok(Ok(metrics)) => gathered(&metrics) <= MOST_GATHERED,
            Ok(Err(_)) => false,
            Err(_) => {
                tracing::warn!(
                    "multicast DNS is flooded: this node may not be found, and may need more memory"
                );
                true
            }
        }
    }

    /// Ends without a goodbye: on no interface, there is nobody to say it to.
    fn fall_silent(self) {
        let _ = self.daemon.disable_interface(IfKind::All);
    }

    async fn goodbye(&self) {
        for instance in &self.instances {
            if let Ok(said) = self.daemon.unregister(instance) {
                let _ = timeout(FAREWELL, said.recv_async()).await;
            }
        }
        sleep(TWICE).await;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Says goodbye, too, if that was not done yet.
        let _ = self.daemon.shutdown();
    }
}

fn gathered(metrics: &Metrics) -> i64 {
    let counted = |name: &str| name.starts_with("cached-") || name == "timer";
    metrics.iter().filter(|(name, _)| counted(name)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::net::Ipv4Addr;

    fn announcement(name: &str) -> Announcement {
        Announcement {
            name: name.into(),
            identity: Identity::from_bytes([7; 32]),
            listening: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 7))],
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_was_made_to_swell_is_replaced() {
        let responder = Responder::start(&announcement("well")).unwrap();
        let voice = testing::Voice::new(Ipv4Addr::LOCALHOST).unwrap();
        let swell = async {
            let mut number = 0;
            while responder.is_well().await {
                for _ in 0..500 {
                    voice.say(&testing::stray(number)).unwrap();
                    number += 1;
                }
            }
        };
        timeout(Duration::from_secs(60), swell).await.unwrap();
        assert!(Responder::start(&announcement("well")).unwrap().is_well().await);
    }

    #[tokio::test]
    async fn what_is_no_name_is_not_announced() {
        let wrong = Announcer::start(announcement("a b"));
        assert!(matches!(wrong, Err(DiscoveryError::Name(_))));
    }
}
