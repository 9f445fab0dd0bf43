//! Grants requests: creates a session with fixed parameters, and the first link of its capability.
//! A client that only wants to start the session requests and starts it in one operation.

use std::sync::Arc;

use levada_capability::{LinkBody, LinkId, Rights, SessionId, Verified, mint};
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{
    Framing, Identity, MAX_NAME, Params, Random, SystemRandom, UnixTime, label, sha256,
};
use levada_service::{Over, Refused, Service};
use levada_session::Stream;
use zeroize::Zeroizing;

use crate::decide::{Basis, Permitted};
use crate::granted::GrantedPath;
use crate::services::Offered;
use crate::store::{NewSession, Permission, RequestError};
use crate::wanted::Wanted;

use super::connect;
use super::context::{OperationResult, RequestContext};
use super::refusal::{check_draining, denied, failed, no_longer_permitted, unknown_service};
use super::requested::{framing, holder, params, starts};
use super::start::{Admitted, Start, about, refused_params};

/// A session that was granted but is not stored yet.
pub(super) struct Grant {
    id: SessionId,
    root: Zeroizing<[u8; 32]>,
    service: String,
    framing: Framing,
    requester: Identity,
    pub(super) body: LinkBody,
    link: Vec<u8>,
    link_id: LinkId,
    secret: Zeroizing<[u8; 32]>,
    pub(super) about: String,
    pub(super) permission: Permission,
    /// The entity that must approve the session before it is created.
    pub(super) asks: Option<Identity>,
    pub(super) now: UnixTime,
}

/// Requests a session and serves its first start to its end.
pub(super) async fn serve(
    context: &Arc<RequestContext>,
    request: wire::Request,
    mut stream: Stream,
) {
    let prepare = |service: &dyn Service, params: &Params| {
        let run = service.prepare(params, Over::Stream)?.into_stream()?;
        Ok((run, None))
    };
    match context.grant_and_start(request, prepare).await {
        Ok((grant, admitted)) => {
            let answer = move |started| grant.started_at_once(started);
            connect::run_to_end(context, "start", admitted, stream, answer).await;
        }
        Err(refusal) => connect::refuse(context, "start", &mut stream, refusal).await,
    }
}

impl RequestContext {
    /// Creates a session. The grant is sent only after the session is on disk.
    pub(super) async fn request(self: &Arc<Self>, request: wire::Request) -> OperationResult {
        self.store_end_of_right(&request.service).await?;
        let (mut grant, ()) = self.grant(request, |service, params| service.check(params))?;
        self.obtain_approval(&mut grant).await?;
        let created = self.on_store(move |context, store| {
            let _unchanged = context.node.rights.policy.hold();
            if let Err(refusal) = context.confirm(&mut grant) {
                store.store_time(context.node.now()).map_err(|error| failed(&error))?;
                return Err(refusal);
            }
            let created = store.create_session(&grant.new_session(), grant.now);
            created.map(|()| grant).map_err(|error| match error {
                RequestError::NotPermitted => no_longer_permitted(),
                RequestError::Store(error) => failed(&error),
            })
        });
        let grant = created.await?;
        let _ = self.subject.session.set(grant.id);
        self.slot.mark_proved(&*self.connection);
        Ok(Answer::Granted(grant.granted()))
    }

    /// Creates a session and counts its first start, in one transaction.
    pub(super) async fn grant_and_start<R: Send + 'static>(
        self: &Arc<Self>,
        request: wire::Request,
        prepare: impl FnOnce(&dyn Service, &Params) -> Result<(R, Option<GrantedPath>), Refused>,
    ) -> Result<(Grant, Admitted<R>), Refusal> {
        self.store_end_of_right(&request.service).await?;
        let (mut grant, (run, granted)) = self.grant(request, prepare)?;
        if grant.body.identity != self.peer {
            return Err(denied("a session is started by its holder; request it first"));
        }
        self.check_framing(grant.framing)?;
        self.obtain_approval(&mut grant).await?;
        let _ = self.subject.session.set(grant.id);
        let start = grant.start(run, granted);
        let admitted = self.on_store(move |context, store| {
            let session = grant.new_session();
            let now = grant.now;
            let admitted =
                context.admit(start, |new| store.create_and_start(&session, new, now))?;
            Ok((grant, admitted))
        });
        admitted.await
    }

    /// Stores the time if a right of the peer to `service` has expired, so that it stays so even if
    /// the clock is set back.
    async fn store_end_of_right(&self, service: &str) -> Result<(), Refusal> {
        let now = self.node.now();
        if !self.node.right_has_expired(&self.peer, service, now) {
            return Ok(());
        }
        let stored = self.node.with_store(move |store| store.store_time(now)).await;
        stored.map_err(|error| failed(&error))
    }

    /// Checks a request, with its parameters by `check`, and generates the root, the id and the
    /// first link of its session.
    fn grant<T>(
        &self,
        request: wire::Request,
        check: impl FnOnce(&dyn Service, &Params) -> Result<T, Refused>,
    ) -> Result<(Grant, T), Refusal> {
        let name = one_line(&request.service, MAX_NAME);
        let _ = self.subject.service.set(name.clone());
        check_draining(&self.node)?;
        let (permitted, asks) = self.decide(&request)?;
        let offered = self.node.services.get(&request.service);
        let offered =
            offered.ok_or_else(|| unknown_service(&name, &self.node.open_to(&self.peer)))?;
        let framing = framing(offered, &request.framing)?;
        let params = params(&request, framing)?;
        let checked = check(&*offered.service, &params).map_err(refused_params)?;
        let grant = self.mint_grant(request, offered, (framing, params), permitted)?;
        Ok((Grant { asks, ..grant }, checked))
    }

    fn mint_grant(
        &self,
        request: wire::Request,
        offered: &Offered,
        (framing, params): (Framing, Params),
        permitted: Permitted,
    ) -> Result<Grant, Refusal> {
        let now = self.node.now();
        let expires = self.expiry(&request, now, permitted.expires)?;
        let body = LinkBody {
            identity: holder(&request, self.peer)?,
            rights: Rights::ALL,
            expires: expires.min(permitted.until),
            uses: starts(&request),
            max_run: (request.max_run > 0).then_some(request.max_run),
            params,
        };
        let about = about(offered, &body.params);
        let issuer = (self.node.identity(), now);
        let grant = Grant::mint(issuer, &request.service, framing, self.peer, body)?;
        let permission = permitted.permission;
        Ok(Grant { about, permission, ..grant })
    }

    /// The expiry of a session; `default` is the expiry by a rule, if the request sets none.
    fn expiry(
        &self,
        request: &wire::Request,
        now: UnixTime,
        default: Option<UnixTime>,
    ) -> Result<UnixTime, Refusal> {
        if request.expires == 0 {
            return Ok(default.unwrap_or_else(|| now.after(self.node.rights.session_expires)));
        }
        let expires = UnixTime(request.expires);
        if expires <= now {
            return Err(Refusal::new(Reason::Expired, "the requested expiry is in the past"));
        }
        Ok(expires)
    }
}

impl Grant {
    /// Generates the root, the id and the first link of a session of `node`, with an empty summary.
    /// It uses no right of the store.
    pub(super) fn mint(
        (node, now): (Identity, UnixTime),
        service: &str,
        framing: Framing,
        requester: Identity,
        body: LinkBody,
    ) -> Result<Self, Refusal> {
        let (root, id) = generate_root_and_id().map_err(|error| failed(&error))?;
        let minted = mint(&root, &body, node, id);
        let (link, secret) =
            minted.map_err(|error| Refusal::new(Reason::Parameters, error.to_string()))?;
        let link_id = LinkId::from_bytes(sha256(&[label::LINK_ID.as_bytes(), &link]));
        let service = service.to_owned();
        let about = String::new();
        let permission = Permission::Given;
        Ok(Self {
            id,
            root,
            service,
            framing,
            requester,
            body,
            link,
            link_id,
            secret,
            about,
            permission,
            asks: None,
            now,
        })
    }

    /// The session as the rules see it.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            service: &self.service,
            params: &self.body.params,
            expires: Some(self.body.expires),
            uses: self.body.uses,
        }
    }

    pub(super) fn new_session(&self) -> NewSession<'_> {
        NewSession {
            id: self.id,
            root: &self.root,
            service: &self.service,
            framing: self.framing,
            requester: self.requester,
            holder: self.body.identity,
            link: &self.link,
            link_id: self.link_id,
            expires: self.body.expires,
            about: &self.about,
            permission: self.permission.clone(),
        }
    }

    /// The answer that grants and starts the session.
    pub(super) fn started_at_once(&self, started: wire::Started) -> Answer {
        let granted = Some(self.granted());
        let started = Some(started);
        Answer::StartedAtOnce(wire::StartedAtOnce { granted, started })
    }

    pub(super) fn granted(&self) -> wire::Granted {
        let link = self.link.clone();
        let secret = self.secret.to_vec();
        wire::Granted { link, secret, framing: self.framing.to_string() }
    }

    /// The right that permits the start at the request. The store checks its own rights.
    fn basis(&self) -> Basis {
        let rule = match &self.permission {
            Permission::Rule(rule) => Some(*rule),
            _ => None,
        };
        Basis {
            rule,
            needs_right: matches!(self.permission, Permission::Given | Permission::Group(_)),
        }
    }

    /// The start by the first link. It needs no verification, because this node has just minted it.
    fn start<R>(&self, run: R, granted: Option<GrantedPath>) -> Start<R> {
        let verified = Verified {
            session: self.id,
            ids: vec![self.link_id],
            identities: vec![self.body.identity],
            uses: vec![(self.link_id, self.body.uses)],
            holder: self.body.identity,
            rights: self.body.rights,
            expires: self.body.expires,
            max_run: self.body.max_run,
            params: self.body.params.clone(),
        };
        let service = self.service.clone();
        let about = self.about.clone();
        let requester = self.requester;
        let basis = self.basis();
        Start { verified, service, requester, basis, about, granted, run }
    }
}

fn generate_root_and_id() -> Result<(Zeroizing<[u8; 32]>, SessionId), levada_core::RandomError> {
    let mut root = Zeroizing::new([0; 32]);
    let mut id = [0; 16];
    SystemRandom.fill(root.as_mut())?;
    SystemRandom.fill(&mut id)?;
    Ok((root, SessionId::from_bytes(id)))
}
