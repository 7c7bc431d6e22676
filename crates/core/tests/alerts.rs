//! Every shipped rule, driven with readings through virtual time: silent while all is well, pending, fired once, repeated, resolved.

use std::collections::BTreeMap;

use tidegate_core::alerts::{
    Book, DEFAULT_REPEAT_MS, Incident, Phase, Readings, Rule, RulePatch, Scope, Silence, Target, Telling,
    UNMEASURED_MS, What, evaluate, merged, shipped,
};
use tidegate_core::time::Timestamp;

const START: Timestamp = Timestamp(1_800_000_000_000);
const TICK: i64 = 5_000;

fn target(rule: &Rule) -> Target {
    let name = rule.on.first().cloned().unwrap_or_else(|| "one".into());
    match rule.condition.scope() {
        Scope::System => Target::system(),
        scope => Target { scope, name },
    }
}

fn readings(rule: &Rule, holds: bool) -> Readings {
    let mut readings = Readings::default();
    if rule.id == "job_timeout" {
        readings.add(target(rule), "longest_run", 90.0, 1);
    }
    for (name, value) in rule.condition.example(holds) {
        readings.add(target(rule), name, value, 1_000);
    }
    readings
}

struct World {
    rules: Vec<Rule>,
    book: Book,
    silences: Vec<Silence>,
    now: Timestamp,
}

impl World {
    fn of(rule: &Rule) -> Self {
        let rule = Rule { enabled: true, ..rule.clone() };
        Self { rules: vec![rule], book: Book::new(), silences: vec![], now: START }
    }

    fn tick(&mut self, readings: &Readings) -> Vec<Telling> {
        self.now = self.now.plus_ms(TICK);
        let out = evaluate(&self.rules, readings, &self.book, &self.silences, self.now);
        for incident in out.changed {
            self.book.insert((incident.rule.clone(), incident.target.clone()), incident);
        }
        out.tellings
    }

    fn ticks(&mut self, readings: &Readings, ms: i64) -> Vec<Telling> {
        (0..(ms + TICK - 1) / TICK).flat_map(|_| self.tick(readings)).collect()
    }

    fn only(&self) -> &Incident {
        assert_eq!(self.book.len(), 1);
        self.book.values().next().expect("one")
    }
}

fn whats(tellings: &[Telling]) -> Vec<What> {
    tellings.iter().map(|t| t.what).collect()
}

#[test]
fn every_shipped_rule_fires_once_repeats_and_resolves() {
    for rule in shipped() {
        let (bad, good) = (readings(&rule, true), readings(&rule, false));
        let mut world = World::of(&rule);
        assert_eq!(world.ticks(&good, 60_000), [], "{}: nothing is wrong", rule.id);
        if rule.for_ms > TICK {
            assert_eq!(world.ticks(&bad, rule.for_ms), [], "{}: not for long enough", rule.id);
            assert_eq!(world.tick(&good), [], "{}", rule.id);
            assert_eq!(world.only().phase, Phase::Quiet, "{}: it was nothing", rule.id);
        }
        let fired = world.ticks(&bad, rule.for_ms + 2 * TICK);
        assert_eq!(whats(&fired), [What::Fired], "{}", rule.id);
        assert!(!fired[0].message.contains('{'), "{}: {}", rule.id, fired[0].message);
        assert_eq!((fired[0].severity, &fired[0].runbook), (rule.severity, &rule.runbook));
        assert_eq!(world.ticks(&bad, DEFAULT_REPEAT_MS - 3 * TICK), [], "{}: once", rule.id);
        assert_eq!(whats(&world.ticks(&bad, 3 * TICK)), [What::Repeated], "{}", rule.id);
        assert_eq!(whats(&world.ticks(&bad, DEFAULT_REPEAT_MS)), [What::Repeated], "{}", rule.id);
        let resolved = world.ticks(&good, 60_000);
        assert_eq!(whats(&resolved), [What::Resolved], "{}", rule.id);
        assert_eq!(resolved[0].incident(), fired[0].incident());
        let next = world.ticks(&bad, rule.for_ms + 2 * TICK);
        assert_eq!((next[0].what, next[0].number), (What::Fired, 2), "{}: another incident", rule.id);
    }
}

fn depth() -> (Rule, Readings, Readings) {
    let rule = shipped().into_iter().find(|r| r.id == "queue_depth_high").expect("shipped");
    let (bad, good) = (readings(&rule, true), readings(&rule, false));
    (rule, bad, good)
}

#[test]
fn processes_that_share_what_is_kept_find_the_same_telling() {
    let (rule, bad, good) = depth();
    let (mut one, mut two) = (World::of(&rule), World::of(&rule));
    one.tick(&bad);
    two.book = one.book.clone();
    two.now = one.now;
    let key = |t: &[Telling]| t[0].key("slack");
    let (a, b) = (one.tick(&bad), two.tick(&bad));
    assert_eq!((key(&a), a.len()), (key(&b), b.len()));
    // The other one did not hear that it was told: the key is the same again.
    let (over, also) = (one.tick(&good), two.tick(&good));
    assert_eq!(key(&over), key(&also));
    assert_ne!(key(&a), key(&over));
}

#[test]
fn a_silence_holds_back_until_it_ends_and_pagers_are_still_closed() {
    let (rule, bad, good) = depth();
    let mut world = World::of(&rule);
    let until = START.plus_ms(60_000);
    let silence = |rule: Option<&str>, target: Option<&str>| Silence {
        rule: rule.map(str::to_owned),
        target: target.map(str::to_owned),
        until,
        by: "ada".into(),
        why: "migration".into(),
    };
    world.silences = vec![silence(None, Some("queue:another")), silence(Some("another"), None)];
    assert_eq!(whats(&world.ticks(&bad, 15_000)), [What::Fired], "neither is about this");
    world.silences = vec![silence(Some("queue_depth_high"), Some("queue:one"))];
    assert_eq!(whats(&world.ticks(&good, 5_000)), [What::Resolved], "told, so it is closed");
    assert_eq!(world.ticks(&bad, 30_000), []);
    assert_eq!(world.only().phase, Phase::Firing);
    assert_eq!(whats(&world.ticks(&bad, 15_000)), [What::Fired], "the silence is over");
    let mut quiet = World::of(&rule);
    quiet.silences = vec![silence(None, None)];
    assert_eq!(quiet.ticks(&bad, 30_000), []);
    assert_eq!(quiet.ticks(&good, 15_000), [], "nobody heard of it");
}

#[test]
fn what_is_no_longer_measured_is_over_after_a_while() {
    let (rule, bad, _) = depth();
    let mut world = World::of(&rule);
    assert_eq!(world.ticks(&bad, 15_000).len(), 1);
    assert_eq!(world.ticks(&Readings::default(), UNMEASURED_MS - TICK), []);
    assert_eq!(whats(&world.ticks(&Readings::default(), 3 * TICK)), [What::Resolved]);
}

#[test]
fn a_rule_that_is_switched_off_ends_its_incidents() {
    let (rule, bad, _) = depth();
    let mut world = World::of(&rule);
    assert_eq!(world.ticks(&bad, 15_000).len(), 1);
    world.rules[0].enabled = false;
    assert_eq!(whats(&world.tick(&bad)), [What::Resolved]);
    assert_eq!(world.ticks(&bad, 60_000), []);
}

#[test]
fn a_clock_that_goes_back_neither_fires_twice_nor_holds_back() {
    let (rule, bad, good) = depth();
    let mut world = World::of(&rule);
    assert_eq!(world.ticks(&bad, 15_000).len(), 1);
    world.now = START.plus_ms(-3_600_000);
    assert_eq!(world.ticks(&bad, 60_000), []);
    assert_eq!(whats(&world.ticks(&good, 5_000)), [What::Resolved]);
    world.ticks(&bad, 5_000);
    world.now = world.now.plus_ms(-3_600_000);
    assert_eq!(whats(&world.ticks(&bad, 15_000)), [What::Fired]);
}

#[test]
fn a_file_changes_shipped_rules_and_adds_its_own() {
    let file = |json: &str| serde_json::from_str::<BTreeMap<String, RulePatch>>(json).unwrap();
    let rules = merged(
        shipped(),
        file(
            r#"{"queue_depth_high": {"condition": "waiting > 5", "on": ["billing"], "for": "2m", "repeat": "0s"},
                "graph_slow": {"enabled": false},
                "mine": {"condition": "oldest_ready > 10m", "severity": "error", "channels": ["ops"]}}"#,
        ),
    )
    .unwrap();
    let find = |id: &str| rules.iter().find(|r| r.id == id).unwrap();
    assert_eq!((find("queue_depth_high").for_ms, find("queue_depth_high").repeat_ms), (120_000, 0));
    assert_eq!(find("queue_depth_high").runbook, "queue-stands-still.md", "what is not said stays");
    assert!(!find("graph_slow").enabled && find("mine").enabled);
    let wrong = merged(
        shipped(),
        file(r#"{"mine": {}, "queue_depth_high": {"for": "soon"}, "dlq_threshold": {"repeat": "1s"}}"#),
    )
    .unwrap_err();
    assert_eq!(wrong.len(), 3, "every error is named: {wrong:?}");
}

#[test]
fn incidents_are_bounded() {
    let (rule, ..) = depth();
    let mut readings = Readings::default();
    for n in 0..2_000 {
        readings.add(Target::queue(format!("q{n}")), "waiting", 9e9, 1);
    }
    let mut world = World::of(&rule);
    world.ticks(&readings, 15_000);
    assert_eq!(world.book.len(), tidegate_core::alerts::MAX_INCIDENTS);
}
