//! Which backend does a link, and how `tc` is told.

use std::net::Ipv4Addr;

use crate::{Backend, LabError, Link, Loss, Node};

/// What is known of this machine's backends; each is probed once, when first needed.
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

    /// The one that was asked for, or the simplest that can do the link here.
    pub(crate) fn choose(&mut self, link: &Link) -> Result<Backend, LabError> {
        let needs = Needs::of(link);
        if let Some(backend) = self.forced {
            let reason = match needs.unmet_by(backend) {
                Some(reason) => Some(reason.to_owned()),
                None => self.probe(backend)?.err(),
            };
            return reason.map_or(Ok(backend), |reason| Err(LabError::Backend { backend, reason }));
        }
        for backend in [Backend::Bare, Backend::Netem, Backend::Tbf] {
            if needs.unmet_by(backend).is_none() && self.probe(backend)?.is_ok() {
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

/// What a link asks for, both directions together.
struct Needs {
    rate: bool,
    /// Delay, losses and so on: more than a rate.
    more: bool,
    schedule: bool,
}

impl Needs {
    fn of(link: &Link) -> Self {
        let mut needs = Self { rate: false, more: false, schedule: false };
        for one in [link, link.back()] {
            needs.rate |= one.rate.is_some();
            needs.schedule |= !one.schedule.is_empty();
            needs.more |= !one.delay.is_zero()
                || !one.jitter.is_zero()
                || one.loss != Loss::None
                || one.reorder > 0.0
                || one.duplicate > 0.0;
        }
        needs
    }

    /// What a backend lacks for this, and what to do.
    fn unmet_by(&self, backend: Backend) -> Option<&'static str> {
        match backend {
            Backend::Bare if self.rate || self.more || self.schedule => {
                Some("it only joins: choose another, or ask nothing of the link")
            }
            Backend::Tbf if self.more => Some("it only has a rate and a queue: choose `user`"),
            Backend::Tbf if !self.rate => Some("it needs a rate: give one, or choose `bare`"),
            Backend::Tbf | Backend::Netem if self.schedule => {
                Some("it follows no schedule: choose `user`")
            }
            _ => None,
        }
    }
}

/// What the queueing discipline of a device is to be, as `tc qdisc add dev … root` takes it; for the direction that
/// leaves by that device. `None`: nothing is asked of this direction.
pub(crate) fn discipline(backend: Backend, link: &Link, mtu: u32) -> Option<String> {
    match backend {
        Backend::Netem => Some(netem(link, mtu)),
        Backend::Tbf => link.rate.map(|rate| tbf(link, rate, mtu)),
        Backend::User | Backend::Bare => None,
    }
}

fn netem(link: &Link, mtu: u32) -> String {
    // Without a rate the queue holds what is under way: room for 10 Gbit/s at 100 ms.
    let queue = link.rate.map_or(100_000, |rate| {
        let under_way = u128::from(rate) * (link.delay + link.jitter).as_micros() / 8_000_000;
        (link.queue_or_default(rate) + u64::try_from(under_way).unwrap_or(0)) / u64::from(mtu)
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
    // What the rate sends in two milliseconds: what a busy machine is late by is lost if it does not fit.
    let burst = (rate / 4000).max(2 * u64::from(mtu));
    let limit = link.queue_or_default(rate).max(burst);
    format!("tbf rate {}bit burst {burst} limit {limit}", with_ethernet(rate, mtu))
}

/// The kernel counts the 14 bytes of Ethernet too; full packets shall get the rate that was asked for.
fn with_ethernet(rate: u64, mtu: u32) -> u64 {
    let mtu = u128::from(mtu);
    u64::try_from(u128::from(rate) * (mtu + 14) / mtu).unwrap_or(rate)
}

fn percent(chance: f64) -> String {
    format!("{}%", chance * 100.0)
}

#[cfg(test)]
mod tests;
