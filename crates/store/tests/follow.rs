//! What a machine tells those that follow it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::job::State;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::feed::Happened;
use tidegate_store::machine::{Change, Machine};
use tidegate_store::memory::MemoryRows;
use tidegate_store::params::{CancelJob, Claim, Claimed, NewJob, Outcome, Settle, Settlement};

const LEASE: i64 = 10_000;

struct World {
    leader: Machine<MemoryRows>,
    follower: Machine<MemoryRows>,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let now = Timestamp(1_000_000);
        let open = || {
            let mut machine = Machine::open(MemoryRows::default(), now).unwrap();
            machine.record_changes(true);
            machine.take_signals();
            machine
        };
        let mut world = Self { leader: open(), follower: open(), now };
        let name = QueueName::new("q").unwrap();
        world.leader.put_queue(name.clone(), QueueSettings::default(), now).unwrap();
        world.leader.put_kind(KindName::new("k").unwrap(), KindSettings::new(name)).unwrap();
        world.pass_on();
        world
    }

    /// The follower does what the leader did.
    fn pass_on(&mut self) -> Vec<Change> {
        let changes = self.leader.take_changes();
        self.follower.follow(&changes).unwrap();
        assert_eq!(self.follower.digest(), self.leader.digest());
        changes
    }

    fn claim(&mut self, max: u32) -> Claimed {
        let claim = Claim {
            worker: WorkerId::new("w").unwrap(),
            process: ProcessId(1),
            queues: vec![(QueueName::new("q").unwrap(), 100)],
            max,
            lease_ms: LEASE,
            now: self.now,
        };
        self.leader.claim(claim).unwrap()
    }

    fn settle(&mut self, claimed: &Claimed, outcomes: Vec<Outcome>) {
        let with = claimed.jobs.iter().zip(outcomes);
        let settlements = with.map(|(job, outcome)| Settlement { ticket: job.ticket, outcome }).collect();
        self.leader.settle(Settle { settlements, now: self.now, seed: 1 }).unwrap();
    }

    fn happened(&mut self) -> Vec<Happened> {
        self.pass_on();
        let events = self.leader.take_events();
        assert_eq!(self.follower.take_events(), events, "a follower tells the same");
        events.into_iter().map(|event| event.what).collect()
    }
}

fn job(n: u128) -> NewJob {
    let id = JobId::from_parts(1, n);
    NewJob::new(id, KindName::new("k").unwrap(), Payload::trusted("{}"))
}

#[test]
fn every_step_of_a_job_is_an_event_here_and_elsewhere() {
    let mut w = World::new();
    w.leader.watch(true);
    w.follower.watch(true);
    let later = NewJob { run_at: Some(w.now.plus_ms(60_000)), ..job(1) };
    let batch = vec![later, job(2), job(3), job(4), job(5), job(6), job(7)];
    w.leader.enqueue(batch, w.now).unwrap();
    let enqueued = |state| Happened::Enqueued { state };
    let mut expected = vec![enqueued(State::Scheduled)];
    expected.extend(vec![enqueued(State::Ready); 6]);
    assert_eq!(w.happened(), expected);

    let claimed = w.claim(6);
    let started = || Happened::Started { worker: WorkerId::new("w").unwrap(), attempt: 1 };
    assert_eq!(w.happened(), vec![started(); 6]);

    let until = w.now.plus_ms(5_000);
    let network = Failure::new(Category::TransientNetwork, "E_NET", "");
    let hopeless = Failure::new(Category::PermanentAuth, "E_AUTH", "");
    let outcomes = vec![
        Outcome::Complete(None),
        Outcome::Fail(network),
        Outcome::Fail(hopeless),
        Outcome::Snooze { until, reason: String::new(), park: None, gate: None },
        Outcome::Release,
        Outcome::Cancel,
    ];
    w.settle(&claimed, outcomes);
    let happened = w.happened();
    assert!(matches!(&happened[1], Happened::Retry { run_at, code } if *run_at >= w.now && code == "E_NET"));
    assert_eq!(happened[0], Happened::Completed);
    assert_eq!(happened[2], Happened::Dead { code: "E_AUTH".into() });
    assert_eq!(happened[3..], [Happened::Snoozed { run_at: until }, Happened::Released, Happened::Cancelled]);

    assert_eq!(w.claim(1).jobs.len(), 1);
    w.now = w.now.plus_ms(LEASE);
    w.leader.advance(w.now).unwrap();
    let happened = w.happened();
    assert_eq!(happened[0], started());
    assert!(happened.contains(&Happened::Stalled));

    w.leader
        .cancel(CancelJob { id: JobId::from_parts(1, 1), note: String::new(), cascade: false, now: w.now })
        .unwrap();
    assert_eq!(w.happened(), [Happened::Cancelled]);
    w.leader.watch(false);
    w.leader.enqueue(vec![job(9)], w.now).unwrap();
    assert_eq!(w.leader.take_events(), [], "nobody watches");
}

#[test]
fn a_follower_wakes_its_workers_and_stops_its_handlers() {
    let mut w = World::new();
    w.leader.enqueue(vec![job(1)], w.now).unwrap();
    w.pass_on();
    assert!(w.follower.take_signals().work, "there is work");
    w.claim(1);
    w.pass_on();
    assert!(!w.follower.take_signals().work, "less work is no news");
    let id = JobId::from_parts(1, 1);
    w.leader.cancel(CancelJob { id, note: String::new(), cascade: false, now: w.now }).unwrap();
    w.pass_on();
    assert_eq!(w.follower.take_signals().cancels, [id]);
}

#[test]
fn who_only_looked_has_nothing_to_tell() {
    let mut w = World::new();
    w.now = w.now.plus_ms(5_000);
    assert!(w.claim(10).jobs.is_empty());
    w.leader.advance(w.now).unwrap();
    w.leader.queues(w.now).unwrap();
    assert!(w.leader.enqueue(vec![], w.now).is_err());
    assert!(
        w.leader
            .cancel(CancelJob {
                id: JobId::from_parts(1, 1),
                note: String::new(),
                cascade: false,
                now: w.now
            })
            .is_err()
    );
    assert_eq!(w.leader.take_changes(), []);
    w.leader.enqueue(vec![job(1)], w.now).unwrap();
    let changes = w.pass_on();
    assert_eq!(changes[0], Change::Now(w.now), "the time comes with what happened then");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut w = World::new();
    w.leader.enqueue(vec![job(1), job(2)], w.now).unwrap();
    w.claim(1);
    let changes = w.leader.take_changes();
    w.follower.follow(&changes).unwrap();
    for change in changes.into_iter().filter(|c| !matches!(c, Change::Now(_))) {
        assert!(w.follower.follow(&[change]).is_err(), "nothing happens twice");
    }
}

#[test]
fn a_leader_that_rebuilds_goes_on_where_it_was() {
    let mut w = World::new();
    w.leader.enqueue((1..=3).map(job).collect(), w.now).unwrap();
    w.claim(1);
    w.pass_on();
    let now = w.leader.position().now;
    w.leader = w.leader.reopen(now).unwrap();
    w.leader.record_changes(true);
    assert_eq!(w.leader.digest(), w.follower.digest());
    w.leader.enqueue(vec![job(4)], w.now).unwrap();
    assert_eq!(w.claim(3).jobs.len(), 3);
    w.pass_on();
    let (leader, follower) = (w.leader.position(), w.follower.position());
    assert_eq!(leader, follower);
}
