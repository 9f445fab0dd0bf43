//! Options of sockets that the libraries lack.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::TcpStream;

/// The longest time between two attempts to send lost data, in milliseconds: the least that Linux
/// accepts.
#[cfg(target_os = "linux")]
const RETRANSMISSION_MS: libc::c_int = 1000;
/// The time in which TCP tries that. The channel ends a connection that is silent for less.
#[cfg(target_os = "linux")]
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

/// Sets the highest rate at which TCP paces what it sends (`SO_MAX_PACING_RATE`, socket(7)). Errors
/// are ignored: without the option nothing is paced.
#[cfg(target_os = "linux")]
pub(super) fn set_max_pacing_rate(stream: &TcpStream, bytes_per_second: u64) {
    set(stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes());
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set_max_pacing_rate(_stream: &TcpStream, _bytes_per_second: u64) {}

/// TCP doubles the time between two attempts to send lost data, so that an interruption of 20
/// seconds may last for 20 more. This bounds it (`TCP_RTO_MAX_MS` of linux/tcp.h, since Linux
/// 6.15). Errors are ignored: without the option interruptions last longer.
#[cfg(target_os = "linux")]
pub(super) fn recover_soon(stream: &TcpStream) {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    // Otherwise the kernel gives up after 15 attempts, which then take 14 seconds.
    if SockRef::from(stream).set_tcp_user_timeout(Some(GIVE_UP_AFTER)).is_ok() {
        set(stream, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, &RETRANSMISSION_MS.to_ne_bytes());
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn recover_soon(_stream: &TcpStream) {}

/// Sets an option, if the kernel has it.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn set(stream: &TcpStream, level: libc::c_int, option: libc::c_int, value: &[u8]) {
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and the kernel reads only the
    // bytes of `value`, which outlive the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        );
    }
}

/// The rate at which TCP sends, in bytes per second: the rate at which it paces packets, or a
/// congestion window in each round trip if that is less (`tcpi_pacing_rate`, `tcpi_snd_cwnd` and
/// `tcpi_rtt` of `TCP_INFO`, tcp(7)); `None` if the kernel does not say.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn sending_rate(stream: &TcpStream) -> Option<u64> {
    // The positions of the fields in `struct tcp_info` of linux/tcp.h, which only grows at its end.
    const SEGMENT: usize = 16;
    const ROUND_TRIP: usize = 68;
    const WINDOW: usize = 80;
    const PACING_RATE: usize = 104;
    const LENGTH: usize = 112;
    let mut info = [0_u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and the kernel writes at most
    // `length` bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || length as usize != LENGTH {
        return None;
    }
    let number = |at: usize| {
        let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| u64::from(u32::from_ne_bytes(bytes)))
    };
    let pacing = info.get(PACING_RATE..).and_then(|bytes| bytes.try_into().ok());
    // Without a limit, all bits are set.
    let pacing = pacing.map_or(u64::MAX, u64::from_ne_bytes);
    let window = number(WINDOW) * number(SEGMENT) * 1_000_000;
    let rate = pacing.min(window.checked_div(number(ROUND_TRIP)).unwrap_or(u64::MAX));
    (rate != u64::MAX && rate > 0).then_some(rate)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn sending_rate(_stream: &TcpStream) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn lost_data_is_sent_again_until_the_channel_gives_up() {
        use tokio::net::TcpListener;

        use super::*;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let near = crate::Tcp::new(near).unwrap();
        let limit = SockRef::from(&near.stream).tcp_user_timeout().unwrap();
        assert_eq!(limit, Some(GIVE_UP_AFTER));
    }
}
