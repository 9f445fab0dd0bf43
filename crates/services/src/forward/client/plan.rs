//! The plan of a forward: from the arguments of the command line, and within the limits of a
//! capability.

use std::net::{IpAddr, Ipv4Addr};

use crate::forward::{Address, AddressError, Host, HostPort, LISTEN, Pattern};
use levada_core::Params;

use super::{ForwardError, USAGE};

/// The default pattern with `--socks`: all addresses that the node permits.
const EVERYTHING: &str = "*:*";

/// What a forward carries, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The direction and target of connections.
    pub mode: Mode,
    /// The arguments of the session.
    pub args: Vec<String>,
    /// The addresses at which this side listens.
    pub listen: Vec<Address>,
}

/// The direction and target of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From this side to this address, to which the node connects.
    To(Address),
    /// As [`Self::To`], for datagrams.
    Udp(Address),
    /// From this side to the address in the SOCKS request of each connection.
    Socks,
    /// From the node to this address, to which this side connects.
    Reverse(Address),
}

/// The arguments of the command line.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// The addresses at which this side listens, or with `reverse` the node.
    pub listen: Vec<Address>,
    /// Carry datagrams.
    pub udp: bool,
    /// The node listens, and this side connects.
    pub reverse: bool,
    /// Each connection names its target by SOCKS 5.
    pub socks: bool,
    /// The target of connections: one address, or patterns with `socks`.
    pub target: Vec<String>,
}

impl Plan {
    /// The plan for a session that is yet to be requested.
    ///
    /// # Errors
    /// [`ForwardError`] 2 if an argument is missing or superfluous.
    pub fn new(words: Words) -> Result<Self, ForwardError> {
        if words.socks {
            let everything = || vec![EVERYTHING.to_owned()];
            let args = if words.target.is_empty() { everything() } else { words.target };
            args.iter().try_for_each(|text| text.parse::<Pattern>().map(drop)).map_err(usage)?;
            return Ok(Self { mode: Mode::Socks, args, listen: or_free_port(words.listen) });
        }
        let target =
            target(&words)?.ok_or_else(|| usage("say where connections go: -- HOST:PORT"))?;
        if words.reverse {
            return Self::reverse(or_free_port(words.listen), target);
        }
        let args = vec![target.to_string()];
        Ok(Self { mode: mode_to(target), args, listen: or_free_port(words.listen) })
    }

    /// The plan for a session with these parameters.
    ///
    /// # Errors
    /// [`ForwardError`] 2 if an argument is missing or superfluous, 121 if the capability is for
    /// something else.
    pub fn within(words: Words, params: &Params) -> Result<Self, ForwardError> {
        let args = params.args().map_err(ForwardError::denied)?.unwrap_or_default();
        let named = args.iter().map(|text| text.parse::<Pattern>()).collect::<Result<Vec<_>, _>>();
        let named = named.map_err(|error| {
            ForwardError::denied(format_args!("the capability is not for a forward: {error}"))
        })?;
        let mode = if words.reverse {
            reverse_within(&words, &args)?
        } else if args.iter().any(|text| text.starts_with(LISTEN)) {
            return Err(other_than(&args, "connections from this side: add --reverse"));
        } else if words.socks {
            if !words.target.is_empty() {
                return Err(usage(
                    "the capability already fixes where connections may go: omit the addresses",
                ));
            }
            Mode::Socks
        } else {
            mode_to(target_within(&words, &args, &named)?)
        };
        let listen = match mode {
            Mode::Reverse(_) => Vec::new(),
            _ => or_free_port(words.listen),
        };
        Ok(Self { mode, args, listen })
    }

    fn reverse(listen: Vec<Address>, target: Address) -> Result<Self, ForwardError> {
        let [listen] = listen.as_slice() else {
            return Err(usage(
                "with --reverse the node listens at one address: give --listen once",
            ));
        };
        if matches!(listen.host_port(), Some(HostPort { host: Host::Name(_), .. })) {
            return Err(usage(format_args!("{listen} is a name; with --reverse give an address")));
        }
        let args = vec![format!("{LISTEN}{listen}")];
        Ok(Self { mode: Mode::Reverse(target), args, listen: Vec::new() })
    }
}

/// Parses an address to listen at. `PORT` alone and `localhost:PORT` are of 127.0.0.1.
///
/// # Errors
/// A text with the expected form.
pub fn listen_address(text: &str) -> Result<Address, String> {
    let local = |port| {
        let host = Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Address::Tcp(HostPort { host, port })
    };
    if let Ok(port) = text.parse::<u16>() {
        return Ok(local(port));
    }
    match text.parse::<Address>() {
        Ok(Address::Tcp(HostPort { host: Host::Name(name), port })) if name == "localhost" => {
            Ok(local(port))
        }
        Ok(address @ (Address::Tcp(_) | Address::Unix(_))) => Ok(address),
        _ => Err("expected [ADDRESS:]PORT or unix:/PATH".into()),
    }
}

/// The target in the arguments, if there is one.
fn target(words: &Words) -> Result<Option<Address>, ForwardError> {
    match words.target.as_slice() {
        [] => Ok(None),
        [text] => {
            let address = text.parse::<Address>().map_err(|error| not_an_address(text, error))?;
            let address = address.with_udp(words.udp);
            if words.udp && matches!(address, Address::Unix(_)) {
                return Err(usage("--udp is for HOST:PORT"));
            }
            if words.reverse && matches!(address, Address::Udp(_)) {
                return Err(usage("datagrams are not carried with --reverse"));
            }
            Ok(Some(address))
        }
        _ => Err(usage("connections go to one address; several are for --socks")),
    }
}

/// The error for a target that is no address. `PORT:HOST:PORT`, as ssh takes it, is answered with
/// the words for the same.
fn not_an_address(text: &str, error: AddressError) -> ForwardError {
    match text.split_once(':') {
        Some((port, target)) if port.parse::<u16>().is_ok() && target.contains(':') => {
            usage(format_args!("in place of {text}, write --listen {port} -- {target}"))
        }
        _ => usage(error),
    }
}

/// The target in the arguments if the capability permits it; otherwise the only target of the
/// capability.
fn target_within(
    words: &Words,
    args: &[String],
    named: &[Pattern],
) -> Result<Address, ForwardError> {
    if let Some(typed) = target(words)? {
        let allowed = named.iter().any(|pattern| pattern.may_permit(&typed));
        return if allowed { Ok(typed) } else { Err(other_than(args, typed)) };
    }
    match named {
        [one] => {
            let single = one.single().ok_or_else(|| {
                usage(format_args!(
                    "the capability is for {one}: say where connections go: -- HOST:PORT"
                ))
            })?;
            match &single {
                Address::Udp(_) => Ok(single),
                _ if words.udp => Err(other_than(args, "datagrams (--udp)")),
                _ => Ok(single),
            }
        }
        [] => {
            Err(ForwardError::denied("the capability names no address; have it granted with one"))
        }
        _ => Err(usage("the capability is for several addresses: give one of them: -- HOST:PORT")),
    }
}

fn reverse_within(words: &Words, args: &[String]) -> Result<Mode, ForwardError> {
    let target = target(words)?.ok_or_else(|| usage("say where connections go: -- HOST:PORT"))?;
    let [arg] = args else { return Err(other_than(args, "listening (--reverse)")) };
    let Some(listen) = arg.strip_prefix(LISTEN) else {
        return Err(other_than(args, "listening (--reverse)"));
    };
    match words.listen.iter().find(|typed| typed.to_string() != listen) {
        Some(typed) => Err(other_than(args, format_args!("{LISTEN}{typed}"))),
        None => Ok(Mode::Reverse(target)),
    }
}

fn mode_to(target: Address) -> Mode {
    match target {
        Address::Udp(_) => Mode::Udp(target),
        _ => Mode::To(target),
    }
}

fn or_free_port(listen: Vec<Address>) -> Vec<Address> {
    if !listen.is_empty() {
        return listen;
    }
    let host = Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
    vec![Address::Tcp(HostPort { host, port: 0 })]
}

fn other_than(args: &[String], what: impl std::fmt::Display) -> ForwardError {
    let named = if args.is_empty() { "no address".to_owned() } else { args.join(", ") };
    ForwardError::denied(format_args!("the capability is for {named}, not for {what}"))
}

fn usage(text: impl std::fmt::Display) -> ForwardError {
    ForwardError::new(USAGE, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::encode_list;

    fn words(options: &[&str], target: &[&str]) -> Words {
        let listen = options.iter().filter_map(|option| option.strip_prefix("listen="));
        Words {
            listen: listen.map(|text| listen_address(text).unwrap()).collect(),
            udp: options.contains(&"udp"),
            reverse: options.contains(&"reverse"),
            socks: options.contains(&"socks"),
            target: target.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn params(args: &[&str]) -> Params {
        let mut params = Params::new();
        params.add(Params::ARGS, encode_list(args)).unwrap();
        params
    }

    #[test]
    fn the_arguments_determine_the_plan() {
        let plan = |options: &[&str], target: &[&str]| Plan::new(words(options, target)).unwrap();
        let to = plan(&[], &["db.example:5432"]);
        assert_eq!(
            (to.mode, to.args),
            (Mode::To(address("db.example:5432")), vec!["db.example:5432".into()])
        );
        assert_eq!(to.listen, [address("127.0.0.1:0")]);
        let udp = plan(&["udp", "listen=53"], &["192.0.2.1:53"]);
        assert_eq!(
            (udp.mode, udp.args),
            (Mode::Udp(address("udp:192.0.2.1:53")), vec!["udp:192.0.2.1:53".into()])
        );
        assert_eq!(udp.listen, [address("127.0.0.1:53")]);
        let unix = plan(&["listen=unix:/a", "listen=localhost:1"], &["unix:/b"]);
        assert_eq!(unix.mode, Mode::To(address("unix:/b")));
        assert_eq!(unix.listen, [address("unix:/a"), address("127.0.0.1:1")]);
        let socks = plan(&["socks"], &[]);
        assert_eq!((socks.mode, socks.args), (Mode::Socks, vec!["*:*".into()]));
        assert_eq!(plan(&["socks"], &["*.example:443", "192.0.2.0/24:80"]).args.len(), 2);
        let reverse = plan(&["reverse", "listen=8080"], &["127.0.0.1:80"]);
        assert_eq!(reverse.args, ["listen:127.0.0.1:8080"]);
        assert_eq!(
            (reverse.mode, reverse.listen),
            (Mode::Reverse(address("127.0.0.1:80")), vec![])
        );
        assert_eq!(plan(&["reverse"], &["unix:/a"]).args, ["listen:127.0.0.1:0"]);
    }

    #[test]
    fn rejects_contradictory_arguments() {
        let refused = |options: &[&str], target: &[&str]| {
            let failure = Plan::new(words(options, target)).unwrap_err();
            assert!(format!("{failure:?}").contains(&format!("code: {USAGE}")), "{failure:?}");
        };
        refused(&[], &[]);
        refused(&[], &["nowhere"]);
        refused(&[], &["a:1", "b:1"]);
        refused(&[], &["*:1"]);
        refused(&["udp"], &["unix:/a"]);
        refused(&["socks"], &["nowhere"]);
        refused(&["reverse"], &[]);
        refused(&["reverse", "listen=1", "listen=2"], &["a:1"]);
        refused(&["reverse", "listen=host:1"], &["a:1"]);
        refused(&["reverse"], &["udp:a:1"]);
        assert!(listen_address("udp:127.0.0.1:1").is_err() && listen_address("x").is_err());
    }

    #[test]
    fn a_capability_limits_the_plan() {
        let within = |options: &[&str], target: &[&str], args: &[&str]| {
            Plan::within(words(options, target), &params(args)).map(|plan| plan.mode)
        };
        let code = |result: Result<Mode, ForwardError>| {
            let text = format!("{:?}", result.unwrap_err());
            text.split("code: ").nth(1).unwrap().split(',').next().unwrap().parse::<u8>().unwrap()
        };
        let db = Mode::To(address("db.example:1"));
        assert_eq!(within(&[], &[], &["db.example:1"]).unwrap(), db);
        assert_eq!(within(&[], &["db.example:1"], &["db.example:1"]).unwrap(), db);
        assert_eq!(within(&[], &["db.example:1"], &["*.example:*"]).unwrap(), db);
        assert_eq!(within(&["socks"], &[], &["*.example:*"]).unwrap(), Mode::Socks);
        let dns = Mode::Udp(address("udp:192.0.2.1:53"));
        assert_eq!(within(&[], &[], &["udp:192.0.2.1:53"]).unwrap(), dns);
        let reverse = within(&["reverse"], &["a:1"], &["listen:127.0.0.1:80"]);
        assert_eq!(reverse.unwrap(), Mode::Reverse(address("a:1")));
        let others: [(&[&str], &[&str], &[&str]); 10] = [
            (&[], &["db.example:2"], &["db.example:1"]),
            (&[], &["192.0.2.1:1"], &["db.example:1"]),
            (&["udp"], &[], &["db.example:1"]),
            (&["udp"], &["db.example:1"], &["db.example:1"]),
            (&["reverse"], &["a:1"], &["db.example:1"]),
            (&["reverse", "listen=81"], &["a:1"], &["listen:127.0.0.1:80"]),
            (&[], &["a:1"], &["listen:127.0.0.1:80"]),
            (&["socks"], &[], &["listen:127.0.0.1:80"]),
            (&[], &[], &[]),
            (&[], &[], &["cat"]),
        ];
        for (options, target, args) in others {
            assert_eq!(code(within(options, target, args)), 121, "{options:?} {target:?} {args:?}");
        }
        assert_eq!(code(within(&[], &[], &["*.example:*"])), 2);
        assert_eq!(code(within(&[], &[], &["a:1", "b:1"])), 2);
        assert_eq!(code(within(&["socks"], &["a:1"], &["a:1"])), 2);
        assert_eq!(code(within(&["reverse"], &[], &["listen:127.0.0.1:80"])), 2);
    }
}
