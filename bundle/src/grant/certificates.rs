//! Whom a server with a network trusts: the certificates that its caller names, else those of its package, else those of
//! the machine. They go in as data, and of their files nothing but certificates does.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use distribution::system::{self, Mode, OFlags, OwnedFd, ResolveFlags, openat2};

use super::{CallerEnv, Egress, Grant, Verdict};
use crate::Secret;

/// Where they are inside.
pub const CERTIFICATES: &str = "/etc/smcp/certificates.pem";

/// Certificates of this machine for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// The file that they are of.
    pub from: PathBuf,
    /// The certificates, PEM, without anything else of the file.
    pub pem: String,
}

/// The caller's, where its environment names a file.
pub(super) const NAMED_BY: &str = "SSL_CERT_FILE";

/// Variables by which programs are told to trust what the caller does, in place of what they bring along.
pub(super) const OF_CALLER: [&str; 5] = [
    // OpenSSL and its kin: python's ssl, httpx, aiohttp, ruby, Go, Rust's native roots, uv.
    NAMED_BY,
    // node, beside its own.
    "NODE_EXTRA_CA_CERTS",
    // python's requests, which has certifi's else; pip.
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// The same for programs that bring none along and look in the package.
const OF_MACHINE: [&str; 3] = [NAMED_BY, "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"];

/// Where Debian, Alpine, Fedora and SUSE have theirs.
const PLACES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// A file of certificates is not larger: that of Debian is 230 KB.
const MOST: u64 = 2 << 20;

/// Reads the caller's, for a run that reaches something.
pub(super) fn of_caller(egress: &Egress, caller: &CallerEnv, verdict: &mut Verdict) -> Option<Certificates> {
    if egress.is_empty() {
        return None;
    }
    let named = caller.vars.get(OsStr::new(NAMED_BY)).filter(|path| !path.is_empty())?;
    let from = caller.cwd.join(named);
    match Certificates::of_file(&from) {
        Ok(certificates) => Some(certificates),
        Err(why) => {
            verdict.notes.push(format!("{NAMED_BY} {}: the server does not get it: {why}", from.display()));
            None
        }
    }
}

impl Certificates {
    /// Those in a file.
    ///
    /// # Errors
    /// The system's, and where there are none in it.
    pub fn of_file(from: &Path) -> io::Result<Certificates> {
        read(open(from)?, from)
    }
}

impl Grant {
    /// Adds the machine's own certificates where a run needs some and neither its caller nor its package, whose files are
    /// `tree`, has any.
    #[must_use]
    pub fn with_certificates_for(mut self, tree: &Path) -> Grant {
        if !self.egress.is_empty() && self.certificates.is_none() && !brings_some(tree) {
            let of = |place: &&str| Certificates::of_file(Path::new(place)).ok();
            self.certificates = PLACES.iter().find_map(of);
            for name in OF_MACHINE.iter().filter(|_| self.certificates.is_some()) {
                if let Err(place) = self.env.binary_search_by(|(own, _)| own.as_str().cmp(name)) {
                    self.env.insert(place, ((*name).to_owned(), Secret::new(CERTIFICATES)));
                }
            }
        }
        self
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A pipe would hold the start up.
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Takes the certificates out of a file, which may hold keys beside them.
fn read(file: File, from: &Path) -> io::Result<Certificates> {
    let mut text = Vec::new();
    if file.take(MOST + 1).read_to_end(&mut text)? as u64 > MOST {
        return Err(io::Error::other(format!("it is larger than {MOST} bytes")));
    }
    let text = String::from_utf8_lossy(&text);
    let mut pem = String::new();
    let mut block: Option<String> = None;
    for line in text.lines().map(str::trim) {
        match (line, &mut block) {
            ("-----BEGIN CERTIFICATE-----" | "-----BEGIN TRUSTED CERTIFICATE-----", _) => {
                block = Some(line.to_owned() + "\n")
            }
            ("-----END CERTIFICATE-----" | "-----END TRUSTED CERTIFICATE-----", Some(open)) => {
                pem.push_str(open);
                pem.push_str(line);
                pem.push('\n');
                block = None;
            }
            (line, Some(open)) if is_base64(line) => {
                open.push_str(line);
                open.push('\n');
            }
            _ => block = None,
        }
    }
    match pem.is_empty() {
        true => Err(io::Error::other("it holds no certificate in PEM")),
        false => Ok(Certificates { from: from.into(), pem }),
    }
}

fn is_base64(line: &str) -> bool {
    !line.is_empty() && line.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
}

/// Whether a package's tree has certificates in a usual place; its links lead nowhere else.
fn brings_some(tree: &Path) -> bool {
    let flags = system::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let Ok(tree) = system::open(tree, flags, Mode::empty()) else { return false };
    let flags = system::PATH | OFlags::CLOEXEC;
    let there = |place: &&str| openat2(&tree, &place[1..], flags, Mode::empty(), ResolveFlags::IN_ROOT);
    let filled = |file: OwnedFd| system::fstat(file).is_ok_and(|about| about.st_size > 0);
    PLACES.iter().filter_map(|place| there(place).ok()).any(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> io::Result<String> {
        let mut file = tempfile::tempfile()?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        io::Seek::rewind(&mut file)?;
        read(file, Path::new("x")).map(|certificates| certificates.pem)
    }

    #[test]
    fn nothing_but_certificates_is_taken() {
        let block = |kind: &str| format!("-----BEGIN {kind}-----\nTUlJ+/==\n-----END {kind}-----\n");
        let one = block("CERTIFICATE");
        let mixed =
            format!("# a comment\n{}{one}subject=x\r\n{}{one}tail", block("PRIVATE KEY"), block("EC PRIVATE KEY"));
        assert_eq!(read_text(&mixed).unwrap(), one.repeat(2));
        assert_eq!(read_text(&one.replace('\n', "\r\n")).unwrap(), one);
        for none in [
            "",
            "hunter2",
            &block("PRIVATE KEY"),
            "-----BEGIN CERTIFICATE-----\nTUlJ",
            "-----BEGIN CERTIFICATE-----\nhunter 2\n-----END CERTIFICATE-----\n",
        ] {
            assert!(read_text(none).is_err(), "{none}");
        }
        let torn = format!("-----BEGIN CERTIFICATE-----\nTUlJ\n{one}");
        assert_eq!(read_text(&torn).unwrap(), one);
        assert!(read_text(&one.repeat(MOST as usize / one.len() + 1)).is_err());
    }

    #[test]
    fn a_link_of_a_package_leads_into_the_package() {
        let tree = tempfile::tempdir().unwrap();
        let certs = tree.path().join("etc/ssl/certs");
        fs::create_dir_all(&certs).unwrap();
        assert!(!brings_some(tree.path()));
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), certs.join("ca-certificates.crt")).unwrap();
        assert!(!brings_some(tree.path()), "it is not in the package");
        fs::write(tree.path().join("etc/own"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/own", tree.path().join("etc/ssl/cert.pem")).unwrap();
        assert!(brings_some(tree.path()));
    }
}
