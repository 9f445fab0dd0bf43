//! `echo`: sends received data back, for trials and measurements.

use std::sync::Arc;

use levada_core::Params;
use levada_service::stdio::{Message, StdioError, Tag};
use levada_service::{
    NoOptions, Over, Prepared, Refused, Service, ServiceError, ServiceType, check_none, exit,
};
use levada_session::{ReceiveHalf, SendHalf, Stream};

/// The size of a read, in bytes.
const PART: usize = 64 * 1024;
/// The longest message other than data, in bytes: a window has 5.
const MAX_CONTROL: usize = 8;

/// The type `echo`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("echo", |_, _, _: NoOptions| Ok(Arc::new(Echo)))
}

/// The service of type `echo`.
struct Echo;

impl Service for Echo {
    fn category(&self) -> &'static str {
        "test"
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        check_none(params)?;
        Ok(Prepared::stream(|_, stream: Stream| async {
            let (mut send, mut receive) = stream.split();
            echo(&mut send, &mut receive).await?;
            Ok(exit(send, receive, 0).await?)
        }))
    }
}

/// Sends data back until the client sends [`Message::End`].
async fn echo(send: &mut SendHalf, receive: &mut ReceiveHalf) -> Result<(), ServiceError> {
    let mut part = vec![0; PART];
    loop {
        let (mut length, mut end) = read(receive, &mut part).await?;
        if length == 0 && end {
            return Err(StdioError::Malformed.into());
        }
        if length == 0 {
            continue;
        }
        if part[0] != Tag::Data as u8 {
            if is_end(receive, &part[..length], end).await? {
                return Ok(());
            }
            continue;
        }
        // A message is sent back in parts as it arrives, so its length needs no bound.
        loop {
            send.write(&part[..length], end).await?;
            if end {
                break;
            }
            (length, end) = read(receive, &mut part).await?;
        }
    }
}

async fn read(receive: &mut ReceiveHalf, part: &mut [u8]) -> Result<(usize, bool), ServiceError> {
    receive.read(part).await?.ok_or(ServiceError::Gone)
}

/// Receives the rest of a message other than data, which begins with `first`: true if it is
/// [`Message::End`].
async fn is_end(
    receive: &mut ReceiveHalf,
    first: &[u8],
    mut end: bool,
) -> Result<bool, ServiceError> {
    let mut message = first.to_vec();
    while !end {
        let mut part = [0; MAX_CONTROL];
        let (length, last) = read(receive, &mut part).await?;
        message.extend_from_slice(&part[..length]);
        if message.len() > MAX_CONTROL {
            return Err(StdioError::Malformed.into());
        }
        end = last;
    }
    match Message::decode(&message)? {
        Message::End => Ok(true),
        Message::Window(_) => Ok(false),
        _ => Err(StdioError::Direction.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_service::stdio::MAX_MESSAGE;
    use levada_service::testing::{Client, run};

    #[tokio::test]
    async fn data_is_sent_back_until_the_input_ends() {
        let (mut client, stream) = Client::pair().await;
        let client_side = async {
            client.send(Message::Data(b"")).await;
            client.send(Message::Data(b"one")).await;
            client.window(24, 80).await;
            client.send(Message::Data(&[7; 60_000])).await;
            client.send(Message::End).await;
            client.collect().await
        };
        let (result, end) = tokio::join!(run(&Echo, &[], stream), client_side);
        result.unwrap();
        assert_eq!(end.output[..3], *b"one");
        assert_eq!((end.output.len(), end.exit), (60_003, Some(0)));
    }

    #[tokio::test]
    async fn a_long_message_is_sent_back_in_parts() {
        const LENGTH: usize = 3 * 1024 * 1024;
        let (client, stream) = Client::pair().await;
        let (mut send, mut receive) = client.split();
        let client_side = async {
            let mut back = vec![0; PART];
            let write = async {
                send.write(&[Tag::Data as u8], false).await.unwrap();
                for _ in 0..LENGTH / 1024 {
                    send.write(&[5; 1024], false).await.unwrap();
                }
                send.write(b"", true).await.unwrap();
            };
            let read = async {
                let mut sum = 0;
                loop {
                    let (length, end) = receive.read(&mut back).await.unwrap().unwrap();
                    sum += length;
                    if end {
                        return sum;
                    }
                }
            };
            let ((), sum) = tokio::join!(write, read);
            drop((send, receive));
            sum
        };
        let (result, sum) = tokio::join!(run(&Echo, &[], stream), client_side);
        assert_eq!(sum, 1 + LENGTH);
        assert!(result.is_err());
    }

    #[tokio::test]
    async fn invalid_messages_end_the_session() {
        let long_window = [4; MAX_MESSAGE];
        let wrong: [&[u8]; 5] = [b"", &[3, 0], &[2, 0], &[9], &long_window];
        for bytes in wrong {
            let (mut client, stream) = Client::pair().await;
            let client_side = async {
                client.send_raw(bytes).await;
                client.collect().await
            };
            let (result, end) = tokio::join!(run(&Echo, &[], stream), client_side);
            assert!(
                matches!(result, Err(ServiceError::Message(_))),
                "{:?}",
                &bytes[..bytes.len().min(4)]
            );
            assert_eq!(end.exit, None);
        }
    }

    #[tokio::test]
    async fn a_client_that_disconnects_is_an_error() {
        let (client, stream) = Client::pair().await;
        drop(client);
        assert!(run(&Echo, &[], stream).await.is_err());
    }
}
