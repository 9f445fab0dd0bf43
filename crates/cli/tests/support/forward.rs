//! A running `levada forward`, and the sockets at both ends of what it carries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::{Home, Node, PATIENCE, comes, exit_code, signal};

/// A running `levada forward`; killed when dropped.
pub struct Forward {
    child: Child,
    errors: PathBuf,
    /// Where connections come in, as it has said.
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

    /// A node that offers `forward` of these addresses, and is called `well`.
    pub fn up_forwarding(&self, allow: &[&str]) -> Node<'_> {
        self.up(&format!("--name well {}", self.forward_service(allow)))
    }

    /// Runs `levada forward` with these words until it has said where it listens.
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
            assert_ne!(length, 0, "it has ended: {}", forward.errors());
            forward.addresses.push(line.trim_end().to_owned());
        }
        forward
    }
}

impl Forward {
    /// What it has said on standard error.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A connection to its first address.
    pub fn connect(&self) -> TcpStream {
        patient(TcpStream::connect(&self.addresses[0]).unwrap())
    }

    pub fn signal(&self, name: &str) {
        signal(self.process(), name);
    }

    /// Waits for its own end: its exit code, and what it has said.
    #[track_caller]
    pub fn wait(mut self) -> (i32, String) {
        let ended = comes(|| self.child.try_wait().unwrap().is_some());
        assert!(ended, "it does not end: {}", self.errors());
        (exit_code(&mut self.child), self.errors())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A socket that waits no longer than a test may take.
pub fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A listener on a free port of loopback, and its address.
pub fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

pub fn accept(listener: &TcpListener) -> TcpStream {
    patient(listener.accept().unwrap().0)
}

/// Serves everybody who comes with `serve`, each in a thread of his own.
pub fn serve(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), patient(stream.unwrap()));
            std::thread::spawn(move || serve(stream));
        }
    });
}

/// Sends back what comes, until it ends; then ends too.
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

/// Reads until the connection is reset: what came before.
#[track_caller]
pub fn read_until_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Err(error) = stream.read_to_end(&mut bytes) else { panic!("it has ended in good order") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    bytes
}

/// Reads until the end, which is in good order.
#[track_caller]
pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The same bytes on every run, others for each `seed`.
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
