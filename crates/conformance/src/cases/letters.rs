//! Dead letters: recover, resolve.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::job::{Priority, Resolution, Review, State};
use tidegate_core::why::Cause;
use tidegate_store::params::{Recover, Recovered, Resolve, Settled};

use crate::kit::{World, job_id, json, refused, tenant};

pub async fn recovering_twice_yields_one_job(w: &mut World) {
    let dead = w.add_dead().await;
    let (one, two) = (w.id(), w.id());
    let one = w.recover(dead, one).await;
    w.restart().await;
    let twice = vec![Recover { dead, new_id: two }, Recover { dead, new_id: two }];
    let reply = w.store().recover(twice, w.now).await.expect("answered");
    assert_eq!(reply, [Recovered::Already(one), Recovered::Already(one)]);
    assert_eq!(w.store().get(two).await.unwrap_or_default(), None);
    assert_eq!(w.claim(5).await.jobs.len(), 1);
}

pub async fn a_recovered_job_starts_afresh_and_knows_its_origin(w: &mut World) {
    let mut job = w.job();
    job.tenant = Some(tenant("acme"));
    job.priority = Some(Priority::High);
    job.max_attempts = Some(2);
    job.payload = json("[7]");
    let dead = w.add(job).await;
    for _ in 0..2 {
        let job = w.claim_one().await;
        w.fail(&job, Category::TransientServer).await;
        w.pass(60_000);
    }
    assert_eq!(w.state(dead).await, State::Dead);
    let new_id = w.id();
    let new_id = w.recover(dead, new_id).await;
    let got = w.get(new_id).await;
    assert_eq!((got.state, got.attempt, got.max_attempts), (State::Ready, 0, Some(2)));
    assert_eq!(
        (got.recovered_from, got.tenant, got.priority),
        (Some(dead), Some(tenant("acme")), Priority::High)
    );
    assert_eq!((got.payload.as_str(), got.created_at), ("[7]", w.now));
    assert!(got.errors.is_empty());
    let letter = w.get(dead).await.dead.expect("the letter stays");
    assert_eq!((letter.recovered_as, letter.resolution), (Some(new_id), Some(Resolution::Recovered)));
    assert_ne!(letter.review, Review::PendingReview);
    let job = w.claim_one().await;
    assert!(
        matches!(w.fail(&job, Category::TransientServer).await, Settled::Again(_)),
        "with a fresh budget"
    );
}

pub async fn a_letter_and_the_job_in_its_place_name_each_other(w: &mut World) {
    let dead = w.add_dead().await;
    let new_id = w.id();
    let new_id = w.recover(dead, new_id).await;
    w.restart().await;
    let why = w.why(dead).await;
    assert!(matches!(&why.cause, Cause::Dead { letter, .. } if letter.recovered_as == Some(new_id)));
    assert_eq!(why.recovered_from, None);
    assert!(why.sentence(w.now).contains(&format!("{new_id} took its place.")), "{}", why.sentence(w.now));
    let job = w.claim_one().await;
    assert_eq!(w.why(new_id).await.recovered_from, Some(dead), "while it runs");
    w.finish(&job).await;
    let why = w.why(new_id).await;
    assert_eq!(why.recovered_from, Some(dead), "and after");
    assert!(why.sentence(w.now).contains(&format!("dead letter {dead}.")), "{}", why.sentence(w.now));
}

pub async fn only_dead_letters_are_recovered(w: &mut World) {
    let alive = w.add_one().await;
    let dead = w.add_dead_beside(alive).await;
    let ids = [w.id(), w.id(), w.id()];
    let letters = vec![
        Recover { dead: alive, new_id: ids[0] },
        Recover { dead: job_id(404), new_id: ids[1] },
        Recover { dead, new_id: ids[2] },
    ];
    let reply = w.store().recover(letters, w.now).await.expect("answered");
    assert_eq!(reply[..2], [Recovered::NotDead, Recovered::NotDead]);
    let Recovered::As(id) = reply[2] else { panic!("{reply:?}") };
    assert!(w.differs().makes_ids || id == ids[2]);
    assert_eq!(w.get(id).await.recovered_from, Some(dead));
}

pub async fn a_letter_is_resolved_once(w: &mut World) {
    for (resolution, review) in [
        (Resolution::Reauthorize, Review::ManualResolved),
        (Resolution::ConfigFix, Review::ManualResolved),
        (Resolution::ManualRefresh, Review::ManualResolved),
        (Resolution::Abandoned, Review::Abandoned),
    ] {
        let id = w.add_dead().await;
        let resolve = Resolve { id, resolution, by: "ann".into(), now: w.now };
        w.store().resolve(resolve.clone()).await.expect("resolved");
        let letter = w.get(id).await.dead.expect("a letter");
        assert_eq!((letter.review, letter.resolution), (review, Some(resolution)));
        assert_eq!((letter.resolved_by.as_deref(), letter.resolved_at), (Some("ann"), Some(w.now)));
        assert_eq!(refused(w.store().resolve(resolve).await), codes::WRONG_STATE);
        assert_eq!(w.state(id).await, State::Dead);
    }
}

pub async fn what_is_not_dead_cannot_be_resolved(w: &mut World) {
    let id = w.add_one().await;
    let resolve = |id| Resolve { id, resolution: Resolution::Abandoned, by: "ann".into(), now: w.now };
    assert_eq!(refused(w.store().resolve(resolve(id)).await), codes::WRONG_STATE);
    assert_eq!(refused(w.store().resolve(resolve(job_id(404))).await), codes::JOB_NOT_FOUND);
}

pub async fn a_recovered_job_can_die_and_be_recovered_again(w: &mut World) {
    let mut dead = w.add_dead().await;
    for _ in 0..3 {
        let new_id = w.id();
        let new_id = w.recover(dead, new_id).await;
        let job = w.claim_one().await;
        assert_eq!(job.id, new_id);
        w.fail(&job, Category::PermanentAuth).await;
        assert_eq!(w.get(new_id).await.recovered_from, Some(dead));
        dead = new_id;
    }
    assert_eq!(w.store().totals().await.map(|t| t.dead).ok(), Some(4));
}

pub async fn more_letters_than_are_read_together_are_recovered_once_each(w: &mut World) {
    let jobs = w.add_many(250, |_, _| ()).await;
    loop {
        let claimed = w.claim(250).await.jobs;
        for job in &claimed {
            w.fail(job, Category::InvalidInput).await;
        }
        if claimed.is_empty() {
            break;
        }
    }
    // Some come twice, near to each other and far away.
    let mut dead: Vec<_> = jobs.iter().rev().copied().collect();
    dead.extend([jobs[0], jobs[249]]);
    dead.insert(1, jobs[249]);
    let letters: Vec<Recover> = dead.iter().map(|dead| Recover { dead: *dead, new_id: w.id() }).collect();
    let reply = w.store().recover(letters, w.now).await.expect("answered");
    let mut first = std::collections::HashMap::new();
    for (dead, reply) in dead.iter().zip(&reply) {
        match (first.get(dead), reply) {
            (None, Recovered::As(new)) => drop(first.insert(*dead, *new)),
            (Some(new), Recovered::Already(again)) => assert_eq!(new, again),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((first.len(), w.store().totals().await.map(|t| t.ready).ok()), (250, Some(250)));
    w.restart().await;
    let read = w.store().get_all(dead.clone()).await.expect("answered");
    assert_eq!(
        read.iter().map(|job| job.as_ref().map(|job| job.id)).collect::<Vec<_>>(),
        dead.iter().map(|id| Some(*id)).collect::<Vec<_>>()
    );
    for (dead, new) in first {
        assert_eq!(w.get(dead).await.dead.and_then(|letter| letter.recovered_as), Some(new));
        assert_eq!(w.get(new).await.recovered_from, Some(dead));
    }
}
