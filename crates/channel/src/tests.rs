//! Two ends on a simulated link; hostile peers; an unmodified rustls at the other end.

mod flow;
mod hostile;
mod interop;
mod lifecycle;
mod pair;
mod raw;
mod records;
mod shares;
