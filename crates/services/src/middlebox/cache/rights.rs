//! What a session must grant so that a cache can be used in it.

use levada_session::contexts::{Purpose, Right};

use crate::middlebox::Granted;

/// A cache reads every context, so that no field that matters hides from it; and it writes everything that an exchange consists of (`docs/contexts.md`).
pub(super) fn check_rights(granted: &Granted) -> Result<(), String> {
    const NEEDED: [(Purpose, &str); 4] = [
        (Purpose::RequestHead, "request-head"),
        (Purpose::RequestBody, "request-body"),
        (Purpose::ResponseHead, "response-head"),
        (Purpose::ResponseBody, "response-body"),
    ];
    let missing = NEEDED.iter().filter(|(purpose, _)| granted.right(*purpose) < Right::Write);
    let mut missing: Vec<String> = missing.map(|(_, name)| format!("{name}=rw")).collect();
    for (number, (purpose, right)) in (1u8..).zip(&granted.0) {
        match purpose {
            Purpose::Trailers if *right == Right::None => missing.push("trailers=r".to_owned()),
            Purpose::Other | Purpose::Fields => {
                return Err(format!(
                    "context {number} is no whole head or body, and a cache needs those"
                ));
            }
            _ => {}
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("the session does not grant {}", missing.join(",")))
}
