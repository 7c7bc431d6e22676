//! Who may do what: every route, for every role, with and without a tenant. What is allowed is written here a second
//! time, by hand, and compared with what a server really does.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Ask, Reply, Served, now, options};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_server::routes::ROUTES;
use tidegate_server::{Rate, Server, ServerOptions, keys};
use tidegate_store::MemoryStore;
use tidegate_store::params::{Record, Shelf};
use tidegate_wire::keys::{CreatedKey, NewKey, Role};

/// Who gets through, per route: `A`dmin, `O`perator, `P`roducer, `W`orker; small letters: restricted to tenant `acme`;
/// `*`: everybody, without a key. The body is one that works for a thing of tenant `acme`.
const ALLOWED: &[(&str, &str, &str, &str)] = &[
    ("GET", "/live", "*", ""),
    ("GET", "/ready", "*", ""),
    ("GET", "/health", "*", ""),
    ("GET", "/metrics", "AO", ""),
    ("GET", "/openapi.json", "*", ""),
    ("GET", "/v1/errors/TG1001", "*", ""),
    ("GET", "/v1/about", "AOPW aopw", ""),
    ("POST", "/v1/jobs", "AOP aop", r#"{"kind":"mail"}"#),
    ("GET", "/v1/jobs", "AO aop", ""),
    ("GET", "/v1/jobs/{waiting}", "AOP aop", ""),
    ("GET", "/v1/jobs/{held}?ticket={ticket}", "AOPW aop", ""),
    ("GET", "/v1/jobs/{waiting}/why", "AOP aop", ""),
    ("GET", "/v1/jobs/{held}/dependencies?ticket={ticket}", "AOPW aop", ""),
    ("POST", "/v1/jobs/{cancel}/cancel", "AO ao", ""),
    ("POST", "/v1/jobs/{scheduled}/run-now", "AO ao", ""),
    ("PUT", "/v1/jobs/{waiting}/priority", "AO ao", r#"{"priority":"high"}"#),
    ("GET", "/v1/queues", "AOW", ""),
    ("POST", "/v1/queues", "AOW", r#"{"name":"post"}"#),
    ("GET", "/v1/queues/post", "AOW", ""),
    ("PUT", "/v1/queues/post", "AO", "{}"),
    ("POST", "/v1/queues/post/pause", "AO", ""),
    ("POST", "/v1/queues/post/resume", "AO", ""),
    ("GET", "/v1/settings", "AOPW aopw", ""),
    ("GET", "/v1/kinds", "AOPW aopw", ""),
    ("GET", "/v1/kinds/mail", "AOPW aopw", ""),
    ("PUT", "/v1/kinds/mail", "AOW", r#"{"queue":"post"}"#),
    ("GET", "/v1/registry", "AO", ""),
    ("PUT", "/v1/registry", "AO", r#"{"queues":{"post":{"weight":2}}}"#),
    ("GET", "/v1/registry/history", "AO", ""),
    ("GET", "/v1/registry/history/1", "AO", ""),
    ("POST", "/v1/registry/rollback", "AO", r#"{"version":1}"#),
    ("POST", "/v1/registry/refusals", "AO", r#"{"source":"x","hash":"0","problems":[]}"#),
    ("GET", "/v1/parks", "AO ao", ""),
    ("PUT", "/v1/parks", "AO ao", r#"{"scope":{"group":"acme"},"pause":{"by":"x"}}"#),
    ("DELETE", "/v1/parks?group=acme&by=x", "AO ao", ""),
    ("GET", "/v1/groups", "AO ao", ""),
    ("POST", "/v1/groups/acme/pause", "AO ao", ""),
    ("POST", "/v1/groups/acme/resume", "AO ao", ""),
    ("GET", "/v1/schedules", "AO", ""),
    ("GET", "/v1/schedules/nightly", "AO", ""),
    ("PUT", "/v1/schedules/nightly", "AO", NIGHTLY),
    ("DELETE", "/v1/schedules/nightly", "AO", ""),
    ("POST", "/v1/schedules/nightly/pause", "AO", ""),
    ("POST", "/v1/schedules/nightly/resume", "AO", ""),
    ("POST", "/v1/schedules/nightly/run", "AO", ""),
    ("GET", "/v1/schedules/nightly/ticks", "AO", ""),
    ("GET", "/v1/schedules/nightly/next", "AO", ""),
    ("POST", "/v1/backfills", "AO", r#"{"kind":"mail","from":"2026-11-01","to":"2026-11-02"}"#),
    ("GET", "/v1/dead", "AO ao", ""),
    ("GET", "/v1/dead/causes", "AO ao", ""),
    ("POST", "/v1/dead/process", "AO", ""),
    ("POST", "/v1/dead/recover", "AO ao", r#"{"ids":["{dead}"]}"#),
    ("POST", "/v1/dead/reauthorized", "AO ao", r#"{"ids":["{dead}"]}"#),
    ("POST", "/v1/dead/{dead}/resolve", "AO ao", r#"{"resolution":"abandoned"}"#),
    ("POST", "/v1/claims", "AW", r#"{"worker":"w","queues":[{"name":"empty"}],"max":1}"#),
    ("POST", "/v1/settlements", "AW", r#"{"settlements":[{"ticket":"tkt_1_1","outcome":"release"}]}"#),
    ("POST", "/v1/heartbeats", "AW", r#"{"leases":["lease_1"]}"#),
    ("POST", "/v1/reports", "AW", r#"{"reports":[{"ticket":"tkt_1_1"}]}"#),
    ("POST", "/v1/admissions", "AW", r#"{"connector":"api","holder":"h"}"#),
    ("POST", "/v1/admissions/renew", "AW", PERMIT),
    ("POST", "/v1/admissions/settle", "AW", SETTLED),
    ("POST", "/v1/admissions/cancel", "AW", r#"{"target":{"domain":"api"},"holder":"h"}"#),
    ("GET", "/v1/gates", "AO", ""),
    ("GET", "/v1/gates/settings", "AOW", ""),
    ("GET", "/v1/gates/api", "AO", ""),
    ("POST", "/v1/gates/api", "AO", r#"{"act":{"do":"switch","off":false},"why":"test"}"#),
    ("GET", "/v1/gates/api/traces", "AO ao", ""),
    ("GET", "/v1/slo", "AO", ""),
    ("GET", "/v1/alerts", "AO", ""),
    ("GET", "/v1/alerts/rules", "AO", ""),
    ("GET", "/v1/alerts/silences", "AO", ""),
    ("POST", "/v1/alerts/silences", "AO", r#"{"for_ms":1000,"why":"test"}"#),
    ("DELETE", "/v1/alerts/silences/{silence}", "AO", ""),
    ("POST", "/v1/alerts/test", "AO", r#"{"channel":"trial"}"#),
    ("GET", "/v1/workers", "AO", ""),
    ("PUT", "/v1/workers/w", "AOW", r#"{"about":{}}"#),
    ("DELETE", "/v1/workers/w", "AOW", ""),
    ("POST", "/v1/workers/w/drain", "AO", ""),
    ("GET", "/v1/orders", "AOW", ""),
    ("PUT", "/v1/orders/w", "AO", r#"{"about":{}}"#),
    ("DELETE", "/v1/orders/w", "AOW", ""),
    ("POST", "/v1/tenants/acme/erase", "A a", r#"{"after":"cur_999999999"}"#),
    ("GET", "/v1/totals", "AO", ""),
    ("GET", "/v1/events", "AO aop", ""),
    ("POST", "/v1/events", "AOP aop", r#"{"event":"rung"}"#),
    ("POST", "/v1/keys", "A a", r#"{"name":"k","role":"producer","tenant":"acme"}"#),
    ("GET", "/v1/keys", "A a", ""),
    ("DELETE", "/v1/keys/{spare}", "A a", ""),
];

const NIGHTLY: &str = r#"{"kind":"mail","settings":{"cron":"0 3 * * *","overlap":"allow"}}"#;
const PERMIT: &str = r#"{"permit":{"target":{"domain":"api"},"holder":"h","fence":1,"cost":1,"admitted_at":0,"use_by":0,"expires_at":0}}"#;
const SETTLED: &str = r#"{"permit":{"target":{"domain":"api"},"holder":"h","fence":1,"cost":1,"admitted_at":0,"use_by":0,"expires_at":0},"outcome":{"end":"ok"}}"#;

struct Scene {
    served: Served,
    admin: CreatedKey,
}

impl Scene {
    async fn new() -> Self {
        let served = Served::gated().await;
        let admin = served.key(Role::Admin, None).await;
        let scene = Self { served, admin };
        scene.ok("POST", "/v1/queues", r#"{"name":"post"}"#).await;
        scene.ok("POST", "/v1/queues", r#"{"name":"empty"}"#).await;
        scene.ok("PUT", "/v1/kinds/mail", r#"{"queue":"post"}"#).await;
        scene.ok("PUT", "/v1/kinds/bell", r#"{"queue":"post","on":["rung"]}"#).await;
        scene
    }

    async fn ask(&self, key: Option<&CreatedKey>, method: &str, path: &str, body: &str) -> Reply {
        let mut ask = Ask::new(method.parse().unwrap(), path).maybe_key(key);
        if !body.is_empty() {
            ask = ask.raw("application/json", body.to_owned());
        }
        // A stream has no end: its head is the answer.
        if path.starts_with("/v1/events") {
            let mut client = self.served.connect().await;
            let (parts, _) = client.open(ask).await.unwrap().into_parts();
            return Reply {
                status: parts.status,
                headers: parts.headers,
                body: bytes::Bytes::default(),
                json: Value::Null,
            };
        }
        self.served.send(ask).await
    }

    /// A key, made by the server: it is known at once.
    async fn key(&self, role: Role, tenant: Option<&str>) -> CreatedKey {
        let new = json!({"name": format!("{role} of a test"), "role": role, "tenant": tenant});
        serde_json::from_value(self.ok("POST", "/v1/keys", &new.to_string()).await).unwrap()
    }

    async fn ok(&self, method: &str, path: &str, body: &str) -> Value {
        let reply = self.ask(Some(&self.admin), method, path, body).await;
        assert!(reply.status.is_success(), "{method} {path}: {}", reply.json);
        reply.json
    }

    /// Fresh things of a tenant for one request: each request finds what it needs, whatever the one before it did.
    async fn prepare(&self, path: &str, body: &str, tenant: &str) -> (String, String) {
        let (mut path, mut body) = (path.to_owned(), body.to_owned());
        for park in self.served.store.parks().await.unwrap() {
            self.served.store.unpark(park.scope, park.by, now()).await.unwrap();
        }
        let needs = |what: &str| path.contains(what) || body.contains(what);
        let job = |more: &str| format!(r#"{{"kind":"mail","tenant":"{tenant}"{more}}}"#);
        let mut put = vec![];
        if needs("{waiting}") || needs("{cancel}") {
            let id = self.ok("POST", "/v1/jobs", &job("")).await["id"].clone();
            put.extend([("{waiting}", id.clone()), ("{cancel}", id)]);
        }
        if needs("{scheduled}") {
            put.push((
                "{scheduled}",
                self.ok("POST", "/v1/jobs", &job(r#","delay_ms":60000"#)).await["id"].clone(),
            ));
        }
        if needs("{held}") || needs("{dead}") {
            self.ok("POST", "/v1/jobs", &job(r#","priority":"critical""#)).await;
            let claim = r#"{"worker":"w","queues":[{"name":"post"}],"max":1}"#;
            let held = self.ok("POST", "/v1/claims", claim).await["jobs"][0].clone();
            put.extend([("{held}", held["id"].clone()), ("{ticket}", held["ticket"].clone())]);
            if needs("{dead}") {
                let fail = json!({"settlements": [{"ticket": held["ticket"], "outcome": "fail",
                    "failure": {"category": "INVALID_INPUT", "message": "no"}}]});
                self.ok("POST", "/v1/settlements", &fail.to_string()).await;
                put.push(("{dead}", held["id"].clone()));
            }
        }
        if needs("{silence}") {
            let silence = self.ok("POST", "/v1/alerts/silences", r#"{"for_ms":60000,"why":"test"}"#).await;
            put.push(("{silence}", silence["id"].clone()));
        }
        if needs("{spare}") {
            put.push(("{spare}", json!(self.key(Role::Producer, Some(tenant)).await.key.id)));
        }
        for (what, value) in put {
            let value = value.as_str().unwrap();
            (path, body) = (path.replace(what, value), body.replace(what, value));
        }
        // What is removed must be there.
        for role in Role::ALL {
            let by = json!({"by": format!("{role} of a test")}).to_string();
            self.ok("POST", "/v1/queues/post/pause", &by).await;
            self.ok("POST", "/v1/groups/acme/pause", &by).await;
        }
        self.ok("PUT", "/v1/parks", r#"{"scope":{"group":"acme"},"pause":{"by":"x"}}"#).await;
        if path.contains("/parks") || path.contains("/groups") {
            let restricted = keys::list(&*self.served.store, now()).await.unwrap();
            for key in restricted.into_iter().filter(|k| k.tenant.is_some()) {
                for by in ["x", key.name.as_str()] {
                    let by = format!("{by} (key {})", key.id);
                    let park = json!({"scope": {"group": "acme"}, "pause": {"by": by}});
                    self.ok("PUT", "/v1/parks", &park.to_string()).await;
                }
            }
        }
        self.ok("PUT", "/v1/schedules/nightly", NIGHTLY).await;
        self.ok("PUT", "/v1/workers/w", r#"{"about":{}}"#).await;
        self.ok("PUT", "/v1/orders/w", r#"{"about":{}}"#).await;
        (path, body)
    }

    /// A key of each role, with and without a tenant. One of a worker with a tenant cannot be made; it is forged.
    async fn callers(&self) -> Vec<(char, CreatedKey)> {
        let mut callers = vec![];
        for (letter, role) in
            [('a', Role::Admin), ('o', Role::Operator), ('p', Role::Producer), ('w', Role::Worker)]
        {
            callers.push((letter.to_ascii_uppercase(), self.key(role, None).await));
            if role != Role::Worker {
                callers.push((letter, self.key(role, Some("acme")).await));
            }
        }
        let mut forged = self.key(Role::Worker, None).await;
        let records = self.served.store.records(Shelf::Keys, now()).await.unwrap();
        let record = records.into_iter().find(|r| r.key == forged.key.id).unwrap();
        let body = record.body.replace(r#""tenant":null"#, r#""tenant":"acme""#);
        assert_ne!(body, record.body);
        self.served.store.put_record(Record { body, ..record }, now()).await.unwrap();
        forged.key.tenant = Some("acme".parse().unwrap());
        callers.push(('w', forged));
        callers
    }
}

/// A template of the table fits the path of a request.
fn fits(template: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap();
    let (a, b): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    a.len() == b.len() && a.iter().zip(&b).all(|(t, p)| t == p || t.starts_with('{'))
}

#[tokio::test]
async fn exactly_the_allowed_combinations_succeed() {
    for route in ROUTES {
        let listed = ALLOWED.iter().any(|(m, p, ..)| *m == route.method && fits(route.path, p));
        assert!(listed, "{} {} is not in the list of this test", route.method, route.path);
    }
    let scene = Scene::new().await;
    let callers = scene.callers().await;
    let mut wrong = vec![];
    for (method, path, allowed, body) in ALLOWED {
        let (filled, body) = scene.prepare(path, body, "acme").await;
        let without = scene.ask(None, method, &filled, &body).await;
        let open = *allowed == "*";
        if without.status.is_success() != open || (!open && !is_stream(path) && without.code() != "TG2015") {
            wrong.push(format!("{method} {path} without a key: {}", without.status));
        }
        for (letter, key) in &callers {
            let (filled, body) = scene.prepare(path, &body_of(method, path), "acme").await;
            let reply = scene.ask(Some(key), method, &filled, &body).await;
            let expected = open || allowed.contains(*letter);
            // A worker without a ticket that fits is told that there is no such job.
            let refused = reply.code() == "TG2016" || *letter == 'W' && reply.status == 404;
            if reply.status.is_success() != expected || (!expected && !is_stream(path) && !refused) {
                wrong.push(format!("{method} {path} as {letter}: {} {}", reply.status, reply.json));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn body_of(method: &str, path: &str) -> String {
    ALLOWED.iter().find(|(m, p, ..)| *m == method && *p == path).unwrap().3.to_owned()
}

fn is_stream(path: &str) -> bool {
    path == "/v1/events"
}

/// What belongs to another tenant is not there, or not theirs to touch.
#[tokio::test]
async fn a_restricted_key_finds_nothing_of_others() {
    let scene = Scene::new().await;
    let mut wrong = vec![];
    for (letter, key) in scene.callers().await.iter().filter(|(l, _)| l.is_lowercase() && *l != 'w') {
        for (method, path, allowed, body) in ALLOWED.iter().filter(|(_, p, ..)| p.contains('{')) {
            if !allowed.contains(*letter) {
                continue;
            }
            let (path, body) = scene.prepare(path, body, "other").await;
            let reply = scene.ask(Some(key), method, &path, &body).await;
            let hidden = match path.as_str() {
                "/v1/dead/recover" => reply.json == json!({"recovered": [{"status": "not_dead"}]}),
                "/v1/dead/reauthorized" => reply.json == json!({"letters": [], "more": false}),
                _ => reply.status == 404,
            };
            if !hidden {
                wrong.push(format!("{method} {path} as {letter}: {} {}", reply.status, reply.json));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn lists_of_a_restricted_key_hold_its_tenant_alone() {
    let scene = Scene::new().await;
    for tenant in ["acme", "other"] {
        scene.ok("POST", "/v1/jobs", &json!({"kind": "mail", "tenant": tenant}).to_string()).await;
        scene.prepare("{dead}", "", tenant).await;
        scene.key(Role::Producer, Some(tenant)).await;
    }
    scene.ok("POST", "/v1/groups/other/pause", "").await;
    scene.ok("PUT", "/v1/parks", r#"{"scope":{"connector":"shop"}}"#).await;
    let key = scene.key(Role::Admin, Some("acme")).await;
    let get = |path: &'static str| scene.ask(Some(&key), "GET", path, "");
    let all = |list: &Value, pointer: &str| -> BTreeSet<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|x| x.pointer(pointer).unwrap().as_str().unwrap().to_owned())
            .collect()
    };
    let acme = BTreeSet::from(["acme".to_owned()]);
    assert_eq!(all(&get("/v1/jobs").await.is(200).json["jobs"], "/tenant"), acme);
    assert_eq!(all(&get("/v1/dead").await.is(200).json["jobs"], "/tenant"), acme);
    assert_eq!(get("/v1/jobs?tenant=other").await.is(200).json["jobs"], json!([]));
    assert_eq!(all(&get("/v1/parks").await.is(200).json["parks"], "/scope/group"), acme);
    assert_eq!(all(&get("/v1/groups").await.is(200).json["groups"], "/name"), acme);
    assert_eq!(all(&get("/v1/keys").await.is(200).json["keys"], "/tenant"), acme);
}

#[tokio::test]
async fn a_restricted_producer_enqueues_for_its_tenant_alone() {
    let scene = Scene::new().await;
    let key = scene.key(Role::Producer, Some("acme")).await;
    let enqueue = |body: Value| {
        let (scene, key) = (&scene, &key);
        async move { scene.ask(Some(key), "POST", "/v1/jobs", &body.to_string()).await }
    };
    let id = enqueue(json!({"kind": "mail"})).await.is(201).text("/id");
    let job = scene.ok("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["tenant"], &job["group"]), (&json!("acme"), &json!("acme")));
    enqueue(json!({"kind": "mail", "tenant": "acme", "group": "acme"})).await.is(201);
    let foreign = enqueue(json!({"kind": "mail", "tenant": "other"})).await.is(403);
    assert_eq!((foreign.code(), &foreign.json["pointer"]), ("TG2016", &json!("/tenant")));
    // A tenant may be called `acme:eu`, so that group may be its own.
    for group in ["other", "acmex", "ac", "acme:eu"] {
        assert_eq!(enqueue(json!({"kind": "mail", "group": group})).await.is(403).json["pointer"], "/group");
    }
    // A unique key of another tenant's job is neither found nor its job replaced.
    let unique = json!({"key": "k", "scope": "pending", "on_conflict": "replace"});
    let theirs = json!({"kind": "mail", "tenant": "other", "payload": "theirs", "unique": unique});
    let theirs = scene.ok("POST", "/v1/jobs", &theirs.to_string()).await["id"].clone();
    let mine =
        enqueue(json!({"kind": "mail", "payload": "mine", "unique": unique})).await.is(201).text("/id");
    assert_ne!(json!(mine), theirs);
    let seen = scene.ok("GET", &format!("/v1/jobs/{}", theirs.as_str().unwrap()), "").await;
    assert_eq!(seen["payload"], "theirs");
    let again = enqueue(json!({"kind": "mail", "payload": "new", "unique": unique})).await.is(200);
    assert_eq!((again.text("/id"), again.text("/outcome")), (mine, "replaced".into()));
    // An id of another tenant's job does not show what it holds.
    let guess = enqueue(json!({"kind": "mail", "payload": "theirs", "id": theirs})).await.is(409);
    assert_eq!(guess.code(), "TG2010");
}

#[tokio::test]
async fn a_tenant_whose_name_begins_like_anothers_is_another() {
    let scene = Scene::new().await;
    let acme = scene.key(Role::Operator, Some("acme")).await;
    let eu = scene.key(Role::Operator, Some("acme:eu")).await;
    scene.ask(Some(&eu), "POST", "/v1/groups/acme:eu/pause", "").await.is(204);
    for (method, path, body) in [
        ("POST", "/v1/groups/acme:eu/pause", ""),
        ("POST", "/v1/groups/acme:eu/resume", ""),
        ("PUT", "/v1/parks", r#"{"scope":{"group":"acme:eu"}}"#),
        ("DELETE", "/v1/parks?group=acme:eu", ""),
    ] {
        assert_eq!(
            scene.ask(Some(&acme), method, path, body).await.is(403).code(),
            "TG2016",
            "{method} {path}"
        );
    }
    let seen = scene.ask(Some(&acme), "GET", "/v1/parks", "").await.is(200).json;
    assert_eq!(seen["parks"], json!([]));
}

#[tokio::test]
async fn a_restricted_operator_touches_no_park_of_others_whatever_name_it_gives() {
    let scene = Scene::new().await;
    let (mine, other) =
        (scene.key(Role::Operator, Some("acme")).await, scene.key(Role::Operator, Some("acme")).await);
    let park = |by: &str, reason: &str| {
        json!({"scope": {"group": "acme"}, "pause": {"by": by, "reason": reason}}).to_string()
    };
    scene.ok("PUT", "/v1/parks", &park("ada", "theirs")).await;
    let own_name = mine.key.name.as_str();
    scene.ok("PUT", "/v1/parks", &park(own_name, "theirs")).await;
    scene.ask(Some(&other), "PUT", "/v1/parks", &park("ada", "another key's")).await.is(204);
    let foreign = format!("ada (key {})", other.key.id);
    for by in ["ada", own_name, &foreign] {
        scene.ask(Some(&mine), "PUT", "/v1/parks", &park(by, "mine")).await.is(204);
        let query = format!("/v1/parks?group=acme&by={}", by.replace(' ', "%20"));
        scene.ask(Some(&mine), "DELETE", &query, "").await.is(204);
        scene.ask(Some(&mine), "DELETE", &query, "").await.is(404);
        let resume = json!({"by": by}).to_string();
        scene.ask(Some(&mine), "POST", "/v1/groups/acme/resume", &resume).await.is(404);
    }
    scene.ask(Some(&mine), "POST", "/v1/groups/acme/pause", r#"{"by":"ada"}"#).await.is(204);
    let all = scene.ok("GET", "/v1/parks", "").await["parks"].clone();
    let told: BTreeSet<(String, String)> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["by"].as_str().unwrap().to_owned(), p["reason"].as_str().unwrap().to_owned()))
        .collect();
    let bound = format!("ada (key {})", mine.key.id);
    let expected = [("ada", "theirs"), (own_name, "theirs"), (&foreign, "another key's"), (&bound, "")];
    assert_eq!(told, expected.map(|(by, reason)| (by.to_owned(), reason.to_owned())).into());
    // As the list shows it, it can be ended.
    let resume = json!({"by": bound}).to_string();
    scene.ask(Some(&mine), "POST", "/v1/groups/acme/resume", &resume).await.is(204);
}

#[tokio::test]
async fn why_does_not_tell_a_tenant_who_stopped_what_all_share() {
    let scene = Scene::new().await;
    let acme = scene.key(Role::Producer, Some("acme")).await;
    let id = scene.ask(Some(&acme), "POST", "/v1/jobs", r#"{"kind":"mail"}"#).await.is(201).text("/id");
    let pause = r#"{"by":"ada","reason":"globex complains","for_ms":3600000}"#;
    scene.ok("POST", "/v1/queues/post/pause", pause).await;
    scene.ok("POST", "/v1/groups/acme/pause", r#"{"by":"bob","reason":"acme asked for it"}"#).await;
    let path = format!("/v1/jobs/{id}/why");
    let full = scene.ok("GET", &path, "").await.to_string();
    assert!(full.contains("globex complains") && full.contains("ada"), "{full}");
    let why = scene.ask(Some(&acme), "GET", &path, "").await.is(200).json;
    let text = why.to_string();
    assert!(!text.contains("globex") && !text.contains("ada"), "{text}");
    assert!(text.contains("acme asked for it") && text.contains("bob"), "what is its own is told: {text}");
    let parks = why["because"]["parks"].as_array().unwrap();
    assert_eq!(parks.len(), 2, "that it is stopped twice is told");
    assert!(parks.iter().any(|p| p["scope"] == json!({"queue": "post"}) && p["until"].is_string()));
}

#[tokio::test]
async fn a_restricted_admin_makes_keys_of_its_tenant_alone() {
    let scene = Scene::new().await;
    let key = scene.key(Role::Admin, Some("acme")).await;
    for body in [r#"{"name":"k","role":"admin"}"#, r#"{"name":"k","role":"producer","tenant":"other"}"#] {
        scene.ask(Some(&key), "POST", "/v1/keys", body).await.is(403);
    }
    let made =
        scene.ask(Some(&key), "POST", "/v1/keys", r#"{"name":"k","role":"admin","tenant":"acme"}"#).await;
    assert!(made.is(201).text("/secret").starts_with("tg_"));
    let worker = r#"{"name":"k","role":"worker","tenant":"acme"}"#;
    assert_eq!(scene.ask(Some(&scene.admin), "POST", "/v1/keys", worker).await.is(422).code(), "TG2008");
    scene.ask(Some(&scene.admin), "POST", "/v1/keys", r#"{"name":" ","role":"admin"}"#).await.is(422);
}

#[tokio::test]
async fn a_key_is_shown_once_and_kept_as_a_hash() {
    let scene = Scene::new().await;
    let made = scene.ok("POST", "/v1/keys", r#"{"name":"shop","role":"producer"}"#).await;
    let secret = made["secret"].as_str().unwrap();
    let private = secret.rsplit('_').next().unwrap();
    assert_eq!(private.len(), 48);
    assert_eq!(made["key"]["last_four"], private[44..]);
    let list = scene.ok("GET", "/v1/keys", "").await.to_string();
    assert!(list.contains("shop") && !list.contains(private) && !list.contains("hash"));
    let records = scene.served.store.records(Shelf::Keys, now()).await.unwrap();
    assert!(records.iter().all(|r| !r.body.contains(private)));
    let created = keys::create(
        &*scene.served.store,
        NewKey { name: "x".into(), role: Role::Admin, tenant: None },
        now(),
    );
    assert!(!format!("{:?}", created.await.unwrap()).contains("secret"));
}

#[tokio::test]
async fn wrong_keys_are_refused_alike() {
    let scene = Scene::new().await;
    let id = &scene.admin.key.id;
    let secret = scene.admin.secret.rsplit('_').next().unwrap();
    let zeros = "0".repeat(48);
    for text in [
        format!("Bearer tg_{id}_{zeros}"),
        format!("Bearer tg_000000000000_{secret}"),
        format!("Bearer tg_{id}_"),
        format!("Bearer tg_{id}"),
        format!("Bearer {secret}"),
        "Bearer ".into(),
        "Bear".into(),
        format!("Basic {}", scene.admin.secret),
        format!("Bearer {}x", scene.admin.secret),
    ] {
        let ask = Ask::new(Method::GET, "/v1/about").header("authorization", &text);
        let refused = scene.served.send(ask).await.is(401);
        assert_eq!(
            (refused.code(), &refused.headers["www-authenticate"]),
            ("TG2015", &"Bearer".parse().unwrap()),
            "{text}"
        );
    }
    let about = scene.ok("GET", "/v1/about", "").await;
    assert_eq!((&about["key"]["id"], &about["key"]["role"]), (&json!(id), &json!("admin")));
}

#[tokio::test]
async fn a_revocation_counts_at_once_here_and_within_a_second_elsewhere() {
    let scene = Scene::new().await;
    let elsewhere = Served::with(scene.served.store.clone(), options()).await;
    let key = scene.served.key(Role::Producer, None).await;
    let about = || Ask::new(Method::GET, "/v1/about").key(&key);
    crate::common::until("the new key is known here", || async {
        scene.served.send(about()).await.status == 200
    })
    .await;
    crate::common::until("the new key is known there", || async {
        elsewhere.send(about()).await.status == 200
    })
    .await;
    scene.ok("DELETE", &format!("/v1/keys/{}", key.key.id), "").await;
    assert!(scene.served.send(about()).await.is(401).text("/detail").contains("revoked"));
    crate::common::until("it is refused there", || async { elsewhere.send(about()).await.status == 401 })
        .await;
    let list = scene.ok("GET", "/v1/keys", "").await;
    let shown =
        list["keys"].as_array().unwrap().iter().find(|k| k["id"] == json!(key.key.id)).unwrap().clone();
    assert!(shown["revoked_at"].is_string());
}

#[tokio::test]
async fn the_first_key_closes_the_door_and_revoking_the_last_does_not_open_it() {
    let served = Served::memory().await;
    served.get("/v1/totals").await.is(200);
    let made = served.post("/v1/keys", json!({"name": "first", "role": "admin"})).await.is(201);
    served.get("/v1/totals").await.is(401);
    served.get("/live").await.is(200);
    let id = made.text("/key/id");
    let bearer = format!("Bearer {}", made.text("/secret"));
    let revoke = Ask::new(Method::DELETE, &format!("/v1/keys/{id}")).header("authorization", &bearer);
    served.send(revoke).await.is(204);
    served.get("/v1/totals").await.is(401);
}

#[tokio::test]
async fn without_keys_web_pages_are_refused() {
    let served = Served::memory().await;
    let host = served.addr.to_string();
    let ask = |headers: &[(&'static str, &str)]| {
        let ask = Ask::new(Method::POST, "/v1/queues").json(&json!({"name": "post"}));
        headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value))
    };
    for bad in [
        vec![("host", "evil.example")],
        vec![("host", "localhost.evil.example:80")],
        vec![("origin", "http://evil.example")],
        vec![("origin", "null")],
        vec![("origin", "http://localhost:1")],
        vec![("sec-fetch-site", "cross-site")],
        vec![("sec-fetch-site", "same-site")],
    ] {
        let refused = served.send(ask(&bad)).await.is(403);
        assert_eq!(refused.code(), "TG2017", "{bad:?}");
    }
    let own = format!("http://{host}");
    for good in [
        vec![],
        vec![("origin", own.as_str())],
        vec![("host", "localhost")],
        vec![("sec-fetch-site", "same-origin")],
    ] {
        served.send(ask(&good)).await.is(204);
    }
    // With keys it is the key that counts.
    let key = served.key(Role::Admin, None).await;
    crate::common::until("the key is known", || async {
        served.send(ask(&[("host", "jobs.example")]).key(&key)).await.status == 204
    })
    .await;
}

#[tokio::test]
async fn a_server_without_keys_is_not_opened_to_the_network() {
    let store = Arc::new(MemoryStore::new());
    let open = || ServerOptions { bind: "0.0.0.0:0".parse().unwrap(), ..options() };
    let refused = Server::bind(store.clone(), open()).await.unwrap_err();
    assert_eq!(refused.code.id, "TG2018");
    assert!(refused.detail.contains("0.0.0.0:0"), "{refused}");
    keys::create(&*store, NewKey { name: "k".into(), role: Role::Admin, tenant: None }, now()).await.unwrap();
    let served =
        Served::with(store, ServerOptions { bind: "127.0.0.1:0".parse().unwrap(), ..options() }).await;
    served.get("/v1/about").await.is(401);
}

#[tokio::test]
async fn each_key_has_its_own_rate() {
    let mut options = options();
    options.limits.rate = Rate::PerSecond(5);
    let served = Served::with(Arc::new(MemoryStore::new()), options).await;
    let (ada, bob) = (served.key(Role::Admin, None).await, served.key(Role::Admin, None).await);
    let mut client = served.connect().await;
    let mut refused = None;
    for _ in 0..50 {
        let reply = client.send(Ask::new(Method::GET, "/v1/about").key(&ada)).await;
        if reply.status == 429 {
            refused = Some(reply.is(429));
            break;
        }
    }
    let refused = refused.expect("more than five at once are refused");
    assert_eq!((refused.code(), &refused.headers["retry-after"]), ("TG4007", &"1".parse().unwrap()));
    client.send(Ask::new(Method::GET, "/v1/about").key(&bob)).await.is(200);
    client.send(Ask::new(Method::GET, "/live")).await.is(200);
}
