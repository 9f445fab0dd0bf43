//! The home of one identity on this machine: its folders, key and lock, its pinned names and keys,
//! and addresses.

#![forbid(unsafe_code)]

pub mod address;
pub mod backup;
mod home;
pub mod known;

pub use home::{
    CONTROL_SOCKET, HOME_VARIABLE, Held, Home, HomeError, Lock, read_key_file, set_new_key_hook,
    write_private,
};
