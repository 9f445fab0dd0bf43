//! A thread that steps aside for everybody: what is published one by one must not hold up those who read.
//!
//! A publication takes a fraction of a millisecond of processor time, in steps that cannot be divided (SQLite's). On a
//! processor that readers share with it, Linux would let it run to the end of a slice (1.4 ms with two processors)
//! while answers wait. A thread of the class `SCHED_IDLE` is interrupted as soon as anybody else has something to do
//! (sched(7)). It has a share of a busy processor all the same: some 0.3 %, too little for a whole import, which is
//! therefore not done here.

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
pub(super) struct Background {
    work: mpsc::Sender<Work>,
}

impl Background {
    /// Starts the thread. None if the process can have no more of them.
    pub fn start() -> Option<Self> {
        let (send, mut work) = mpsc::channel::<Work>(WAITING);
        let run = move || {
            step_aside();
            while let Some(work) = work.blocking_recv() {
                work();
            }
        };
        thread::Builder::new().name("catalogue".into()).spawn(run).ok()?;
        Some(Self { work: send })
    }

    /// Runs `work` on the thread, after what was given to it before. None if the thread has ended.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        // Nobody may listen any more; the work is done to its end.
        let work = Box::new(move || drop(done.send(work())));
        self.work.send(work).await.ok()?;
        result.await.ok()
    }
}

/// Everybody may do that. Where it fails the thread is like any other.
fn step_aside() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}
