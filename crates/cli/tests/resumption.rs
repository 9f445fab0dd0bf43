//! Policy on resumed connections: a ticket from better days gives no more than a full handshake.

use crate::support::{Home, Node, eventually};
use levada_client::home::Home as Folder;
use levada_client::{Client, ClientError, RequestSpec, Target};

/// One that the node's configuration lets in, with and without tickets.
struct Guest<'a> {
    node: Node<'a>,
    folder: Folder,
    target: Target,
    /// Keeps the tickets that the node gives it.
    known: Client,
}

/// What the node said to a request and to the start of a session that was granted before.
#[derive(Debug, PartialEq)]
struct Verdicts {
    request: Result<(), String>,
    connect: Result<(), String>,
}

impl Guest<'_> {
    /// Replaces the node's configuration while it runs.
    async fn configure(&self, text: &str) {
        configure(self.node.home, text);
        let read = || self.node.log().matches("policy read again").count();
        let before = read();
        self.node.signal("HUP");
        tokio::task::block_in_place(|| eventually("it is read again", || read() > before));
    }

    /// Connects anew; whether it was resumed, and what is permitted then. It is the node that is
    /// asked: one who is turned away may learn of it before its connection counts as made.
    async fn ask(
        &self,
        client: &Client,
        capability: &levada_capability::Capability,
    ) -> (bool, Verdicts) {
        client.close();
        let before = self.resumptions();
        let spec = RequestSpec { service: "clock".into(), ..RequestSpec::default() };
        let request = client.request(&self.target, spec).await.map(drop).map_err(text);
        let resumed = self.resumptions() > before;
        let connect = client.connect(capability).await.map(drop).map_err(text);
        (resumed, Verdicts { request, connect })
    }

    /// How many connections the node has resumed.
    fn resumptions(&self) -> u64 {
        let (_, metrics) = self.node.http("/metrics");
        let line = "levada_handshakes_total{kind=\"resumed\"} ";
        metrics.lines().find_map(|each| each.strip_prefix(line)).map_or(0, |n| n.parse().unwrap())
    }

    /// With the tickets of before, and without any: the same verdicts, which are returned.
    async fn verdicts(&self, capability: &levada_capability::Capability) -> Verdicts {
        let (resumed, with_tickets) = self.ask(&self.known, capability).await;
        assert!(!resumed, "the tickets of before are void");
        let fresh = Client::new(&self.folder).unwrap();
        let (resumed, without) = self.ask(&fresh, capability).await;
        assert!(!resumed);
        assert_eq!(with_tickets, without);
        without
    }
}

fn text(error: ClientError) -> String {
    error.to_string()
}

fn configure(home: &Home, text: &str) {
    std::fs::write(Folder::at(home.path()).unwrap().config_file(), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_do_not_outlive_the_policy() {
    let (home, guest_home) = (Home::new(), Home::new());
    let identity = guest_home.identity();
    let allowed = format!("allow = [\"{identity}\"]\n");
    configure(&home, &allowed);
    let node = home.up("");
    let folder = Folder::at(guest_home.path()).unwrap();
    let target = Target::typed(home.identity().parse().unwrap(), &node.address());
    let known = Client::new(&folder).unwrap();
    let guest = Guest { node, folder, target, known };
    let spec = RequestSpec { service: "clock".into(), uses: 100, ..RequestSpec::default() };
    let capability = guest.known.request(&guest.target, spec).await.unwrap();

    // So it is as long as nothing changes: the second connection is resumed.
    let everything = Verdicts { request: Ok(()), connect: Ok(()) };
    assert_eq!(guest.ask(&guest.known, &capability).await, (true, everything));

    guest.configure(&format!("block = [\"{identity}\"]\n{allowed}")).await;
    let blocked = guest.verdicts(&capability).await;
    assert!(blocked.request.unwrap_err().contains("blocked"));
    assert!(blocked.connect.unwrap_err().contains("blocked"));

    guest.configure("").await;
    let taken_off = guest.verdicts(&capability).await;
    assert!(taken_off.request.unwrap_err().contains("may not request"));
    assert_eq!(taken_off.connect, Ok(()), "what was granted before holds");

    // Let in again, it is resumed again.
    guest.configure(&allowed).await;
    assert_eq!(guest.verdicts(&capability).await.request, Ok(()));
    assert!(guest.ask(&guest.known, &capability).await.0);
}
