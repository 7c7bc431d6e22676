use serde_json::json;

use super::*;
use crate::ids::KindName;
use crate::retry::{Backoff, Jitter};

fn parse(text: &str) -> Document {
    Document::parse(text, Format::Toml).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn mistakes(text: &str) -> Vec<String> {
    Document::parse(text, Format::Toml).unwrap_err().iter().map(ToString::to_string).collect()
}

const WHOLE: &str = r#"
[policies.patient]
max_attempts = 4
backoff = { type = "exponential", base = "10s", factor = 3, cap_ms = 60000 }
jitter = "equal"
[categories]
TRANSIENT_SERVER = "patient"
LOGIC_ERROR = { max_attempts = 2, backoff = "immediate" }
[platforms]
shopify = 1.25
[queues.billing]
concurrency = 5
limiter = { max = 30, per = "1s" }
retention = { count = 100, age = "2h" }
retry = "patient"
max_wait = "5m"
[kinds."invoice.send"]
queue = "billing"
description = "Sends it"
priority = "high"
timeout = "45s"
max_attempts = 3
retry = { max_attempts = 2, backoff = { type = "fixed", delay = "5m" }, jitter = "none" }
connector = "shopify"
concurrency = 2
on = "order.paid"
failures = { GONE = "INVALID_INPUT" }
alerts = ["failed"]
schedule = { cron = "0 1 * * *" }
schema = { type = "object", properties = { order = { type = "integer" } } }
"#;

#[test]
fn a_document_is_read_with_spans_as_people_write_them() {
    let document = parse(WHOLE);
    let queue = document.queues.values().next().unwrap();
    assert_eq!(queue.limiter, Some(Limiter { max: 30, per_ms: 1_000 }));
    assert_eq!(queue.retention, Retention { count: 100, age_ms: 7_200_000 });
    assert_eq!((queue.max_wait_ms, queue.policy.as_deref()), (300_000, Some("patient")));
    assert_eq!(queue.retry.max_attempts, 4);
    let kind = &document.kinds[&KindName::new("invoice.send").unwrap()];
    assert_eq!((kind.timeout_ms, kind.concurrency, kind.managed), (45_000, Some(2), true));
    assert_eq!(kind.retry.as_ref().unwrap().backoff, Backoff::Fixed { delay_ms: 300_000 });
    assert_eq!((kind.on.len(), kind.failures["GONE"]), (1, Category::InvalidInput));
    let policies = &document.policies;
    assert_eq!(policies.categories[&Category::TransientServer], policies.named["patient"]);
    assert_eq!(policies.categories[&Category::LogicError].jitter, Jitter::PlusTenth);
    assert_eq!(document.misplaced(None), []);
}

#[test]
fn what_is_written_can_be_read_again_as_toml_and_as_json() {
    let document = parse(WHOLE);
    for full in [false, true] {
        let value = written(&document, full);
        assert_eq!(Document::read(&value).unwrap(), document);
        let text = toml::to_string_pretty(&value).unwrap();
        assert_eq!(parse(&text), document, "{text}");
        assert_eq!(text.contains("weight"), full, "{text}");
        assert_eq!(Document::parse(&value.to_string(), Format::Json).unwrap(), document);
    }
    let mut own = document.clone();
    own.kinds.values_mut().for_each(|kind| kind.managed = false);
    assert_eq!(Document::read(&written(&own, true)).unwrap(), own, "a whole copy knows who registered what");
    assert_eq!(written(&document, false)["queues"]["billing"]["retry"], "patient");
    let stored = serde_json::to_string(&document).unwrap();
    let read: Document = serde_json::from_str(&stored).unwrap();
    assert_eq!((read.hash(), read), (document.hash(), document));
}

#[test]
fn every_mistake_is_named_with_its_place() {
    let found = mistakes(
        r#"
colour = 1
[policies.bad]
max_attempts = 0
backoff = { type = "exponential", base = "soon", factor = 0.5 }
[policies."no name"]
backoff = { type = "often" }
[categories]
TRANSIENT_SERVR = "patient"
LOGIC_ERROR = "patient"
[platforms]
shopify = 0
[queues."a b"]
[queues.a]
concurrency = 0
worker_concurrency = -1
limiter = { max = 3 }
max_wait = "1h"
max_wait_ms = 7
weigth = 2
[kinds.k]
timeout = 30
priority = "urgent"
on = ["a", "a", "b c"]
failures = { GONE = "INVALID_INPT" }
schedule = 7
schema = { properties = { d = { format = "dates" } } }
[kinds.l]
queue = "a"
timeout_ms = 0
retry = { max_attempts = 2, backoff = { type = "linear" } }
"#,
    );
    for part in [
        "colour: there is no such setting; there are policies, categories, platforms, queues, kinds",
        "policies.bad.max_attempts: max_attempts must be between 1 and 100",
        "policies.bad.backoff.base: \"soon\" is not a span of time",
        "policies.\"no name\": \"no name\" is no name for a policy",
        "policies.\"no name\".max_attempts: it is missing",
        "policies.\"no name\".backoff.type: \"often\" is no strategy",
        "categories.TRANSIENT_SERVR: there is no such category; did you mean `TRANSIENT_SERVER`?",
        "categories.LOGIC_ERROR: there is no policy \"patient\"",
        "platforms.shopify: a factor must be between 0.1 and 100",
        "queues.\"a b\": queue \"a b\" contains ' '",
        "queues.a.concurrency: concurrency must be at least 1",
        "queues.a.worker_concurrency: -1 is not a whole number in range",
        "queues.a.limiter.per: it is missing",
        "queues.a.max_wait: `max_wait` and `max_wait_ms` say the same",
        "queues.a.weigth: there is no such setting; did you mean `weight`?",
        "kinds.k.queue: it is missing",
        "kinds.k.timeout: it is a number, it should be a span",
        "kinds.k.priority:",
        "kinds.k.on: a is named twice",
        "kinds.k.on: event \"b c\" contains ' '",
        "kinds.k.failures.GONE: \"INVALID_INPT\" is no category of failures; did you mean `INVALID_INPUT`?",
        "kinds.k.schedule: it should be a table",
        "kinds.k.schema.properties.d.format: this format is not known",
        "kinds.l.timeout_ms: timeout must be between 1 ms and 7 days",
        "kinds.l.retry.backoff.step_ms: it is missing",
    ] {
        assert!(found.iter().any(|m| m.starts_with(part)), "{part} in {found:#?}");
    }
    assert!(mistakes("[queues.a\n")[0].starts_with("it is not TOML: line 1"));
    assert!(mistakes(&format!("#{}", "x".repeat(limits::MAX_REGISTRY_BYTES)))[0].contains("bytes"));
    let many: String = (0..300).fold(String::new(), |text, n| text + &format!("[kinds.k{n}]\n"));
    let found = mistakes(&many);
    assert_eq!(
        (found.len(), found.last().unwrap().as_str()),
        (limits::MAX_REGISTRY_PROBLEMS + 1, "and 200 more")
    );
}

#[test]
fn a_policy_that_cannot_be_meant_is_refused_with_its_place() {
    let found = mistakes(
        r#"
[policies.p]
max_attempts = 3
backoff = { type = "exponential", base = "2m", cap = "30s" }
retry_on = ["TRANSIENT_NETWORK", "ETIMEDOUT"]
no_retry_on = ["ETIMEDOUT"]
colour = "red"
[kinds.k]
queue = "q"
retry = { max_attempts = 3, backoff = { type = "linear", step = "2h" } }
"#,
    );
    for part in [
        "policies.p.backoff: the first delay (base, 2 m) is above the largest (cap, 30 s)",
        "policies.p.retry_on: TRANSIENT_NETWORK is a category",
        "policies.p.no_retry_on: ETIMEDOUT is in retry_on as well",
        "kinds.k.retry.backoff: the first delay (step, 2 h 0 m) is above the largest (cap, 1 h 0 m)",
    ] {
        assert!(found.iter().any(|m| m.starts_with(part)), "{part} in {found:#?}");
    }
    let colour = found.iter().find(|m| m.starts_with("policies.p.colour")).unwrap();
    assert_eq!(
        colour.split_once("there are ").unwrap().1,
        "max_attempts, jitter, backoff, retry_on, no_retry_on",
        "each once"
    );
}

#[test]
fn what_a_store_has_kept_goes_on_although_it_would_be_refused_now() {
    let text = r#"
[queues.q]
retry = { max_attempts = 3, backoff = { type = "exponential", base = "2m", cap = "30s" } }
[kinds.k]
queue = "q"
alerts = { slow = { condition = "longest_run > 60" } }
schedule = { every = "5m", jitter = "10m" }
"#;
    let found = mistakes(text);
    for part in ["queues.q.retry.backoff:", "kinds.k.alerts: slow.condition:", "kinds.k.schedule.jitter:"] {
        assert!(found.iter().any(|m| m.starts_with(part)), "{part} in {found:#?}");
    }
    let value: serde_json::Value = toml::from_str(text).unwrap();
    assert_eq!(Document::read(&value).err(), None);
}

#[test]
fn what_a_document_names_must_be_somewhere() {
    let document = parse("[queues.billing]\n[kinds.k]\nqueue = \"biling\"\nretry = \"webhok\"\n");
    let said: Vec<String> =
        document.misplaced(Some(&Document::default())).iter().map(ToString::to_string).collect();
    assert!(
        said[0].starts_with("kinds.k.queue: there is no queue biling; did you mean `billing`?"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("kinds.k.retry: there is no policy \"webhok\"; did you mean `webhook`?"),
        "{said:?}"
    );
    let there = parse("[queues.biling]\n");
    assert_eq!(document.misplaced(Some(&there)).len(), 1);
}

#[test]
fn only_what_differs_is_a_difference() {
    let there = parse(
        "[queues.a]\n[queues.b]\nweight = 2\n[policies.p]\nmax_attempts = 2\nbackoff = \"immediate\"\n",
    );
    let wanted = parse("[queues.a]\n[queues.b]\nweight = 3\n[queues.c]\n");
    let said = |exactly: bool| -> Vec<(Change, String, usize)> {
        let found = differences(&there, &wanted, exactly);
        found.into_iter().map(|d| (d.change, d.name, d.fields.len())).collect()
    };
    let expected = [(Change::Change, "b".to_owned(), 1), (Change::Add, "c".to_owned(), 0)];
    assert_eq!(said(false), expected);
    assert_eq!(said(true)[0], (Change::Remove, "p".to_owned(), 0));
    let found = differences(&there, &wanted, false);
    assert_eq!(found[0].fields, [("weight".to_owned(), json!(2), json!(3))]);
}

#[test]
fn settings_that_older_versions_wrote_are_still_read() {
    let kind: KindSettings = serde_json::from_str(
        r#"{"queue":"q","description":"","priority":"medium","timeout_ms":30000,"max_attempts":null,"retry":null,"connector":null}"#,
    )
    .unwrap();
    assert_eq!(kind, KindSettings::new(QueueName::new("q").unwrap()));
    // And a kind that uses nothing new is written as they wrote it.
    let text = serde_json::to_string(&kind).unwrap();
    assert!(!text.contains("schema") && !text.contains("managed") && !text.contains("policy"), "{text}");
}

#[test]
fn a_secret_that_is_none_any_more_is_not_replaced_by_the_way_it_was_shown() {
    let kind = |secret: bool, value: &str| {
        let text = format!(
            r#"
[queues.q]
[kinds.call]
queue = "q"
schedule = {{ cron = "0 3 * * *", payload = {{ key = "{value}" }} }}
[kinds.call.schema]
type = "object"
[kinds.call.schema.properties.key]
type = "string"
default = "{value}"
x-secret = {secret}
"#
        );
        parse(&text).kinds.into_values().next().unwrap()
    };
    let old = kind(true, "s3cret");
    let mut shown = kind(true, "***");
    assert_eq!(shown.hidden(None), ["schema", "schedule.payload"], "nobody knows it");
    let mut document = parse("[queues.q]\n");
    document.kinds.insert(KindName::new("call").unwrap(), shown.clone());
    let reading = Reading::of_value(&written(&document, false));
    assert!(reading.is_sound() && reading.leans_on_a_store());
    let found = said(&reading.alone());
    assert!(found.len() == 2 && found[1].starts_with("kinds.call.schedule.payload: a secret"), "{found:?}");
    assert_eq!(reading.beside(&document, "-", &[]), [], "a store that has the kind may know it");
    shown.reveal(&old);
    assert!(shown.hidden(Some(&old)).is_empty());
    assert_eq!(shown, old, "it was put back");
    for unmarked in [kind(false, "***"), KindSettings { schema: None, ..kind(true, "***") }] {
        let mut new = unmarked;
        new.reveal(&old);
        assert!(new.hidden(Some(&old)).contains(&"schedule.payload"), "{new:?}");
    }
    let mut told = kind(false, "told");
    told.reveal(&old);
    assert!(told.hidden(Some(&old)).is_empty(), "who writes the value may show it");
}

fn said(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_document_may_say_which_one_it_is() {
    let named = parse("document = \"billing\"\n[queues.a]\n");
    assert_eq!((named.known_as("./reg.toml"), named.known_as("-")), ("billing".into(), "billing".into()));
    assert_eq!(parse("[queues.a]\n").known_as("./reg.toml"), "reg.toml");
    for full in [false, true] {
        let text = toml::to_string_pretty(&written(&named, full)).unwrap();
        assert_eq!(parse(&text), named, "{text}");
    }
    let long = format!("{:?}", "x".repeat(limits::MAX_NOTE_BYTES + 1));
    for wrong in ["7", "\"\"", "\"  \"", "\"a\\nb\"", &long] {
        let found = mistakes(&format!("document = {wrong}\n"));
        assert!(found.len() == 1 && found[0].starts_with("document: "), "{wrong}: {found:?}");
    }
    // What an older program stored has none, and neither has what it will read.
    assert!(!serde_json::to_string(&parse("[queues.a]\n")).unwrap().contains("document"));
}

/// Wrong in what it says and in what it names, at once; what is there but wrong is not called missing.
const TANGLED: &str = r#"
[policies.bad]
max_attempts = 2
[categories]
LOGIC_ERROR = "bad"
[queues]
odd = 7
[queues.a]
weigth = 2
retry = "webhok"
[kinds]
later = 7
[kinds.b]
queue = "nowhere"
retry = "bad"
alerts = ["faild"]
schedule = { cron = "0 3 * * *", after = ["zzz", "c", "later", "homeless"] }
[kinds.c]
queue = "odd"
retry = "unheard"
schedule = { crn = "0 3 * * *", after = ["yyy"] }
[kinds.homeless]
retry = "unheard"
schedule = 7
[kinds.ring]
queue = "a"
schedule = { cron = "61 3 * * *", after = ["ring"] }
"#;

#[test]
fn every_mistake_is_named_in_one_pass_and_nothing_that_follows_from_one() {
    let reading = Reading::of(TANGLED, Format::Toml);
    assert!(!reading.is_sound() && reading.leans_on_a_store());
    let expected = [
        "policies.bad.backoff: it is missing",
        "queues.a.weigth: there is no such setting",
        "queues.a.retry: there is no policy \"webhok\" in the document; did you mean `webhook`?",
        "queues.odd: it is a number, it should be a table",
        "kinds.b.alerts: faild",
        "kinds.b.queue: there is no queue nowhere in the document; add [queues.nowhere]",
        "kinds.b.schedule.after: there is no schedule `zzz` in the document",
        "kinds.c.schedule: there is no setting `crn`",
        "kinds.c.retry: there is no policy \"unheard\" in the document",
        "kinds.c.schedule.after: there is no schedule `yyy` in the document",
        "kinds.homeless.queue: it is missing",
        "kinds.homeless.schedule: it should be a table",
        "kinds.homeless.retry: there is no policy \"unheard\" in the document",
        "kinds.later: it is a number, it should be a table",
        "kinds.ring.schedule.cron: ",
        "kinds.ring.schedule.after: it would wait for itself",
    ];
    let found = said(&reading.alone());
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{expected} in {found}");
    }
    // A store has some of it.
    let there = parse("[policies.unheard]\nmax_attempts = 1\nbackoff = \"none\"\n[queues.nowhere]\n");
    let name = |text: &str| crate::ids::ScheduleName::new(text).unwrap();
    let (zzz, ring, total) = (name("zzz"), name("ring"), name("total"));
    let waits = [total.clone()];
    let standing = [
        Standing { name: &zzz, after: &waits, document: None },
        Standing { name: &ring, after: &[], document: None },
        Standing { name: &total, after: &[], document: Some("reg.toml") },
    ];
    let found = said(&reading.beside(&there, "./reg.toml", &standing));
    let text = found.join("\n");
    assert!(
        !text.contains("in the document") && !text.contains("unheard") && !text.contains("nowhere"),
        "{text}"
    );
    for part in [
        "kinds.c.schedule.after: there is no schedule `yyy`",
        "kinds.ring.schedule: there is a schedule `ring` that no document describes",
        "kinds.total.schedule: schedule `zzz` waits for it: change that first",
    ] {
        assert!(found.iter().any(|m| m.starts_with(part)), "{part} in {text}");
    }
    // What the store has under another name is not this document's, also where its path ends so.
    let goes = |source: &str| {
        let found = said(&reading.beside(&there, source, &standing));
        found.iter().any(|m| m.starts_with("kinds.total.schedule: schedule `zzz` waits for it"))
    };
    assert!(goes("reg.toml") && !goes("/srv/reg.toml") && !goes("/srv/other.toml"));
    // Of a table that cannot be read nobody knows what it has.
    for text in ["queues = 7\n[kinds.k]\nqueue = \"q\"\n", "[queue.q]\n[kinds.k]\nqueue = \"q\"\n"] {
        assert_eq!(Reading::of(text, Format::Toml).alone().len(), 1, "{text}");
    }
    let text = "[policy.p]\n[categories]\nLOGIC_ERROR = \"p\"\n[queues.q]\nretry = \"p\"\n";
    assert_eq!(Reading::of(text, Format::Toml).alone().len(), 1);
}

#[test]
fn a_document_by_itself_is_bounded_as_in_a_store() {
    let kinds = (0..=crate::alerts::MAX_WATCHED_KINDS).fold("[queues.q]\n".to_owned(), |text, n| {
        text + &format!("[kinds.k{n}]\nqueue = \"q\"\nalerts = [\"failed\"]\n")
    });
    let reading = Reading::of(&kinds, Format::Toml);
    assert!(reading.is_sound() && !reading.leans_on_a_store());
    let found = said(&reading.alone());
    assert!(found.len() == 1 && found[0].starts_with("kinds: 51 kinds have alerts"), "{found:?}");
    let many: String =
        (0..300).fold(String::new(), |text, n| text + &format!("[kinds.k{n}]\nqueue = \"q\"\n"));
    let found = said(&Reading::of(&many, Format::Toml).alone());
    assert_eq!(found.len(), limits::MAX_REGISTRY_PROBLEMS + 1);
    assert_eq!(found.last().unwrap(), "and 200 more");
}

/// What a schedule waits for may have been erased with its tenant: who leaves it as it was is not told of that.
#[test]
fn what_was_gone_before_is_not_missed() {
    let text = "[queues.q]\nweigth = 2\n[kinds.k]\nqueue = \"q\"\nschedule = { every = \"1h\", after = [\"erased\"] }\n";
    let (reading, there) = (Reading::of(text, Format::Toml), parse("[queues.q]\n"));
    let name = |text: &str| crate::ids::ScheduleName::new(text).unwrap();
    let (k, erased) = (name("k"), [name("erased")]);
    for (after, mistakes) in [(&erased[..], 1), (&[][..], 2)] {
        let standing = [Standing { name: &k, after, document: Some("reg.toml") }];
        let found = said(&reading.beside(&there, "reg.toml", &standing));
        assert_eq!(found.len(), mistakes, "{found:?}");
    }
}

#[test]
fn what_a_document_drops_is_not_counted_with_what_it_has() {
    let most = (0..crate::alerts::MAX_WATCHED_KINDS).fold("[queues.q]\n".to_owned(), |text, n| {
        text + &format!("[kinds.k{n}]\nqueue = \"q\"\nalerts = [\"failed\"]\n")
    });
    let mut there = parse(&most);
    let text = "[queues.q]\nweigth = 2\n[kinds.new]\nqueue = \"q\"\nalerts = [\"failed\"]\n";
    let reading = Reading::of(text, Format::Toml);
    for (owner, mistakes) in [("/srv/reg.toml", 1), ("reg.toml", 2), ("/srv/other/reg.toml", 2)] {
        there.kinds.values_mut().for_each(|kind| kind.document = Some(owner.to_owned()));
        let found = said(&reading.beside(&there, "/srv/reg.toml", &[]));
        assert_eq!(found.len(), mistakes, "{owner}: {found:?}");
    }
}

#[test]
fn entries_are_counted_in_words() {
    let document = parse(WHOLE);
    let counts = Counts::of(&document.entries());
    assert_eq!(counts.to_string(), "1 queue, 1 kind, 1 schedule, 1 policy, 2 categories, 1 platform");
    assert_eq!(counts.total(), 7);
    assert_eq!(Counts::default().to_string(), "nothing");
    let added: std::collections::BTreeSet<_> =
        differences(&Document::default(), &document, false).iter().filter_map(Entry::of).collect();
    assert_eq!(Counts::of(&added), Counts { schedules: 0, ..counts }, "a store adds the schedules");
    let gone = difference("schedule", "k", None, None).unwrap();
    assert_eq!((gone.verb(), gone.change.as_str()), ("retire", "remove"));
}
