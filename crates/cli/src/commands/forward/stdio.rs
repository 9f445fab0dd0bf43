//! `levada forward --stdio`: forwards one connection between standard input and output and an
//! address that the node connects to.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use levada_client::Client;
use levada_services::forward::Socket;
use levada_services::forward::client::{Plan, Reporter, Right, carry_one};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::attach::Signals;
use crate::failure::{Failure, Outcome};

/// Bytes of one read or write.
const PIECE: usize = 64 * 1024;
/// How long the connection may take to end after the other side has sent everything.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards one connection until the other side has sent everything, or the connection is lost.
pub async fn run(client: Client, right: Right, plan: Plan, report: Reporter) -> Outcome {
    let mut signals = Signals::new()?;
    let (near, far) = StdStream::pair().map_err(Failure::local)?;
    far.set_nonblocking(true).map_err(Failure::local)?;
    let far = Socket::unix(UnixStream::from_std(far).map_err(Failure::local)?);
    let clone = || near.try_clone().map_err(Failure::local);
    let input = clone()?;
    let output = clone()?;
    let (end, mut output_ended) = oneshot::channel();
    // The threads may be blocked in standard input or output when this process exits.
    std::thread::spawn(move || read_all(input));
    std::thread::spawn(move || end.send(write_all(output)));
    let carried = async {
        let carried = carry_one(&client, &right, &plan, far, &report);
        tokio::pin!(carried);
        let written = tokio::select! {
            carried = &mut carried => {
                // The rest of the received data is still being written.
                let code = carried?;
                written(output_ended.await)?;
                return Ok(code);
            }
            ended = &mut output_ended => written(ended),
        };
        // The other side has sent everything, or the connection is lost; the result of `carried`
        // says which.
        let _ = near.shutdown(Shutdown::Both);
        let code = match timeout(END_TIMEOUT, carried).await {
            Ok(carried) => carried?,
            Err(_) => 0,
        };
        written.map(|()| code)
    };
    let outcome = tokio::select! {
        outcome = carried => outcome,
        code = signals.end() => Ok(code),
    };
    client.close();
    outcome
}

fn written(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> Result<(), Failure> {
    ended.map_or(Ok(()), |written| written.map_err(Failure::output))
}

/// Copies standard input until its end.
fn read_all(mut to: StdStream) {
    let mut piece = vec![0; PIECE];
    loop {
        let length = match rustix::io::read(io::stdin(), &mut piece) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => continue,
            // A process that shares the descriptor made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(_) => 0,
        };
        if length == 0 || to.write_all(&piece[..length]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Copies to standard output until the end of `from`.
fn write_all(mut from: StdStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        crate::attach::write_all(io::stdout(), &piece[..length])?;
    }
}
