//! A running `levada forward`, and sockets for both ends of its connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::{Home, Node, STEP_TIMEOUT, comes, exit_code, signal};

/// A running `levada forward`; killed when dropped.
pub struct Forward {
    child: Child,
    errors: PathBuf,
    /// The addresses where it listens, as it printed them.
    pub addresses: Vec<String>,
}

impl Home {
    /// The option of `up` that offers `forward` of these addresses.
    pub fn forward_service(&self, allow: &[&str]) -> String {
        let file = self.path().join("forward.toml");
        let text = format!("name = 'forward'\ntype = 'forward'\nallow = {allow:?}\n");
        std::fs::write(&file, text).unwrap();
        format!("--service {}", file.display())
    }

    /// A node called `well` that offers `forward` of these addresses.
    pub fn up_forwarding(&self, allow: &[&str]) -> Node<'_> {
        self.up(&format!("--name well {}", self.forward_service(allow)))
    }

    /// Starts `levada forward` with these arguments and waits until it has printed where it
    /// listens.
    #[track_caller]
    pub fn forward(&self, words: &[&str]) -> Forward {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let errors = self.path().join(format!("forward-{number}.err"));
        let mut command = self.command([&["forward"], words].concat());
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = words.iter().filter(|word| **word == "--listen").count().max(1);
        let mut forward = Forward { child, errors, addresses: Vec::new() };
        for _ in 0..lines {
            let mut line = String::new();
            let length = output.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "`levada forward` has ended: {}", forward.errors());
            forward.addresses.push(line.trim_end().to_owned());
        }
        forward
    }
}

impl Forward {
    /// Its standard error so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A connection to its first address.
    pub fn connect(&self) -> TcpStream {
        with_timeouts(TcpStream::connect(&self.addresses[0]).unwrap())
    }

    pub fn signal(&self, name: &str) {
        signal(self.process(), name);
    }

    /// Waits until it ends by itself: its exit code and standard error.
    #[track_caller]
    pub fn wait(mut self) -> (i32, String) {
        let ended = comes(|| self.child.try_wait().unwrap().is_some());
        assert!(ended, "`levada forward` does not end: {}", self.errors());
        (exit_code(&mut self.child), self.errors())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A socket whose reads and writes time out after [`STEP_TIMEOUT`].
pub fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(STEP_TIMEOUT)).unwrap();
    stream
}

/// A listener on a free port of loopback, and its address.
pub fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

pub fn accept(listener: &TcpListener) -> TcpStream {
    with_timeouts(listener.accept().unwrap().0)
}

/// Serves each connection with `serve`, in a thread of its own.
pub fn serve(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            let stream = with_timeouts(stream.unwrap());
            std::thread::spawn(move || serve(stream));
        }
    });
}

/// Sends back everything that it receives, then closes.
pub fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// Closes a connection so that its peer sees a reset.
pub fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// Reads until the connection is reset: the bytes before that.
#[track_caller]
pub fn read_until_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Err(error) = stream.read_to_end(&mut bytes) else {
        panic!("the connection has ended without a reset")
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    bytes
}

/// Reads until the peer closes the connection, without a reset.
#[track_caller]
pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Pseudo-random bytes: the same for the same `seed`.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
