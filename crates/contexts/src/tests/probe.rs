//! What the code under test reports to tests on the same thread: public-key operations and nonces,
//! for tests that count them.

use std::cell::{Cell, RefCell};

thread_local! {
    static OPERATIONS: Cell<usize> = const { Cell::new(0) };
    static SEALED: RefCell<Vec<([u8; 32], [u8; 12])>> = const { RefCell::new(Vec::new()) };
}

/// Reports a signature, a verification, a key generation, an encapsulation, or the server's part of
/// TLS.
pub(crate) fn public_key_operation() {
    OPERATIONS.set(OPERATIONS.get() + 1);
}

/// How many there were since the last call.
pub(crate) fn take_operations() -> usize {
    OPERATIONS.take()
}

/// Reports that something was sealed under a key with a nonce.
pub(crate) fn sealed(key: &[u8; 32], nonce: [u8; 12]) {
    SEALED.with_borrow_mut(|all| all.push((*key, nonce)));
}

/// The keys and nonces since the last call.
pub(crate) fn take_sealed() -> Vec<([u8; 32], [u8; 12])> {
    SEALED.take()
}
