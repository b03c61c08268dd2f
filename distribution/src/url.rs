//! The few urls that a registry client needs, and where it may go: https anywhere, plain http on this machine and where
//! it is configured.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::Access;

/// A url that may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    secure: bool,
    authority: String,
    /// Path and query, beginning with a slash.
    path: String,
}

impl Url {
    /// The url of `path` at a registry, by the scheme that fits the host.
    pub(crate) fn at(authority: &str, path: String, access: &Access) -> Self {
        Self { secure: access.is_secure(authority), authority: authority.into(), path }
    }

    /// Reads an absolute url.
    pub(crate) fn parse(text: &str, access: &Access) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("not an absolute url")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err("neither http nor https"),
        };
        if authority.is_empty() || !authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)) {
            return Err("not a plain host and port");
        }
        if !secure && !access.may_be_plain(&authority.to_ascii_lowercase()) {
            return Err("plain http to another machine");
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = path.split('#').next().unwrap_or_default();
        Ok(Self { secure, authority: authority.to_ascii_lowercase(), path: format!("{slash}{path}") })
    }

    /// The url that an answer from `self` points to by its `Location`.
    pub(crate) fn follow(&self, location: &str, access: &Access) -> Result<Self, &'static str> {
        if !location.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("a url with strange characters");
        }
        if location.starts_with('/') && !location.starts_with("//") {
            let path = location.split('#').next().unwrap_or_default();
            return Ok(Self { path: path.into(), ..self.clone() });
        }
        let target = Self::parse(location, access)?;
        if self.secure && !target.secure { Err("from https to plain http") } else { Ok(target) }
    }

    /// Adds one parameter.
    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        let sign = if self.path.contains('?') { '&' } else { '?' };
        self.path.push_str(&format!("{sign}{key}={}", escaped(value)));
        self
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.secure
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The path without the query, which may hold a signature.
    pub(crate) fn path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// A value as it stands in a query or a form, RFC 3986; `:` and `/` may stay.
pub(crate) fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b',' => {
                text.push(byte.into())
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// `HOST` of `HOST[:PORT]`, brackets included.
pub(crate) fn host_of(authority: &str) -> &str {
    let port = port_of(authority).map_or(0, |port| port.len() + 1);
    &authority[..authority.len() - port]
}

/// `PORT` of `HOST[:PORT]`.
pub(crate) fn port_of(authority: &str) -> Option<&str> {
    authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'))
}

/// Says whether `HOST[:PORT]` is this machine: `localhost`, 127.0.0.0/8 or `[::1]`.
pub(crate) fn is_loopback(authority: &str) -> bool {
    if let Some(inner) = authority.strip_prefix('[') {
        let address = inner.split(']').next().unwrap_or_default();
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_may_go() {
        let here = Access::default();
        for (from, to, want) in [
            ("https://a.example/v2/x", "https://b.example/y?sig=1", Ok("https://b.example/y?sig=1")),
            ("https://a.example/v2/x", "/v2/y?u=1", Ok("https://a.example/v2/y?u=1")),
            ("https://a.example/v2/x", "https://b.example", Ok("https://b.example/")),
            ("https://a.example/v2/x", "https://b.example?x=1#f", Ok("https://b.example/?x=1")),
            ("https://a.example/v2/x", "http://b.example/y", Err("plain http to another machine")),
            ("https://a.example/v2/x", "http://127.0.0.1/y", Err("from https to plain http")),
            ("https://a.example/v2/x", "//b.example/y", Err("not an absolute url")),
            ("https://a.example/v2/x", "y", Err("not an absolute url")),
            ("https://a.example/v2/x", "file:///etc/passwd", Err("neither http nor https")),
            ("https://a.example/v2/x", "https://u:p@b.example/", Err("not a plain host and port")),
            ("https://a.example/v2/x", "/y\r\nX: 1", Err("a url with strange characters")),
            ("http://localhost:1/x", "http://[::1]:2/y", Ok("http://[::1]:2/y")),
            ("http://localhost:1/x", "https://b.example/y", Ok("https://b.example/y")),
            ("http://localhost:1/x", "http://localhost.evil.example/y", Err("plain http to another machine")),
            ("http://localhost:1/x", "http://10.0.0.1/y", Err("plain http to another machine")),
        ] {
            let got = Url::parse(from, &here).unwrap().follow(to, &here).map(|url| url.to_string());
            assert_eq!(got.as_deref().map_err(|e| *e), want, "{from} → {to}");
        }
    }

    #[test]
    fn loopback() {
        for (host, want) in [
            ("localhost", true),
            ("LocalHost:5000", true),
            ("127.8.9.1:5000", true),
            ("[::1]:5000", true),
            ("[::2]:5000", false),
            ("128.0.0.1", false),
            ("localhost.example", false),
            ("127.0.0.1.example", false),
        ] {
            assert_eq!(is_loopback(host), want, "{host}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        for (authority, host, port) in [
            ("a.example", "a.example", None),
            ("a.example:1", "a.example", Some("1")),
            ("[::1]", "[::1]", None),
            ("[::1]:5000", "[::1]", Some("5000")),
        ] {
            assert_eq!((host_of(authority), port_of(authority)), (host, port));
        }
    }

    #[test]
    fn parameters() {
        let url = Url::at("a.example", "/v2/x".into(), &Access::default()).with("a", "1").with("b", "x:y&z=é");
        assert_eq!((url.to_string().as_str(), url.path()), ("https://a.example/v2/x?a=1&b=x:y%26z%3D%C3%A9", "/v2/x"));
    }
}
