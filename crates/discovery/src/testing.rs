//! Hand-made mDNS packets for tests, with arbitrary and invalid content.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket};

use crate::{SERVICE, multicast};

/// An announcement with arbitrary content.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The first label of the announcement's name, as bytes: at most 63 are taken.
    pub instance: Vec<u8>,
    /// The entries of the TXT record, at most 255 bytes of each.
    pub entries: Vec<Vec<u8>>,
    /// The address of the host.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

impl Claim {
    /// A claim in the form that nodes use.
    pub fn new(instance: &str, name: &str, key: &str, address: Ipv4Addr, port: u16) -> Self {
        let entries = [format!("name={name}"), format!("key={key}"), "v=1".to_owned()];
        Self {
            instance: instance.into(),
            entries: entries.map(String::into_bytes).to_vec(),
            address,
            port,
        }
    }

    /// The response that announces it: a PTR, an SRV, a TXT and an A record (RFC 1035 section 4,
    /// RFC 6762 section 18, RFC 6763 section 4), with uncompressed names.
    pub fn packet(&self) -> Vec<u8> {
        let service = SERVICE.trim_end_matches('.').split('.').map(str::as_bytes);
        let instance = name([self.instance.as_slice()].into_iter().chain(service.clone()));
        let host = name([self.instance.as_slice(), b"local"]);
        let mut target = vec![0; 4];
        target.extend(self.port.to_be_bytes());
        target.extend(&host);
        let text = self.entries.iter().flat_map(|entry| counted(entry, 255)).collect();
        let mut packet = vec![0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        packet.extend(record(&name(service), 12, SHARED, instance.clone()));
        packet.extend(record(&instance, 33, UNIQUE, target));
        packet.extend(record(&instance, 16, UNIQUE, text));
        packet.extend(record(&host, 1, UNIQUE, self.address.octets().to_vec()));
        packet
    }
}

/// An unsolicited response with the A record of a host, which differs for each number.
pub fn unsolicited_response(number: u32) -> Vec<u8> {
    let host = name([format!("stray-{number}").as_bytes(), b"local"]);
    let mut packet = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    packet.extend(record(&host, 1, UNIQUE, vec![192, 0, 2, 1]));
    packet
}

/// The class IN, of a shared record.
const SHARED: u16 = 1;
/// The class IN with the cache-flush bit (RFC 6762 section 10.2), of a unique record.
const UNIQUE: u16 = 0x8001;

fn record(owner: &[u8], kind: u16, class: u16, data: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    let mut record = owner.to_vec();
    record.extend(kind.to_be_bytes());
    record.extend(class.to_be_bytes());
    record.extend(120_u32.to_be_bytes());
    record.extend(length.to_be_bytes());
    record.extend(data);
    record
}

fn name<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut name: Vec<u8> = labels.into_iter().flat_map(|label| counted(label, 63)).collect();
    name.push(0);
    name
}

fn counted(bytes: &[u8], most: u8) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(usize::from(most))];
    let length = u8::try_from(bytes.len()).unwrap_or(most);
    [&[length][..], bytes].concat()
}

/// Sends to the multicast DNS group on one interface.
#[derive(Debug)]
pub struct MulticastSender(Socket);

impl MulticastSender {
    /// A sender on the interface with this address.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(interface: Ipv4Addr) -> io::Result<Self> {
        let socket = multicast::socket(Domain::IPV4)?;
        socket.set_multicast_if_v4(&interface)?;
        socket.set_multicast_loop_v4(true)?;
        socket.set_multicast_ttl_v4(255)?;
        Ok(Self(socket))
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// The operating system's.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let group = SocketAddr::from((multicast::GROUP_V4, multicast::PORT));
        self.0.send_to(packet, &group.into()).map(drop)
    }
}
