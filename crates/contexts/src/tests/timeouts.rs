//! The time limit of the handshake.

use std::time::Duration;

use super::chain::{Behaviour, Chain, Parties};
use crate::Direction::{ToClient, ToServer};
use crate::Right::Read;
use crate::{Action, ContextError, Direction, Piece, Role, frame};

/// The error of each party after the time of a handshake in which frames of a kind are withheld in
/// this direction of a link.
fn late(held: Option<(usize, Direction, u8)>) -> Vec<Result<(), ContextError>> {
    let mut chain = Chain::new(&Parties::new(&[&[Read, Read]]));
    if let Some((link, direction, kind)) = held {
        // Nothing follows a frame that is withheld, so no party finds it out of order.
        let mut over = false;
        chain.attack((link, direction), move |mut frames| {
            let at = frames.iter().position(|frame| frame[0] == kind).filter(|_| !over);
            if let Some(at) = at {
                over = true;
                frames.truncate(at);
            } else if over {
                frames.clear();
            }
            frames
        });
        chain.run().unwrap();
        // As an application does that starts every session at once; too early, it is refused.
        let _ = chain.server.start(true, None, chain.now);
        chain.run().unwrap();
    }
    let late = chain.now + Duration::from_secs(10);
    let early = late - Duration::from_millis(1);
    let mut parties = Vec::new();
    parties.push((chain.client.handle_timeout(early), chain.client.handle_timeout(late)));
    for relay in &mut chain.relays {
        parties.push((relay.handle_timeout(early), relay.handle_timeout(late)));
        let closed = relay.receive(ToServer, &mut [0; 5], late);
        assert!(parties[parties.len() - 1].1.is_ok() || closed == Err(ContextError::Closed));
    }
    parties.push((chain.server.handle_timeout(early), chain.server.handle_timeout(late)));
    assert!(parties.iter().all(|(early, _)| early.is_ok()));
    parties.into_iter().map(|(_, late)| late).collect()
}

#[test]
fn each_role_ends_a_handshake_that_takes_too_long_and_names_the_party_it_waited_for() {
    let no = |what, from| Err(ContextError::Timeout { what, from });
    let hop = Role::Middlebox;
    let nothing = no("PATH", Role::Client);
    let flight = || no("its TLS flight", Role::Server);
    let ready = |from| no("READY", from);
    let cases = [
        (None, [flight(), nothing.clone(), nothing.clone(), nothing]),
        (
            Some((1, ToServer, frame::MBHELLO)),
            [flight(), flight(), no("MBHELLO", hop(1)), no("MBHELLO", hop(1))],
        ),
        (Some((2, ToServer, frame::MBKEY)), [flight(), flight(), flight(), no("MBKEY", hop(1))]),
        (
            Some((1, ToClient, frame::SBIND)),
            [
                no("SBIND", Role::Server),
                no("SBIND", Role::Server),
                ready(Role::Client),
                no("its TLS Finished", Role::Client),
            ],
        ),
        (
            Some((0, ToServer, frame::CSHARE)),
            [ready(Role::Server), no("CSHARE", Role::Client), ready(hop(1)), ready(hop(1))],
        ),
        (
            Some((1, ToServer, frame::READY)),
            [ready(Role::Server), ready(Role::Server), ready(Role::Client), ready(Role::Client)],
        ),
        (
            Some((1, ToClient, frame::READY)),
            [ready(Role::Server), ready(Role::Server), Ok(()), Ok(())],
        ),
        (Some((0, ToClient, frame::READY)), [ready(Role::Server), Ok(()), Ok(()), Ok(())]),
    ];
    for (held, expected) in cases {
        assert_eq!(late(held), expected, "{held:?}");
    }
    assert_eq!(
        ContextError::Timeout { what: "SBIND", from: Role::Server }.to_string(),
        "timed out: the server did not send SBIND"
    );
}

/// Each middlebox has its number from PATH, so none can tell before the limit that the links are in
/// another order.
#[test]
fn a_path_whose_links_are_in_another_order_ends_in_time() {
    let parties = Parties::new(&[&[Read, Read]]);
    let pass = [(); 2].map(|()| Box::new(|_: &Piece<'_>| Action::Pass) as Behaviour);
    let order = [parties.hops[1].clone(), parties.hops[0].clone()];
    let mut chain = Chain::over(&parties, &order, pass.into());
    chain.run().unwrap();
    let late = chain.now + Duration::from_secs(10);
    let no = |hop| Err(ContextError::Timeout { what: "MBHELLO", from: Role::Middlebox(hop) });
    assert_eq!(chain.relays[0].handle_timeout(late), no(1));
    assert_eq!(chain.server.handle_timeout(late), no(2));
    let flight = ContextError::Timeout { what: "its TLS flight", from: Role::Server };
    assert_eq!(chain.client.handle_timeout(late), Err(flight));
}
