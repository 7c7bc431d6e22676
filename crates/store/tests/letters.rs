//! The processor of dead letters runs users' jobs again, and none of the program's own: an alert that was overtaken by
//! later news must not be told. (Nobody enqueues those through a server, so the suite over every store cannot say it.)

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tidegate_core::codes;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::letters::{EVERY_MS, EVERY_RANGE_MS, RETRY_WITHIN_MS};
use tidegate_core::limits::RESERVED_KINDS;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::retry::{Backoff, Jitter, RetryPolicy};
use tidegate_core::time::Timestamp;
use tidegate_store::machine::Machine;
use tidegate_store::memory::MemoryRows;
use tidegate_store::params::{Claim, NewJob, Outcome, ProcessLetters, Settle, Settlement};

const NOW: Timestamp = Timestamp(1_000_000);

fn twice() -> RetryPolicy {
    RetryPolicy {
        max_attempts: 2,
        backoff: Backoff::Immediate,
        jitter: Jitter::None,
        retry_on: vec![],
        no_retry_on: vec![],
    }
}

/// Fails everything that is ready until nothing is.
fn kill_all(machine: &mut Machine<MemoryRows>, now: Timestamp) {
    loop {
        let claim = Claim {
            worker: WorkerId::new("w").unwrap(),
            process: ProcessId(1),
            queues: vec![(QueueName::new("q").unwrap(), 10)],
            max: 10,
            lease_ms: 10_000,
            now,
        };
        let claimed = machine.claim(claim).unwrap();
        if claimed.jobs.is_empty() {
            return;
        }
        let failed = |job: &tidegate_store::params::ClaimedJob| Settlement {
            ticket: job.ticket,
            outcome: Outcome::Fail(Failure::new(Category::TransientServer, "E_TEST", "busy")),
        };
        let settlements = claimed.jobs.iter().map(failed).collect();
        machine.settle(Settle { settlements, now, seed: 0 }).unwrap();
    }
}

#[test]
fn the_programs_own_jobs_are_not_retried() {
    let mut machine = Machine::open(MemoryRows::default(), NOW).unwrap();
    let queue = QueueName::new("q").unwrap();
    machine.put_queue(queue.clone(), QueueSettings::default(), NOW).unwrap();
    for (of, random) in [("twice".to_owned(), 1), (format!("{RESERVED_KINDS}test"), 2)] {
        let kind = KindName::new(of).unwrap();
        let settings = KindSettings { retry: Some(twice()), ..KindSettings::new(queue.clone()) };
        machine.put_kind(kind.clone(), settings).unwrap();
        let job = NewJob::new(JobId::from_parts(1, random), kind, Payload::trusted("{}"));
        machine.enqueue(vec![job], NOW).unwrap();
    }
    kill_all(&mut machine, NOW);
    let step = ProcessLetters { every_ms: EVERY_MS, at_once: true, now: NOW };
    let done = machine.process_letters(step).unwrap();
    assert_eq!((done.looked_at, done.retried, done.left), (2, 1, 1));
}

#[test]
fn a_letter_is_looked_at_while_it_may_be_retried_however_seldom_and_late_a_run_comes() {
    let mut machine = Machine::open(MemoryRows::default(), NOW).unwrap();
    let (queue, kind) = (QueueName::new("q").unwrap(), KindName::new("twice").unwrap());
    machine.put_queue(queue.clone(), QueueSettings::default(), NOW).unwrap();
    machine
        .put_kind(kind.clone(), KindSettings { retry: Some(twice()), ..KindSettings::new(queue) })
        .unwrap();
    let every_ms = *EVERY_RANGE_MS.end();
    let look = |now| ProcessLetters { every_ms, at_once: false, now };
    assert_eq!(machine.process_letters(look(NOW)).unwrap().next_run, Some(NOW.plus_ms(every_ms)));
    let ran = NOW.plus_ms(every_ms);
    assert_eq!(machine.process_letters(look(ran)).unwrap().next_run, Some(ran.plus_ms(every_ms)));
    // It dies when the run is just over, and the next one is as late as it may be.
    let job = NewJob::new(JobId::from_parts(1, 1), kind, Payload::trusted("{}"));
    machine.enqueue(vec![job], ran).unwrap();
    kill_all(&mut machine, ran);
    let late = ran.plus_ms(RETRY_WITHIN_MS - 1);
    assert_eq!(machine.process_letters(look(late)).unwrap().retried, 1);

    let seldom = ProcessLetters { every_ms: RETRY_WITHIN_MS + 1, at_once: false, now: late };
    let error = machine.process_letters(seldom).unwrap_err();
    assert_eq!(error.code, codes::INVALID_TIME);
    assert!(error.detail.contains("1 s to 30 min"), "{}", error.detail);
    assert_eq!(every_ms, 30 * 60_000, "as the sentence says");
}
