//! `smcp audit report`: a page about the log that a browser shows, whatever stands in the log.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::long_log::{LongLog, report};
use crate::place;
use crate::violent_ends::Dice;
use crate::world::{User, World, as_each_user};

as_each_user! { the_page_is_about_real_runs, a_broken_chain_is_on_the_page_and_in_the_exit_code }

fn the_page_is_about_real_runs(world: &World) {
    world.caged(&["--allow-read", &world.text("project")], &["exit", "0"]).run().ok();
    world.caged(&["--allow-write", &world.text("private")], &["exit", "3"]).run().expect(3);
    world.smcp(["run", "oci-layout:/nowhere:v1"]).run();
    let (page, text) = report(world, &[], 0);
    assert_eq!(fs::metadata(page).unwrap().permissions().mode() & 0o777, 0o600, "as private as the log");
    for word in
        ["The chain of the log holds.", "oci-layout:/nowhere", "new grant", &format!("write {}", world.text("private"))]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.contains("<dt>Runs</dt><dd>3 "), "{text}");
    let (_, text) = report(world, &["--since", "2999-01-01T00:00:00Z"], 0);
    assert!(text.contains("<dt>Runs</dt><dd>0 ") && text.contains("entries since 2999-01-01"), "{text}");
}

fn a_broken_chain_is_on_the_page_and_in_the_exit_code(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let log = world.path("log/audit.log");
    let changed = world.audit_text().replacen("\"event\":\"end\"", "\"event\":\"End\"", 1);
    fs::write(&log, changed).unwrap();
    let (_, text) = report(world, &[], 1);
    assert!(text.contains("The chain of the log is broken.") && text.contains("changed: it is not the line"), "{text}");
    world.smcp(["audit", "report", "--html", "/nowhere/page.html"]).run().expect(2).says(&["/nowhere/page.html"]);
    fs::remove_file(log).unwrap();
    let (_, text) = report(world, &[], 1);
    assert!(text.contains("cut off: after it"), "{text}");
}

/// What a package may call itself, and where it may try to connect to.
const HOSTILE: &str =
    "</script><img src=x onerror=alert(1)>\"'><style>*{display:none}</style>\u{202e}\u{1b}[31m\u{0}\u{200b}&lt;";

/// A hundred days of a team, and one package that wants to be something else than text.
fn days_of_a_team(world: &World, runs: u32) {
    let mut log = LongLog::new(world);
    let mut dice = Dice(7);
    let packages = [
        ("npm:@modelcontextprotocol/server-filesystem", json!(2), json!(91), json!("sigstore:acme/security")),
        ("npm:@modelcontextprotocol/server-memory", json!(1), json!(84), json!(null)),
        ("pypi:mcp-server-time", json!(3), json!(97), json!("key:certifier.pub")),
        ("pypi:mcp-server-git", json!(1), json!(78), json!(null)),
        ("ghcr.io/acme/tickets", json!(2), json!(88), json!("key:certifier.pub")),
        ("mcp:io.github.example/search", json!(0), json!(null), json!(null)),
        ("oci-layout:/home/me/mcp", json!(0), json!(null), json!(null)),
    ];
    let start: jiff::Timestamp = "2026-08-20T06:00:00Z".parse().expect("it is a time");
    for number in 0..runs {
        let at = start + jiff::SignedDuration::from_secs(i64::from(number) * 8_800_000 / i64::from(runs));
        let (name, level, score, certifier) = &packages[dice.below(packages.len()).min(dice.below(9))];
        let hostile = number % 97 == 40;
        let version = format!("1.{}", number * 4 / runs);
        let name = if hostile { format!("npm:{HOSTILE}") } else { format!("{name}@{version}") };
        let run = format!("01M8{number:022}");
        let mounts = match (number * 5 / runs, dice.below(3)) {
            (3, 0) => json!([{"source": "/home/me/.ssh", "access": "ro"}]),
            _ => json!([{"source": "/home/me/project", "access": "rw"}]),
        };
        let cgroup = ["full", "absent: no cgroup can be made: /sys/fs/cgroup: Permission denied (os error 13)"]
            [dice.below(5) / 4];
        let policy = match dice.below(30) {
            0 => {
                json!({"verdict": "denied", "reasons": ["level 0 is less than the least, 1 (min_cert_level, /etc/smcp/policy.yaml line 3)"]})
            }
            _ => json!({"verdict": "granted"}),
        };
        let caller = ["/usr/share/code/code", "/opt/Claude/claude-desktop", "/usr/bin/cursor"][dice.below(3)];
        let landlock = if hostile { json!(format!("partial: {HOSTILE}")) } else { json!("full") };
        log.entry(json!({
            "event": "begin", "run": run, "time": at.to_string(), "reference": name, "name": name, "level": level, "score": score,
            "certifier": certifier, "signers": if level == &json!(0) { json!([]) } else { json!(["key:a.pub"]) },
            "digest": format!("sha256:{:064}", dice.below(4)), "tier": if cgroup == "full" { 3 } else { 2 }, "host": "laptop-17", "user": 1000, "policy": policy,
            "caller": {"pid": 1, "program": caller},
            "layers": {"user-namespace": "full", "landlock": landlock, "seccomp": "full", "cgroup": cgroup},
            "grants": {"mounts": mounts, "env": ["HOME", "PATH"], "subprocess": false, "network": {"outbound": ["api.example.test:443"]}},
        }));
        let mut end = json!({"event": "end", "run": run, "time": (at + jiff::SignedDuration::from_secs(60)).to_string(), "exit": 0, "cause": "client-closed"});
        match dice.below(14) {
            0 => (end["cause"], end["exit"]) = (json!("exited"), json!(1)),
            1 => {
                (end["cause"], end["exit"]) = (json!("memory"), json!(137));
                end["limit"] = json!({"name": "memory", "value": 536_870_912});
            }
            2 => {
                (end["cause"], end["exit"]) = (json!("denied"), json!(121));
                end["error"] = json!("the level 0 is below min_cert_level 1");
            }
            3 | 4 => {
                let host = if hostile {
                    HOSTILE
                } else {
                    ["telemetry.example.test", "169.254.169.254", "pastebin.example.test"][dice.below(3)]
                };
                let refused = json!({"host": host, "port": 443, "why": "name-not-granted", "count": 1});
                let mut denied = refused.clone();
                (denied["event"], denied["run"], denied["time"]) = (json!("denied"), json!(run), json!(at.to_string()));
                log.entry(denied);
                let mut counted = refused;
                counted["count"] = json!(1 + dice.below(40));
                end["egress"] = json!({"refused": [counted], "refused_more": 0});
            }
            5 if dice.below(20) == 0 => log.entry(json!({
                "event": "changed", "run": run, "time": at.to_string(), "kind": "tools", "withheld": true,
                "changes": ["send_mail: new", format!("search: description changed to {HOSTILE}")],
            })),
            _ => {}
        }
        log.entry(end);
    }
    log.end();
}

/// Ratios of contrast below what WCAG asks of text, as texts.
const CONTRAST: &str = r#"(() => {
  const rgb = text => text.match(/[\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 });
    return .2126 * r + .7152 * g + .0722 * b };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c }
    return [255, 255, 255] };
  const weak = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.tagName === 'title') continue;
    const style = getComputedStyle(e);
    const [one, other] = [light(rgb(e.closest('svg') ? style.fill : style.color).slice(0, 3)), light(behind(e).slice(0, 3))].sort((a, b) => b - a);
    const ratio = (one + .05) / (other + .05);
    if (ratio < 4.5) weak.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [...weak];
})()"#;

/// The page in a real browser: light and dark, by keyboard and on paper.
#[test]
fn a_browser_shows_the_page() {
    let world = World::new(User::of_the_tests());
    let Some(mut browser) = Browser::start(&world.path("tmp")) else { return };
    days_of_a_team(&world, 3000);
    let (page, text) = report(&world, &[], 0);
    for mark in [
        "<script", "<img", "<link", "<iframe", "<style>*", "http://", "https://", "url(", "\u{202e}", "\u{1b}",
        "\u{0}", "\u{200b}",
    ] {
        assert!(!text.contains(mark), "{mark:?}");
    }
    browser.size(1280, 900);
    browser.media("screen", "light");
    browser.show(&page);

    let words = browser.value("document.body.textContent");
    let shown = "</script><img src=x onerror=alert(1)>\"'><style>*{display:none}</style>\\u{202e}\\u{1b}[31m\\u{0}\\u{200b}&lt;";
    assert!(words.as_str().is_some_and(|words| words.contains(shown)), "names are text");
    assert_eq!(browser.value("document.querySelectorAll('body style, img, script, [onerror]').length"), 0);
    assert_eq!(browser.value("document.title"), "smcp audit report");

    let seen = place::directory("report");
    let mut pictures = BTreeSet::new();
    for scheme in ["light", "dark"] {
        browser.media("screen", scheme);
        let picture = browser.picture();
        fs::write(seen.join(format!("{scheme}.png")), &picture).unwrap();
        assert!(pictures.insert(picture), "{scheme} is a picture of its own");
        assert_eq!(browser.value(CONTRAST), json!([]), "{scheme}");
    }
    // A narrow window scrolls its tables and not the page.
    browser.size(390, 800);
    assert_eq!(browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), true);
    fs::write(seen.join("narrow.png"), browser.picture()).unwrap();
    browser.size(1280, 900);

    every_stop_is_reached_by_tab(&mut browser);

    browser.media("print", "dark");
    assert_eq!(browser.value("getComputedStyle(document.querySelector('nav')).display"), "none");
    assert_eq!(browser.value("getComputedStyle(document.documentElement).backgroundColor"), "rgb(255, 255, 255)");
    assert_eq!(browser.value(CONTRAST), json!([]), "on paper");
    let printed = browser.printed();
    assert!(printed.starts_with(b"%PDF-") && printed.len() > 20_000, "{} bytes", printed.len());
    fs::write(seen.join("report.pdf"), printed).unwrap();

    let of = |methods: &[&str]| -> Vec<&Value> {
        browser.events.iter().filter(|event| methods.iter().any(|method| event["method"] == *method)).collect()
    };
    let said = of(&["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"]);
    assert!(said.is_empty(), "{said:#?}");
    let asked: Vec<_> =
        of(&["Network.requestWillBeSent"]).iter().map(|event| event["params"]["request"]["url"].clone()).collect();
    assert_eq!(asked, [json!(format!("file://{}", page.display()))], "the page alone is loaded");
}

/// Tab goes through all that can be used, in its order on the page, and what has the focus can be told.
fn every_stop_is_reached_by_tab(browser: &mut Browser) {
    let name = "(e => e.tagName + ' ' + (e.getAttribute('href') || e.getAttribute('aria-label') || e.textContent))";
    let stops = browser.value(&format!(
        "[...document.querySelectorAll('a, summary, [tabindex]')].filter(e => e.checkVisibility()).map({name})"
    ));
    let stops = stops.as_array().expect("it is a list").clone();
    assert!(stops.len() > 15, "{stops:?}");
    assert_eq!(stops[0], "A #report", "the way past the links comes first");
    for stop in stops {
        browser.press("Tab", 9);
        assert_eq!(browser.value(&format!("{name}(document.activeElement)")), stop);
        let outlined = browser.value("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outlined, "solid", "{stop}");
    }
}

/// A log of a hundred thousand runs: memory and page are bounded, and what is left out is said.
#[test]
fn a_hundred_thousand_runs_are_one_page() {
    let world = World::new(User::Ordinary);
    let mut log = LongLog::new(&world);
    for number in 0..100_000_u32 {
        let run = format!("01M8{number:022}");
        let time =
            format!("20{:02}-{:02}-{:02}T12:00:00Z", 16 + number / 10_000, 1 + number / 800 % 12, 1 + number % 28);
        // No two are the same, which is the worst for whoever keeps rows.
        log.entry(json!({
            "event": "begin", "run": run, "time": time, "reference": format!("npm:package-{number}-{}", "x".repeat(300)), "level": 1, "score": 50,
            "caller": {"program": format!("/bin/{number}")}, "host": format!("host-{number}"), "policy": {"reasons": [format!("reason {number}")]},
            "layers": {"cgroup": format!("absent: {number} {}", "<".repeat(400))},
        }));
        log.entry(json!({"event": "end", "run": run, "time": time, "exit": 0, "cause": format!("cause {number}")}));
    }
    log.end();
    let length = fs::metadata(world.path("log/audit.log")).unwrap().len();
    assert!(length > 100 << 20, "{length}");
    let page = world.path("project/report.html");
    // Of all that it maps, the program's own file is a third.
    let limited = world.program("/bin/sh", ["-c", "ulimit -v 260000; exec \"$0\" \"$@\""]);
    limited.args([place::smcp()]).args(["audit", "report", "--html"]).args([&page]).run().ok();
    let text = fs::read_to_string(page).unwrap();
    assert!(text.len() < 8 << 20, "{}", text.len());
    assert!(text.contains("<dt>Runs</dt><dd>100,000 "), "{}", &text[..20_000]);
    for left_out in ["800 row(s) more are left out of this page.", "99,000 time(s) there was more than is kept apart"] {
        assert!(text.contains(left_out), "{left_out}");
    }
}
