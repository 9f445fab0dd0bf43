//! Packets of a TUN device: their length for the rate limit, and a pool of buffers.

/// Length of `struct virtio_net_hdr`, which precedes each packet of a device with offload.
pub(super) const VNET_HEADER: usize = 10;
/// The longest packet of a device with offload, header included.
const LARGE: usize = VNET_HEADER + 65_535 + 1;
const SMALL: usize = 2048;

/// The length of a packet for the rate limit, in bytes: IP packets, without headers of lower
/// layers. A super-packet counts as the segments into which a network card would split it.
pub(super) fn charge(packet: &[u8], offload: bool) -> u64 {
    if !offload {
        return packet.len() as u64;
    }
    let whole = packet.len().saturating_sub(VNET_HEADER) as u64;
    let Some(header) = segment_header(packet) else { return whole };
    let segment = u64::from(u16::from_ne_bytes([packet[4], packet[5]])).max(1);
    let segments = whole.saturating_sub(header).div_ceil(segment).max(1);
    whole + (segments - 1) * header
}

/// The length of the IP and TCP or UDP headers of each segment of a super-packet; `None` for other
/// packets. Offsets are those of `struct virtio_net_hdr`; its `hdr_len` is only a hint and is not
/// used.
fn segment_header(packet: &[u8]) -> Option<u64> {
    const GSO_UDP_L4: u8 = 5;
    let kind = *packet.get(1)? & 0x7f;
    let transport = usize::from(u16::from_ne_bytes([*packet.get(6)?, *packet.get(7)?]));
    match kind {
        0 => None,
        GSO_UDP_L4 => Some(transport as u64 + 8),
        _ => {
            let offset = packet.get(VNET_HEADER + transport + 12)? >> 4;
            Some(transport as u64 + 4 * u64::from(offset))
        }
    }
}

/// A pool of buffers, so that packets need no allocation.
#[derive(Default)]
pub(super) struct Pool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Pool {
    /// An empty buffer for a packet of at most `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Vec<u8> {
        let (free, capacity) =
            if length <= SMALL { (&mut self.small, SMALL) } else { (&mut self.large, LARGE) };
        free.pop().unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// A buffer with the same bytes.
    pub(super) fn copy(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(packet.len());
        buffer.extend_from_slice(packet);
        buffer
    }

    /// The packet in a small buffer, if it fits into one.
    pub(super) fn shrink(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        if buffer.len() > SMALL || buffer.capacity() < LARGE {
            return buffer;
        }
        let small = self.copy(&buffer);
        self.give(buffer);
        small
    }

    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() < LARGE { self.small.push(buffer) } else { self.large.push(buffer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with 20 bytes of IP header, then 20 or 8 of TCP or UDP, then data.
    fn packet(kind: u8, segment: u16, headers: usize, data: usize) -> Vec<u8> {
        let mut packet = vec![0; VNET_HEADER + headers + data];
        packet[1] = kind;
        packet[4..6].copy_from_slice(&segment.to_ne_bytes());
        packet[6..8].copy_from_slice(&20_u16.to_ne_bytes());
        packet[VNET_HEADER + 20 + 12] = 5 << 4;
        packet
    }

    #[test]
    fn super_packets_count_as_their_segments() {
        assert_eq!(charge(&packet(0, 0, 40, 100), true), 140);
        assert_eq!(charge(&packet(1, 1000, 40, 1000), true), 1040);
        assert_eq!(charge(&packet(1, 1000, 40, 2500), true), 2500 + 3 * 40);
        assert_eq!(charge(&packet(0x81, 1000, 40, 2500), true), 2500 + 3 * 40, "with ECN");
        assert_eq!(charge(&packet(5, 1000, 28, 3000), true), 3000 + 3 * 28);
        assert_eq!(charge(&[0; 77], false), 77);
    }

    #[test]
    fn short_and_malformed_packets_never_panic() {
        for length in 0..60 {
            for kind in [0, 1, 4, 5, 255] {
                let mut bytes = vec![kind; length];
                bytes.iter_mut().skip(4).for_each(|byte| *byte = 0);
                let _ = charge(&bytes, true);
                let _ = charge(&vec![255; length], true);
            }
        }
    }

    #[test]
    fn buffers_are_reused() {
        let mut pool = Pool::default();
        let mut large = pool.take(60_000);
        large.extend_from_slice(b"short");
        let small = pool.shrink(large);
        assert_eq!((small.as_slice(), small.capacity()), (&b"short"[..], SMALL));
        pool.give(small);
        assert!(pool.take(2048).is_empty());
        assert!(pool.large.len() == 1 && pool.small.is_empty());
    }
}
