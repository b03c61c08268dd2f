//! `WWW-Authenticate`, RFC 9110: what a registry wants to see.

/// One of the ways that a registry offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A name and a password, with each request.
    Basic,
    /// A token of a token service.
    Bearer {
        /// Url of the service.
        realm: String,
        /// What the registry is called there.
        service: Option<String>,
    },
}

impl Challenge {
    /// The challenges of one header that are understood; what is not is left out.
    pub(crate) fn parse(header: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let mut current: Option<(String, Vec<(String, String)>)> = None;
        for part in split(header) {
            let (scheme, parameter) = match part.split_once(' ') {
                Some((scheme, rest)) if !scheme.contains('=') => (Some(scheme), rest.trim()),
                None if !part.contains('=') => (Some(part), ""),
                _ => (None, part),
            };
            if let Some(scheme) = scheme {
                found.extend(current.take().and_then(known));
                current = Some((scheme.to_ascii_lowercase(), Vec::new()));
            }
            if let (Some((_, parameters)), Some((name, value))) = (&mut current, parameter.split_once('=')) {
                parameters.push((name.trim().to_ascii_lowercase(), unquoted(value.trim())));
            }
        }
        found.extend(current.and_then(known));
        found
    }
}

fn known((scheme, parameters): (String, Vec<(String, String)>)) -> Option<Challenge> {
    let mut parameters = parameters.into_iter();
    match scheme.as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => {
            let (mut realm, mut service) = (None, None);
            parameters.by_ref().for_each(|(name, value)| match name.as_str() {
                "realm" => realm = realm.take().or(Some(value)),
                "service" => service = service.take().or(Some(value)),
                _ => {}
            });
            Some(Challenge::Bearer { realm: realm?, service })
        }
        _ => None,
    }
}

/// Splits at commas outside of quotes.
fn split(header: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = header.split(move |c| {
        let was_escaped = std::mem::take(&mut escaped);
        match c {
            '\\' if quoted && !was_escaped => escaped = true,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        c == ',' && !quoted
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return value.into() };
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_what_registries_ask_for() {
        let bearer = |realm: &str, service: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(Into::into),
        };
        for (header, want) in [
            (r#"Basic realm="Registry Realm""#, vec![Challenge::Basic]),
            (
                r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
                vec![bearer("https://auth.example/token", Some("registry.example"))],
            ),
            (r#"bearer realm=https://a.example"#, vec![bearer("https://a.example", None)]),
            (r#"Basic realm="a, b", Bearer realm="x\"y""#, vec![Challenge::Basic, bearer("x\"y", None)]),
            (r#"Negotiate, Basic realm=x"#, vec![Challenge::Basic]),
            (r#"Bearer service="x""#, vec![]),
            (r#"Bearer realm="first", realm="second""#, vec![bearer("first", None)]),
            ("", vec![]),
            (r#"Bearer realm="unfinished"#, vec![bearer("\"unfinished", None)]),
            ("=,=,\"", vec![]),
        ] {
            assert_eq!(Challenge::parse(header), want, "{header}");
        }
    }
}
