//! Takes secrets out of a stream of bytes: as they are, and in the forms in which programs print them.
//!
//! What is taken out is the union of all places where a form of a secret stands, so that the result does not depend on how
//! the stream was cut into pieces.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use distribution::{REDACTED, Secret};
use runtime::egress::Refused;
use runtime::journal::Ending;

/// The fewest bytes of a value that is looked for: shorter ones stand in every other word.
pub const SHORTEST: usize = 4;

/// The most bytes of a value of which each form is looked for; of a longer one the value itself, as JSON, and its lines.
const LONG: usize = 1024;

/// A beginning of a form as long as this counts as the secret, where nothing follows.
const BEGINNING: usize = 8;

/// How long a stream may say nothing before what could be the beginning of a secret is passed on.
const PAUSE: Duration = Duration::from_millis(250);

/// What looks for secrets in one stream.
pub struct Redactor {
    nfa: NFA,
    /// How many bytes of a pattern have been seen in a state.
    depths: HashMap<StateID, usize>,
    start: StateID,
    state: StateID,
    /// Bytes that may belong to a secret yet, from `base` on.
    held: VecDeque<u8>,
    /// How many bytes of the stream are passed on or taken out.
    base: u64,
    /// Places of secrets that begin in `held`, in their order and apart from each other.
    places: VecDeque<(u64, u64)>,
    /// Where the last place ends that was taken out.
    out_to: u64,
    /// When bytes came the last time.
    since: Instant,
}

impl Redactor {
    /// Looks for these; `None` where none of them can be looked for.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Option<Redactor> {
        let mut forms = BTreeSet::new();
        secrets.into_iter().for_each(|secret| add_forms(secret.expose(), &mut forms));
        if forms.is_empty() {
            return None;
        }
        // The patterns are bounded by what the environment of a process may hold.
        let nfa = NFA::builder().match_kind(MatchKind::Standard).build(&forms).ok()?;
        let start = nfa.start_state(Anchored::No).ok()?;
        let mut depths = HashMap::new();
        for form in &forms {
            let mut at = start;
            for (seen, byte) in form.iter().enumerate() {
                at = nfa.next_state(Anchored::No, at, *byte);
                depths.insert(at, seen + 1);
            }
        }
        Some(Redactor {
            nfa,
            depths,
            start,
            state: start,
            held: VecDeque::new(),
            base: 0,
            places: VecDeque::new(),
            out_to: 0,
            since: Instant::now(),
        })
    }

    /// Takes bytes, and adds to `to` what is certain by now.
    pub fn pass(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        for byte in bytes {
            self.held.push_back(*byte);
            self.state = self.nfa.next_state(Anchored::No, self.state, *byte);
            if self.nfa.is_match(self.state) {
                let longest = (0..self.nfa.match_len(self.state))
                    .map(|at| self.nfa.pattern_len(self.nfa.match_pattern(self.state, at)))
                    .max();
                self.found(longest.unwrap_or(0));
            }
            // No pattern begins in what came so far: the usual case.
            if self.depth() == 0 && self.places.is_empty() && self.held.len() == 1 && self.out_to <= self.base {
                self.held.clear();
                self.base += 1;
                to.push(*byte);
            } else {
                self.release(self.end() - self.depth() as u64, to);
            }
        }
        self.since = Instant::now();
    }

    /// When [`Redactor::pause`] is due, where something is held.
    pub fn due(&self) -> Option<Instant> {
        (!self.held.is_empty()).then(|| self.since + PAUSE)
    }

    /// Passes on what is held where nothing follows for now. A longer beginning of a secret is taken out, and so is the rest
    /// of it when that comes.
    pub fn pause(&mut self, to: &mut Vec<u8>) {
        let depth = self.depth();
        if depth >= BEGINNING {
            self.found(depth);
        }
        self.release(self.end(), to);
    }

    /// A text without secrets.
    fn text(&mut self, text: &str) -> String {
        let mut out = Vec::with_capacity(text.len());
        self.pass(text.as_bytes(), &mut out);
        self.pause(&mut out);
        self.state = self.start;
        String::from_utf8_lossy(&out).into_owned()
    }

    fn depth(&self) -> usize {
        if self.state == self.start {
            return 0;
        }
        self.depths.get(&self.state).copied().unwrap_or(0)
    }

    fn end(&self) -> u64 {
        self.base + self.held.len() as u64
    }

    /// The last bytes are a secret.
    fn found(&mut self, length: usize) {
        let end = self.end();
        let mut start = end.saturating_sub(length as u64);
        while let Some((first, last)) = self.places.back().copied()
            && last > start
        {
            start = start.min(first);
            self.places.pop_back();
        }
        if start < self.out_to {
            // What was taken out before is a part of it.
            self.out_to = end;
        } else {
            self.places.push_back((start.max(self.base), end));
        }
    }

    /// Passes on everything before `safe`, where no secret begins that is not known.
    fn release(&mut self, safe: u64, to: &mut Vec<u8>) {
        loop {
            self.drop_to(self.out_to.min(self.end()));
            match self.places.front() {
                Some((start, end)) if *start <= safe => {
                    let (start, end) = (*start, *end);
                    self.places.pop_front();
                    self.give_to(start, to);
                    to.extend_from_slice(REDACTED.as_bytes());
                    self.out_to = end;
                }
                _ => return self.give_to(safe, to),
            }
        }
    }

    fn give_to(&mut self, at: u64, to: &mut Vec<u8>) {
        let count = at.saturating_sub(self.base) as usize;
        to.extend(self.held.drain(..count.min(self.held.len())));
        self.base = self.base.max(at);
    }

    fn drop_to(&mut self, at: u64) {
        let count = at.saturating_sub(self.base) as usize;
        self.held.drain(..count.min(self.held.len()));
        self.base = self.base.max(at);
    }
}

/// Takes secrets out of texts: what a server asked for is its own choice, and stands in the audit log.
pub struct Texts {
    secrets: Vec<Secret>,
    redactor: Option<Redactor>,
}

impl Texts {
    /// Takes these out, once there is something to look at.
    pub fn without(secrets: Vec<Secret>) -> Texts {
        Texts { secrets, redactor: None }
    }

    /// Takes them out of a text.
    pub fn clear(&mut self, text: &mut String) {
        if !self.secrets.is_empty() {
            self.redactor = Redactor::new(&std::mem::take(&mut self.secrets));
        }
        if let Some(redactor) = &mut self.redactor {
            *text = redactor.text(text);
        }
    }

    /// A refusal without them.
    pub fn refusal(&mut self, refused: &Refused) -> Refused {
        let mut refused = refused.clone();
        self.clear(&mut refused.host);
        refused
    }

    /// The same of what an end entry says that the server asked for.
    pub fn ending(&mut self, ending: &mut Ending) {
        let egress = ending.egress.iter_mut();
        let hosts = egress.flat_map(|totals| {
            let refused = totals.refused.iter_mut().map(|refused| &mut refused.host);
            refused.chain(totals.granted.iter_mut().map(|traffic| &mut traffic.host))
        });
        hosts.for_each(|host| self.clear(host));
        let asked = ending.asked.iter_mut();
        let paths = asked.flat_map(|asked| {
            let paths = asked.paths.iter_mut().map(|asked| &mut asked.path);
            paths.chain(&mut asked.wide).chain(&mut asked.programs).chain(&mut asked.missing)
        });
        paths.for_each(|path| self.clear(path));
    }
}

/// The forms in which a value is looked for.
fn add_forms(value: &str, forms: &mut BTreeSet<Vec<u8>>) {
    let mut values = vec![value, value.trim()];
    // A key of several lines is printed line by line.
    let line = |line: &&str| line.len() >= 16 && !line.starts_with("-----");
    values.extend(value.lines().map(str::trim).filter(line).filter(|line| line.len() < value.len()));
    for value in values.into_iter().filter(|value| value.len() >= SHORTEST) {
        let mut add = |form: Vec<u8>| {
            if form.len() >= SHORTEST {
                forms.insert(form);
            }
        };
        add(value.into());
        // As a host's name, which has no capitals.
        add(value.to_ascii_lowercase().into());
        json_forms(value).into_iter().for_each(|form| add(form.into()));
        if value.len() <= LONG {
            url_forms(value.as_bytes()).into_iter().for_each(&mut add);
            base64_forms(value.as_bytes()).into_iter().for_each(&mut add);
            for upper in [false, true] {
                add(value.bytes().flat_map(|byte| hex(byte, upper)).collect());
            }
        }
    }
}

fn hex(byte: u8, upper: bool) -> [u8; 2] {
    let digits: &[u8; 16] = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// As a JSON string without its quotes: by what JSON asks for, with `/` escaped (PHP), with `<`, `>` and `&` (Go), in ASCII
/// alone (Python), with codes for all that HTML has a use for (.NET), and a second time as a string in a string.
fn json_forms(value: &str) -> Vec<String> {
    let plain = |value: &str| {
        let quoted = serde_json::to_string(value).expect("a text is JSON");
        quoted[1..quoted.len() - 1].to_owned()
    };
    let code = |c: char, upper: bool| {
        let mut units = [0; 2];
        let unit = |unit: &u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        c.encode_utf16(&mut units).iter().map(unit).collect::<String>()
    };
    let escape = |text: &str, which: &dyn Fn(char) -> bool, upper: bool| {
        let escaped = |c: char| if which(c) { code(c, upper) } else { c.to_string() };
        text.chars().map(escaped).collect::<String>()
    };
    let simple = plain(value);
    let mut forms = vec![simple.clone(), simple.replace('/', "\\/"), plain(&simple)];
    forms.push(plain_or_code(value, &|c| code(c, true)));
    for upper in [false, true] {
        forms.push(escape(&simple, &|c| "<>&".contains(c), upper));
        forms.push(escape(&simple, &|c| !c.is_ascii() || c == '\u{7f}', upper));
    }
    forms
}

/// As .NET escapes a text: a short form for some control characters and the backslash, a code for whatever is not plain.
fn plain_or_code(value: &str, code: &dyn Fn(char) -> String) -> String {
    let escaped = |c: char| match c {
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        '\\' => "\\\\".into(),
        c if !c.is_ascii() || c.is_control() || "\"<>&'+`".contains(c) => code(c),
        c => c.to_string(),
    };
    value.chars().map(escaped).collect()
}

/// Percent-encoded, by what encoders leave as it is, with either case of digits, and with `+` for a blank.
fn url_forms(value: &[u8]) -> Vec<Vec<u8>> {
    // RFC 3986 and Python's quote_plus; JavaScript's encodeURIComponent; forms, as browsers send them; Python's quote;
    // JavaScript's encodeURI; everything.
    const KEPT: [&[u8]; 6] = [b"-._~", b"-._~!'()*", b"*-._", b"-._~/", b"-._~!'()*;,/?:@&=+$#", b""];
    let mut forms = Vec::new();
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    for (kept, (upper, plus)) in KEPT.iter().flat_map(|kept| ways.map(|way| (kept, way))) {
        let mut form = Vec::new();
        for byte in value {
            match byte {
                b' ' if plus => form.push(b'+'),
                byte if kept.contains(byte) || (!kept.is_empty() && byte.is_ascii_alphanumeric()) => form.push(*byte),
                byte => {
                    form.push(b'%');
                    form.extend(hex(*byte, upper));
                }
            }
        }
        forms.push(form);
    }
    forms
}

/// Base64 of the value alone, and what it becomes in the middle of something longer: the digits that depend on nothing
/// beside it, for each place that it may have in a group of three bytes.
fn base64_forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        forms.push(engine.encode(value).into_bytes());
    }
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let shifted: Vec<u8> = std::iter::repeat_n(0, before).chain(value.iter().copied()).collect();
            let digits = engine.encode(&shifted).into_bytes();
            // Six bits a digit: the first that has none of the bytes before, and the last that has none of those after.
            let (first, last) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.push(digits[first..last].to_vec());
            // At the end of what is encoded the last digit is known, too.
            forms.push(digits[first..].to_vec());
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        let secrets: Vec<Secret> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
        Redactor::new(&secrets).expect("they are long enough")
    }

    fn whole(secrets: &[&str], text: &[u8]) -> String {
        in_pieces(secrets, &[text])
    }

    fn in_pieces(secrets: &[&str], pieces: &[&[u8]]) -> String {
        let (mut redactor, mut out) = (redactor(secrets), Vec::new());
        pieces.iter().for_each(|piece| redactor.pass(piece, &mut out));
        redactor.pause(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    const SECRET: &str = "s3cr&t/ \"Wört\"?";

    /// E3: the forms that programs print, each by another encoder than ours where the standard library has none.
    #[test]
    fn e3_every_form_is_taken_out() {
        let forms = [
            SECRET,
            // .NET's JsonSerializer; python3: json.dumps, quote, quote_plus; PHP's json_encode; Go's json.Marshal; encodeURIComponent; hex.
            r#"s3cr\u0026t/ \u0022W\u00F6rt\u0022?"#,
            r#"s3cr&t/ \"Wört\"?"#,
            r#"s3cr&t/ \"W\u00f6rt\"?"#,
            r#"s3cr&t\/ \"Wört\"?"#,
            r#"s3cr\u0026t/ \"Wört\"?"#,
            r#"s3cr&t/ \\\"Wört\\\"?"#,
            "s3cr%26t/%20%22W%C3%B6rt%22%3F",
            "s3cr%26t%2F+%22W%C3%B6rt%22%3F",
            "s3cr%26t%2f%20%22W%c3%b6rt%22%3f",
            "%73%33%63%72%26%74%2F%20%22%57%C3%B6%72%74%22%3F",
            "7333637226742f202257c3b67274223f",
            "7333637226742F202257C3B67274223F",
            "czNjciZ0LyAiV8O2cnQiPw==",
            "czNjciZ0LyAiV8O2cnQiPw",
        ];
        for form in forms {
            let said = whole(&[SECRET], format!("[{form}]").as_bytes());
            assert_eq!(said, format!("[{REDACTED}]"), "{form}");
        }
        // In the middle of something longer, at each of the three places.
        for before in ["", "u", "us", "use", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
                    let text = engine.encode(format!("{before}{SECRET}{after}"));
                    let said = whole(&[SECRET], text.as_bytes());
                    let left = text.len() - (said.len() - REDACTED.len());
                    assert!(said.contains(REDACTED), "{text}: {said}");
                    assert!(left * 6 + 12 > SECRET.len() * 8, "{text}: {said}");
                }
            }
        }
    }

    #[test]
    fn secrets_that_meet_leave_nothing() {
        let two = ["abcdef", "defghi"];
        for (text, expected) in [
            ("abcdefghi", "<redacted>"),
            ("abcdefabcdef", "<redacted><redacted>"),
            ("-abcdef-defghi-", "-<redacted>-<redacted>-"),
            ("abcdeabcdef", "abcde<redacted>"),
            ("abcde", "abcde"),
        ] {
            assert_eq!(whole(&two, text.as_bytes()), expected, "{text}");
        }
        // One in another, and one that overlaps itself without end.
        assert_eq!(whole(&["token-long", "token"], b"a token, a token-long."), "a <redacted>, a <redacted>.");
        let (mut redactor, mut out) = (redactor(&["aaaa"]), Vec::new());
        (0..10_000).for_each(|_| redactor.pass(b"aaaaaaaaaa", &mut out));
        assert!(redactor.held.len() < 8 && redactor.places.len() < 2, "bounded");
        redactor.pass(b"b", &mut out);
        assert_eq!(out, b"<redacted>b");
    }

    #[test]
    fn lines_of_a_key_and_short_values() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSj\n-----END KEY-----\n";
        assert_eq!(whole(&[key], key.as_bytes()), "<redacted>");
        assert_eq!(whole(&[key], b"  MIIEvQIBADANBgkqhkiG9w0B!"), "  <redacted>!");
        assert_eq!(whole(&[key], key.trim().as_bytes()), "<redacted>");
        assert!(Redactor::new(&[Secret::new("abc"), Secret::new("")]).is_none());
        let long = "x1y2".repeat(4000);
        assert_eq!(whole(&[&long], format!("a{long}b").as_bytes()), "a<redacted>b");
    }

    /// A writer that stops in a secret: at most seven bytes of it are passed on, however often it stops.
    #[test]
    fn e3_what_is_held_is_passed_on_in_a_pause() {
        let secret = "sentinel-0123456789";
        let mut out = Vec::new();
        let mut slow = redactor(&[secret]);
        for byte in b"a sentence, " {
            slow.pass(&[*byte], &mut out);
            slow.pause(&mut out);
        }
        assert_eq!(out, b"a sentence, ", "nothing is held for ever");
        assert_eq!(slow.due(), None);
        for byte in secret.bytes() {
            slow.pass(&[byte], &mut out);
            assert!(slow.due().is_some() || out.ends_with(REDACTED.as_bytes()));
            slow.pause(&mut out);
        }
        slow.pass(b".\n", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "a sentence, sentine<redacted>.\n");
        // The beginning of it, and then something else.
        let mut out = Vec::new();
        let mut broken = redactor(&[secret]);
        broken.pass(b"sentinel-01", &mut out);
        assert_eq!(out, b"");
        broken.pause(&mut out);
        broken.pass(b"!", &mut out);
        assert_eq!(out, b"<redacted>!");
        // At a newline that no secret has nothing is held.
        let mut out = Vec::new();
        redactor(&[secret]).pass(b"sentinel-01\n", &mut out);
        assert_eq!(out, b"sentinel-01\n");
    }

    #[test]
    fn a_text_at_a_time() {
        let mut redactor = redactor(&["sentinel-0123456789"]);
        assert_eq!(redactor.text("sentinel-01"), REDACTED);
        assert_eq!(redactor.text("23456789"), "23456789", "texts are apart");
    }

    proptest! {
        /// However it is cut, what comes out is the same, and no form of a secret is in it.
        #[test]
        fn e3_the_result_does_not_depend_on_the_pieces(
            secrets in proptest::collection::vec("[ab/ ]{4,9}|[a-c\"é]{4,12}", 1..4),
            words in proptest::collection::vec((0..12_usize, "[ab/ =+%0-9]{0,6}"), 0..12),
            cuts in proptest::collection::vec(0..400_usize, 0..8),
        ) {
            let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
            let mut forms = BTreeSet::new();
            secrets.iter().for_each(|secret| add_forms(secret, &mut forms));
            prop_assume!(!forms.is_empty());
            let forms: Vec<Vec<u8>> = forms.into_iter().collect();
            let mut text = Vec::new();
            for (at, between) in &words {
                text.extend_from_slice(between.as_bytes());
                text.extend_from_slice(&forms[at * forms.len() / 12]);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([text.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &text[start..end]).collect();
            let said = whole(&secrets, &text);
            prop_assert_eq!(&in_pieces(&secrets, &pieces), &said);
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(&in_pieces(&secrets, &bytes), &said);
            // By a plain search: what stands between the places of all forms, merged where they overlap.
            prop_assert_eq!(&by_search(&forms, &text), &said);
            for rest in said.split(REDACTED) {
                for form in &forms {
                    prop_assert!(!rest.as_bytes().windows(form.len()).any(|at| at == form), "{rest:?}");
                }
            }
        }
    }

    fn by_search(forms: &[Vec<u8>], text: &[u8]) -> String {
        let mut covered = vec![0_u32; text.len()];
        let mut places = Vec::new();
        for form in forms {
            let found = text.windows(form.len()).enumerate().filter(|(_, at)| at == form);
            places.extend(found.map(|(start, _)| (start, start + form.len())));
        }
        // A longer beginning at the end counts as well.
        let longest = (BEGINNING..=text.len()).filter(|length| {
            forms.iter().any(|form| form.len() > *length && form.starts_with(&text[text.len() - length..]))
        });
        places.extend(longest.max().map(|length| (text.len() - length, text.len())));
        places.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (start, end) in places {
            match merged.last_mut() {
                Some((_, last)) if start < *last => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        for (number, (start, end)) in merged.iter().enumerate() {
            covered[*start..*end].fill(number as u32 + 1);
        }
        let (mut out, mut before) = (Vec::new(), 0);
        for (byte, place) in text.iter().zip(&covered) {
            if *place == 0 {
                out.push(*byte);
            } else if *place != before {
                out.extend_from_slice(REDACTED.as_bytes());
            }
            before = *place;
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}
