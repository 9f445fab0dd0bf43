use std::time::Duration;

use super::*;
use crate::Change;

#[test]
fn netem_gets_all_properties() {
    let link = Link::new()
        .delay(Duration::from_millis(20))
        .jitter(Duration::from_micros(1500))
        .rate(8_000_000)
        .queue(15_000)
        .loss(Loss::Bernoulli(0.01))
        .duplicate(0.02)
        .reorder(0.25);
    assert_eq!(
        netem(&link, 1500),
        "netem limit 24 delay 20000us 1500us loss random 1% duplicate 2% reorder 25% rate 8074666bit"
    );
    let bursts =
        Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 0.5 };
    let link = Link::new().loss(bursts);
    assert_eq!(netem(&link, 1500), "netem limit 100000 loss gemodel 1% 25% 50% 0%");
}

#[test]
fn tbf_gets_rate_and_queue() {
    let link = Link::new().rate(100_000_000).queue(64_000);
    let told = |link: &Link| discipline(Backend::Tbf, link, 1500).unwrap();
    assert_eq!(told(&link), "tbf rate 100933333bit burst 25000 limit 64000");
    assert_eq!(told(&link.rate(1_000_000)), "tbf rate 1009333bit burst 3000 limit 64000");
    assert_eq!(discipline(Backend::Tbf, &Link::new(), 1500), None);
}

/// A machine with the given backends.
fn machine(forced: Option<Backend>, netem: bool, tbf: bool) -> Backends {
    let answer = |has: bool| Some(if has { Ok(()) } else { Err("no such thing".to_owned()) });
    Backends { forced, netem: answer(netem), tbf: answer(tbf) }
}

#[test]
fn chooses_the_simplest_backend_that_supports_the_link() {
    let plain = Link::new().mtu(9000);
    let slow = Link::new().rate(1000).queue(10_000);
    let far = slow.clone().delay(Duration::from_millis(1));
    let back = Link::new().reverse(far.clone());
    let change = Change { delay: Some(Duration::ZERO), ..Change::default() };
    let varied = Link::new().schedule(vec![(Duration::ZERO, change)]);
    for (netem, tbf, chosen) in [
        (
            true,
            true,
            [Backend::Bare, Backend::Netem, Backend::Netem, Backend::Netem, Backend::User],
        ),
        (false, true, [Backend::Bare, Backend::Tbf, Backend::User, Backend::User, Backend::User]),
        (false, false, [Backend::Bare, Backend::User, Backend::User, Backend::User, Backend::User]),
    ] {
        for (link, backend) in [&plain, &slow, &far, &back, &varied].into_iter().zip(chosen) {
            assert_eq!(machine(None, netem, tbf).choose(link).unwrap(), backend, "{link:?}");
        }
    }
}

#[test]
fn refuses_a_backend_that_does_not_support_the_link() {
    let far = Link::new().delay(Duration::from_millis(1));
    for backend in [Backend::Bare, Backend::Tbf, Backend::Netem] {
        let error = machine(Some(backend), false, true).choose(&far).unwrap_err();
        assert!(error.to_string().contains(&backend.to_string()), "{error}");
    }
    assert_eq!(
        machine(Some(Backend::User), false, false).choose(&Link::new()).unwrap(),
        Backend::User
    );
}
