//! Answers on the stream of an operation.

use levada_core::wire::{self, Answer};
use levada_session::Stream;
use tokio::time::timeout;
use zeroize::{Zeroize, Zeroizing};

use crate::peers::OPERATION_TIMEOUT;

/// Sends an answer and waits until the peer has finished its direction. Dropping the stream earlier
/// would reset it, and the reset could overtake the answer.
pub(super) async fn send_answer(stream: &mut Stream, mut answer: Answer) {
    let bytes = Zeroizing::new(wire::encode(&answer));
    zeroize_secret(&mut answer);
    let sent = async {
        stream.send(&bytes).await?;
        stream.finish().await?;
        let mut rest = [0; 64];
        while stream.read(&mut rest).await?.is_some() {}
        Ok::<_, levada_session::StreamError>(())
    };
    // A failure affects only this peer, which does not receive its answer.
    let _ = timeout(OPERATION_TIMEOUT, sent).await;
}

/// Zeroizes the copy of a secret in an answer that was encoded.
pub(super) fn zeroize_secret(answer: &mut Answer) {
    match &mut answer.answer {
        Some(wire::answer::Answer::Granted(granted)) => granted.secret.zeroize(),
        Some(wire::answer::Answer::StartedAtOnce(at_once)) => {
            if let Some(granted) = &mut at_once.granted {
                granted.secret.zeroize();
            }
        }
        _ => {}
    }
}
