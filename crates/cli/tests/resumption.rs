//! Policy on resumed connections: an old session ticket gives no more rights than a full handshake.

use crate::support::{Home, Node, eventually};
use levada_client::{Client, ClientError, RequestSpec, Target};
use levada_home::Home as Folder;

/// A guest of a node, with and without session tickets.
struct Guest<'a> {
    node: Node<'a>,
    folder: Folder,
    target: Target,
    /// A client that keeps the tickets of the node.
    with_tickets: Client,
}

/// The results of a request, and of starting a session that was granted before.
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
        tokio::task::block_in_place(|| eventually("the policy is reloaded", || read() > before));
    }

    /// Opens a new connection: whether it was resumed, and what it permits. The node counts
    /// resumptions; a client that is refused may see the refusal before its own connection is
    /// established.
    async fn check(
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

    /// The number of connections that the node has resumed.
    fn resumptions(&self) -> u64 {
        let (_, metrics) = self.node.http("/metrics");
        let line = "levada_handshakes_total{kind=\"resumed\"} ";
        metrics.lines().find_map(|each| each.strip_prefix(line)).map_or(0, |n| n.parse().unwrap())
    }

    /// Asserts that old tickets are not resumed, and change nothing: the verdicts.
    async fn verdicts(&self, capability: &levada_capability::Capability) -> Verdicts {
        let (resumed, old) = self.check(&self.with_tickets, capability).await;
        assert!(!resumed, "old tickets are void");
        let fresh = Client::new(&self.folder).unwrap();
        let (resumed, without) = self.check(&fresh, capability).await;
        assert!(!resumed);
        assert_eq!(old, without);
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
async fn a_policy_change_voids_session_tickets() {
    let home = Home::new();
    let guest_home = Home::new();
    let identity = guest_home.identity();
    let allowed = format!("allow = [\"{identity}\"]\n");
    configure(&home, &allowed);
    let node = home.up("");
    let folder = Folder::at(guest_home.path()).unwrap();
    let target = Target::typed(home.identity().parse().unwrap(), &node.address());
    let with_tickets = Client::new(&folder).unwrap();
    let guest = Guest { node, folder, target, with_tickets };
    let spec = RequestSpec { service: "clock".into(), uses: 100, ..RequestSpec::default() };
    let capability = guest.with_tickets.request(&guest.target, spec).await.unwrap();

    // Without a change of policy, the second connection is resumed.
    let everything = Verdicts { request: Ok(()), connect: Ok(()) };
    assert_eq!(guest.check(&guest.with_tickets, &capability).await, (true, everything));

    guest.configure(&format!("block = [\"{identity}\"]\n{allowed}")).await;
    let blocked = guest.verdicts(&capability).await;
    assert!(blocked.request.unwrap_err().contains("blocked"));
    assert!(blocked.connect.unwrap_err().contains("blocked"));

    guest.configure("").await;
    let taken_off = guest.verdicts(&capability).await;
    assert!(taken_off.request.unwrap_err().contains("may not request"));
    assert_eq!(taken_off.connect, Ok(()), "a granted capability stays valid");

    // With the right to request back, connections are resumed again.
    guest.configure(&allowed).await;
    assert_eq!(guest.verdicts(&capability).await.request, Ok(()));
    assert!(guest.check(&guest.with_tickets, &capability).await.0);
}
