//! `tidegate gates`, and gates of `serve` and `work`, as processes of their own.

use crate::common::{Place, Serving, wait_for};

const GATES: &str = r#"
[[gates.shopify.gates]]
name = "slots"
per = ["account"]
gate.slots = { limit = 1 }
[[gates.shopify.gates]]
name = "health"
gate.breaker = { failures = 3 }
"#;

fn enqueue(server: &Serving, place: &Place) -> String {
    let args = ["enqueue", "sync", "--data", "{}", "--tenant", "acme", "--json"];
    let reply = server.run(place, &args).ok().json();
    reply["jobs"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_worker_asks_the_gates_of_its_server_and_operators_see_and_steer_them() {
    let place = Place::default();
    let file = place.file("gates.toml", GATES);
    let server = Serving::start(&place, &["--gates-file", &file]);
    server.run(&place, &["kinds", "set", "sync", "--queue", "default", "--connector", "shopify"]).ok();
    let jobs = [enqueue(&server, &place), enqueue(&server, &place)];
    let go = place.dir.path().join("go");
    let body = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let work = ["work", "--kind", "sync", "--exec", &body, "--gate", "shopify", "--until-idle", "--json"];
    let worker = server.command(&place, &work).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let show = || server.run(&place, &["gates", "show", "shopify", "--json"]).ok().json();
    let named = |list: &str| show()[list][0]["holder"].as_str().map(str::to_owned);
    wait_for("one that holds and one that waits", || {
        named("holders").is_some() && named("waiters").is_some()
    });
    let holds = named("holders").unwrap();
    let waits = jobs.into_iter().find(|id| *id != holds).unwrap();
    let why = server.run(&place, &["why", &waits]).ok().out;
    assert!(why.contains("gate slots of shopify/") && why.contains("slots 1 of 1"), "{why}");
    let table = server.run(&place, &["gates", "ls"]).ok().out;
    assert!(table.contains("DOMAIN") && table.contains("shopify"), "{table}");
    let shown = server.run(&place, &["gates", "show", "shopify"]).ok().out;
    for set in ["1 at a time", "none", "all; after 3 failures in 1 m none for 1 m", "by its own count"] {
        assert!(shown.contains(set), "what gates are set to is shown: {shown}");
    }
    for width in ["gates ls", "gates show shopify", "gates usage"] {
        let args: Vec<&str> = width.split(' ').collect();
        let mut command = server.command(&place, &args);
        let text = crate::common::finished(command.env("COLUMNS", "80")).ok().out;
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    let dry = ["gates", "release", &holds, "--dry-run", "--reason", "test", "--json"];
    let dry = server.run(&place, &dry).ok().json();
    assert_eq!((&dry["released"], &dry["permits"][0]["holder"]), (&false.into(), &holds.clone().into()));
    let asked = server.run(&place, &["gates", "release", &holds, "--reason", "test"]);
    assert_eq!(asked.code, 2, "what destroys asks first: {}", asked.err);
    server.run(&place, &["gates", "promote", &waits, "--reason", "on the phone", "--by", "ada"]).ok();
    let release = ["gates", "release", &holds, "--yes", "--reason", "stuck", "--by", "ada", "--json"];
    assert_eq!(server.run(&place, &release).ok().json()["released"], true);
    std::fs::write(&go, "").unwrap();
    let ended = worker.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["attempts"]["completed"], &report["attempts"]["failed"]), (&2.into(), &0.into()));

    let slo = server.run(&place, &["slo", "--json"]).ok().json();
    assert_eq!((&slo["met"], &slo["processes"]), (&true.into(), &1.into()), "{slo}");
    let metrics = server.run(&place, &["gates", "metrics", "shopify", "--json"]).ok().json();
    let counts = &metrics["domains"][0]["counts"];
    assert_eq!(
        (&counts["reserved"], &counts["released"], &counts["promoted"]),
        (&2.into(), &2.into(), &1.into())
    );
    assert_eq!(metrics["domains"][0]["tenants"][0]["tenant"], "acme");
    let lives = server.run(&place, &["gates", "trace", "shopify", "--holder", &waits, "--json"]).ok().json();
    let events: Vec<&str> = lives["traces"][0]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    assert!(events.starts_with(&["asked", "waited"]) && events.ends_with(&["settled"]), "{events:?}");
    assert!(events.contains(&"promoted") && events.contains(&"admitted"), "{events:?}");
    let diagram = server.run(&place, &["gates", "trace", "shopify", "--mermaid"]).ok().out;
    assert!(diagram.starts_with("sequenceDiagram\n") && diagram.contains(&waits), "{diagram}");
    for command in ["slo", "slo --rules", "gates metrics", "gates trace shopify"] {
        let args: Vec<&str> = command.split(' ').collect();
        let text = crate::common::finished(server.command(&place, &args).env("COLUMNS", "80")).ok().out;
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    let disable =
        ["gates", "disable", "shopify", "slots", "--yes", "--reason", "sale", "--by", "ada", "--json"];
    assert_eq!(server.run(&place, &disable).ok().json()["off"][0]["gate"], "slots");
    let table = server.run(&place, &["gates", "ls"]).ok().out;
    assert!(table.contains("slots off by ada: sale"), "{table}");
    server.run(&place, &["gates", "enable", "shopify", "--reason", "over"]).ok();
    let trip = ["gates", "breaker", "trip", "shopify", "health", "--for", "1m", "--yes", "--reason", "down"];
    server.run(&place, &trip).ok();
    let table = server.run(&place, &["gates", "ls"]).ok().out;
    assert!(table.contains("health open for all") && table.contains("left, by"), "{table}");
    let ls = server.run(&place, &["gates", "ls", "--json"]).ok().json();
    let order = &ls["domains"][0]["orders"][0];
    assert_eq!((&order["gate"], &order["reason"]), (&"health".into(), &"down".into()), "{ls}");
    let doctor = server.run(&place, &["doctor"]).ok().out.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = doctor.contains("shopify: health open for all") && doctor.contains("docs/runbooks/breaker.md");
    assert!(says, "{doctor}");
    let shown = server.run(&place, &["gates", "show", "shopify"]).ok().out;
    assert!(shown.contains("health open for all"), "{shown}");
    let one = ["gates", "breaker", "reset", "shopify", "health", "--only", "(all)", "--reason", "x"];
    let one = server.run(&place, &one);
    assert!(one.code == 2 && one.err.contains("reset it for all of them"), "{}", one.err);
    let breach = server.run(&place, &["slo"]);
    assert_eq!(breach.code, 4, "{}", breach.out);
    assert!(
        breach.out.contains("✗ shopify: 1 open") && breach.out.contains("docs/runbooks/breaker.md"),
        "{}",
        breach.out
    );
    server.run(&place, &["gates", "breaker", "reset", "shopify", "health", "--reason", "back"]).ok();
    for (args, says) in [
        ("gates breaker trip shopify slots --yes --reason x", "gate slots of shopify is no breaker"),
        ("gates breaker reset shopify slots --reason x", "its breakers: health"),
        ("gates breaker trip shopify helth --yes --reason x", "did you mean health?"),
        ("gates breaker trip shopify health --only acme --yes --reason x", "it has no key \"acme\""),
        ("gates breaker trip shopify helth --dry-run --reason x", "did you mean health?"),
        ("gates disable shopify slot --dry-run --reason x", "did you mean slots?"),
        ("gates promote job_x --domain shopify --reason x", "does not wait in shopify"),
        ("gates metrics shopfy", "did you mean shopify?"),
        ("gates show shopfy", "did you mean shopify?"),
        ("gates disable shopify slot --yes --reason x", "did you mean slots?"),
    ] {
        let refused = server.run(&place, &args.split(' ').collect::<Vec<_>>());
        assert!(refused.code == 3 && refused.err.contains(says), "{args}: {}", refused.err);
    }
    let clear = ["gates", "clear", "shopify", "--yes", "--reason", "anew", "--json"];
    assert_eq!(server.run(&place, &clear).ok().json()["cleared"], true);
    let changes = show()["changes"].as_array().unwrap().len();
    assert_eq!(changes, 7, "promote, release, disable, enable, trip, reset, clear");
    let unknown = server.run(&place, &["gates", "show", "gopher"]);
    assert!(unknown.code == 3 && unknown.err.contains("`tidegate gates ls`"), "{}", unknown.err);
    assert_eq!(server.stop(), 0);
}

#[test]
fn bad_settings_are_refused_with_file_path_and_hint() {
    let place = Place::default();
    for (text, path) in [
        (
            "[[gates.api.gates]]\nname = \"a\"\ngate.window = { max = 0, every = \"1s\" }\n",
            "gates.api.gates[0].window.max",
        ),
        (
            "[[gates.api.gates]]\nname = \"a\"\ngate.smooth = { rate = -1, every = \"1s\", burst = 1 }\n",
            "gates.api.gates[0].smooth.rate",
        ),
        (
            "[[gates.api.gates]]\nname = \"a\"\ngate.reported = { capacity = nan, restore_per_s = 1 }\n",
            "gates.api.gates[0].reported.capacity",
        ),
        ("[[gates.api.gates]]\nname = \"a\"\ngate.leaky = {}\n", "unknown variant `leaky`"),
    ] {
        let file = place.file("wrong.toml", text);
        let ran = place.run(&["serve", "--bind", "127.0.0.1:0", "--gates-file", &file]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("wrong.toml") && ran.err.contains(path) && ran.err.contains("hint:"),
            "{}",
            ran.err
        );
        assert!(!place.data().exists(), "nothing was made");
    }
    let ran = place.run(&["work", "--kind", "x", "--exec", "true", "--gate", "api", "--gates", "gopher://x"]);
    assert!(ran.code == 2 && ran.err.contains("--gates"), "{}", ran.err);
    let here = place.run(&["gates", "ls"]);
    assert!(here.code == 3 && here.err.contains("--store http://"), "{}", here.err);
}

/// A certificate for `localhost`, by a signer that only this test knows. Its key is good for nothing but tests.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store-postgres/src/tests/tls");

#[test]
fn gates_on_an_encrypted_redis_are_reached_by_who_trusts_its_certificate_alone() {
    let port = tidegate_testbed::free_port().unwrap();
    let tls = [
        format!("tls-port {port}"),
        format!("tls-cert-file {TLS}/server.pem"),
        format!("tls-key-file {TLS}/server.key"),
        format!("tls-ca-cert-file {TLS}/ca.pem"),
        "tls-auth-clients no".to_owned(),
    ];
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let _redis = tidegate_testbed::redis::Server::start(&tls).unwrap();
    let place = Place::default();
    let file = place.file("gates.toml", GATES);
    let ask = |host: &str, trusted: &str| {
        let address = format!("rediss://{host}:{port}");
        let args = ["gates", "ls", "--gates", &address, "--gates-file", &file, "--json"];
        crate::common::finished(place.command(&args).env("SSL_CERT_FILE", format!("{TLS}/{trusted}")))
    };
    let known = ask("localhost", "ca.pem").ok().json();
    assert_eq!(known["domains"][0]["domain"], "shopify", "{known}");
    for (host, trusted) in [("127.0.0.1", "ca.pem"), ("localhost", "server.pem")] {
        let refused = ask(host, trusted);
        assert!(refused.code == 5 && refused.err.contains("certificate"), "{host}: {}", refused.err);
    }
}

#[test]
fn a_switch_without_the_backend_says_where_it_holds_and_holds_there() {
    let mut redis = tidegate_testbed::redis::Server::start(&[]).unwrap();
    let place = Place::default();
    let file = place.file("gates.toml", "[[gates.sap.gates]]\nname = \"lock\"\ngate.lock = {}\n");
    let server = Serving::start(&place, &["--gates-file", &file, "--gates", &redis.url()]);
    server.run(&place, &["kinds", "set", "sync", "--queue", "default", "--connector", "sap"]).ok();
    redis.stop().unwrap();
    let show = || server.run(&place, &["gates", "show", "sap", "--json"]);
    wait_for("the server to notice", || show().code == 5);
    for _ in 0..2 {
        for lever in ["enable", "disable"] {
            let yes: &[&str] = if lever == "disable" { &["--yes"] } else { &[] };
            let said = server
                .run(&place, &[&["gates", lever, "sap", "lock", "--reason", "we are alone"], yes].concat());
            let err = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.code == 5 && err.contains("error[TG5011]"), "{err}");
            assert!(
                err.contains("in the process that was asked it holds until the backend is back"),
                "{err}"
            );
        }
    }
    // A lock lets nothing pass while the backend is away, unless it is switched off.
    let id = enqueue(&server, &place);
    server.run(&place, &["work", "--kind", "sync", "--exec", "true", "--gate", "sap", "--until-idle"]).ok();
    assert_eq!(server.run(&place, &["jobs", "show", &id, "--json"]).ok().json()["state"], "completed");
    redis.resume().unwrap();
    // Nobody told the backend.
    wait_for("the lock to be on again", || show().code == 0 && show().json()["off"] == serde_json::json!([]));
}
