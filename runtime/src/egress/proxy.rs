//! The host's proxy, and which destinations pass it by.

use std::fmt;
use std::net::IpAddr;

use super::rules::{Name, in_range};

/// The proxy that connections leave through, where the host has one.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    proxy: Option<Proxy>,
    except: Vec<Exception>,
}

/// One proxy.
#[derive(Clone)]
pub struct Proxy {
    pub(super) kind: Kind,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<Login>,
}

/// How it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTTP's CONNECT, RFC 9110.
    Connect,
    /// SOCKS version 5, RFC 1928. Names are resolved by the proxy, for `socks5://` too.
    Socks5,
}

/// User and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}:{}", self.kind, self.host, self.port)
    }
}

/// What `NO_PROXY` names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Exception {
    host: Excepted,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Excepted {
    All,
    /// This name and those below it.
    Name(String),
    Range(IpAddr, u8),
}

impl Proxies {
    /// No proxy.
    pub fn none() -> Proxies {
        Proxies::default()
    }

    /// From the values of `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`; the first that is set and not empty is taken.
    ///
    /// # Errors
    /// What is wrong with the proxy's URL, without any secret of it.
    pub fn read(https: Option<&str>, all: Option<&str>, no: Option<&str>) -> Result<Proxies, String> {
        let url = [https, all].into_iter().flatten().map(str::trim).find(|url| !url.is_empty());
        let except = no.unwrap_or_default().split(|c: char| c == ',' || c.is_ascii_whitespace());
        Ok(Proxies {
            proxy: url.map(read_proxy).transpose()?,
            except: except.filter(|text| !text.is_empty()).filter_map(read_exception).collect(),
        })
    }

    /// The proxy for a name.
    pub(super) fn for_name(&self, name: &Name, port: u16) -> Option<&Proxy> {
        self.unless(port, |host| match host {
            Excepted::All => true,
            Excepted::Name(excepted) => name.as_str() == excepted || name.is_below(excepted),
            Excepted::Range(..) => false,
        })
    }

    /// The proxy for an address.
    pub(super) fn for_address(&self, address: IpAddr, port: u16) -> Option<&Proxy> {
        self.unless(port, |host| match host {
            Excepted::All => true,
            Excepted::Name(_) => false,
            Excepted::Range(network, prefix) => in_range(*network, *prefix, address.to_canonical()),
        })
    }

    fn unless(&self, port: u16, named: impl Fn(&Excepted) -> bool) -> Option<&Proxy> {
        let passed_by =
            |exception: &Exception| exception.port.is_none_or(|only| only == port) && named(&exception.host);
        self.proxy.as_ref().filter(|_| !self.except.iter().any(passed_by))
    }
}

/// Reads `[SCHEME://][USER[:PASSWORD]@]HOST[:PORT][/]`.
fn read_proxy(url: &str) -> Result<Proxy, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (kind, default) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (Kind::Connect, 80),
        "socks5" | "socks5h" | "socks" => (Kind::Socks5, 1080),
        "https" => {
            return Err("a proxy that is itself reached by TLS (https://) is not supported; \
                               http:// and socks5:// are, and what passes through them stays encrypted"
                .into());
        }
        _ => return Err("the proxy's scheme is none of http, socks5 and socks5h".into()),
    };
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (login, address) = match rest.rsplit_once('@') {
        Some((login, address)) => (Some(read_login(login)?), address),
        None => (None, rest),
    };
    let (host, port) = split_port(address);
    let port = match port {
        Some(port) => {
            port.parse().ok().filter(|port| *port != 0).ok_or("the proxy's port is no number from 1 to 65535")?
        }
        None => default,
    };
    if host.parse::<IpAddr>().is_err() && Name::new(host).is_none() {
        return Err("the proxy's host is neither a name nor an address".into());
    }
    Ok(Proxy { kind, host: host.to_owned(), port, login })
}

fn read_login(text: &str) -> Result<Login, String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let login = Login { user: decode(user)?, password: decode(password)? };
    let fits = |text: &str| text.len() <= 255 && !text.contains(['\r', '\n', '\0']);
    if login.user.is_empty() || login.user.contains(':') || !fits(&login.user) || !fits(&login.password) {
        return Err("the proxy's user or password is empty, over 255 bytes or has forbidden characters".into());
    }
    Ok(login)
}

/// Percent-encoding undone.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err("a `%` in the proxy's user or password is not followed by two hexadecimal digits".into());
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| "the proxy's user or password is no text".into())
}

/// Parts `HOST[:PORT]`, `[V6][:PORT]`; a bare V6 has no port.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// None for what names nothing: others read the variable too, each with forms of its own.
fn read_exception(text: &str) -> Option<Exception> {
    if text == "*" {
        return Some(Exception { host: Excepted::All, port: None });
    }
    if let Ok(bundle::Host::Range { network, prefix }) = text.parse() {
        return Some(Exception { host: Excepted::Range(network, prefix), port: None });
    }
    let (host, port) = split_port(text);
    let port = port.map(str::parse).transpose().ok()?;
    let host = match host.parse::<IpAddr>() {
        Ok(address) => Excepted::Range(address, if address.is_ipv4() { 32 } else { 128 }),
        Err(_) => {
            let name = host.strip_prefix('*').unwrap_or(host);
            Excepted::Name(Name::new(name.strip_prefix('.').unwrap_or(name))?.as_str().to_owned())
        }
    };
    Some(Exception { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str) -> Result<String, String> {
        let proxies = Proxies::read(Some(url), None, None)?;
        Ok(proxies.proxy.map_or("none".into(), |proxy| {
            let login = proxy.login.as_ref().map(|login| format!(" {} {}", login.user, login.password));
            format!("{proxy:?}{}", login.unwrap_or_default())
        }))
    }

    #[test]
    fn urls_of_proxies() {
        let right = [
            ("", "none"),
            ("  ", "none"),
            ("http://proxy.test:3128", "Connect proxy.test:3128"),
            ("http://proxy.test:3128/", "Connect proxy.test:3128"),
            ("proxy.test:3128", "Connect proxy.test:3128"),
            ("HTTP://proxy.test", "Connect proxy.test:80"),
            ("socks5://10.0.0.1", "Socks5 10.0.0.1:1080"),
            ("socks5h://[fd00::1]:99", "Socks5 fd00::1:99"),
            ("http://user:p%40ss%3aword@proxy.test:1", "Connect proxy.test:1 user p@ss:word"),
            ("http://user@proxy.test:1", "Connect proxy.test:1 user "),
        ];
        for (url, want) in right {
            assert_eq!(proxy(url).as_deref(), Ok(want), "{url}");
        }
        for url in [
            "https://user:secret@proxy.test",
            "socks4://secret",
            "ftp://secret",
            "http://",
            "http://secret:0",
            "http://x:secret",
            "http://a:b%0d%0asecret@proxy.test",
            "http://:secret@proxy.test",
            "http://a:%secret@proxy.test",
            "http://a b",
        ] {
            let error = proxy(url).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_first_that_is_set() {
        let read = |https, all| Proxies::read(https, all, None).unwrap().proxy.map(|proxy| proxy.host);
        assert_eq!(read(Some("http://a"), Some("http://b")).as_deref(), Some("a"));
        assert_eq!(read(Some(""), Some("socks5://b")).as_deref(), Some("b"));
        assert_eq!(read(None, None), None);
    }

    #[test]
    fn what_passes_the_proxy_by() {
        let no = ".inside.test, example.test,*.star.test 10.0.0.0/8,192.0.2.1,fd00::/8,[::1],only.test:8080,x:y,%%";
        let proxies = Proxies::read(Some("http://proxy.test"), None, Some(no)).unwrap();
        let by_name = |name: &str, port| proxies.for_name(&Name::new(name).unwrap(), port).is_none();
        let by_address = |address: &str| proxies.for_address(address.parse().unwrap(), 443).is_none();
        for name in ["a.inside.test", "inside.test", "example.test", "a.b.example.test", "a.star.test"] {
            assert!(by_name(name, 443), "{name}");
        }
        assert!(by_name("only.test", 8080) && !by_name("only.test", 443));
        assert!(!by_name("badexample.test", 443) && !by_name("test", 443));
        for address in ["10.1.2.3", "192.0.2.1", "fd12::1", "::1", "::ffff:10.0.0.1"] {
            assert!(by_address(address), "{address}");
        }
        assert!(!by_address("192.0.2.2") && !by_address("2001:db8::1"));
        let all = Proxies::read(Some("http://proxy.test"), None, Some("*")).unwrap();
        assert!(all.for_name(&Name::new("a.test").unwrap(), 1).is_none());
    }
}
