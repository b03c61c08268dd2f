//! What a change of a file looks like, for people: the lines that it touches, and of these nothing but the words that it is about, as
//! values beside may be secrets.

use super::dialect::Dialect;
use super::edit::{Change, changed, line_of};
use super::entries::Start;
use super::look::hidden;
use super::tree::{Node, Span};

/// The lines before and after, each behind `-` or `+`.
pub fn lines(
    text: &str,
    dialect: Dialect,
    (root, entry): (&Node, &Span),
    start: &Start<'_>,
    changes: &[Change],
) -> Vec<String> {
    let words: Vec<&str> = start.words.iter().map(|(word, _)| *word).collect();
    let shown: Vec<&Span> = start
        .words
        .iter()
        .zip(hidden(&words))
        .filter(|(_, hidden)| !hidden)
        .map(|((_, node), _)| node.span())
        .collect();
    let masked = |span: &Span| (span.clone(), dialect.quoted("…"));
    let hide: Vec<Change> = root.leaves().iter().filter(|span| !shown.contains(span)).map(masked).collect();
    let mut out = Vec::new();
    for lines in touched(text, entry, changes) {
        let within = |change: &&Change| lines.start <= change.0.start && change.0.end <= lines.end;
        let own: Vec<Change> = changes.iter().filter(within).cloned().collect();
        let beside: Vec<Change> =
            hide.iter().filter(within).filter(|(span, _)| !overlaps(span, &own)).cloned().collect();
        let part = |changes: &[Change]| {
            let shifted: Vec<Change> = changes
                .iter()
                .map(|(span, text)| (span.start - lines.start..span.end - lines.start, text.clone()))
                .collect();
            changed(&text[lines.clone()], &shifted)
        };
        let sign = |sign: &str, text: &str| -> Vec<String> {
            text.lines().map(|line| format!("{sign} {}", line.trim_end().replace('\t', "    "))).collect()
        };
        // What is replaced may be hidden, too.
        let before: Vec<Change> = hide.iter().filter(within).cloned().collect();
        out.extend(sign("-", &part(&before)));
        out.extend(sign("+", &part(&[own, beside].concat())));
    }
    out
}

fn overlaps(span: &Span, changes: &[Change]) -> bool {
    changes.iter().any(|(other, _)| span.start < other.end && other.start < span.end)
}

/// The whole lines that changes touch, those that follow one another together; of an entry on one line that alone, since all else may
/// be on the same.
fn touched(text: &str, entry: &Span, changes: &[Change]) -> Vec<Span> {
    let is_within = |(span, _): &Change| entry.start <= span.start && span.end <= entry.end;
    if !text[entry.clone()].contains('\n') && changes.iter().all(is_within) {
        return vec![entry.clone()];
    }
    let mut spans: Vec<Span> = changes.iter().map(|(span, _)| line_of(text, span)).collect();
    spans.sort_by_key(|span| span.start);
    let mut lines: Vec<Span> = Vec::new();
    for span in spans {
        match lines.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => lines.push(span),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::edit::put;
    use super::super::entries::entries;
    use super::super::table::Client;
    use super::*;

    fn diff(text: &str) -> Vec<String> {
        let client = Client::named("cursor").unwrap();
        let root = client.dialect.read(text).unwrap().unwrap();
        let entry = entries(&root, &client.shape).remove(0);
        let start = entry.start(&client.shape).unwrap();
        let words = ["/s", "run", "--secret", "TOKEN", "npm:p"].map(String::from);
        lines(text, client.dialect, (&root, entry.value.span()), &start, &put(text, client.dialect, &start, 3, &words))
    }

    #[test]
    fn no_value_of_env_is_shown() {
        let line = r#"{"mcpServers":{"f":{"command":"npx","env":{"TOKEN":"hunter2"},"args":["-y","p","--api-key","hunter3"]}},"key":"hunter4"}"#;
        assert_eq!(
            diff(line),
            [
                r#"- {"command":"npx","env":{"TOKEN":"…"},"args":["-y","p","--api-key","…"]}"#,
                r#"+ {"command":"/s","env":{"TOKEN":"…"},"args":["run","--secret","TOKEN","npm:p","--api-key","…"]}"#,
            ]
        );
    }

    #[test]
    fn lines_between_are_left_out() {
        let text = "{\"mcpServers\":{\"f\":{\n\t\"command\": \"npx\",\n\t\"env\": {\"TOKEN\": \"hunter2\"},\n\t\"args\": [\"-y\", \"p\"]\n}}}\n";
        assert_eq!(
            diff(text),
            [
                "-     \"command\": \"npx\",",
                "+     \"command\": \"/s\",",
                "-     \"args\": [\"-y\", \"p\"]",
                "+     \"args\": [\"run\", \"--secret\", \"TOKEN\", \"npm:p\"]",
            ]
        );
    }
}
