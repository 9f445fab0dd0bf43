//! A thread that steps aside for everybody: what is published one by one must not hold up those who read.
//!
//! A publication takes a fraction of a millisecond of processor time, in steps that cannot be divided (SQLite's). On a
//! processor that readers share with it, Linux would let it run to the end of a slice (1.4 ms with two processors)
//! while answers wait. A thread of the class `SCHED_IDLE` is interrupted as soon as anybody else has something to do
//! (sched(7)). It has a share of a busy processor all the same: some 0.3 %, too little for a whole import, which is
//! therefore not done here. (Where Linux groups processes, as for sessions and systemd's services, that is a share of
//! what the whole node gets.) On a disk whose scheduler has classes its writes come last, too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::{mpsc, oneshot};

/// Work that waits for the thread; whoever has more waits before.
const WAITING: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped and everything is done that was given to it.
pub(super) struct LowPriority {
    work: mpsc::Sender<Work>,
}

impl LowPriority {
    /// Starts the thread. None if the process can have no more of them.
    pub fn start() -> Option<Self> {
        let (send, mut work) = mpsc::channel::<Work>(WAITING);
        let run = move || {
            set_idle_class();
            while let Some(work) = work.blocking_recv() {
                // Nothing there panics; if something does, then it ends alone, as on any thread for blocking work.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        };
        thread::Builder::new().name("catalogue".into()).spawn(run).ok()?;
        Some(Self { work: send })
    }

    /// Runs `work` on the thread, after what was given to it before. None if `work` panicked. If this is dropped before
    /// `work` has begun, it never does; otherwise it is done to its end.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            if !done.is_closed() {
                let _ = done.send(work());
            }
        });
        self.work.send(work).await.ok()?;
        result.await.ok()
    }
}

/// Everybody may do that. Where it fails the thread is like any other.
fn set_idle_class() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc as blocking;

    use super::*;

    #[tokio::test]
    async fn it_steps_aside() {
        let low_priority = LowPriority::start().unwrap();
        let stat = low_priority.run(|| fs::read_to_string("/proc/thread-self/stat").unwrap()).await;
        let stat = stat.unwrap();
        // The name may have blanks in it. Behind it come fields 3 and on; the policy is field 41 (proc(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(fields[41 - 3], "5", "SCHED_IDLE: {stat}");
    }

    #[tokio::test]
    async fn work_that_panics_ends_alone() {
        let low_priority = LowPriority::start().unwrap();
        assert_eq!(low_priority.run(|| -> u8 { panic!("on purpose") }).await, None);
        assert_eq!(low_priority.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn what_has_begun_is_done_and_what_nobody_waits_for_is_not_begun() {
        let low_priority = LowPriority::start().unwrap();
        let (begun, has_begun) = blocking::channel();
        let (go_on, may_go_on) = blocking::channel::<()>();
        let (done, has_done) = blocking::channel();
        let also_done = done.clone();
        {
            let mut first = Box::pin(low_priority.run(move || {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                done.send("first").unwrap();
            }));
            let mut second = Box::pin(low_priority.run(move || also_done.send("second").unwrap()));
            // Each gives its work to the thread when it is polled first.
            tokio::select! { biased; _ = &mut first => {}, _ = &mut second => {}, () = async {} => {} }
            has_begun.recv().unwrap();
        }
        go_on.send(()).unwrap();
        assert_eq!(low_priority.run(|| 3).await, Some(3));
        assert_eq!(has_done.try_iter().collect::<Vec<_>>(), ["first"]);
    }
}
