//! The two ends of a connection, which exchange requests and responses of given lengths.

use anyhow::{Context, bail, ensure};
use levada_contexts::{PathEvent, PathSession, Received};
use levada_session::{Connection, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use super::mode::Io;

/// The length of a write, in bytes.
const WRITE: usize = 64 * 1024;
/// The length of a read buffer, in bytes.
const READ: usize = 128 * 1024;
/// The first bytes of a request: the number of the exchange.
const NUMBER: usize = 4;

/// One end.
pub enum End {
    /// A stream, in which a request and its response follow each other.
    Stream(Box<dyn Io>),
    /// A session with middleboxes.
    Path(PathSession),
    /// A stream of an ordinary connection of Levada, which it keeps open.
    Direct(Stream, #[expect(dead_code, reason = "keeps the connection open")] Connection),
}

/// The bytes of a request and of its response, by context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// From the first context on.
    pub request: Vec<usize>,
    /// From the first context on.
    pub response: Vec<usize>,
}

impl Exchange {
    /// Divides `request` bytes among the first half of `contexts` contexts, and `response` bytes
    /// among the others.
    pub fn divided(contexts: usize, request: usize, response: usize) -> Self {
        let half = (contexts / 2).max(1);
        let share = |bytes: usize, parts: usize, part: usize| {
            bytes / parts + usize::from(part < bytes % parts)
        };
        let others = (contexts - half).max(1);
        let first_other = contexts - others;
        let mut exchange = Self { request: vec![0; contexts], response: vec![0; contexts] };
        for part in 0..half {
            exchange.request[part] = share(request, half, part);
        }
        for part in 0..others {
            exchange.response[first_other + part] = share(response, others, part);
        }
        exchange
    }
}

impl End {
    /// At the client: sends request `number`, and receives its response. `received` is called with
    /// the bytes of each part.
    pub async fn request(
        &mut self,
        number: usize,
        exchange: &Exchange,
        mut received: impl FnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let first = u32::try_from(number)?.to_be_bytes();
        self.send(&exchange.request, &first).await?;
        if let Self::Path(session) = self {
            let data = |data: &[u8]| received(data.len());
            let ended = receive(session, &exchange.response, data).await?;
            return ended.context("the server has ended the session");
        }
        let mut left: usize = exchange.response.iter().sum();
        let mut buffer = vec![0; READ];
        while left > 0 {
            let length = self.read(&mut buffer).await?;
            ensure!(length > 0 && length <= left, "a response of a wrong length");
            left -= length;
            received(length)?;
        }
        Ok(())
    }

    /// Reads from a stream; 0 at its end.
    async fn read(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        Ok(match self {
            Self::Stream(stream) => stream.read(buffer).await?,
            Self::Direct(stream, _) => stream.read(buffer).await?.map_or(0, |(length, _)| length),
            Self::Path(_) => bail!("a session with middleboxes is no stream"),
        })
    }

    /// Passes bytes on between a stream and `socket`, until both have ended.
    pub async fn carry(&mut self, mut socket: TcpStream) -> anyhow::Result<()> {
        let Self::Stream(stream) = self else { bail!("only a stream carries bytes") };
        socket.set_nodelay(true)?;
        copy_bidirectional(stream, &mut socket).await?;
        Ok(())
    }

    /// At the server: answers requests until the client ends.
    pub async fn serve(&mut self, all: &[Exchange]) -> anyhow::Result<()> {
        while let Some(number) = self.receive_request(all).await? {
            self.send(&all[number].response, &[]).await?;
        }
        if let Self::Path(session) = self {
            session.close()?;
            session.flushed().await;
        }
        Ok(())
    }

    /// The number of the next exchange; None at the end.
    async fn receive_request(&mut self, all: &[Exchange]) -> anyhow::Result<Option<usize>> {
        let mut first = Vec::new();
        if let Self::Path(session) = self {
            let keep = |data: &[u8]| {
                first.extend(data.iter().take(NUMBER - first.len()));
                Ok(())
            };
            if receive(session, &[], keep).await?.is_none() {
                return Ok(None);
            }
        } else {
            let mut buffer = [0; NUMBER];
            while first.len() < NUMBER {
                match self.read(&mut buffer[first.len()..]).await? {
                    0 if first.is_empty() => return Ok(None),
                    0 => bail!("a request was cut off"),
                    length => first = [&first, &buffer[first.len()..][..length]].concat(),
                }
            }
        }
        let first = first.first_chunk().context("a request without a number")?;
        let number = u32::from_be_bytes(*first) as usize;
        let exchange = all.get(number).context("there is no such exchange")?;
        if !matches!(self, Self::Path(_)) {
            let mut left = exchange.request.iter().sum::<usize>() - NUMBER;
            let mut buffer = vec![0; left];
            while left > 0 {
                let length = self.read(&mut buffer[..left]).await?;
                ensure!(length > 0, "a request was cut off");
                left -= length;
            }
        }
        Ok(Some(number))
    }

    /// Sends a message whose first bytes are `first`.
    async fn send(&mut self, contexts: &[usize], first: &[u8]) -> anyhow::Result<()> {
        let mut buffer = vec![7; WRITE];
        buffer[..first.len()].copy_from_slice(first);
        match self {
            Self::Stream(stream) => {
                for length in pieces(contexts.iter().sum()) {
                    stream.write_all(&buffer[..length]).await?;
                }
                stream.flush().await?;
            }
            Self::Direct(stream, _) => {
                for length in pieces(contexts.iter().sum()) {
                    stream.send(&buffer[..length]).await?;
                }
            }
            Self::Path(session) => {
                for (context, bytes) in (1u8..).zip(contexts).filter(|(_, bytes)| **bytes > 0) {
                    for length in pieces(*bytes) {
                        session.write(context, &buffer[..length]).await?;
                    }
                    session.end(context)?;
                }
                session.finish()?;
            }
        }
        Ok(())
    }
}

/// The lengths of the writes of a message.
fn pieces(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).step_by(WRITE).map(move |at| WRITE.min(bytes - at))
}

/// Receives a message of a session; None if the other end has ended it. With `expected` lengths of
/// its contexts, it must have these.
async fn receive(
    session: &PathSession,
    expected: &[usize],
    mut received: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Option<()>> {
    let mut left = expected.to_vec();
    loop {
        match session.next().await? {
            None | Some(PathEvent::Closed) => return Ok(None),
            Some(PathEvent::Received(Received::Data { context, data, .. })) => {
                if let Some(left) = left.get_mut(usize::from(context) - 1) {
                    let rest = left.checked_sub(data.len());
                    *left = rest.context("a response of a wrong length")?;
                }
                if !data.is_empty() {
                    received(&data)?;
                }
            }
            Some(PathEvent::Received(Received::Exchange { .. })) => {
                ensure!(left.iter().all(|left| *left == 0), "a response of a wrong length");
                return Ok(Some(()));
            }
            Some(PathEvent::Received(Received::Error(reason))) => {
                bail!("the other end: {}", String::from_utf8_lossy(&reason));
            }
            Some(PathEvent::Received(Received::Finished)) => return Ok(None),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_divided_among_the_contexts_of_each_direction() {
        let exchange = |request: &[usize], response: &[usize]| Exchange {
            request: request.to_vec(),
            response: response.to_vec(),
        };
        assert_eq!(Exchange::divided(1, 10, 20), exchange(&[10], &[20]));
        assert_eq!(Exchange::divided(4, 11, 20), exchange(&[6, 5, 0, 0], &[0, 0, 10, 10]));
    }
}
