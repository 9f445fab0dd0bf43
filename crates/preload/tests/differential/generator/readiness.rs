//! What poll, select and epoll report without waiting.

use super::Generator;
use super::model::Epoll;

/// Calls that poll, and those that select.
const POLLS: &[&str] = &[
    "poll",
    "poll",
    "ppoll",
    "ppoll-mask",
    "poll_chk",
    "ppoll_chk",
    "select",
    "select",
    "pselect",
    "ppoll-syscall",
    "pselect-syscall",
    #[cfg(target_arch = "x86_64")]
    "poll-syscall",
    #[cfg(target_arch = "x86_64")]
    "select-syscall",
];
const WAITS: &[&str] = &[
    "wait",
    "wait",
    "pwait",
    "pwait-null",
    "pwait2",
    "pwait-syscall",
    "pwait2-syscall",
    #[cfg(target_arch = "x86_64")]
    "wait-syscall",
];

impl Generator {
    pub fn poll_form(&mut self) -> &'static str {
        self.random.pick(POLLS)
    }

    pub fn wait_form(&mut self) -> &'static str {
        self.random.pick(WAITS)
    }

    /// A process that has connections.
    fn some_process(&mut self) -> Option<String> {
        let end = self.some_end()?;
        Some(self.holder(end).process)
    }

    /// One call for some or all connections of a process.
    pub fn look(&mut self) {
        let Some(process) = self.some_process() else { return };
        let slots = self.slots_of(&process);
        let form = self.poll_form();
        let mut asked = Vec::new();
        for slot in slots {
            let events = self.random.pick(&["in", "out", "in+out", "in+out+pri", "in+rdhup", "-"]);
            asked.push(format!("{slot}={events}"));
        }
        if self.random.percent(5) && !form.contains("select") {
            asked.push("#77=in".to_owned());
            asked.push("null=in".to_owned());
        }
        let timeout = self.random.pick(&["0", "0", "0", "2"]);
        self.call(&process, format!("poll {form} {timeout} {}", asked.join(" ")));
    }

    fn some_events(&mut self, process: &str, slot: &str) -> String {
        let events = ["in", "out", "in+out", "in+rdhup", "in+out+rdhup+pri", "-"];
        // It goes back to TCP at the end of the stream: `differences/edge_reported_again`.
        let modes = match self.has_ended(process, slot) {
            true => ["", "", "", "+oneshot", "+oneshot", "+oneshot", "+oneshot"],
            false => ["", "", "", "+et", "+et", "+oneshot", "+et+oneshot"],
        };
        let events = self.random.pick(&events);
        let mode = self.random.pick(&modes);
        // Exclusive wakeups exclude some other events.
        format!("{events}{mode}")
    }

    /// A few changes and waits on an instance that lives on.
    pub fn use_epoll(&mut self) {
        let Some(process) = self.some_process() else { return };
        let own = |epoll: &Epoll| epoll.process == process && !epoll.outer;
        let number = match self.epolls.iter().position(own) {
            Some(number) => number,
            None => self.create_epoll(&process, false),
        };
        for _ in 0..self.random.within(1, 4) {
            match self.random.below(11) {
                0..4 => self.add(number),
                4..6 => self.change(number),
                6 => self.remove(number),
                7 => self.duplicate_epoll(number),
                _ => self.wait(number),
            }
        }
        self.wait(number);
    }

    fn create_epoll(&mut self, process: &str, outer: bool) -> usize {
        let slot = self.name("e");
        let form = if self.random.percent(20) { " syscall" } else { "" };
        self.call(process, format!("epoll {slot}{form}"));
        let process = process.to_owned();
        let duplicates = Vec::new();
        let members = Vec::new();
        self.epolls.push(Epoll { process, slot, duplicates, members, outer, edges: false });
        self.epolls.len() - 1
    }

    /// Another descriptor of an instance: as tokio does, registrations and waits then use different
    /// ones.
    fn duplicate_epoll(&mut self, number: usize) {
        let old = self.epoll_slot(number);
        let new = self.name("e");
        let high = self.random.within(40, 60);
        let way = match self.random.below(4) {
            0 => "dup".to_owned(),
            1 => format!("fcntl {high}"),
            2 => format!("cloexec {high}"),
            _ => format!("dup2 {}", 100 + self.last % 90),
        };
        let process = self.epolls[number].process.clone();
        self.call(&process, format!("dup {old} {new} {way}"));
        self.epolls[number].duplicates.push(new);
    }

    /// One of the slots of an instance.
    fn epoll_slot(&mut self, number: usize) -> String {
        let epoll = &self.epolls[number];
        let slots: Vec<&String> = [&epoll.slot].into_iter().chain(&epoll.duplicates).collect();
        let at = if slots.len() > 1 { self.random.below(slots.len()) } else { 0 };
        slots[at].clone()
    }

    /// Adds a slot, which may be there already.
    fn add(&mut self, number: usize) {
        let slots = self.slots_of(&self.epolls[number].process);
        if slots.is_empty() {
            return;
        }
        let slot = slots[self.random.below(slots.len())].clone();
        // Bytes of a connection in two instances are found later:
        // `differences/exclusive_with_unread_bytes`.
        let process = &self.epolls[number].process;
        let in_another = self.epolls.iter().enumerate().any(|(other, epoll)| {
            other != number && epoll.process == *process && epoll.members.contains(&slot)
        });
        if in_another && self.has_unread(process) {
            return;
        }
        let events = self.some_events(&self.epolls[number].process.clone(), &slot);
        self.control(number, "add", &slot, &events);
        let members = &mut self.epolls[number].members;
        if !members.contains(&slot) {
            members.push(slot);
        }
    }

    fn control(&mut self, number: usize, operation: &str, slot: &str, events: &str) {
        self.epolls[number].edges |= events.contains("+et");
        let process = self.epolls[number].process.clone();
        let epoll = self.epoll_slot(number);
        self.call(&process, format!("ctl {epoll} {operation} {slot} {events}"));
    }

    fn change(&mut self, number: usize) {
        let Some(slot) = self.some_member(number) else { return };
        let events = self.some_events(&self.epolls[number].process.clone(), &slot);
        self.control(number, "mod", &slot, &events);
    }

    fn remove(&mut self, number: usize) {
        let Some(slot) = self.some_member(number) else { return };
        self.control(number, "del", &slot, "-");
        self.epolls[number].members.retain(|member| *member != slot);
    }

    fn some_member(&mut self, number: usize) -> Option<String> {
        let members = &self.epolls[number].members;
        let count = members.len();
        (count > 0).then(|| members[self.random.below(count)].clone())
    }

    fn wait(&mut self, number: usize) {
        let form = self.wait_form();
        let timeout = self.random.pick(&["0", "0", "2"]);
        let process = self.epolls[number].process.clone();
        let slot = self.epoll_slot(number);
        self.call(&process, format!("wait {form} {slot} {timeout} 16"));
    }

    /// An instance in an instance, and an instance in `poll`.
    pub fn nest_epolls(&mut self) {
        let Some(process) = self.some_process() else { return };
        // They are found later: `differences/exclusive_with_unread_bytes`.
        if self.has_unread(&process) {
            return;
        }
        let Some(inner) =
            self.epolls.iter().position(|epoll| epoll.process == process && !epoll.outer)
        else {
            return;
        };
        let found = self.epolls.iter().position(|epoll| epoll.process == process && epoll.outer);
        let outer = match found {
            Some(outer) => outer,
            // Its connections go back to TCP: `differences/edge_reported_again`.
            None if self.epolls[inner].edges => return,
            None => {
                let outer = self.create_epoll(&process, true);
                let slot = self.epolls[inner].slot.clone();
                let events = self.random.pick(&["in", "in+et", "in+oneshot"]);
                self.control(outer, "add", &slot, events);
                outer
            }
        };
        self.wait(outer);
        let form = self.poll_form();
        let slot = self.epolls[inner].slot.clone();
        self.call(&process, format!("poll {form} 0 {slot}=in+out"));
        self.wait(inner);
        self.wait(outer);
    }

    /// Before descriptors are shared with another process: its instances would keep what this one
    /// closes.
    pub fn close_epolls(&mut self, process: &str) {
        let all = std::mem::take(&mut self.epolls);
        for epoll in all {
            if epoll.process == process {
                for slot in [&epoll.slot].into_iter().chain(&epoll.duplicates) {
                    self.call(process, format!("close {slot}"));
                }
            } else {
                self.epolls.push(epoll);
            }
        }
    }

    /// Before one of several descriptors of an end is closed: the others would keep it in the
    /// instances.
    pub fn leave_epolls(&mut self, process: &str, slot: &str) {
        for number in 0..self.epolls.len() {
            let epoll = &self.epolls[number];
            if epoll.process == process && epoll.members.iter().any(|member| member == slot) {
                self.control(number, "del", slot, "-");
                self.epolls[number].members.retain(|member| member != slot);
            }
        }
    }
}
