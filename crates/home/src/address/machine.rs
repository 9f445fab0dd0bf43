//! The tag of this machine, boot and network namespace, which determine the meaning of a loopback
//! address. It is a hash, so that an address in an invitation or capability does not reveal the
//! machine's id.

use std::fmt::Write;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use levada_core::{label, sha256};

/// Bytes of the hash in a tag: 80 bits, so that two machines do not share a tag by chance.
const BYTES: usize = 10;

/// The tag; `None` if the system does not provide a boot id and network namespace.
static KNOWN: LazyLock<Option<String>> = LazyLock::new(read);
/// A random tag of this process, because an address that the user types is always dialled.
static UNKNOWN: LazyLock<String> =
    LazyLock::new(|| format!("{:016x}", RandomState::new().build_hasher().finish()));

/// The tag of this machine, boot and network namespace; if they are unknown, a tag that is valid in
/// this process only.
pub(super) fn tag() -> &'static str {
    KNOWN.as_deref().unwrap_or(&UNKNOWN)
}

/// Whether other processes of this machine have the same tag.
pub(super) fn is_known() -> bool {
    KNOWN.is_some()
}

fn read() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Containers share the boot id of their machine, and often have the same machine id or none.
    let network = fs::read_link("/proc/self/ns/net").ok()?;
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Some(of(machine.trim(), boot.trim(), network.as_os_str().as_bytes()))
}

/// SHA-256(label ‖ 00 ‖ machine id ‖ 00 ‖ boot id ‖ 00 ‖ network namespace), its first [`BYTES`] in
/// hexadecimal. No part has a zero byte, so the encoding is unambiguous.
fn of(machine: &str, boot: &str, network: &[u8]) -> String {
    let label = label::MACHINE.as_bytes();
    let digest = sha256(&[label, &[0], machine.as_bytes(), &[0], boot.as_bytes(), &[0], network]);
    digest.iter().take(BYTES).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_depends_on_each_part() {
        let tags = [
            of("a", "b", b"net:[1]"),
            of("x", "b", b"net:[1]"),
            of("a", "x", b"net:[1]"),
            of("a", "b", b"net:[2]"),
            of("", "ab", b"net:[1]"),
        ];
        for (index, tag) in tags.iter().enumerate() {
            assert_eq!(tag.len(), 2 * BYTES);
            assert!(!tags[..index].contains(tag), "{tag}");
        }
    }

    #[test]
    fn the_tag_does_not_contain_the_machine_id() {
        assert!(is_known() && tag().bytes().all(|byte| byte.is_ascii_hexdigit()));
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        assert!(machine.trim().is_empty() || !machine.contains(tag()));
    }
}
