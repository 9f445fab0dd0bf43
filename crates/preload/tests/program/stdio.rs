//! Connections as streams of stdio, and as targets of asynchronous I/O: libc reads and writes them
//! itself.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::RawFd;
use std::{mem, ptr};

use crate::call::{Errno, Reply, call};
use crate::pattern::{self, describe};
use crate::sockets::done;
use crate::state::{State, Words};

unsafe extern "C" {
    fn dprintf(fd: c_int, format: *const c_char, ...) -> c_int;
}

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    match verb {
        "fdopen" => fdopen(state, words),
        "dprintf" => {
            let socket = words.descriptor(state);
            let text = text(words);
            let number: c_int = 7;
            let format = c"%s %d\n".as_ptr();
            Ok(call!(dprintf: socket, format, text.as_ptr(), number)?.to_string())
        }
        "aio-read" => aio_read(words.descriptor(state), words.number()),
        "aio-write" => aio_write(words.descriptor(state), words.number(), words.number()),
        _ => {
            let stream = stream(state, words.text());
            on_stream(verb, stream, words)
        }
    }
}

fn text(words: &mut Words) -> CString {
    CString::new(words.text()).unwrap()
}

/// `fdopen STREAM SLOT`: the stream has the descriptor from now on.
fn fdopen(state: &State, words: &mut Words) -> Reply {
    let name = words.text();
    let slot = words.text();
    // SAFETY: the mode is a string of C.
    let stream = unsafe { libc::fdopen(state.descriptor(slot), c"r+".as_ptr()) };
    if stream.is_null() {
        return Err(Errno::last().into());
    }
    state.streams.lock().unwrap().insert(name.to_owned(), stream.expose_provenance());
    Ok(String::new())
}

fn stream(state: &State, name: &str) -> *mut libc::FILE {
    ptr::with_exposed_provenance_mut(state.streams.lock().unwrap()[name])
}

fn on_stream(verb: &str, stream: *mut libc::FILE, words: &mut Words) -> Reply {
    match verb {
        // `fwrite STREAM LENGTH TAG`
        "fwrite" => {
            let length = words.number();
            let tag = words.number();
            let bytes = pattern::bytes(tag, 0, length).as_ptr().cast();
            let written = call!(libc::fwrite: bytes, 1, length, stream)?;
            done(call!(libc::fflush: stream))?;
            Ok(written.to_string())
        }
        // `fputs STREAM WORD`: a line, which stays in the stream until `fflush`.
        "fputs" => {
            let line = CString::new(format!("{}\n", words.text())).unwrap();
            done(call!(libc::fputs: line.as_ptr(), stream))
        }
        "fflush" => done(call!(libc::fflush: stream)),
        "fread" => {
            let mut buffer = vec![0; words.number()];
            let length = buffer.len();
            let read = call!(libc::fread: buffer.as_mut_ptr().cast(), 1, length, stream)?;
            Ok(format!("{read} {}", describe(&buffer[..read])))
        }
        "fgets" => {
            let mut buffer = [0; 4096];
            // SAFETY: the stream is open, and the buffer has the stated length.
            let line = unsafe { libc::fgets(buffer.as_mut_ptr(), 4096, stream) };
            if line.is_null() {
                return Ok("end".to_owned());
            }
            // SAFETY: `fgets` wrote a string of C.
            let line = unsafe { CStr::from_ptr(line) };
            Ok(line.to_string_lossy().trim_end().to_owned())
        }
        // The slot stays, and is closed.
        _ => done(call!(libc::fclose: stream)),
    }
}

type AioFunction = unsafe extern "C" fn(*mut libc::aiocb) -> c_int;

fn aio(
    function: AioFunction,
    socket: RawFd,
    data: *mut libc::c_void,
    length: usize,
) -> Result<usize, Errno> {
    // SAFETY: zero is a valid value of this structure.
    let mut request: libc::aiocb = unsafe { mem::zeroed() };
    request.aio_fildes = socket;
    request.aio_buf = data;
    request.aio_nbytes = length;
    request.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    let pointer = &raw mut request;
    call!(function: pointer)?;
    let list = [pointer.cast_const()];
    // SAFETY: the request lives until it is done.
    while unsafe { libc::aio_error(pointer) } == libc::EINPROGRESS {
        call!(libc::aio_suspend: list.as_ptr(), 1, ptr::null())?;
    }
    // SAFETY: the request is done.
    match unsafe { libc::aio_error(pointer) } {
        0 => call!(libc::aio_return: pointer),
        errno => Err(Errno(errno)),
    }
}

fn aio_read(socket: RawFd, length: usize) -> Reply {
    let mut buffer = vec![0u8; length];
    let read = aio(libc::aio_read, socket, buffer.as_mut_ptr().cast(), length)?;
    Ok(format!("{read} {}", describe(&buffer[..read])))
}

fn aio_write(socket: RawFd, length: usize, tag: u64) -> Reply {
    let bytes = pattern::bytes(tag, 0, length).as_ptr().cast_mut().cast();
    Ok(aio(libc::aio_write, socket, bytes, length)?.to_string())
}
