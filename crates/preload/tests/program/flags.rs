//! Names of flags: tables of bits, in both directions.

pub type Table = &'static [(&'static str, i32)];

pub const MESSAGE: Table = &[
    ("oob", libc::MSG_OOB),
    ("peek", libc::MSG_PEEK),
    ("trunc", libc::MSG_TRUNC),
    ("ctrunc", libc::MSG_CTRUNC),
    ("dontwait", libc::MSG_DONTWAIT),
    ("eor", libc::MSG_EOR),
    ("waitall", libc::MSG_WAITALL),
    ("nosignal", libc::MSG_NOSIGNAL),
    ("more", libc::MSG_MORE),
    ("waitforone", libc::MSG_WAITFORONE),
    ("cloexec", libc::MSG_CMSG_CLOEXEC),
    ("errqueue", libc::MSG_ERRQUEUE),
    ("zerocopy", libc::MSG_ZEROCOPY),
];

pub const POLL: Table = &[
    ("in", libc::POLLIN as i32),
    ("pri", libc::POLLPRI as i32),
    ("out", libc::POLLOUT as i32),
    ("err", libc::POLLERR as i32),
    ("hup", libc::POLLHUP as i32),
    ("nval", libc::POLLNVAL as i32),
    ("rdnorm", libc::POLLRDNORM as i32),
    ("rdband", libc::POLLRDBAND as i32),
    ("wrnorm", libc::POLLWRNORM as i32),
    ("wrband", libc::POLLWRBAND as i32),
    ("rdhup", libc::POLLRDHUP as i32),
];

pub const EPOLL: Table = &[
    ("in", libc::EPOLLIN),
    ("pri", libc::EPOLLPRI),
    ("out", libc::EPOLLOUT),
    ("err", libc::EPOLLERR),
    ("hup", libc::EPOLLHUP),
    ("rdnorm", libc::EPOLLRDNORM),
    ("rdband", libc::EPOLLRDBAND),
    ("wrnorm", libc::EPOLLWRNORM),
    ("wrband", libc::EPOLLWRBAND),
    ("rdhup", libc::EPOLLRDHUP),
    ("exclusive", libc::EPOLLEXCLUSIVE),
    ("oneshot", libc::EPOLLONESHOT),
    ("et", libc::EPOLLET),
];

pub const STATUS: Table = &[
    ("wronly", libc::O_WRONLY),
    ("rdwr", libc::O_RDWR),
    ("append", libc::O_APPEND),
    ("nonblock", libc::O_NONBLOCK),
    ("async", libc::O_ASYNC),
    ("largefile", 0o100_000),
];

/// The bits of names that are joined by `+`; `-` is none.
pub fn parse(table: Table, text: &str) -> i32 {
    let bit = |name: &str| table.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
    let names = text.split('+').filter(|name| *name != "-");
    names
        .map(|name| bit(name).unwrap_or_else(|| panic!("no flag `{name}`")))
        .fold(0, |all, bit| all | bit)
}

/// The names of bits, joined by `+`; `-` for none.
pub fn format(table: Table, bits: i32) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut rest = bits;
    for (name, bit) in table {
        if bits & bit != 0 {
            names.push((*name).to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    if names.is_empty() { "-".to_owned() } else { names.join("+") }
}
