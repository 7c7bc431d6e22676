//! A suspect at its last chance runs alone in its process, and does not stop that process for ever.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tidegate_core::ids::{JobId, KindName, ProcessId, QueueName, Seq, WorkerId};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::machine::Machine;
use tidegate_store::memory::MemoryRows;
use tidegate_store::params::{Claim, Claimed, NewJob, Outcome, Settle, Settlement};

const LEASE: i64 = 10_000;

struct World {
    machine: Machine<MemoryRows>,
    now: Timestamp,
    ids: u64,
}

impl World {
    fn new() -> Self {
        let now = Timestamp(1_000_000);
        let mut machine = Machine::open(MemoryRows::default(), now).unwrap();
        for queue in ["a", "b"] {
            let name = QueueName::new(queue).unwrap();
            machine.put_queue(name.clone(), QueueSettings::default(), now).unwrap();
            machine.put_kind(KindName::new(queue).unwrap(), KindSettings::new(name)).unwrap();
        }
        Self { machine, now, ids: 0 }
    }

    fn enqueue(&mut self, queue: &str) {
        self.ids += 1;
        let id = JobId::from_parts(1, u128::from(self.ids));
        let job = NewJob::new(id, KindName::new(queue).unwrap(), Payload::trusted("{}"));
        self.machine.enqueue(vec![job], self.now).unwrap();
    }

    fn claim(&mut self, process: u64, queue: &str) -> Claimed {
        let claim = Claim {
            worker: WorkerId::new(format!("w-{queue}")).unwrap(),
            process: ProcessId(process),
            queues: vec![(QueueName::new(queue).unwrap(), 10)],
            max: 1,
            lease_ms: LEASE,
            now: self.now,
        };
        self.machine.claim(claim).unwrap()
    }

    fn complete(&mut self, claimed: &Claimed) {
        let settlements: Vec<Settlement> = claimed
            .jobs
            .iter()
            .map(|job| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) })
            .collect();
        self.machine.settle(Settle { settlements, now: self.now, seed: 0 }).unwrap();
    }

    /// A job of queue `b` with two lone stalls.
    fn last_chance(&mut self) -> Seq {
        self.enqueue("b");
        let mut seq = Seq(0);
        for process in 100..103 {
            seq = self.claim(process, "b").jobs[0].ticket.seq;
            self.now = self.now.plus_ms(LEASE);
        }
        seq
    }
}

#[test]
fn every_worker_of_the_process_drains_for_a_suspect_of_one() {
    let mut w = World::new();
    let suspect = w.last_chance();
    w.enqueue("a");
    w.enqueue("a");
    let running = w.claim(1, "a");
    assert_eq!(running.jobs.len(), 1);
    assert!(w.claim(1, "b").jobs.is_empty(), "the process is not alone");
    assert!(w.claim(1, "a").jobs.is_empty(), "the other worker must not keep it busy");
    assert_eq!(w.claim(2, "a").jobs.len(), 1, "other processes go on");
    w.complete(&running);
    let alone = w.claim(1, "b");
    assert_eq!(alone.jobs[0].ticket.seq, suspect);
    w.enqueue("a");
    assert!(w.claim(1, "a").jobs.is_empty(), "nothing starts beside it");
    w.complete(&alone);
    assert_eq!(w.claim(1, "a").jobs.len(), 1);
}

#[test]
fn a_process_that_cannot_drain_goes_back_to_work() {
    let mut w = World::new();
    w.last_chance();
    w.enqueue("a");
    let long = w.claim(1, "a");
    assert!(w.claim(1, "b").jobs.is_empty());
    w.enqueue("a");
    for _ in 0..2 {
        assert!(w.claim(1, "a").jobs.is_empty());
        w.now = w.now.plus_ms(LEASE / 2);
        w.machine.heartbeat(vec![long.lease.unwrap().id], w.now).unwrap();
    }
    assert_eq!(w.claim(1, "a").jobs.len(), 1, "what runs takes longer than a lease");
    w.enqueue("b");
    assert_eq!(w.claim(1, "b").jobs.len(), 1, "the suspect's own queue goes on too");
}
