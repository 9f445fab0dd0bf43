//! `levada join`: redeems an invitation, and pins the node.

use crate::failure::{Failure, Outcome, USAGE};
use crate::identity::nickname;
use crate::output::{self, plain};
use crate::secret_text;
use crate::seen::note_services;
use clap::Args;
use levada_capability::Invitation;
use levada_client::{Client, ClientError, Joined, Target};
use levada_core::wire::Service;
use levada_core::{Params, shell_word};
use levada_home::{Home, address};
use serde_json::json;
use std::collections::BTreeSet;

const PREFIX: &str = "lvinv1";

/// Join the node of an invitation, and pin it under a nickname
///
/// Prints the nickname.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada join lvinv1… --as alpha
  levada join @welcome")]
pub struct Arguments {
    /// The invitation, @FILE or - for standard input; the whole pasted line is accepted too
    #[arg(value_name = "CODE", required = true)]
    code: Vec<String>,

    /// The nickname; the node's own name if not given
    #[arg(long = "as", value_name = "NAME", value_parser = nickname)]
    name: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let typed = typed(&arguments.code)?;
    let code = find(&typed).ok_or_else(|| {
        Failure::new(USAGE, format!("not an invitation: no word begins with `{PREFIX}`"))
    })?;
    let invitation = Invitation::from_text(code)?;
    let home = Home::open()?;
    let client = Client::new(&home)?;
    let joined = client.join(&invitation, arguments.name.as_deref()).await;
    let joined = joined.map_err(|error| with_remedy(error, &invitation))?;
    // The services are only for the hint: without them, the join has succeeded all the same.
    let target = Target { identity: joined.identity, addresses: invitation.addresses().to_vec() };
    let offered = client.query(&target, None).await.unwrap_or_default();
    client.close();
    note_services(&home, [(&joined.identity, &offered[..])]);
    let name = plain(&joined.name);
    let services: Vec<String> = joined.services.iter().map(|service| plain(service)).collect();
    output::note(format_args!("{name} ({}) is known here.", joined.identity));
    if let Some(note) = name_note(&joined, arguments.name.is_some()) {
        output::note(note);
    }
    if !services.is_empty() {
        let open: Vec<&Service> =
            offered.iter().filter(|one| joined.services.contains(&one.name)).collect();
        let list = services.join(", ");
        let hint = hint(&joined.name, &open);
        output::note(format_args!("Open to you: {list}. Try it:  {hint}"));
    }
    if arguments.json {
        let identity = joined.identity.to_string();
        output::json(
            json!({ "name": joined.name, "identity": identity, "services": joined.services }),
        )?;
    } else {
        output::data(name)?;
    }
    Ok(0)
}

/// The failure, with what to do if no address of the invitation leads to the node.
fn with_remedy(error: ClientError, invitation: &Invitation) -> Failure {
    let has_no_answer = matches!(error, ClientError::NoAnswer(_));
    let failure = Failure::from(error);
    if !has_no_answer {
        return failure;
    }
    let remedy = remedy(invitation.addresses());
    Failure::new(failure.code(), format!("{}. {remedy}", failure.text()))
}

/// A remedy for a node that does not answer at these addresses.
fn remedy(addresses: &[String]) -> String {
    let again = "`levada invite --address HOST:PORT` names the address";
    let usable = addresses.iter().filter(|text| address::is_usable(text));
    let ports = usable.filter_map(|text| address::shown(text).rsplit_once(':'));
    let ports: BTreeSet<&str> = ports.map(|(_, port)| port).collect();
    if ports.is_empty() {
        return format!(
            "The node has to listen at an address that this machine reaches (`listen` in \
             config.toml); behind NAT, {again} from outside"
        );
    }
    let plural = if ports.len() == 1 { "" } else { "s" };
    let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "There, `levada up` has to run, and the firewall to let TCP port{plural} {ports} through; \
         behind NAT, {again} from outside"
    )
}

/// The words of the invitation, from a file or standard input if the argument says so.
fn typed(words: &[String]) -> Result<Vec<String>, Failure> {
    match words {
        [one] if one == "-" || one.starts_with('@') => {
            Ok(vec![secret_text::read_text(one, "invitation")?.to_string()])
        }
        words => Ok(words.to_vec()),
    }
}

/// The difference between the nickname and what the user may expect: the nickname until now, or the
/// name that the node has chosen, unless the user has chosen the nickname.
fn name_note(joined: &Joined, is_chosen: bool) -> Option<String> {
    let name = plain(&joined.name);
    let own = plain(&joined.own_name);
    if let Some(before) = &joined.renamed_from {
        return Some(format!("note: it was known here as {} until now", plain(before)));
    }
    (!is_chosen && name != own).then(|| {
        format!(
            "note: the node calls itself {own}, but {name} is its name here; \
             `levada peers rename {name} NAME` changes that"
        )
    })
}

/// The types with a command that can be tried as it stands, the most useful first.
const TRIED: [&str; 9] =
    ["forward", "http", "exec", "shell", "display", "input", "catalogue", "clock", "echo"];

/// A command that uses one of the services; else the query that shows their parameters.
fn hint(node: &str, services: &[&Service]) -> String {
    let of_type = |kind: &'static str| services.iter().filter(move |one| one.r#type == kind);
    let hint = TRIED.into_iter().flat_map(of_type).find_map(|one| command(node, one));
    // A service's name comes from another machine, and may contain control characters.
    plain(&hint.unwrap_or_else(|| match services.first() {
        Some(one) => format!("levada query {}", label(node, one)),
        None => format!("levada query {}", shell_word(node)),
    }))
}

fn label(node: &str, service: &Service) -> String {
    shell_word(&format!("{node}/{}", service.name)).into_owned()
}

/// A command that uses a service; `None` if it needs what its description does not say.
fn command(node: &str, service: &Service) -> Option<String> {
    let label = label(node, service);
    let args = service.parameters.iter().find(|one| one.key == Params::ARGS);
    let mut values = args.into_iter().flat_map(|one| &one.values);
    Some(match service.r#type.as_str() {
        "forward" => {
            let address = shell_word(values.find(|text| is_address(text))?);
            format!("levada forward {label} --listen 8080 -- {address}")
        }
        "exec" => format!("levada run {label} -- {}", shell_word(values.next()?)),
        "http" => format!("levada http {label}"),
        "clock" | "shell" => format!("levada run {label}"),
        "echo" => format!("echo hello | levada run {label}"),
        "catalogue" => format!("levada catalogue ls --at {label}"),
        "display" => format!("levada show {label} -- xterm"),
        "input" => format!("levada input {label}"),
        _ => return None,
    })
}

/// Returns true for one TCP address, not a pattern of several.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_one = !host.contains(['*', '/']) && (host.starts_with('[') || !host.contains(':'));
    is_one && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The code in the arguments, which may be the whole `levada join …` line, quoted or not.
fn find(typed: &[String]) -> Option<&str> {
    typed.iter().flat_map(|text| text.split_whitespace()).find(|word| word.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use levada_core::wire::Parameter;

    use super::*;

    #[test]
    fn the_hint_works_with_the_type_of_the_service() {
        let service = |name: &str, kind: &str| Service {
            name: name.into(),
            r#type: kind.into(),
            ..Service::default()
        };
        let with = |name: &str, kind: &str, values: &[&str]| {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            let args = Parameter { key: Params::ARGS.into(), values, ..Parameter::default() };
            Service { parameters: vec![args], ..service(name, kind) }
        };
        let time = service("time", "clock");
        let talk = service("talk", "echo");
        assert_eq!(hint("well", &[&talk, &time]), "levada run well/time");
        assert_eq!(hint("well", &[&talk]), "echo hello | levada run well/talk");
        let own = with("own", "exec", &["my tool", "df"]);
        assert_eq!(hint("well", &[&time, &own]), "levada run well/own -- 'my tool'");
        let all = ["listen:0.0.0.0:1", "*.example:443", "[::1]:*", "udp:10.0.0.1:53", "[::1]:80"];
        let web = with("web", "forward", &all);
        let shown = "levada forward well/web --listen 8080 -- [::1]:80";
        assert_eq!(hint("well", &[&own, &web]).replace('\'', ""), shown);
        let none = with("web", "forward", &all[..4]);
        assert_eq!(hint("well", &[&none]), "levada query well/web");
        assert_eq!(hint("well", &[]), "levada query well");
        let odd = service("a b\u{1b}", "clock");
        assert_eq!(hint("well", &[&odd]), r"levada run 'well/a b\u{1b}'");
    }

    #[test]
    fn the_remedy_names_the_ports_of_usable_addresses() {
        let remedy =
            |all: &[&str]| remedy(&all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        let foreign = "127.0.0.1:9@0123456789abcdef0123";
        let one = remedy(&["box.example:5382", "10.0.0.1:5382", foreign]);
        assert!(one.contains("TCP port 5382 through"), "{one}");
        let two = remedy(&["box.example:15382", "[2001:db8::1]:5382"]);
        assert!(two.contains("TCP ports 15382, 5382 through"), "{two}");
        let none = remedy(&[foreign]);
        assert!(none.contains("`listen`") && none.contains("--address"), "{none}");
    }

    #[test]
    fn finds_the_code_in_a_pasted_line() {
        let typed = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(find(&typed(&["lvinv1abc"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&["levada", "join", "lvinv1abc"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&[" levada join lvinv1abc\n"])), Some("lvinv1abc"));
        assert_eq!(find(&typed(&["lvcap1abc"])), None);
    }
}
