//! The calls that the node makes until power fails.

use levada_core::{Framing, UnixTime};
use levada_node::store::{NewSession, Permission, RequestError, Store, StoreError};

use super::model::{Model, Step, chain_of, succession};
use crate::support::{LATER, NOW, id, identity, link, start_by};

/// The uses of the first link of every session.
pub const USES: u32 = 3;

const STEPS: &[Step] = &[
    Step::StoreTime(NOW),
    Step::Create(1),
    Step::Invite(1),
    Step::Start { session: 1, chain: &[(1, USES)] },
    Step::Create(2),
    Step::Start { session: 1, chain: &[(1, USES), (11, 2)] },
    Step::Redeem { invitation: 1, identity: 21 },
    Step::Create(3),
    Step::Terminate(3),
    Step::Revoke { session: 2, link: 12 },
    Step::Start { session: 1, chain: &[(1, USES), (11, 2)] },
    Step::Reopen,
    Step::Now(UnixTime(NOW.0 + 20)),
    Step::Create(4),
    Step::RevokeSession(4),
    Step::Create(5),
    Step::Start { session: 5, chain: &[(5, USES)] },
    Step::Start { session: 2, chain: &[(2, USES), (13, 1)] },
    Step::RevokeSession(5),
    Step::Invite(2),
    Step::Redeem { invitation: 2, identity: 22 },
    Step::Now(UnixTime(NOW.0 + 40)),
    Step::Block(23),
    Step::Create(6),
    Step::Rotate { old: 6, new: 26 },
    Step::Rotate { old: 22, new: 27 },
    Step::StoreTime(UnixTime(NOW.0 + 60)),
    Step::Reopen,
    Step::Create(7),
    Step::Start { session: 7, chain: &[(7, USES), (17, 2), (18, 1)] },
    Step::Start { session: 2, chain: &[(2, USES)] },
    Step::Terminate(2),
    Step::Create(8),
];

/// Runs the steps in order until one fails: what was acknowledged.
pub fn run(open: impl Fn() -> Result<Store, StoreError>) -> Model {
    let mut model = Model::default();
    let Ok(mut store) = open() else {
        return model;
    };
    for step in STEPS {
        model.begin(*step);
        if *step == Step::Reopen {
            drop(store);
            match open() {
                Ok(opened) => store = opened,
                Err(_) => return model,
            }
        } else if make(&store, *step).is_err() {
            return model;
        }
        model.acknowledge(*step);
    }
    // Closing the store is part of the scenario.
    drop(store);
    model.finish();
    model
}

/// Errors carry no information: each one means that power has failed, which `FaultFs::is_off`
/// reports.
fn make(store: &Store, step: Step) -> Result<(), ()> {
    fn done<T, E>(outcome: Result<T, E>) -> Result<(), ()> {
        outcome.map(drop).map_err(drop)
    }
    let by = identity(1);
    match step {
        Step::Create(byte) => done(create(store, byte)),
        Step::Start { session, chain } => {
            done(start_by(store, &id(session), &chain_of(chain), &by, NOW))
        }
        Step::Revoke { session, link: it } => done(store.revoke(&link(it), &id(session), &by, NOW)),
        Step::RevokeSession(session) => done(store.revoke_session(&id(session), &by, NOW)),
        Step::Terminate(session) => done(store.terminate(&id(session), &by, NOW)),
        Step::Invite(byte) => done(store.add_invitation(&[byte; 32], None, None, LATER, NOW)),
        Step::Redeem { invitation, identity: key_id } => {
            done(store.redeem(&[invitation; 32], &identity(key_id), NOW))
        }
        Step::Block(key_id) => done(store.block(&identity(key_id), NOW)),
        Step::Rotate { old, new } => done(store.apply_succession(&succession(old, new), NOW)),
        Step::StoreTime(time) => done(store.store_time(time)),
        Step::Now(time) => {
            store.now(time);
            Ok(())
        }
        Step::Reopen => Ok(()),
    }
}

fn create(store: &Store, byte: u8) -> Result<(), StoreError> {
    let new = NewSession {
        id: id(byte),
        root: &[byte; 32],
        service: "echo",
        framing: Framing::Auto,
        requester: identity(byte),
        holder: identity(byte),
        link: &[byte; 120],
        link_id: link(byte),
        expires: LATER,
        about: "",
        permission: Permission::Given,
    };
    store.create_session(&new, NOW).map_err(|error| match error {
        RequestError::Store(error) => error,
        RequestError::NotPermitted => unreachable!("it needs no right"),
    })
}
