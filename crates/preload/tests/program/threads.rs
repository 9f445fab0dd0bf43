//! Lines that run in threads of their own.

use std::os::unix::thread::JoinHandleExt;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::call::Reply;
use crate::signals;
use crate::state::{State, Words};

/// Its result is the answer to its line.
pub type Thread = JoinHandle<String>;

pub fn run(state: &'static State, verb: &str, words: &mut Words) -> Reply {
    let name = words.text().to_owned();
    let mut threads = state.threads.lock().unwrap();
    match verb {
        // `thread NAME LINE…`
        "thread" => {
            let line = words.rest();
            threads.insert(name, thread::spawn(move || crate::run(state, &line)));
            Ok(String::new())
        }
        // `join NAME`
        "join" => {
            let thread = threads.remove(&name).unwrap();
            drop(threads);
            Ok(thread.join().unwrap())
        }
        // `hit NAME SIGNAL`: signals to this thread until its call returns.
        _ => {
            let signal = signals::number(words.text());
            let thread = threads.remove(&name).unwrap();
            while !thread.is_finished() {
                // SAFETY: the thread was not joined, so its identifier is valid.
                unsafe { libc::pthread_kill(thread.as_pthread_t(), signal) };
                thread::sleep(Duration::from_millis(3));
            }
            Ok(thread.join().unwrap())
        }
    }
}
