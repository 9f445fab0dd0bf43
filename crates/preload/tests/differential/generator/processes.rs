//! Connections that several processes have.

use super::model::{Connection, Holder};
use super::{Generator, Process};

impl Generator {
    /// A child that has all descriptors of its parent.
    pub fn fork(&mut self) {
        let Some(end) = self.some_end() else { return };
        let parent = self.holder(end).process;
        let entry = self.processes.iter_mut().find(|process| process.name == parent).unwrap();
        if entry.parent.is_some() || entry.children == 2 || entry.name == "C" {
            return;
        }
        entry.children += 1;
        let name = format!("{parent}{}", entry.children);
        self.close_epolls(&parent);
        self.call(&parent, format!("fork {name}"));
        for connection in &mut self.connections {
            for end in &mut connection.ends {
                let own = end.holders.iter().filter(|holder| holder.process == parent);
                let inherited =
                    own.map(|holder| Holder { process: name.clone(), ..holder.clone() });
                let inherited: Vec<_> = inherited.collect();
                end.holders.extend(inherited);
            }
        }
        let entry = Process { name, parent: Some(parent.clone()), children: 0 };
        self.processes.push(entry);
        if self.random.percent(40) {
            self.give_to_child(&parent);
        }
    }

    /// As a server does: only the child keeps the connections.
    fn give_to_child(&mut self, parent: &str) {
        for slot in self.slots_of(parent) {
            let process = parent.to_owned();
            self.close(&Holder { process, slot, close_on_exec: false });
        }
    }

    /// A child ends without closing its descriptors.
    pub fn end_child(&mut self) {
        let children: Vec<_> = self
            .processes
            .iter()
            .filter_map(|process| Some((process.name.clone(), process.parent.clone()?)))
            .collect();
        if children.is_empty() {
            return;
        }
        let (child, parent) = children[self.random.below(children.len())].clone();
        // Of a killed one, the others do not learn that it has ended: `differences/killed_child`.
        let end = self.random.pick(&["exit 0", "exit-now 3"]);
        self.call(&child, end);
        self.call(&parent, "child");
        self.processes.retain(|process| process.name != child);
        self.epolls.retain(|epoll| epoll.process != child);
        self.lose(|holder| holder.process == child);
    }

    /// Another image of the program, which has the descriptors that were not marked.
    pub fn exec(&mut self) {
        let Some(end) = self.some_end() else { return };
        let process = self.holder(end).process;
        // The other program finds unread bytes later: `differences/exec_with_unread_bytes`.
        if process == "C" || self.has_unread(&process) {
            return;
        }
        self.close_epolls(&process);
        let how = self.random.pick(&["keep", "keep", "plain"]);
        self.call(&process, format!("exec {how}"));
        self.lose(|holder| holder.process == process && holder.close_on_exec);
    }

    /// A third process gets a connection over a Unix socket.
    pub fn pass(&mut self) {
        // The other process finds unread bytes later:
        // `differences/passed_to_a_program_without_the_library`.
        let from_main = |connection: &Connection, end: usize| {
            let this = &connection.ends[end];
            this.unread == 0 && this.holders.iter().all(|holder| holder.process != "C")
        };
        let Some(end) = self.some_end_where(from_main) else { return };
        let holder = self.holder(end);
        if !self.processes.iter().any(|process| process.name == "C") {
            let name = "C".to_owned();
            self.processes.push(Process { name, parent: None, children: 0 });
            if self.random.percent(20) {
                self.script.plain.push("C".to_owned());
            }
            self.call("C", "mailbox m mailbox");
        }
        let slot = self.name("z");
        self.on(&holder, format!("pass {} mailbox", holder.slot));
        self.call("C", format!("take m {slot}"));
        let taken = Holder { process: "C".to_owned(), slot, close_on_exec: false };
        self.end_mut(end).holders.push(taken);
        if self.random.percent(50) {
            self.close(&holder);
        }
    }

    /// `cat` gets a connection as its input and output: an echo server that ends with the stream.
    pub fn give_to_cat(&mut self) {
        let whole = |connection: &Connection, end: usize| {
            let this = &connection.ends[end];
            connection.is_whole()
                && this.holders.len() == 1
                && !this.nonblocking
                && !this.times_out
                && !connection.ends[1 - end].nonblocking
                && !connection.ends[1 - end].times_out
                && connection.ends.iter().all(|end| end.unread == 0)
        };
        let Some(end) = self.some_end_where(whole) else { return };
        let Some((server, client)) = self.apart(end) else { return };
        // Its child would be waited for as well.
        if self.processes.iter().any(|process| process.parent.as_ref() == Some(&server.process)) {
            return;
        }
        let way = self.random.pick(&["posix", "fork", "command"]);
        self.on(&server, format!("spawn {way} cat {}", server.slot));
        self.leave_epolls(&server.process, &server.slot);
        self.on(&server, format!("close {}", server.slot));
        let length = self.random.within(1, 5000);
        let tag = self.tag();
        self.on(&client, format!("out send {} {length} {tag} -", client.slot));
        self.on(&client, format!("in recv {} {length} waitall", client.slot));
        self.on(&client, format!("shutdown {} wr", client.slot));
        self.on(&client, format!("in recv {} 100 -", client.slot));
        self.on(&server, "child");
        let this = self.end_mut(end);
        this.holders.clear();
        this.closed = true;
        self.end_mut((end.0, 1 - end.1)).shut_write = true;
    }
}
