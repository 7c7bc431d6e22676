//! The demo keeps its promises, also when it is short.

use crate::common::Place;

#[test]
fn a_short_demo_proves_its_invariants() {
    let place = Place::default();
    let ran = place.run(&["demo", "--seconds", "3", "--json"]);
    let summary = ran.json();
    assert_eq!(ran.code, 0, "{summary:#}\n{}", ran.err);
    let jobs = &summary["jobs"];
    let n = |key: &str| jobs[key].as_u64().unwrap_or_else(|| panic!("jobs.{key} is missing: {summary:#}"));
    assert!(n("enqueued") > 5_000, "{jobs:#}");
    assert_eq!(n("lost"), 0);
    assert!(n("stale_refused") >= 1);
    assert!(n("cancelled") >= 2 && n("dead") >= 1 && n("completed") > 1_000, "{jobs:#}");
    let waiting = n("scheduled") + n("ready") + n("running") + n("blocked");
    assert_eq!(n("enqueued"), n("completed") + n("dead") + n("cancelled") + waiting);
    assert!(summary["fairness"]["jain_index"].as_f64().is_some_and(|j| j > 0.5), "{summary:#}");
    let invariants = summary["invariants"].as_array().unwrap();
    let ruled = |ruling: &str| invariants.iter().filter(|i| i["ruling"] == ruling).count();
    assert!(ruled("holds") >= 9 && ruled("broken") == 0, "{summary:#}");
    assert!(!place.data().exists(), "TIDEGATE_DATA is not the demo's to write to");
}

#[test]
fn a_demo_with_a_directory_leaves_it_to_look_at() {
    let place = Place::default();
    let ran = place.run(&["demo", "--seconds", "1", "--dir", "shown"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("invariants hold") && ran.out.contains("Try next"), "{}", ran.out);
    assert!(ran.out.lines().all(|l| l.chars().count() <= 80 || l.contains("job_")), "{}", ran.out);
    let queues = place.run(&["queues", "ls", "--dir", "shown", "--json"]).ok().json();
    assert!(queues["queues"].as_array().unwrap().len() >= 3);
    let refused = place.run(&["demo", "--seconds", "1", "--dir", "shown"]);
    assert_eq!(refused.code, 4, "data is never mixed with a demo's: {}", refused.err);
}
