//! `smcp why`: what a run was denied, and the flag that would grant it. And the host's proxy, which must not be told.

use serde_json::{Value, json};

use crate::image::{Image, probe_reference};
use crate::world::{SECRET, World, as_each_user};

as_each_user! {
    what_was_withheld_is_told_with_its_flag,
    refusals_are_counted_and_told_with_their_flags,
    a_run_that_is_not_there,
    a_proxy_that_cannot_be_used_stops_what_would_use_it,
}

fn what_was_withheld_is_told_with_its_flag(world: &World) {
    let asks = Image::probe().manifest(|m| m["permissions"] = json!({"network": {"outbound": ["10.0.0.1:80"]}}));
    let reference = asks.build().write(&world.directory("asks"));
    world.smcp(["run", "--quiet", &reference, "exit", "3"]).run().expect(3);
    let told = world.smcp(["why", "--json"]).run().ok().json();
    assert_eq!(told["reference"], json!(reference));
    assert_eq!((&told["exit"], &told["ended"]), (&json!(3), &json!(true)));
    assert_eq!(told["withheld"][0]["hint"], "--allow-net 10.0.0.1:80", "{told}");
    assert_eq!(told["denied"], json!([]));
    let people = world.smcp(["why"]).run().ok();
    for line in ["withheld   network 10.0.0.1:80: ", "           --allow-net 10.0.0.1:80\n", " with exit code 3"] {
        people.check(people.text().contains(line), line);
    }
    // The newest run, and any other by its name.
    world.smcp(["run", probe_reference(), "exit", "0"]).run().ok();
    let newest = world.smcp(["why"]).run().ok();
    newest.check(newest.text().contains("denied     nothing that smcp saw"), "the newest run was expected");
    let named = world.smcp(["why", "--json", told["run"].as_str().unwrap()]).run().ok();
    assert_eq!(named.json(), told);
    // What stopped a run.
    world.caged(&["--allow-read", "/"], &["exit", "0"]).run().expect(121);
    let stopped = world.smcp(["why"]).run().ok();
    stopped.check(stopped.text().contains("error      --allow-read /: `/` is never granted"), "the error was expected");
}

/// A log as runs leave it, of one that ended and one that did not.
fn refusals_are_counted_and_told_with_their_flags(world: &World) {
    let line = |run: &str, event: &str, more: Value| {
        let mut entry = json!({"run": run, "seq": 1, "prev": null, "time": "2026-01-01T00:00:00Z", "event": event});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{entry}\n")
    };
    let (first, second) = ("01KB0000000000000000000001", "01KB0000000000000000000002");
    let refused =
        |host: &str, flag: &str| json!({"host": host, "port": 80, "why": "port-not-granted", "count": 1, "flag": flag});
    let counted = json!([
        {"host": "a.test", "port": 80, "why": "port-not-granted", "count": 7},
        {"host": "evil\u{1b}[2J", "why": "name-not-granted", "count": 2},
    ]);
    let log = [
        line(first, "begin", json!({"reference": "a/one", "withheld": []})),
        line(second, "begin", json!({"reference": "a/two"})),
        line(first, "denied", refused("a.test", "--allow-net a.test:80")),
        line(second, "denied", refused("b.test", "--allow-net b.test:80")),
        "{\"run\":\"torn\n".to_owned(),
        line(first, "denied", json!({"host": "evil\u{1b}[2J", "why": "name-not-granted", "count": 1})),
        line(
            first,
            "end",
            json!({"exit": 0, "cause": "exited", "egress": {"granted": [], "refused": counted, "refused_more": 5}}),
        ),
    ];
    world.file("log/audit.log", log.concat());
    let told = world.smcp(["why", "--json", &first.to_lowercase()]).run().ok().json();
    let denied = |number: usize, key: &str| told["denied"][number][key].clone();
    assert_eq!((denied(0, "count"), denied(0, "flag")), (json!(7), json!("--allow-net a.test:80")));
    assert_eq!((denied(1, "count"), denied(1, "flag")), (json!(2), Value::Null));
    assert_eq!(told["deniedMore"], 5);
    let people = world.smcp(["why", first]).run().ok();
    for line in [
        "denied     a.test port 80: port not granted, 7 time(s)\n           --allow-net a.test:80\n",
        "denied     5 more",
    ] {
        people.check(people.text().contains(line), line);
    }
    people.check(!people.text().contains('\u{1b}'), "nothing of a server steers the terminal");
    // The newest begin is of a run that goes on.
    let newest = world.smcp(["why"]).run().ok();
    for line in ["ended      not yet", "denied     b.test port 80: port not granted, 1 time(s)"] {
        newest.check(newest.text().contains(line), line);
    }
}

fn a_run_that_is_not_there(world: &World) {
    world.smcp(["why"]).run().expect(2).explains(&["audit.log", "no run yet"]);
    world.caged(&[], &["exit", "0"]).run().ok();
    world.smcp(["why", "01KB0000000000000000000001"]).run().expect(2).explains(&["01KB0000000000000000000001"]);
}

/// N10: a proxy with a password is for what connects out alone, and its URL is in no output, plan or log.
fn a_proxy_that_cannot_be_used_stops_what_would_use_it(world: &World) {
    let url = format!("https://user:{SECRET}@proxy.test:1");
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "MCP_PROXY_HTTPS"] {
        let run = |flags: &[&str]| world.caged(flags, &["exit", "0"]).env(variable, &url).run();
        run(&[]).ok();
        let ended = run(&["--allow-net", "a.test"]).expect(119);
        ended.explains(&["the host's proxy", "https://", "HTTPS_PROXY"]);
        ended.check(!ended.stderr().contains(SECRET), "the password was shown");
        let plan = run(&["--dry-run", "--json", "--allow-net", "a.test"]).ok();
        plan.check(!plan.text().contains(SECRET) && !plan.text().contains("proxy.test"), "the proxy is not the plan's");
    }
    for file in [
        format!("proxy: {{https: \"{url}\"}}\n"),
        format!("proxy:\n  htps: \"{url}\"\n"),
        format!("proxy: [\"{url}\"]\n"),
    ] {
        let file = world.file("home/config.yaml", file);
        let ended = world.caged(&["--allow-net", "a.test"], &["exit", "0"]).env("MCP_CONFIG", &file).run().expect(119);
        ended.explains(&["error: ", "hint: "]);
        ended.check(!ended.stderr().contains(SECRET), "the password was shown");
    }
    assert!(!world.audit_text().contains(SECRET), "{}", world.audit_text());
}
