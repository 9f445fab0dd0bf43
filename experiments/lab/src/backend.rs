//! The choice of a link's backend, and its queueing discipline for `tc`.

use std::net::Ipv4Addr;

use crate::{Backend, LabError, Link, Loss, Node};

/// The backends of this machine, each probed once when first needed.
#[derive(Debug)]
pub(crate) struct Backends {
    forced: Option<Backend>,
    netem: Option<Result<(), String>>,
    tbf: Option<Result<(), String>>,
}

impl Backends {
    pub(crate) fn new(forced: Option<Backend>) -> Self {
        Self { forced, netem: None, tbf: None }
    }

    /// The requested backend, or the simplest that supports the link on this machine.
    pub(crate) fn choose(&mut self, link: &Link) -> Result<Backend, LabError> {
        let requirements = Requirements::of(link);
        if let Some(backend) = self.forced {
            let reason = match requirements.unmet_reason(backend) {
                Some(reason) => Some(reason.to_owned()),
                None => self.probe(backend)?.err(),
            };
            return reason.map_or(Ok(backend), |reason| Err(LabError::Backend { backend, reason }));
        }
        for backend in [Backend::Bare, Backend::Netem, Backend::Tbf] {
            if requirements.unmet_reason(backend).is_none() && self.probe(backend)?.is_ok() {
                return Ok(backend);
            }
        }
        Ok(Backend::User)
    }

    fn probe(&mut self, backend: Backend) -> Result<Result<(), String>, LabError> {
        let (known, discipline) = match backend {
            Backend::Netem => (&mut self.netem, "netem delay 1ms"),
            Backend::Tbf => (&mut self.tbf, "tbf rate 1mbit burst 10k limit 10k"),
            Backend::User | Backend::Bare => return Ok(Ok(())),
        };
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let node = Node::new("probe", 0, Ipv4Addr::LOCALHOST)?;
        let tried = node.batch("tc", &format!("qdisc add dev lo root {discipline}\n"));
        node.close();
        let answer = tried.map_err(|error| format!("this machine does not have it ({error})"));
        *known = Some(answer.clone());
        Ok(answer)
    }
}

/// The features that a link needs, in either direction.
struct Requirements {
    rate: bool,
    /// Delay, loss and other features beside a rate.
    more: bool,
    schedule: bool,
}

impl Requirements {
    fn of(link: &Link) -> Self {
        let mut requirements = Self { rate: false, more: false, schedule: false };
        for one in [link, link.back()] {
            requirements.rate |= one.rate.is_some();
            requirements.schedule |= !one.schedule.is_empty();
            requirements.more |= !one.delay.is_zero()
                || !one.jitter.is_zero()
                || one.loss != Loss::None
                || one.reorder > 0.0
                || one.duplicate > 0.0;
        }
        requirements
    }

    /// Why a backend does not support this, and what to do.
    fn unmet_reason(&self, backend: Backend) -> Option<&'static str> {
        match backend {
            Backend::Bare if self.rate || self.more || self.schedule => {
                Some("it emulates nothing: choose another, or a link without properties")
            }
            Backend::Tbf if self.more => Some("it only has a rate and a queue: choose `user`"),
            Backend::Tbf if !self.rate => {
                Some("it requirements a rate: give one, or choose `bare`")
            }
            Backend::Tbf | Backend::Netem if self.schedule => {
                Some("it does not support schedules: choose `user`")
            }
            _ => None,
        }
    }
}

/// The queueing discipline of a device for `tc qdisc add dev … root`, for the direction that leaves
/// by that device. `None` if this direction needs none.
pub(crate) fn discipline(backend: Backend, link: &Link, mtu: u32) -> Option<String> {
    match backend {
        Backend::Netem => Some(netem(link, mtu)),
        Backend::Tbf => link.rate.map(|rate| tbf(link, rate, mtu)),
        Backend::User | Backend::Bare => None,
    }
}

fn netem(link: &Link, mtu: u32) -> String {
    // Without a rate the queue holds the packets in flight: enough for 10 Gbit/s at 100 ms.
    let queue = link.rate.map_or(100_000, |rate| {
        let in_flight = u128::from(rate) * (link.delay + link.jitter).as_micros() / 8_000_000;
        (link.queue_or_default(rate) + u64::try_from(in_flight).unwrap_or(0)) / u64::from(mtu)
    });
    let mut text = format!("netem limit {}", queue.max(1));
    if !link.delay.is_zero() || !link.jitter.is_zero() {
        text += &format!(" delay {}us {}us", link.delay.as_micros(), link.jitter.as_micros());
    }
    text += &match link.loss {
        Loss::None => String::new(),
        Loss::Bernoulli(loss) => format!(" loss random {}", percent(loss)),
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => format!(
            " loss gemodel {} {} {} {}",
            percent(to_bad),
            percent(to_good),
            percent(loss_bad),
            percent(loss_good)
        ),
    };
    for (word, chance) in [("duplicate", link.duplicate), ("reorder", link.reorder)] {
        if chance > 0.0 {
            text += &format!(" {word} {}", percent(chance));
        }
    }
    if let Some(rate) = link.rate {
        text += &format!(" rate {}bit", with_ethernet(rate, mtu));
    }
    text
}

fn tbf(link: &Link, rate: u64, mtu: u32) -> String {
    // What the rate sends in two milliseconds: a timer that fires later than the burst covers loses
    // rate.
    let burst = (rate / 4000).max(2 * u64::from(mtu));
    let limit = link.queue_or_default(rate).max(burst);
    format!("tbf rate {}bit burst {burst} limit {limit}", with_ethernet(rate, mtu))
}

/// The rate for the kernel, which also counts the 14 bytes of Ethernet, so that full packets get
/// the configured rate.
fn with_ethernet(rate: u64, mtu: u32) -> u64 {
    let mtu = u128::from(mtu);
    u64::try_from(u128::from(rate) * (mtu + 14) / mtu).unwrap_or(rate)
}

fn percent(chance: f64) -> String {
    format!("{}%", chance * 100.0)
}

#[cfg(test)]
mod tests;
