//! The parts of a request of a session.

use levada_core::wire::{self, Reason, Refusal};
use levada_core::{Framing, Identity, Params, ParamsError};

use crate::services::Offered;

/// The requested framing, if the service allows it; the default of the service if none was
/// requested.
pub(super) fn framing(offered: &Offered, requested: &str) -> Result<Framing, Refusal> {
    let allowed = &offered.description.framings;
    if requested.is_empty() {
        return Ok(allowed.first().copied().unwrap_or_default());
    }
    let requested: Framing =
        requested.parse().map_err(|_| Refusal::new(Reason::Malformed, "unknown framing"))?;
    if allowed.contains(&requested) {
        return Ok(requested);
    }
    let list: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    let text = format!("this service does not allow framing {requested}, only {}", list.join(", "));
    Err(Refusal::new(Reason::Parameters, text))
}

/// The parameters of the first link. The framing is one of them, so that no later link can change
/// it.
pub(super) fn params(request: &wire::Request, framing: Framing) -> Result<Params, Refusal> {
    let mut params = Params::new();
    params.add(Params::FRAMING, framing.to_string().into_bytes()).map_err(invalid)?;
    params.merge(&requested_params(request)?).map_err(invalid)?;
    if params.encode().len() > Params::MAX_LEN {
        return Err(invalid(ParamsError::TooLong));
    }
    Ok(params)
}

/// The parameters in a request.
pub(super) fn requested_params(request: &wire::Request) -> Result<Params, Refusal> {
    let mut params = Params::new();
    for pair in &request.parameters {
        params.add(&pair.key, pair.value.clone()).map_err(invalid)?;
    }
    Ok(params)
}

fn invalid(error: ParamsError) -> Refusal {
    Refusal::new(Reason::Parameters, error.to_string())
}

/// The starts that the requested session permits.
pub(super) fn starts(request: &wire::Request) -> u32 {
    request.uses.max(1)
}

/// The identity that the first link names.
pub(super) fn holder(request: &wire::Request, requester: Identity) -> Result<Identity, Refusal> {
    if request.holder.is_empty() {
        return Ok(requester);
    }
    Identity::try_from(request.holder.as_slice())
        .map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))
}
