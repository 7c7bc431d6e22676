use super::*;

const Q: QueueId = QueueId(1);

struct World {
    lanes: Lanes,
    next: i64,
    now: Timestamp,
}

impl World {
    fn new(settings: QueueSettings) -> Self {
        let mut lanes = Lanes::default();
        let now = Timestamp(1_000_000);
        lanes.put_queue(Q, &QueueName::new("q").unwrap(), &settings, now);
        Self { lanes, next: 0, now }
    }

    fn lane(&mut self, group: &str, priority: Priority) -> LaneId {
        self.lane_on(group, None, priority)
    }

    fn lane_on(&mut self, group: &str, connector: Option<&str>, priority: Priority) -> LaneId {
        let connector = connector.map(|c| ConnectorName::new(c).unwrap());
        let key = LaneKey { queue: Q, group: GroupKey::new(group).unwrap(), connector, priority, kind: None };
        self.lanes.find_lane(&key).unwrap_or_else(|| {
            let id = LaneId(self.lanes.lanes.len() as u32 + 1);
            self.lanes.add_lane(id, key);
            id
        })
    }

    fn add(&mut self, lane: LaneId, n: usize) {
        for _ in 0..n {
            self.next += 1;
            self.lanes.add_ready(lane, Seq(self.next), self.now, self.now);
        }
    }

    fn claim(&mut self, max: u32) -> Vec<Picked> {
        for park in self.lanes.ended_parks(self.now) {
            self.lanes.unpark(&park.scope, &park.by, self.now);
        }
        self.lanes.age(self.now);
        self.lanes.claim(&Appetite { queues: &[(Q, u32::MAX)], max }, self.now)
    }
}

fn count(picked: &[Picked], lane: LaneId) -> usize {
    picked.iter().filter(|p| p.lane == lane).count()
}

#[test]
fn small_groups_are_served_long_before_a_huge_one_ends() {
    let mut w = World::new(QueueSettings::default());
    let huge = w.lane("huge", Priority::Medium);
    w.add(huge, 100_000);
    let small: Vec<LaneId> = (0..50).map(|i| w.lane(&format!("g{i}"), Priority::Medium)).collect();
    for lane in &small {
        w.add(*lane, 10);
    }
    let mut picked = vec![];
    while picked.len() < 2_000 {
        picked.extend(w.claim(100));
    }
    for lane in small {
        assert_eq!(count(&picked[..2_000], lane), 10);
    }
}

#[test]
fn a_lane_that_wakes_comes_with_the_next_claim() {
    let mut w = World::new(QueueSettings::default());
    let busy = w.lane("busy", Priority::Medium);
    w.add(busy, 10_000);
    for _ in 0..50 {
        assert_eq!(w.claim(100).len(), 100);
    }
    let lone = w.lane("lone", Priority::Medium);
    w.add(lone, 1);
    assert_eq!(count(&w.claim(100), lone), 1);
}

#[test]
fn priorities_come_first_and_lanes_are_first_in_first_out() {
    let mut w = World::new(QueueSettings::default());
    let low = w.lane("a", Priority::Low);
    let high = w.lane("a", Priority::High);
    w.add(low, 5);
    w.add(high, 5);
    let picked = w.claim(8);
    assert!(picked[..5].iter().all(|p| p.lane == high) && picked[5..].iter().all(|p| p.lane == low));
    assert!(picked[..5].windows(2).all(|p| p[0].seq < p[1].seq));
}

#[test]
fn the_lowest_priority_is_served_within_the_ageing_bound() {
    let settings = QueueSettings { max_wait_ms: 40_000, ..QueueSettings::default() };
    let mut w = World::new(settings);
    let low = w.lane("patient", Priority::Low);
    w.add(low, 1);
    let arrived = w.now;
    // Critical work at 120 % of what is claimed, for ever.
    let critical = w.lane("pushy", Priority::Critical);
    let served = loop {
        w.add(critical, 12);
        let picked = w.claim(10);
        if count(&picked, low) > 0 {
            break w.now;
        }
        assert_eq!(picked.len(), 10);
        w.now = w.now.plus_ms(100);
        assert!(w.now.since(arrived) < 60_000, "starved");
    };
    // Level with the highest after three quarters of max_wait; then the next claim.
    assert_eq!(served.since(arrived), 30_000);
}

#[test]
fn an_aged_lane_does_not_take_over() {
    let settings = QueueSettings { max_wait_ms: 4_000, ..QueueSettings::default() };
    let mut w = World::new(settings);
    let low = w.lane("old", Priority::Low);
    w.add(low, 10_000);
    w.now = w.now.plus_ms(60_000);
    let critical = w.lane("new", Priority::Critical);
    w.add(critical, 10_000);
    let picked: Vec<Picked> = (0..20).flat_map(|_| w.claim(100)).collect();
    let share = count(&picked, critical);
    assert!((900..=1_100).contains(&share), "{share}");
}

#[test]
fn group_limits_hold_over_all_priorities_and_free_up_at_once() {
    let settings = QueueSettings { group_concurrency: Some(3), ..QueueSettings::default() };
    let mut w = World::new(settings);
    let (a_high, a_low, b) =
        (w.lane("a", Priority::High), w.lane("a", Priority::Low), w.lane("b", Priority::Low));
    w.add(a_high, 2);
    w.add(a_low, 5);
    w.add(b, 1);
    let picked = w.claim(100);
    assert_eq!((count(&picked, a_high), count(&picked, a_low), count(&picked, b)), (2, 1, 1));
    assert!(w.claim(100).is_empty());
    w.lanes.finished(a_high, w.now);
    assert_eq!(w.claim(100).len(), 1);
    // The unnamed group has no group limit.
    let none = w.lane("", Priority::Low);
    w.add(none, 10);
    assert_eq!(w.claim(100).len(), 10);
}

#[test]
fn the_limiter_is_exact_in_every_window() {
    let limiter = Limiter { max: 10, per_ms: 1_000 };
    let settings = QueueSettings { limiter: Some(limiter), ..QueueSettings::default() };
    let mut w = World::new(settings);
    let lane = w.lane("a", Priority::Medium);
    w.add(lane, 1_000);
    let mut starts: Vec<i64> = vec![];
    for step in 0..500 {
        w.now = w.now.plus_ms(37 * (step % 3));
        starts.extend(w.claim(1 + step as u32 % 7).iter().map(|_| w.now.0));
    }
    for at in &starts {
        let inside = starts.iter().filter(|t| (*at - 1_000 < **t) && **t <= *at).count();
        assert!(inside <= 10, "{inside}");
    }
    let spent = w.now.since(Timestamp(1_000_000));
    assert!(starts.len() as i64 >= spent / 1_000 * 10, "{} in {spent} ms", starts.len());
}

#[test]
fn parks_of_every_scope_stop_a_lane_and_removing_one_leaves_the_others() {
    let mut w = World::new(QueueSettings::default());
    let lane = w.lane_on("acme", Some("shopify"), Priority::Medium);
    let other = w.lane_on("other", Some("meli"), Priority::Medium);
    w.add(lane, 1);
    w.add(other, 1);
    let (group, connector) = (GroupKey::new("acme").unwrap(), ConnectorName::new("shopify").unwrap());
    let scopes = [
        ParkScope::Group(group.clone()),
        ParkScope::Connector(connector.clone()),
        ParkScope::GroupOnConnector(group, connector),
        ParkScope::Queue(QueueName::new("q").unwrap()),
    ];
    for scope in &scopes {
        let park = Park { scope: scope.clone(), by: "t".into(), reason: String::new(), until: None };
        w.lanes.park(park, w.now);
    }
    assert!(w.claim(10).is_empty());
    assert_eq!(w.lanes.parks_of(lane).len(), 4);
    assert_eq!(w.lanes.parks_of(other).len(), 1);
    w.lanes.unpark(&scopes[3], "t", w.now);
    assert_eq!(w.claim(10).iter().map(|p| p.lane).collect::<Vec<_>>(), vec![other]);
    for scope in &scopes[..2] {
        w.lanes.unpark(scope, "t", w.now);
        assert!(w.claim(10).is_empty());
    }
    w.lanes.unpark(&scopes[2], "t", w.now);
    assert_eq!(w.claim(10).len(), 1);
}

#[test]
fn a_park_ends_by_itself_and_covers_lanes_that_come_later() {
    let mut w = World::new(QueueSettings::default());
    let scope = ParkScope::Group(GroupKey::new("late").unwrap());
    let until = w.now.plus_ms(5_000);
    w.lanes.park(Park { scope, by: "gate".into(), reason: String::new(), until: Some(until) }, w.now);
    let lane = w.lane("late", Priority::Medium);
    w.add(lane, 1);
    assert!(w.claim(10).is_empty());
    assert_eq!(w.lanes.next_wakeup(&[(Q, 1)], w.now), Some(until));
    w.now = until;
    assert_eq!(w.claim(10).len(), 1);
}

#[test]
fn queues_share_a_worker_by_weight() {
    let mut w = World::new(QueueSettings { weight: 3, ..QueueSettings::default() });
    let other = QueueId(2);
    w.lanes.put_queue(other, &QueueName::new("r").unwrap(), &QueueSettings::default(), w.now);
    let heavy = w.lane("a", Priority::Medium);
    w.add(heavy, 10_000);
    let key = LaneKey {
        queue: other,
        group: GroupKey::none(),
        connector: None,
        priority: Priority::Medium,
        kind: None,
    };
    w.lanes.add_lane(LaneId(99), key);
    w.add(LaneId(99), 10_000);
    let queues = [(Q, u32::MAX), (other, u32::MAX)];
    let picked: Vec<Picked> =
        (0..40).flat_map(|_| w.lanes.claim(&Appetite { queues: &queues, max: 100 }, w.now)).collect();
    let share = count(&picked, heavy) as f64 / picked.len() as f64;
    assert!((0.7..0.8).contains(&share), "{share}");
}

#[test]
fn parked_groups_do_not_slow_a_claim_down() {
    // Counts the lanes a claim can see at all: none of the parked ones.
    let mut w = World::new(QueueSettings::default());
    for i in 0..10_000 {
        let lane = w.lane(&format!("p{i}"), Priority::Medium);
        w.add(lane, 2);
        let scope = ParkScope::Group(GroupKey::new(format!("p{i}")).unwrap());
        w.lanes.park(Park { scope, by: "gate".into(), reason: String::new(), until: None }, w.now);
    }
    let lane = w.lane("free", Priority::Medium);
    w.add(lane, 5);
    assert_eq!(w.lanes.queues[&Q].active.all().len(), 1);
    assert_eq!(w.lanes.ageing.len(), 1);
    assert_eq!(w.claim(100).len(), 5);
}

#[test]
fn an_older_job_that_comes_back_does_not_make_its_lane_young_again() {
    let settings = QueueSettings { max_wait_ms: 40_000, ..QueueSettings::default() };
    let mut w = World::new(settings);
    let low = w.lane("patient", Priority::Low);
    w.add(low, 2);
    let first = w.claim(1)[0];
    w.now = w.now.plus_ms(30_000);
    // The first one was snoozed and comes back before the second had its turn.
    w.lanes.finished(low, w.now);
    w.lanes.add_ready(low, first.seq, w.now, w.now);
    let critical = w.lane("pushy", Priority::Critical);
    w.add(critical, 100);
    assert_eq!(w.lanes.lanes[&low].active.unwrap().0, 1, "the second job has waited long enough");
    assert!(count(&w.claim(40), low) > 0);
}

fn refused_until(w: &mut World, lane: LaneId, until: Timestamp) -> ParkScope {
    let key = w.lanes.lane_key(lane).unwrap().clone();
    let scope = ParkScope::GroupOnConnector(key.group, key.connector.unwrap());
    let by = format!("{GATE_PARK}api");
    let park = Park { scope: scope.clone(), by, reason: String::new(), until: Some(until) };
    w.lanes.park(park, w.now);
    scope
}

#[test]
fn after_a_gate_refused_one_job_asks_then_as_many_as_it_said() {
    let mut w = World::new(QueueSettings::default());
    let limited = w.lane_on("limited", Some("api"), Priority::Medium);
    let free = w.lane_on("free", Some("api"), Priority::Medium);
    w.add(limited, 100);
    w.add(free, 100);
    let until = w.now.plus_ms(1_000);
    refused_until(&mut w, limited, until);
    assert_eq!(count(&w.claim(50), limited), 0, "parked");
    w.now = until;
    let first = w.claim(50);
    assert_eq!((count(&first, limited), count(&first, free)), (1, 49));
    assert_eq!(count(&w.claim(1), limited), 0, "it has not been answered");
    let asked = first.iter().find(|p| p.lane == limited).unwrap().seq;
    assert!(w.lanes.admitted(limited, asked, room(3), w.now));
    let more: Vec<Picked> = w.claim(50).into_iter().filter(|p| p.lane == limited).collect();
    assert_eq!(more.len(), 3);
    w.lanes.answered(limited, more[0].seq, w.now);
    assert_eq!(count(&w.claim(50), limited), 1, "one that ended without a word makes room for one");
    assert!(!w.lanes.admitted(limited, more[1].seq, room(0), w.now), "two have not been answered");
}

#[test]
fn where_nothing_remains_the_first_that_was_refused_asks_next() {
    let mut w = World::new(QueueSettings::default());
    let lane = w.lane_on("limited", Some("api"), Priority::Medium);
    w.add(lane, 10);
    let until = w.now.plus_ms(1_000);
    let both = w.claim(2);
    let scope = refused_until(&mut w, lane, until);
    for p in &both {
        w.lanes.refused(p.lane, &scope, p.seq, until, w.now);
        w.lanes.finished(lane, w.now);
    }
    w.now = until;
    w.lanes.add_ready(lane, both[0].seq, w.now, w.now);
    let first = w.claim(5);
    assert_eq!(first.iter().map(|p| p.seq).collect::<Vec<_>>(), [both[0].seq]);
    assert!(!w.lanes.admitted(lane, both[0].seq, room(0), w.now));
    assert!(w.claim(5).is_empty(), "the second comes back by itself");
    w.lanes.add_ready(lane, both[1].seq, w.now, w.now);
    assert_eq!(w.claim(5)[0].seq, both[1].seq);
    assert!(w.lanes.admitted(lane, both[1].seq, room(0), w.now), "nobody waits: one may find out");
    assert_eq!(w.claim(5).len(), 1);
}

#[test]
fn caution_is_over_when_gates_are_silent_and_when_the_clock_goes_back() {
    let mut w = World::new(QueueSettings::default());
    let lane = w.lane_on("limited", Some("api"), Priority::Medium);
    w.add(lane, 100);
    let until = w.now.plus_ms(1_000);
    refused_until(&mut w, lane, until);
    w.now = until;
    assert_eq!(w.claim(10).len(), 1);
    assert_eq!(w.lanes.next_wakeup(&[], w.now), Some(until.plus_ms(5_000)));
    w.now = until.plus_ms(5_000);
    assert!(w.lanes.ages(w.now));
    assert_eq!(w.claim(10).len(), 10);
    let soon = w.now.plus_ms(1);
    refused_until(&mut w, lane, soon);
    w.now = soon;
    assert_eq!(w.claim(10).len(), 1);
    w.lanes.rebase(until);
    assert_eq!(w.claim(10).len(), 10);
    assert!(!w.lanes.is_cautious());
}

/// A lane of a kind with a limit.
fn lane_of_kind(w: &mut World, group: &str, kind: KindId) -> LaneId {
    let group = GroupKey::new(group).unwrap();
    let key = LaneKey { queue: Q, group, connector: None, priority: Priority::Medium, kind: Some(kind) };
    let id = LaneId(w.lanes.lanes.len() as u32 + 1);
    w.lanes.add_lane(id, key);
    id
}

#[test]
fn a_kind_runs_no_more_than_its_limit_over_all_its_groups() {
    let mut w = World::new(QueueSettings::default());
    let kind = KindId(7);
    w.lanes.cap_kind(kind, Some(2));
    let lanes: Vec<LaneId> = (0..5).map(|i| lane_of_kind(&mut w, &format!("g{i}"), kind)).collect();
    for lane in &lanes {
        w.add(*lane, 3);
    }
    let free = w.lane("free", Priority::Medium);
    w.add(free, 4);
    let picked = w.claim(100);
    assert_eq!(picked.len(), 6, "two of the kind, and the others");
    assert_eq!(count(&picked, free), 4);
    assert_eq!(w.lanes.kind_load(lanes[0]), Some((2, 2)));
    assert!(w.claim(100).is_empty());
    let running = picked.iter().find(|p| p.lane != free).unwrap();
    w.lanes.finished(running.lane, w.now);
    assert_eq!(w.claim(100).len(), 1, "a place is free at once");
    w.lanes.cap_kind(kind, Some(4));
    assert_eq!(w.claim(100).len(), 2, "a limit can be changed live");
    w.lanes.cap_kind(kind, None);
    assert_eq!(w.claim(100).len(), 10, "and lifted");
}

#[test]
fn a_suspect_of_a_full_queue_is_nothing_to_ask_for() {
    let mut w = World::new(QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
    let lane = w.lane("a", Priority::Medium);
    w.lanes.add_suspect(lane, Seq(99), Exclusive(false), w.now, w.now);
    assert!(w.lanes.has_something_for(&[(Q, 5)], w.now));
    assert!(w.lanes.take_suspect(lane, Seq(99), w.now));
    w.lanes.add_suspect(lane, Seq(100), Exclusive(false), w.now, w.now);
    assert_eq!(w.lanes.find_suspect(&[(Q, 5)], SuspectRoom::Alone, w.now), SuspectPick::Nothing);
    assert!(!w.lanes.has_something_for(&[(Q, 5)], w.now));
}

#[test]
fn a_suspect_of_a_full_kind_waits() {
    let mut w = World::new(QueueSettings::default());
    let kind = KindId(7);
    w.lanes.cap_kind(kind, Some(1));
    let lane = lane_of_kind(&mut w, "g", kind);
    w.add(lane, 1);
    w.lanes.add_suspect(lane, Seq(99), Exclusive(false), w.now, w.now);
    let room = [(Q, u32::MAX)];
    assert!(matches!(w.lanes.find_suspect(&room, SuspectRoom::Alone, w.now), SuspectPick::Run(..)));
    assert_eq!(w.claim(1).len(), 1);
    assert_eq!(w.lanes.find_suspect(&room, SuspectRoom::Alone, w.now), SuspectPick::Nothing);
}

#[test]
fn how_long_lines_are_is_counted_as_they_change() {
    let mut w = World::new(QueueSettings::default());
    let (a, b) = (w.lane("a", Priority::Low), w.lane("b", Priority::High));
    let now = w.now;
    w.add(a, 2);
    for (lane, seq) in [(a, 100), (a, 101), (b, 102)] {
        w.lanes.add_suspect(lane, Seq(seq), Exclusive(false), now.plus_ms(seq), now);
    }
    assert_eq!(w.lanes.stalled(Q), 3);
    assert!(w.lanes.take_suspect(b, Seq(102), now));
    assert!(w.lanes.remove_ready(a, Seq(101), now) && !w.lanes.remove_ready(a, Seq(101), now));
    assert_eq!(w.lanes.stalled(Q), 1);
    let first = w.lanes.glance()[&Q];
    assert_eq!((first.oldest_ready, first.parked_groups), (Some(now), 0));
    assert!(w.lanes.remove_ready(a, Seq(100), now));
    assert_eq!(w.lanes.stalled(Q), 0);
}

/// How many of each lane were picked, smallest and largest.
fn spread(picked: &[Picked], lanes: &[LaneId]) -> (usize, usize) {
    let counts = || lanes.iter().map(|lane| count(picked, *lane));
    (counts().min().unwrap(), counts().max().unwrap())
}

#[test]
fn a_worker_that_stops_does_not_make_the_lanes_young_whose_jobs_it_gives_back() {
    let old_jobs = |w: &mut World| {
        let lanes: Vec<LaneId> = (0..10).map(|i| w.lane(&format!("g{i}"), Priority::Medium)).collect();
        for _ in 0..100 {
            for lane in &lanes {
                w.add(*lane, 1);
            }
        }
        w.now = w.now.plus_ms(100_000);
        lanes
    };
    let back = |w: &mut World, given_back: &[Picked]| {
        for p in given_back {
            w.lanes.finished(p.lane, w.now);
            w.lanes.add_ready(p.lane, p.seq, w.now, w.now);
        }
        w.now = w.now.plus_ms(100_000);
    };
    // Most lanes got three jobs back, one of them a single one; by then what is behind them has waited for long enough to rise.
    let mut w = World::new(QueueSettings::default());
    let lanes = old_jobs(&mut w);
    let mut given_back = w.claim(320);
    given_back.retain(|p| p.seq.0 <= if p.lane == lanes[0] { 10 } else { 30 });
    back(&mut w, &given_back);
    w.lanes.age(w.now);
    assert!(lanes.iter().all(|lane| w.lanes.lanes[lane].active.unwrap().0 == 2));
    let picked: Vec<Picked> = (0..20).flat_map(|_| w.claim(10)).collect();
    assert_eq!(picked.len(), 200);
    let (least, most) = spread(&picked, &lanes);
    assert!(least > 0 && most <= 34, "{least} to {most}");

    // The same after a restart, which adds jobs in order of their numbers.
    let mut started = World::new(QueueSettings::default());
    started.now = w.now;
    let lanes: Vec<LaneId> = (0..10).map(|i| started.lane(&format!("g{i}"), Priority::Medium)).collect();
    let long_ago = w.now.plus_ms(-200_000);
    for seq in 1..=1_000 {
        let (lane, returned) = (lanes[(seq as usize - 1) % 10], seq <= 30);
        let ready_at = if returned { w.now.plus_ms(-100_000) } else { long_ago };
        started.lanes.add_ready(lane, Seq(seq), ready_at, w.now);
    }
    assert!(lanes.iter().all(|lane| started.lanes.lanes[lane].active.unwrap().0 == 2));

    // An elder that is cancelled makes room for the next one, and one that has been the head is forgotten.
    assert!(started.lanes.remove_ready(lanes[0], Seq(31), w.now));
    assert_eq!(started.lanes.lanes[&lanes[0]].elder, Some((Seq(41), long_ago)));
    assert_eq!(started.claim(1_000).len(), 999, "all that is ready fits");
    assert!(lanes.iter().all(|lane| started.lanes.lanes[lane].elder.is_none()));
}

/// What claims of this size get of a hundred lanes whose jobs were enqueued in turns: how many, and in how many runs of numbers, at most.
fn runs_of_claims(max: u32, claims: u32) -> Vec<(usize, usize)> {
    let mut w = World::new(QueueSettings::default());
    let lanes: Vec<LaneId> = (0..100).map(|i| w.lane(&format!("g{i}"), Priority::Medium)).collect();
    for _ in 0..1_900 {
        for lane in &lanes {
            w.add(*lane, 1);
        }
    }
    let claim = |_| {
        let mut seqs: Vec<i64> = w.claim(max).iter().map(|p| p.seq.0).collect();
        seqs.sort_unstable();
        (seqs.len(), 1 + seqs.windows(2).filter(|pair| pair[1] != pair[0] + 1).count())
    };
    (0..claims).map(claim).collect()
}

#[test]
fn lanes_stay_in_step_however_claims_end() {
    for (max, claims) in [(487, 350), (1_799, 90)] {
        for (claim, (picked, runs)) in runs_of_claims(max, claims).into_iter().enumerate() {
            assert!(picked >= max as usize * 7 / 8, "{picked} in claim {claim} of {max}");
            assert!(runs <= 32, "{runs} runs in claim {claim} of {max}");
        }
    }
}

#[test]
fn a_large_claim_ends_with_a_whole_round() {
    for max in [1_000, 1_100, 2_000, 2_200] {
        for (picked, runs) in runs_of_claims(max, 80) {
            assert_eq!((picked, runs), (max as usize / 1_000 * 1_000, 1), "of {max}");
        }
    }
    // One lane has no turns, and what is left of two is less than a round of theirs.
    for (lanes, picked) in [(1, 2_000), (2, 1_984), (10, 1_920), (25, 2_000)] {
        let mut w = World::new(QueueSettings::default());
        let lanes: Vec<LaneId> = (0..lanes).map(|i| w.lane(&format!("g{i}"), Priority::Medium)).collect();
        for lane in &lanes {
            w.add(*lane, 5_000);
        }
        assert_eq!(w.claim(2_000).len(), picked, "of {} lanes", lanes.len());
    }
}

/// So many more would pass, whoever asks.
fn room(n: u32) -> crate::gates::Room {
    crate::gates::Room { shared: n, own: n }
}

/// Gates have refused the API to a job of `a`, which is back and cannot come, since its group is stopped.
fn awaited_in_vain(w: &mut World, a: LaneId) {
    w.add(a, 1);
    let job = w.claim(1)[0];
    let until = w.now.plus_ms(1_000);
    let scope = ParkScope::Connector(ConnectorName::new("api").unwrap());
    let park = |scope, by: &str, until| Park { scope, by: by.into(), reason: String::new(), until };
    w.lanes.park(park(scope.clone(), "gate:api", Some(until)), w.now);
    w.lanes.refused(a, &scope, job.seq, until, w.now);
    w.lanes.finished(a, w.now);
    w.lanes.park(park(ParkScope::Group(GroupKey::new("a").unwrap()), "me", None), w.now);
    w.now = until;
    w.claim(0);
    w.lanes.add_ready(a, job.seq, w.now, w.now);
}

#[test]
fn whoever_is_awaited_and_cannot_come_keeps_the_others_of_its_api_back_for_a_moment_only() {
    let mut w = World::new(QueueSettings::default());
    let (a, b) =
        (w.lane_on("a", Some("api"), Priority::Medium), w.lane_on("b", Some("api"), Priority::Medium));
    let free = w.lane_on("free", Some("other"), Priority::Medium);
    awaited_in_vain(&mut w, a);
    w.add(b, 10);
    w.add(free, 1_000);
    assert_eq!(count(&w.claim(100), free), 100, "there is room for one, who is awaited");
    let end = w.now.plus_ms(2_000);
    assert_eq!(w.lanes.next_wakeup(&[], w.now), Some(end));
    w.now = end;
    assert_eq!(count(&w.claim(10), b), 1, "another finds out");
}

#[test]
fn lanes_that_were_kept_back_are_not_owed_what_the_others_got_meanwhile() {
    let mut w = World::new(QueueSettings::default());
    let (a, b) =
        (w.lane_on("a", Some("api"), Priority::Medium), w.lane_on("b", Some("api"), Priority::Medium));
    let free = w.lane_on("free", Some("other"), Priority::Medium);
    awaited_in_vain(&mut w, a);
    w.add(b, 1_000);
    w.add(free, 2_000);
    assert_eq!(count(&w.claim(500), free), 500);
    // The caution is over, too.
    w.now = w.now.plus_ms(60_000);
    let both = w.claim(200);
    assert!(
        count(&both, b) > 0 && count(&both, free) >= 60,
        "{} and {}",
        count(&both, b),
        count(&both, free)
    );
}
