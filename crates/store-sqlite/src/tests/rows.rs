//! Rows in SQLite and rows in memory do the same.

use super::*;
use crate::rows::SqliteRows;
use crate::schema::{WriterSettings, open_writer};
use tidegate_core::failure::Category;
use tidegate_core::ids::{LeaseId, Seq, TenantId, UniqueKey};
use tidegate_core::job::{DeadLetter, Review, State};
use tidegate_core::lanes::{LaneId, QueueId};
use tidegate_core::retry::DeadReason;
use tidegate_core::seed::Seed;
use tidegate_store::memory::MemoryRows;
use tidegate_store::rows::{
    DoneRow, JobExtra, JobRow, KindId, LeaseRow, Rows, StateRow, TenantNo, UniqueRow,
};

fn sqlite(dir: &TempDir) -> SqliteRows {
    let settings = WriterSettings { synchronous: false, max_pages: None };
    SqliteRows::new(open_writer(&dir.path().join("rows.db"), settings).unwrap(), false)
}

fn job_row(n: i64, seed: &mut Seed) -> JobRow {
    let extra = JobExtra { trace: Some(format!("trace \"{n}\"")), ..JobExtra::default() };
    JobRow {
        id: JobId::from_parts(n.cast_unsigned(), u128::from(seed.next_u64())),
        kind: KindId(seed.below(3) as u32),
        lane: LaneId(seed.below(9) as u32),
        tenant: (!seed.one_in(2)).then(|| TenantNo(seed.below(3) as u32)),
        created_at: NOW,
        run_at: NOW.plus_ms(n),
        timeout_ms: 30_000,
        max_attempts: seed.one_in(2).then_some(5),
        payload: Payload::trusted(format!("\"ü{}\"", "x".repeat(seed.below(9_000) as usize))),
        extra: seed.one_in(2).then(|| Box::new(extra)),
    }
}

fn done_row(n: i64, seed: &mut Seed) -> DoneRow {
    let state = [State::Completed, State::Dead, State::Cancelled][seed.below(3) as usize];
    let letter = DeadLetter {
        cause: None,
        first_died_at: None,
        auto_retries: 0,
        asked_at: None,
        category: Category::LogicError,
        reason: DeadReason::Permanent,
        code: "E".into(),
        message: format!("message {n}"),
        review: Review::PendingReview,
        resolution: None,
        resolved_by: None,
        resolved_at: None,
        recovered_as: None,
    };
    DoneRow {
        queue: QueueId(seed.below(2) as u32),
        state,
        at: NOW.plus_ms(seed.below(5) as i64),
        attempt: 2,
        result: seed.one_in(3).then(|| Payload::trusted("{}")),
        letter: (state == State::Dead).then(|| Box::new(letter)),
    }
}

/// One random step on both; every reply must be the same.
fn step(ours: &mut SqliteRows, model: &mut MemoryRows, seed: &mut Seed, next: &mut i64) {
    /// Asks both and compares.
    macro_rules! both {
        ($($call:tt)*) => {{
            let (a, b) = (ours.$($call)*.unwrap(), model.$($call)*.unwrap());
            assert_eq!(a, b, stringify!($($call)*));
            a
        }};
    }
    use tidegate_store::rows::{ClaimRows as _, JobRows as _, TimeRows as _};
    let any = Seq(1 + seed.below((*next).cast_unsigned()) as i64);
    let at = NOW.plus_ms(seed.below(50) as i64);
    let key = UniqueKey::new(format!("key {}", seed.below(5))).unwrap();
    let limit = seed.below(5) as usize;
    match seed.below(22) {
        0..=5 => {
            *next += 1;
            let row = job_row(*next, seed);
            both!(insert_job(Seq(*next), &row));
            if seed.one_in(3) {
                both!(find_job(row.id));
            }
        }
        6 => drop(both!(job(any))),
        7 => drop(both!(head(any))),
        8 => both!(delete_job(any)),
        9 => {
            let row = StateRow {
                lane: seed.one_in(2).then_some(LaneId(4)),
                settled: seed.one_in(2).then_some(LeaseId(1 << 33)),
                suspect: seed.one_in(2),
                lone_stalls: 1,
                run_at: seed.one_in(2).then_some(at),
                failures: 3,
                payload: Some(Payload::trusted("\"other\"")),
                ..StateRow::default()
            };
            both!(put_state(any, &row));
        }
        10 => drop(both!(state(any))),
        11 => both!(delay(at, any)),
        12 => drop(both!(undelay(at, any))),
        13 => drop(both!(take_due(at, limit))),
        14 => drop(both!(next_due())),
        15 => {
            if both!(done(any)).is_none() {
                let row = done_row(any.0, seed);
                both!(insert_done(any, &row));
            }
        }
        16 => {
            if let Some(mut letter) = both!(done(any)).and_then(|d| d.letter) {
                letter.review = Review::Abandoned;
                both!(put_letter(any, &letter));
            }
        }
        17 => drop(both!(oldest_done(QueueId(1), limit))),
        18 => drop(both!(oldest_dead(limit))),
        19 => drop(both!(jobs_of_tenant(TenantNo(1), any, limit))),
        20 => {
            let expires = seed.one_in(2).then_some(at);
            let row = UniqueRow { seq: any, id: JobId::from_parts(1, 2), expires };
            both!(put_unique(KindId(1), &key, row));
            both!(delete_unique(KindId(1), &UniqueKey::new("key 1").unwrap(), any));
        }
        _ => {
            both!(unique(KindId(1), &key));
            // Which of two keys that end at once goes first is not said.
            both!(expire_uniques(at, 1_000));
            leases(ours, model, seed);
        }
    }
}

fn leases(ours: &mut impl Rows, model: &mut impl Rows, seed: &mut Seed) {
    let row = LeaseRow {
        id: LeaseId(1 + seed.below(9) as i64),
        worker: WorkerId::new("w").unwrap(),
        process: ProcessId(u64::MAX - seed.below(3)),
        since: NOW,
        until: NOW.plus_ms(5),
        length_ms: 5,
        lone: seed.one_in(2).then(|| seed.one_in(2)),
        jobs: (0..seed.below(2_000)).map(|n| Seq(n as i64 * 1_000_003)).collect(),
    };
    for rows in [ours as &mut dyn LeaseSteps, model as &mut dyn LeaseSteps] {
        rows.step(&row);
    }
    assert_eq!(ours.leases().unwrap(), model.leases().unwrap());
}

trait LeaseSteps {
    fn step(&mut self, row: &LeaseRow);
}

impl<R: Rows> LeaseSteps for R {
    fn step(&mut self, row: &LeaseRow) {
        self.put_lease(row).unwrap();
        self.extend_lease(row.id, NOW.plus_ms(row.id.0)).unwrap();
        self.delete_lease(LeaseId(5)).unwrap();
    }
}

fn scanned(rows: &mut impl Rows) -> Vec<tidegate_store::rows::Scanned> {
    let mut all = vec![];
    rows.scan(&mut |job| all.push(job)).unwrap();
    all
}

#[test]
fn rows_do_what_the_reference_model_does() {
    for number in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let (mut ours, mut model) = (sqlite(&dir), MemoryRows::default());
        let (mut seed, mut next) = (Seed::new(number), 0);
        for _ in 0..30 {
            ours.begin().unwrap();
            for _ in 0..40 {
                step(&mut ours, &mut model, &mut seed, &mut next);
            }
            if seed.one_in(3) {
                assert_eq!(scanned(&mut ours), scanned(&mut model), "seed {number}");
            }
            ours.commit().unwrap();
            if seed.one_in(5) {
                drop(ours);
                ours = sqlite(&dir);
            }
        }
        assert_eq!(scanned(&mut ours), scanned(&mut model), "seed {number}");
    }
}

#[test]
fn names_come_back_as_they_were_written() {
    use tidegate_core::ids::{ConnectorName, GroupKey};
    use tidegate_core::job::{Park, ParkScope, Priority};
    use tidegate_core::lanes::LaneKey;
    use tidegate_store::rows::NameRows;

    fn write(rows: &mut impl NameRows) {
        let group = GroupKey::new("g").unwrap();
        let connector = ConnectorName::new("shop").unwrap();
        rows.put_queue(QueueId(1), &queue(), &QueueSettings::default()).unwrap();
        rows.put_queue(QueueId(1), &queue(), &QueueSettings { weight: 7, ..QueueSettings::default() })
            .unwrap();
        rows.put_kind(KindId(2), &kind(), &KindSettings::new(queue())).unwrap();
        for n in 1..3 {
            rows.put_tenant(TenantNo(n), &TenantId::new(format!("t{n}")).unwrap()).unwrap();
        }
        rows.delete_tenant(TenantNo(1)).unwrap();
        for (n, priority) in Priority::ALL.into_iter().enumerate() {
            let connector = (n > 1).then(|| connector.clone());
            let key = LaneKey {
                queue: QueueId(1),
                group: group.clone(),
                connector,
                priority,
                kind: Some(KindId(3)),
            };
            rows.put_lane(LaneId(n as u32), &key).unwrap();
        }
        rows.delete_lane(LaneId(3)).unwrap();
        for scope in [
            ParkScope::Queue(queue()),
            ParkScope::Group(group.clone()),
            ParkScope::Connector(connector.clone()),
            ParkScope::GroupOnConnector(group.clone(), connector.clone()),
        ] {
            for by in ["gate", "o'p\"erator"] {
                let park = Park { scope: scope.clone(), by: by.into(), reason: "r".into(), until: Some(NOW) };
                rows.put_park(&park).unwrap();
            }
            rows.delete_park(&scope, "gate").unwrap();
        }
        for (ms, n) in [(0, 1), (1, 1), (1, 2), (5, 4)] {
            rows.add_starts(QueueId(1), NOW.plus_ms(ms), n).unwrap();
        }
        rows.add_starts(QueueId(2), NOW, 7).unwrap();
        rows.drop_starts(QueueId(1), NOW).unwrap();
    }

    let dir = tempfile::tempdir().unwrap();
    let (mut ours, mut model) = (sqlite(&dir), MemoryRows::default());
    write(&mut ours);
    write(&mut model);
    let (mut ours, mut model) = (ours.names().unwrap(), model.names().unwrap());
    for names in [&mut ours, &mut model] {
        names.parks.sort_by(|a, b| (&a.scope, &a.by).cmp(&(&b.scope, &b.by)));
    }
    assert_eq!(format!("{ours:?}"), format!("{model:?}"));
}

#[test]
fn lease_numbers_grow_with_every_opening() {
    use tidegate_store::rows::ClaimRows;
    let dir = tempfile::tempdir().unwrap();
    let first = sqlite(&dir).first_lease().unwrap();
    let second = sqlite(&dir).first_lease().unwrap();
    assert!(first.0 > 0 && second.0 - first.0 == 1 << 40);
}
