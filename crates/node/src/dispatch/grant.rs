//! A request: a session with fixed parameters, and the first link of its capability.

use levada_capability::{LinkBody, LinkId, Rights, SessionId, mint};
use levada_core::wire::{self, Reason, Refusal, answer::Answer};
use levada_core::{Framing, Identity, Params, Random, SystemRandom, UnixTime, label, sha256};
use zeroize::Zeroizing;

use crate::running::Offered;
use crate::store::NewSession;

use super::operations::unknown_service;
use super::{Asker, Verdict, denied, failed};

impl Asker<'_> {
    pub(super) async fn request(&self, request: wire::Request) -> Verdict {
        if !self.node.may_request(&self.peer, &request.service).await {
            return Err(denied(&format!(
                "this identity may not request `{}` here; an invitation would let it in",
                printable(&request.service)
            )));
        }
        let offered = self.node.services.get(&request.service);
        let offered = offered.ok_or_else(|| unknown_service(&printable(&request.service)))?;
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
            params,
        };
        self.create(&request.service, framing, &body, now).await
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

    /// Makes root and session; the grant leaves only when it is on disk.
    async fn create(
        &self,
        service: &str,
        framing: Framing,
        body: &LinkBody,
        now: UnixTime,
    ) -> Verdict {
        let (root, id) = fresh().map_err(|error| failed(&error))?;
        let minted = mint(&root, body, self.node.identity(), id);
        let (link, secret) =
            minted.map_err(|error| Refusal::new(Reason::Parameters, error.to_string()))?;
        let link_id = LinkId::from_bytes(sha256(&[label::LINK_ID.as_bytes(), &link]));
        let (service, requester) = (service.to_owned(), self.peer);
        let (holder, expires, stored) = (body.identity, body.expires, link.clone());
        let created = self.node.with_store(move |store| {
            let new = NewSession {
                id,
                root: &root,
                service: &service,
                framing,
                requester,
                holder,
                link: &stored,
                link_id,
                expires,
            };
            store.create_session(&new, now)
        });
        created.await.map_err(|error| failed(&error))?;
        let framing = framing.to_string();
        Ok(Answer::Granted(wire::Granted { link, secret: secret.to_vec(), framing }))
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

/// What came from a stranger, short and on one line.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}
