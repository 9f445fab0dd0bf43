//! A thread of the lowest scheduling class, on which single publications run, so that they do not
//! delay readers.
//!
//! A publication takes a fraction of a millisecond of processor time, in steps of SQLite that
//! cannot be divided. On a processor shared with readers, a thread of normal priority would run to
//! the end of its time slice (1.4 ms with two processors) while answers wait. Linux preempts a
//! `SCHED_IDLE` thread as soon as another thread is runnable (sched(7)). On a busy processor it
//! still has a share of about 0.3 %, which is too little for an import; imports therefore do not
//! use this thread. Where Linux groups processes, as for sessions and systemd's services, the share
//! is of the node's own share. On a disk whose scheduler has I/O classes, the writes of this thread
//! come last, too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of work; [`LowPriority::run`] waits while it is full.
const QUEUE_LENGTH: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The thread. After this is dropped, it completes the queued work and ends.
pub(super) struct LowPriority {
    work: mpsc::Sender<Work>,
}

impl LowPriority {
    /// Starts the thread. `None` if the system refuses another thread.
    pub fn start() -> Option<Self> {
        let (send, mut work) = mpsc::channel::<Work>(QUEUE_LENGTH);
        let run = move || {
            set_idle_class();
            while let Some(work) = work.blocking_recv() {
                // A store does not panic. If one does, the thread continues, as tokio's threads for
                // blocking work do.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        };
        thread::Builder::new().name("catalogue".into()).spawn(run).ok()?;
        Some(Self { work: send })
    }

    /// Runs `work` on the thread, in order of the calls. `None` if `work` panicked. If the future
    /// is dropped before `work` has started, `work` does not run; afterwards it runs to completion.
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

/// Needs no privilege. On an error the thread keeps its normal priority.
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
    async fn the_thread_has_the_scheduling_class_idle() {
        let low_priority = LowPriority::start().unwrap();
        let stat = low_priority.run(|| fs::read_to_string("/proc/thread-self/stat").unwrap()).await;
        let stat = stat.unwrap();
        // The name, field 2, may contain blanks. Field 3 follows its parenthesis; the policy is
        // field 41 (proc(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(fields[41 - 3], "5", "SCHED_IDLE: {stat}");
    }

    #[tokio::test]
    async fn work_that_panics_does_not_end_the_thread() {
        let low_priority = LowPriority::start().unwrap();
        assert_eq!(low_priority.run(|| -> u8 { panic!("on purpose") }).await, None);
        assert_eq!(low_priority.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn started_work_completes_and_cancelled_work_does_not_start() {
        let low_priority = LowPriority::start().unwrap();
        let (started, has_started) = blocking::channel();
        let (resume, may_continue) = blocking::channel::<()>();
        let (done, has_done) = blocking::channel();
        let also_done = done.clone();
        {
            let mut first = Box::pin(low_priority.run(move || {
                started.send(()).unwrap();
                may_continue.recv().unwrap();
                done.send("first").unwrap();
            }));
            let mut second = Box::pin(low_priority.run(move || also_done.send("second").unwrap()));
            // Each queues its work when it is first polled.
            tokio::select! { biased; _ = &mut first => {}, _ = &mut second => {}, () = async {} => {} }
            has_started.recv().unwrap();
        }
        resume.send(()).unwrap();
        assert_eq!(low_priority.run(|| 3).await, Some(3));
        assert_eq!(has_done.try_iter().collect::<Vec<_>>(), ["first"]);
    }
}
