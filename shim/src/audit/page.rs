//! The page of `smcp audit report --html`: one file without a script, which loads nothing.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use distribution::Digest;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use runtime::journal::Verdict;

use super::html::{Html, grouped};
use super::summary::{Change, Kind, Outcome, Package, Rows, Summary, Tally};

/// Its style, which the page's own policy names by hash.
const STYLE: &str = include_str!("page.css");
/// How many rows a table has.
const ROWS: usize = 200;
/// Bytes at which tables get no more rows: any browser shows as much at once.
const FULL: usize = 6 << 20;

/// What is told of besides what stands in the log.
pub struct About<'a> {
    /// Where the log is.
    pub log: &'a Path,
    /// When the page was made.
    pub now: Timestamp,
    /// Since when entries count, where not all do.
    pub since: Option<Timestamp>,
    /// What the chain is worth.
    pub verdict: &'a Verdict,
}

/// Writes the page.
pub fn page(about: &About<'_>, summary: &Summary) -> String {
    let mut html = Html::default();
    head(&mut html);
    title(&mut html, about, summary);
    tiles(&mut html, about, summary);
    over_time(&mut html, summary);
    packages(&mut html, summary);
    layers(&mut html, summary);
    denied(&mut html, summary);
    limits(&mut html, summary);
    refusals(&mut html, summary);
    changes(&mut html, summary);
    who(&mut html, summary);
    integrity(&mut html, about, summary);
    html.mark("</main>\n<footer>Made by <code>smcp audit report</code>, smcp ")
        .text(env!("CARGO_PKG_VERSION"))
        .mark(". This page loads nothing and has no script. Names, hosts and errors are as servers, packages and users gave them; characters that are not to be seen are written as <code>\\u{…}</code>. Times are UTC.</footer>\n</body>\n</html>\n");
    html.end()
}

fn head(html: &mut Html) {
    html.mark("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
        .mark("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-")
        .text(&hash_of_style())
        .mark("'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n")
        .mark("<meta name=\"color-scheme\" content=\"light dark\">\n<title>smcp audit report</title>\n<style>")
        .mark(STYLE)
        .mark("</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#report\">Skip to the report</a>\n");
}

fn hash_of_style() -> String {
    let digest = Digest::of(STYLE);
    let byte = |at: usize| u8::from_str_radix(&digest.hex()[at..at + 2], 16).expect("a digest is hexadecimal");
    let bytes: Vec<u8> = (0..digest.hex().len()).step_by(2).map(byte).collect();
    STANDARD.encode(bytes)
}

fn title(html: &mut Html, about: &About<'_>, summary: &Summary) {
    html.mark("<header>\n<h1>smcp audit report</h1>\n<p class=\"quiet\"><code>")
        .text(&about.log.to_string_lossy())
        .mark("</code>, ")
        .text(&of_when(about, summary))
        .mark(". Made ")
        .text(&minute(Some(about.now)))
        .mark(".</p>\n<nav aria-label=\"Sections\"><ul>");
    for (id, name) in SECTIONS {
        html.mark("<li><a href=\"#").mark(id).mark("\">").mark(name).mark("</a></li>");
    }
    html.mark("</ul></nav>\n</header>\n<main id=\"report\">\n");
    let verdict = about.verdict;
    let findings = verdict.findings.len() as u64 + verdict.more;
    let (class, word) = match (findings, verdict.entries) {
        (0, 0) => ("mild", "The log is empty."),
        (0, _) => ("good", "The chain of the log holds."),
        _ => ("bad", "The chain of the log is broken."),
    };
    html.mark("<div class=\"verdict ")
        .mark(class)
        .mark("\" id=\"verdict\"><strong>")
        .mark(word)
        .mark("</strong> <span>");
    match findings {
        0 => html.text(&format!("{} entries in {} file(s) were checked.", grouped(verdict.entries), verdict.files)),
        _ => html
            .text(&format!("{} finding(s) in {} entries: ", grouped(findings), grouped(verdict.entries)))
            .mark("<a href=\"#integrity\">where</a>. What this page says is what is left in the log."),
    };
    html.mark("</span></div>\n");
}

const SECTIONS: [(&str, &str); 9] = [
    ("time", "Runs over time"),
    ("packages", "Packages"),
    ("layers", "Layers not full"),
    ("denied", "Denied egress"),
    ("limits", "Limits hit"),
    ("refused", "Refused runs"),
    ("changes", "Permission changes"),
    ("who", "Who started them"),
    ("integrity", "Integrity"),
];

fn of_when(about: &About<'_>, summary: &Summary) -> String {
    let since = about.since.map_or(String::new(), |since| format!("entries since {}: ", minute(Some(since))));
    match summary.period {
        None => format!("{since}no entries"),
        Some((first, last)) => format!("{since}{} to {}", minute(Some(first)), minute(Some(last))),
    }
}

fn section(html: &mut Html, id: &'static str) {
    let name = SECTIONS.iter().find(|(section, _)| *section == id).map_or("", |(_, name)| name);
    html.mark("<h2 id=\"").mark(id).mark("\">").mark(name).mark("</h2>\n");
}

fn tiles(html: &mut Html, about: &About<'_>, summary: &Summary) {
    let packages = || summary.packages.iter().map(|(_, package)| package);
    let of = |outcome: Outcome| summary.outcomes[outcome as usize];
    let open = summary.open.len() as u64 + summary.forgotten;
    let attempts: u64 = packages().flat_map(|package| package.denied.iter()).map(|(_, tally)| tally.times).sum();
    let destinations: u64 = packages().map(|package| package.denied.len() as u64 + package.denied.beyond).sum();
    let changes = summary.changes.len() as u64 + summary.older_changes;
    let findings = about.verdict.findings.len() as u64 + about.verdict.more;
    let tiles: [(&'static str, u64, String); 6] = [
        ("Runs", summary.runs, format!("{} ended well, {} without an end", grouped(of(Outcome::Well)), grouped(open))),
        (
            "Packages",
            summary.packages.len() as u64,
            format!("{} machine(s), {} call(s) of tools", summary.hosts.len(), grouped(summary.calls)),
        ),
        ("Runs with a layer not full", summary.not_full, format!("{} kinds of lack", summary.layers.len())),
        ("Destinations denied", destinations, format!("{} attempts", grouped(attempts))),
        ("Ended by a limit", of(Outcome::Limit), format!("{} refused before the start", grouped(of(Outcome::Refused)))),
        ("Permission changes", changes, format!("{} finding(s) in the chain", grouped(findings))),
    ];
    html.mark("<dl class=\"tiles\">\n");
    for (name, number, more) in tiles {
        html.mark("<div><dt>").mark(name).mark("</dt><dd>").number(number);
        html.mark(" <small>").text(&more).mark("</small></dd></div>\n");
    }
    html.mark("</dl>\n");
}

/// A bar and what it is made of.
struct Bar {
    name: String,
    parts: [u64; 4],
}

/// How many bars there are at most.
const BARS: usize = 120;

fn over_time(html: &mut Html, summary: &Summary) {
    section(html, "time");
    let Some((bars, each, older)) = bars(&summary.days) else {
        html.mark("<p class=\"quiet\">No run has a time.</p>\n");
        return;
    };
    html.mark("<p class=\"quiet\">Runs by the ")
        .text(each)
        .mark(" of their begin, and how they ended: well, with exit code 0 or by the client or the user; refused before anything of the package ran; otherwise, or not at all, they count as failed.</p>\n<ul class=\"key\">");
    for (class, name) in ["s0", "s1", "s2", "s3"].into_iter().zip(OUTCOMES) {
        html.mark("<li><i class=\"").mark(class).mark("\"></i>").mark(name).mark("</li>");
    }
    html.mark("</ul>\n<figure class=\"scroll drawing\" tabindex=\"0\" aria-label=\"Drawing of runs over time\">\n");
    stacked(html, &bars);
    html.mark("</figure>\n");
    if older > 0 {
        html.mark("<p class=\"more\">").number(older).mark(" older run(s) are not drawn.</p>\n");
    }
    html.mark("<details><summary>The figures as a table</summary>\n");
    let heads =
        [("Begin", ""), ("Runs", "n"), (OUTCOMES[0], "n"), (OUTCOMES[1], "n"), (OUTCOMES[2], "n"), (OUTCOMES[3], "n")];
    let rows: Vec<&Bar> = bars.iter().rev().filter(|bar| bar.parts.iter().sum::<u64>() > 0).collect();
    table(html, "Runs over time", &heads, &rows, 0, |html, bar| {
        row_of(html, &bar.name);
        number(html, bar.parts.iter().sum());
        bar.parts.iter().for_each(|part| number(html, *part));
    });
    html.mark("</details>\n<h3>Causes of their ends</h3>\n");
    let mut rows: Vec<_> = summary.causes.iter().collect();
    rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.runs));
    table(
        html,
        "Causes of ends",
        &[("Cause", ""), ("Runs", "n"), ("Last", "")],
        &rows,
        summary.causes.beyond,
        |html, (cause, tally)| {
            row_of(html, cause);
            number(html, tally.runs);
            time(html, tally.last);
        },
    );
}

/// What each [`Outcome`] is called.
const OUTCOMES: [&str; 4] = ["Ended well", "Failed", "Ended by a limit", "Refused"];

/// The days put together so that there are not too many bars; what one stands for; and how many runs are older than the first.
fn bars(days: &Rows<Date, [u64; 4]>) -> Option<(Vec<Bar>, &'static str, u64)> {
    let (first, last) = (*days.iter().next()?.0, *days.iter().next_back()?.0);
    let span = last.since(first).map_or(i32::MAX, |span| span.get_days());
    let (each, start, before): (_, Start, Before) = match span {
        ..=62 => ("day", |day| day, |day| day.yesterday().ok()),
        63..=730 => ("week", monday, |day| day.checked_sub(7.days()).ok()),
        _ => ("month", Date::first_of_month, |day| day.checked_sub(1.month()).ok()),
    };
    let mut starts: Vec<Date> = std::iter::successors(Some(start(last)), |day| before(*day))
        .take_while(|day| *day >= start(first))
        .take(BARS)
        .collect();
    starts.reverse();
    let mut bars: Vec<Bar> = starts.iter().map(|day| Bar { name: day.to_string(), parts: [0; 4] }).collect();
    let mut older = days.beyond;
    for (day, parts) in days.iter() {
        match starts.binary_search(&start(*day)) {
            Ok(at) => bars[at].parts.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part),
            Err(_) => older += parts.iter().sum::<u64>(),
        }
    }
    Some((bars, each, older))
}

/// The first day of what a bar stands for.
type Start = fn(Date) -> Date;
/// The same of the bar before.
type Before = fn(Date) -> Option<Date>;

fn monday(day: Date) -> Date {
    day.checked_sub(i64::from(day.weekday().to_monday_zero_offset()).days()).unwrap_or(day)
}

/// A drawing of bars.
fn stacked(html: &mut Html, bars: &[Bar]) {
    const WIDTH: f64 = 1000.0;
    const HEIGHT: f64 = 200.0;
    const LEFT: f64 = 52.0;
    const TOP: f64 = 8.0;
    let most = bars.iter().map(|bar| bar.parts.iter().sum()).max().unwrap_or(0);
    let (top, step) = scale(most);
    let y = |count: u64| TOP + HEIGHT * (1.0 - count as f64 / top as f64);
    html.mark("<svg viewBox=\"0 0 1036 236\" role=\"img\" aria-label=\"Bars of runs over time; the table below has the figures\">\n");
    for count in (0..=top).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        html.mark("<line class=\"grid\" x1=\"")
            .length(LEFT)
            .mark("\" x2=\"1000\" y1=\"")
            .length(y(count))
            .mark("\" y2=\"");
        html.length(y(count))
            .mark("\"/><text text-anchor=\"end\" x=\"")
            .length(LEFT - 8.0)
            .mark("\" y=\"")
            .length(y(count) + 4.0);
        html.mark("\">").number(count).mark("</text>\n");
    }
    let slot = (WIDTH - LEFT) / bars.len().max(1) as f64;
    let width = (slot * 0.78).min(46.0);
    // A label is some 70 wide.
    let every = (bars.len() as f64 * 70.0 / (WIDTH - LEFT)).ceil().max(1.0) as usize;
    for (at, bar) in bars.iter().enumerate() {
        let x = LEFT + slot * (at as f64 + 0.5);
        html.mark("<g><title>").text(&bar.name);
        for (name, part) in OUTCOMES.iter().zip(bar.parts).filter(|(_, part)| *part > 0) {
            html.mark("\n").text(name).mark(": ").number(part);
        }
        html.mark("</title>");
        let mut below = 0;
        for (class, part) in ["s0", "s1", "s2", "s3"].into_iter().zip(bar.parts) {
            if part > 0 {
                html.mark("<rect class=\"").mark(class).mark("\" x=\"").length(x - width / 2.0).mark("\" y=\"");
                html.length(y(below + part)).mark("\" width=\"").length(width).mark("\" height=\"");
                html.length(y(below) - y(below + part)).mark("\"/>");
            }
            below += part;
        }
        html.mark("</g>\n");
        if (bars.len() - 1 - at).is_multiple_of(every) {
            html.mark("<text text-anchor=\"middle\" y=\"226\" x=\"")
                .length(x)
                .mark("\">")
                .text(&bar.name)
                .mark("</text>\n");
        }
    }
    html.mark("</svg>\n");
}

/// Where an axis ends that so much fits on, and its step.
fn scale(most: u64) -> (u64, u64) {
    let mut power = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let step = factor * power;
            if step.saturating_mul(5) >= most || power >= u64::MAX / 50 {
                return (most.div_ceil(step).max(1) * step, step);
            }
        }
        power *= 10;
    }
}

/// A drawing of one bar a row.
fn lying(html: &mut Html, about: &'static str, rows: &[(String, u64)]) {
    const LEFT: f64 = 142.0;
    const WIDTH: f64 = 160.0;
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    html.mark("<svg role=\"img\" aria-label=\"")
        .mark(about)
        .mark("\" viewBox=\"0 0 360 ")
        .length(rows.len() as f64 * 22.0)
        .mark("\">\n");
    for (at, (name, count)) in rows.iter().enumerate() {
        let top = at as f64 * 22.0;
        let width = WIDTH * *count as f64 / most as f64;
        html.mark("<text x=\"0\" y=\"")
            .length(top + 15.0)
            .mark("\">")
            .text(name)
            .mark("</text><rect class=\"bar\" x=\"")
            .length(LEFT);
        html.mark("\" y=\"").length(top + 4.0).mark("\" height=\"14\" width=\"").length(width.max(if *count > 0 {
            1.0
        } else {
            0.0
        }));
        html.mark("\"/><text x=\"")
            .length(LEFT + width + 6.0)
            .mark("\" y=\"")
            .length(top + 15.0)
            .mark("\">")
            .number(*count)
            .mark("</text>\n");
    }
    html.mark("</svg>\n");
}

/// A level as it is called.
fn level(level: Option<u64>) -> String {
    match level {
        None => "not looked up".into(),
        Some(0) => "0, none".into(),
        Some(1) => "1, static verified".into(),
        Some(2) => "2, security certified".into(),
        Some(3) => "3, runtime certified".into(),
        Some(other) => other.to_string(),
    }
}

fn packages(html: &mut Html, summary: &Summary) {
    section(html, "packages");
    let levels: Vec<_> = summary.levels.iter().map(|(at, runs)| (level(*at), *runs)).collect();
    let scores: Vec<_> = summary.scores.iter().map(|(tens, runs)| (score(*tens), *runs)).collect();
    let tiers: Vec<_> = summary.tiers.iter().map(|(tier, runs)| (tier_name(*tier), *runs)).collect();
    html.mark("<div class=\"pair\"><figure><figcaption><h3>Runs by level of certification</h3></figcaption>\n");
    lying(html, "Runs by level of certification", &levels);
    html.mark("</figure><figure><figcaption><h3>Runs by score</h3></figcaption>\n");
    lying(html, "Runs by score", &scores);
    html.mark("</figure><figure><figcaption><h3>Runs by tier of the cage</h3></figcaption>\n");
    lying(html, "Runs by tier of the cage", &tiers);
    html.mark("</figure></div>\n");
    let mut rows: Vec<_> = summary.packages.iter().collect();
    rows.sort_by_key(|(_, package)| std::cmp::Reverse(package.runs.runs));
    let heads = [
        ("Package", ""),
        ("Level", ""),
        ("Score", "n"),
        ("Signed, certified by", ""),
        ("Runs", "n"),
        ("Well", "n"),
        ("Failed", "n"),
        ("Limit", "n"),
        ("Refused", "n"),
        ("Digests", "n"),
        ("Last run", ""),
    ];
    table(
        html,
        "Packages, those with most runs first",
        &heads,
        &rows,
        summary.packages.beyond,
        |html, (name, package)| {
            row_of(html, name);
            cell(html, &package.level.map_or("–".into(), |level| level.to_string()));
            html.mark("<td class=\"n\">");
            match package.score {
                Some(score) => html.number(score),
                None => html.mark("–"),
            };
            html.mark("</td>");
            let signed = if package.signed { "signed" } else { "not signed" };
            let by = package.certifier.as_ref().map_or(String::new(), |who| format!(", {who}"));
            wide(html, &format!("{signed}{by}"));
            number(html, package.runs.runs);
            package.outcomes.iter().for_each(|count| number(html, *count));
            number(html, package.digests.len() as u64 + package.digests.beyond);
            time(html, package.runs.last);
        },
    );
}

fn score(tens: Option<u64>) -> String {
    match tens {
        None => "not scored".into(),
        Some(9) => "90 to 100".into(),
        Some(tens) => format!("{} to {}", tens * 10, tens * 10 + 9),
    }
}

fn tier_name(tier: u64) -> String {
    match tier {
        u64::MAX => "no cage was made".into(),
        tier => format!("tier {tier}"),
    }
}

fn layers(html: &mut Html, summary: &Summary) {
    section(html, "layers");
    html.mark("<p class=\"quiet\">Each run measures every layer of its cage before the server starts. These were not enforced in full, and why.</p>\n");
    let mut rows: Vec<_> = summary.layers.iter().collect();
    rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.runs));
    let heads = [("Layer", ""), ("Enforced", ""), ("Why", ""), ("Runs", "n"), ("First", ""), ("Last", "")];
    table(html, "Layers that were not full", &heads, &rows, summary.layers.beyond, |html, ((layer, status), tally)| {
        row_of(html, layer);
        let (word, why) = status.split_once(": ").unwrap_or((status, ""));
        let class = if word == "partial" { "mild" } else { "bad" };
        html.mark("<td><span class=\"badge ").mark(class).mark("\">").text(word).mark("</span></td>");
        wide(html, why);
        number(html, tally.runs);
        time(html, tally.first);
        time(html, tally.last);
    });
}

/// The rows of all packages, those that came most often first, and how many have none.
fn of_packages<'s, K: Ord, V: Copy + Default + 's>(
    summary: &'s Summary,
    rows: fn(&Package) -> &Rows<K, V>,
    often: fn(&V) -> u64,
) -> (Vec<(&'s str, &'s K, V)>, u64) {
    let all = summary.packages.iter().map(|(name, package)| (name.as_str(), rows(package)));
    let beyond = all.clone().map(|(_, rows)| rows.beyond).sum();
    let mut found: Vec<_> =
        all.flat_map(|(name, rows)| rows.iter().map(move |(key, value)| (name, key, *value))).collect();
    found.sort_by_key(|(_, _, value)| std::cmp::Reverse(often(value)));
    (found, beyond)
}

fn denied(html: &mut Html, summary: &Summary) {
    section(html, "denied");
    html.mark("<p class=\"quiet\">What servers tried to reach and were not granted. Nothing was sent there.</p>\n");
    let (rows, beyond) = of_packages(summary, |package| &package.denied, |tally: &Tally| tally.times);
    let heads =
        [("Package", ""), ("Host", ""), ("Port", "n"), ("Why", ""), ("Attempts", "n"), ("Runs", "n"), ("Last", "")];
    table(
        html,
        "Denied destinations, those tried most first",
        &heads,
        &rows,
        beyond,
        |html, (package, (host, port, why), tally)| {
            row_of(html, package);
            wide(html, host);
            html.mark("<td class=\"n\">").text(&port.map_or("–".into(), |port| port.to_string())).mark("</td>");
            cell(html, &why.replace('-', " "));
            number(html, tally.times);
            number(html, tally.runs);
            time(html, tally.last);
        },
    );
}

fn limits(html: &mut Html, summary: &Summary) {
    section(html, "limits");
    let (rows, beyond) = of_packages(summary, |package| &package.limits, |tally: &Tally| tally.runs);
    let heads = [("Package", ""), ("Limit", ""), ("Value", "n"), ("Runs", "n"), ("First", ""), ("Last", "")];
    table(html, "Limits that ended runs", &heads, &rows, beyond, |html, (package, (name, value), tally)| {
        row_of(html, package);
        cell(html, &name.replace('-', " "));
        html.mark("<td class=\"n\">").text(&amount(name, value)).mark("</td>");
        number(html, tally.runs);
        time(html, tally.first);
        time(html, tally.last);
    });
}

/// The value of a limit with its unit.
fn amount(name: &str, value: &str) -> String {
    match (name, value.parse::<u64>()) {
        ("memory" | "file-size", Ok(bytes)) => bundle::format_size(bytes),
        ("cpu-time" | "timeout", Ok(seconds)) => format!("{} s", grouped(seconds)),
        (_, Ok(count)) => grouped(count),
        _ => value.to_owned(),
    }
}

fn refusals(html: &mut Html, summary: &Summary) {
    section(html, "refused");
    html.mark("<p class=\"quiet\">Packages that policy, a signature, a digest or the machine kept from running.</p>\n");
    let (rows, beyond) = of_packages(summary, |package| &package.refusals, |tally: &Tally| tally.runs);
    let heads = [("Package", ""), ("Why", ""), ("Runs", "n"), ("First", ""), ("Last", "")];
    table(html, "Refused runs by reason", &heads, &rows, beyond, |html, (package, why, tally)| {
        row_of(html, package);
        wide(html, why);
        number(html, tally.runs);
        time(html, tally.first);
        time(html, tally.last);
    });
}

fn changes(html: &mut Html, summary: &Summary) {
    section(html, "changes");
    html.mark("<p class=\"quiet\">What a package was granted that it had not been granted before in this log, and lists of tools, prompts and resources that differ from what was accepted. The newest first.</p>\n");
    let rows: Vec<&Change> = summary.changes.iter().rev().collect();
    let heads = [("Time", ""), ("Package", ""), ("Change", ""), ("What", ""), ("Run", "")];
    table(html, "Permission changes, the newest first", &heads, &rows, summary.older_changes, |html, change| {
        time(html, change.at);
        row_of(html, &change.package);
        match &change.kind {
            Kind::Granted => cell(html, "new grant"),
            Kind::Listed { list, withheld } => {
                let word = if *withheld { ", withheld" } else { "" };
                cell(html, &format!("list of {list}{word}"));
            }
        }
        html.mark("<td class=\"w\"><ul>");
        for what in &change.what {
            html.mark("<li>").text(what).mark("</li>");
        }
        if change.more > 0 {
            html.mark("<li class=\"more\">").number(change.more as u64).mark(" more</li>");
        }
        html.mark("</ul></td><td><code>").text(&change.run).mark("</code></td>");
    });
}

fn who(html: &mut Html, summary: &Summary) {
    section(html, "who");
    html.mark("<div class=\"pair\"><div>\n");
    for (about, rows) in [("Programs that started smcp", &summary.callers), ("Machines", &summary.hosts)] {
        let mut found: Vec<_> = rows.iter().collect();
        found.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.runs));
        html.mark("<h3>").mark(about).mark("</h3>\n");
        table(html, about, &[("Name", ""), ("Runs", "n"), ("Last", "")], &found, rows.beyond, |html, (name, tally)| {
            row_of(html, name);
            number(html, tally.runs);
            time(html, tally.last);
        });
        html.mark("</div><div>\n");
    }
    html.mark("</div></div>\n");
}

fn integrity(html: &mut Html, about: &About<'_>, summary: &Summary) {
    section(html, "integrity");
    let verdict = about.verdict;
    html.mark("<p class=\"quiet\">Each entry holds the SHA-256 of the line before it, and the number of the last is kept beside the log. Whoever can write both could forge both.</p>\n");
    let range =
        verdict.first.zip(verdict.last).map_or(String::new(), |(first, last)| format!(", number {first} to {last}"));
    html.mark("<p>")
        .text(&format!("{} entries{range}, in {} file(s)", grouped(verdict.entries), verdict.files))
        .mark(". Lines torn by a crash, over which the chain holds: ")
        .number(verdict.torn.len() as u64)
        .mark(". Lines that are no entries: ")
        .number(summary.unread)
        .mark(". Ends whose begin is not in what was read: ")
        .number(summary.ends_alone)
        .mark(".</p>\n");
    if verdict.findings.is_empty() {
        html.mark("<p class=\"quiet\">Nothing is wrong with the chain.</p>\n");
        return;
    }
    let rows: Vec<_> = verdict.findings.iter().collect();
    table(
        html,
        "What is wrong with the chain",
        &[("File", ""), ("Line", "n"), ("Finding", "")],
        &rows,
        verdict.more,
        |html, finding| {
            let file = finding.place.file.to_string_lossy();
            row_of(html, if file.is_empty() { "the whole log" } else { &file });
            number(html, finding.place.line);
            wide(html, &finding.what.to_string());
        },
    );
}

/// A table of so many of the rows as there is room for. What is left out is said below it, with what had no row before.
fn table<R: Copy>(
    html: &mut Html,
    about: &'static str,
    heads: &[(&'static str, &'static str)],
    rows: &[R],
    beyond: u64,
    mut row: impl FnMut(&mut Html, R),
) {
    if rows.is_empty() && beyond == 0 {
        html.mark("<p class=\"quiet\">None.</p>\n");
        return;
    }
    html.mark("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"")
        .mark(about)
        .mark("\">\n<table aria-label=\"")
        .mark(about);
    html.mark("\">\n<thead><tr>");
    for (name, class) in heads {
        html.mark("<th scope=\"col\" class=\"").mark(class).mark("\">").mark(name).mark("</th>");
    }
    html.mark("</tr></thead>\n<tbody>\n");
    let mut shown = 0;
    for one in rows.iter().take(ROWS) {
        if html.len() > FULL {
            break;
        }
        html.mark("<tr>");
        row(html, *one);
        html.mark("</tr>\n");
        shown += 1;
    }
    html.mark("</tbody>\n</table>\n</div>\n");
    let left_out = (rows.len() - shown) as u64;
    if left_out > 0 {
        html.mark("<p class=\"more\">").number(left_out).mark(" row(s) more are left out of this page.</p>\n");
    }
    if beyond > 0 {
        html.mark("<p class=\"more\">")
            .number(beyond)
            .mark(" time(s) there was more than is kept apart, which has no row.</p>\n");
    }
}

fn row_of(html: &mut Html, text: &str) {
    html.mark("<th scope=\"row\">").text(text).mark("</th>");
}

fn cell(html: &mut Html, text: &str) {
    html.mark("<td class=\"t\">").text(text).mark("</td>");
}

fn wide(html: &mut Html, text: &str) {
    html.mark("<td class=\"w\">").text(text).mark("</td>");
}

fn number(html: &mut Html, number: u64) {
    html.mark("<td class=\"n\">").number(number).mark("</td>");
}

fn time(html: &mut Html, at: Option<Timestamp>) {
    html.mark("<td class=\"t\">").text(&minute(at)).mark("</td>");
}

/// A time to the minute.
fn minute(at: Option<Timestamp>) -> String {
    at.map_or("–".into(), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_few_even_steps() {
        for (most, expected) in
            [(0, (1, 1)), (1, (1, 1)), (5, (5, 1)), (7, (8, 2)), (11, (15, 5)), (99, (100, 20)), (1001, (1500, 500))]
        {
            assert_eq!(scale(most), expected, "{most}");
        }
        let (top, step) = scale(u64::MAX / 4);
        assert!(top / step <= 10);
    }
}
