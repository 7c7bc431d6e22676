//! Records: small notes beside the jobs.

use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_store::params::{Record, Shelf};

use crate::kit::World;

fn record(shelf: Shelf, key: &str, body: &str) -> Record {
    Record { shelf, key: key.into(), body: body.into(), expires: None }
}

pub async fn a_record_is_kept_over_a_restart_until_it_is_deleted(w: &mut World) {
    let shelves = w.differs().shelves;
    for (i, shelf) in shelves.iter().copied().enumerate() {
        let other = shelves[(i + 1) % shelves.len()];
        let kept = record(shelf, "b", "{\"n\":1}");
        w.store().put_record(kept.clone(), w.now).await.expect("kept");
        w.store().put_record(record(shelf, "a", "{}"), w.now).await.expect("kept");
        w.store().put_record(record(shelf, "a", "{\"n\":2}"), w.now).await.expect("replaced");
        w.store().put_record(record(other, "c", "{}"), w.now).await.expect("kept");
        w.restart().await;
        let found = w.store().records(shelf, w.now).await.expect("read");
        assert_eq!(found, [record(shelf, "a", "{\"n\":2}"), kept]);
        assert!(w.store().delete_record(shelf, "a".into()).await.expect("deleted"));
        assert!(!w.store().delete_record(shelf, "a".into()).await.expect("nothing to delete"));
        assert_eq!(w.store().records(shelf, w.now).await.expect("read").len(), 1);
        assert!(w.store().delete_record(other, "c".into()).await.expect("deleted"));
        assert!(w.store().delete_record(shelf, "b".into()).await.expect("deleted"));
    }
}

pub async fn a_record_is_forgotten_when_its_time_is_over(w: &mut World) {
    let brief = Record { expires: Some(w.now.plus_ms(10)), ..record(Shelf::Workers, "w", "{}") };
    w.store().put_record(brief.clone(), w.now).await.expect("kept");
    w.pass(9);
    assert_eq!(w.store().records(Shelf::Workers, w.now).await.expect("read"), [brief]);
    w.pass(1);
    assert_eq!(w.store().records(Shelf::Workers, w.now).await.expect("read"), []);
    w.store().put_record(record(Shelf::Workers, "v", "{}"), w.now).await.expect("kept");
    assert!(
        !w.store().delete_record(Shelf::Workers, "w".into()).await.expect("answered"),
        "gone from the rows"
    );
}

pub async fn a_record_that_is_no_note_is_refused(w: &mut World) {
    for shelf in w.differs().shelves.iter().copied() {
        for bad in [
            record(shelf, "", "{}"),
            record(shelf, &"k".repeat(limits::MAX_UNIQUE_KEY_BYTES + 1), "{}"),
            record(shelf, "k", &"x".repeat(limits::MAX_RECORD_BYTES + 1)),
        ] {
            let refused = w.store().put_record(bad, w.now).await.expect_err("refused");
            assert_eq!(refused.code, codes::INVALID_REQUEST);
        }
        assert_eq!(w.store().records(shelf, w.now).await.expect("read"), []);
    }
}
