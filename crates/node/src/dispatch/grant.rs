//! A request: a session with fixed parameters, and the first link of its capability. A client that wants no more
//! than to start the session asks for both at once.

use levada_capability::{LinkBody, LinkId, Rights, SessionId, Verified, mint};
use levada_core::printable::one_line;
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{
    Framing, Identity, MAX_NAME, Params, Random, SystemRandom, UnixTime, label, sha256,
};
use levada_session::Stream;
use zeroize::Zeroizing;

use crate::services::Offered;
use crate::store::{NewSession, Store, StoreError};

use super::operations::unknown_service;
use super::start::Start;
use super::{Asker, Verdict, connect, denied, failed};

/// A session that may be made: nothing of it is stored yet.
struct Prepared {
    id: SessionId,
    root: Zeroizing<[u8; 32]>,
    service: String,
    framing: Framing,
    requester: Identity,
    body: LinkBody,
    link: Vec<u8>,
    link_id: LinkId,
    secret: Zeroizing<[u8; 32]>,
    about: String,
    now: UnixTime,
}

/// The longest line of the audit log that says what a session is for, in bytes.
const MOST_ABOUT: usize = 128;

/// Requests a session and serves its first start to its end.
pub(super) async fn serve(asker: &Asker<'_>, request: wire::Request, mut stream: Stream) {
    let prepared = match asker.prepare(request).await {
        Ok(prepared) => prepared,
        Err(refusal) => return connect::refuse(asker, "start", &mut stream, refusal).await,
    };
    if prepared.body.identity != asker.peer {
        let refusal = denied("a session is started by its holder; request it first");
        return connect::refuse(asker, "start", &mut stream, refusal).await;
    }
    let start = prepared.start();
    let (link, secret) = (prepared.link.clone(), prepared.secret.clone());
    let framing = prepared.framing.to_string();
    let _ = asker.concerned.session.set(prepared.id);
    let admitted = asker.admit(&start, move |store, start, now| {
        store.create_and_start(&prepared.new_session(), start, now)
    });
    match admitted.await {
        Ok(admitted) => {
            let answer = |started| {
                let granted = wire::Granted { link, secret: secret.to_vec(), framing };
                let (granted, started) = (Some(granted), Some(started));
                Answer::StartedAtOnce(wire::StartedAtOnce { granted, started })
            };
            connect::run_to_end(asker, "start", start, admitted, stream, answer).await;
        }
        Err(refusal) => connect::refuse(asker, "start", &mut stream, refusal).await,
    }
}

impl Asker<'_> {
    /// Makes a session; the grant leaves only when it is on disk.
    pub(super) async fn request(&self, request: wire::Request) -> Verdict {
        let prepared = self.prepare(request).await?;
        let created = self.node.with_store(move |store: &Store| {
            store.create_session(&prepared.new_session(), prepared.now).map(|()| prepared)
        });
        let prepared = created.await.map_err(|error: StoreError| failed(&error))?;
        let _ = self.concerned.session.set(prepared.id);
        self.place.prove(self.connection);
        Ok(Answer::Granted(prepared.granted()))
    }

    /// Checks a request, and makes root, id and first link of its session.
    async fn prepare(&self, request: wire::Request) -> Result<Prepared, Refusal> {
        let _ = self.concerned.service.set(one_line(&request.service, MAX_NAME));
        if !self.node.may_request(&self.peer, &request.service).await {
            return Err(denied(&format!(
                "this identity may not request `{}` here; an invitation would let it in",
                one_line(&request.service, MAX_NAME)
            )));
        }
        let offered = self.node.services.get(&request.service);
        let offered =
            offered.ok_or_else(|| unknown_service(&one_line(&request.service, MAX_NAME)))?;
        let framing = framing(offered, &request.framing)?;
        let params = params(&request, framing)?;
        offered
            .service
            .check(&params, false)
            .map_err(|refused| Refusal::new(Reason::Parameters, refused.to_string()))?;
        let now = self.now().await?;
        let body = LinkBody {
            identity: holder(&request, self.peer)?,
            rights: Rights::ALL,
            expires: self.expiry(&request, now)?,
            uses: request.uses.max(1),
            max_run: (request.max_run > 0).then_some(request.max_run),
            params,
        };
        let (root, id) = fresh().map_err(|error| failed(&error))?;
        let minted = mint(&root, &body, self.node.identity(), id);
        let (link, secret) =
            minted.map_err(|error| Refusal::new(Reason::Parameters, error.to_string()))?;
        let link_id = LinkId::from_bytes(sha256(&[label::LINK_ID.as_bytes(), &link]));
        let about = about(offered, &body.params);
        let (service, requester) = (request.service, self.peer);
        Ok(Prepared {
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
            now,
        })
    }

    fn expiry(&self, request: &wire::Request, now: UnixTime) -> Result<UnixTime, Refusal> {
        if request.expires == 0 {
            return Ok(now.after(self.node.session_expires));
        }
        let expires = UnixTime(request.expires);
        if expires <= now {
            return Err(Refusal::new(Reason::Expired, "the expiry asked for is in the past"));
        }
        Ok(expires)
    }
}

impl Prepared {
    fn new_session(&self) -> NewSession<'_> {
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
        }
    }

    fn granted(&self) -> wire::Granted {
        let (link, secret) = (self.link.clone(), self.secret.to_vec());
        wire::Granted { link, secret, framing: self.framing.to_string() }
    }

    /// The start by the first link alone: it was made here, so that nothing of it needs to be verified.
    fn start(&self) -> Start {
        let verified = Verified {
            session: self.id,
            ids: vec![self.link_id],
            identities: vec![self.body.identity],
            uses: vec![(self.link_id, self.body.uses)],
            holder: self.body.identity,
            rights: self.body.rights,
            expires: self.body.expires,
            max_run: self.body.max_run,
            params: self.body.params.clone().without(Params::NONCE),
        };
        let (framing, requester) = (self.framing, self.requester);
        Start { verified, service: self.service.clone(), framing, requester }
    }
}

fn fresh() -> Result<(Zeroizing<[u8; 32]>, SessionId), levada_core::RandomError> {
    let mut root = Zeroizing::new([0; 32]);
    let mut id = [0; 16];
    SystemRandom.fill(root.as_mut())?;
    SystemRandom.fill(&mut id)?;
    Ok((root, SessionId::from_bytes(id)))
}

/// The framing asked for, if the service allows it; its default if none was.
fn framing(offered: &Offered, asked: &str) -> Result<Framing, Refusal> {
    let allowed = &offered.description.framings;
    if asked.is_empty() {
        return Ok(allowed.first().copied().unwrap_or_default());
    }
    let asked: Framing =
        asked.parse().map_err(|_| Refusal::new(Reason::Malformed, "no such framing"))?;
    if allowed.contains(&asked) {
        return Ok(asked);
    }
    let list: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    let text = format!("this service does not allow framing {asked}, only {}", list.join(", "));
    Err(Refusal::new(Reason::Parameters, text))
}

/// The parameters as they will stand in the first link; the framing is one of them, so that no later
/// link can change it.
fn params(request: &wire::Request, framing: Framing) -> Result<Params, Refusal> {
    let mut params = Params::new();
    let refuse =
        |error: levada_core::ParamsError| Refusal::new(Reason::Parameters, error.to_string());
    params.add(Params::FRAMING, framing.to_string().into_bytes()).map_err(refuse)?;
    for pair in &request.parameters {
        params.add(&pair.key, pair.value.clone()).map_err(refuse)?;
    }
    if params.encode().len() > Params::MAX_LEN {
        return Err(refuse(levada_core::ParamsError::TooLong));
    }
    Ok(params)
}

fn holder(request: &wire::Request, requester: Identity) -> Result<Identity, Refusal> {
    if request.holder.is_empty() {
        return Ok(requester);
    }
    Identity::try_from(request.holder.as_slice())
        .map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))
}

/// What a session with these parameters is for, short and on one line.
pub(super) fn about(offered: &Offered, params: &Params) -> String {
    one_line(&offered.service.summary(params).unwrap_or_default(), MOST_ABOUT)
}
