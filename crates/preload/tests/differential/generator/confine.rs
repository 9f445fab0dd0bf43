//! Changes of a whole process, after which its connections are on TCP.

use super::Generator;

impl Generator {
    /// A process that has read all bytes of its connections.
    fn some_idle_process(&mut self) -> Option<String> {
        let end = self.some_end()?;
        let process = self.holder(end).process;
        (!self.has_unread(&process)).then_some(process)
    }

    /// For some exchanges, the process may have fewer descriptors than the library needs.
    pub fn lower_limit(&mut self) {
        // Unread bytes arrive later: `differences/stdio_with_unread_bytes`.
        let Some(process) = self.some_idle_process() else { return };
        let limit = self.random.pick(&["70", "100", "127"]);
        self.call(&process, format!("limit {limit}"));
        for _ in 0..self.random.below(4) {
            let scene = [Self::exchange, Self::receive_some, Self::look, Self::use_epoll];
            scene[self.random.below(4)](self);
        }
        self.call(&process, "limit max");
    }

    /// A library is opened whose calls go to libc, not to the library that is tested.
    pub fn open_with_deepbind(&mut self) {
        // As above.
        let Some(process) = self.some_idle_process() else { return };
        self.call(&process, "deepbind libresolv.so.2");
    }

    /// From now on, some system calls end the process.
    pub fn filter_calls(&mut self) {
        let Some(end) = self.some_end() else { return };
        let process = self.holder(end).process;
        let way = self.random.pick(&["prctl", "syscall"]);
        self.call(&process, format!("filter {way}"));
        // One read does not return bytes of a ring and the bytes of TCP after them.
        let slots = self.slots_of(&process);
        for connection in &mut self.connections {
            for end in &mut connection.ends {
                if end.holders.iter().any(|holder| holder.process == process) {
                    end.unread = 0;
                }
            }
        }
        for slot in slots {
            self.call(&process, format!("drain {slot}"));
        }
    }
}
