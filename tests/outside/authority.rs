//! A certificate authority of the tests' own, and the one certificate of all TLS servers, made by openssl.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::OnceLock;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::names::NAMES;
use crate::{place, probe};

/// Of what openssl is asked: `NAMES` stands for the names.
const REQUEST: &str = "
[req]
distinguished_name = name
prompt = no
[name]
CN = smcp tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = NAMES
";

/// What makes a key and an authority, a key and a request, and signs it.
const STEPS: [&str; 3] = [
    "req -x509 -days 3650 -config request.cnf -extensions authority -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout authority.key -out authority.pem",
    "req -new -config request.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr",
    "x509 -req -days 3650 -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -extfile request.cnf -extensions server -out server.pem",
];

/// The authority's certificate.
pub fn certificate() -> PathBuf {
    directory().join("authority.pem")
}

/// What the TLS servers speak by.
pub fn server() -> Arc<ServerConfig> {
    static SERVER: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let make = || {
        let file = |name: &str| directory().join(name);
        let chain = CertificateDer::pem_file_iter(file("server.pem")).expect("openssl wrote it");
        let chain = chain.collect::<Result<_, _>>().expect("openssl wrote it");
        let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("openssl wrote it");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let server = server.expect("ring has both").with_no_client_auth().with_single_cert(chain, key);
        Arc::new(server.expect("the key is the certificate's"))
    };
    SERVER.get_or_init(make).clone()
}

fn directory() -> PathBuf {
    let names: Vec<_> = NAMES.iter().map(|(name, _)| format!("DNS:{name}")).collect();
    let request = REQUEST.replace("NAMES", &names.join(","));
    place::once(&format!("authority-{:016x}", probe::sum(request.as_bytes())), |to| {
        fs::create_dir_all(to)?;
        fs::write(to.join("request.cnf"), &request)?;
        STEPS.iter().try_for_each(|step| openssl(to, step))
    })
}

fn openssl(directory: &Path, step: &str) -> io::Result<()> {
    let done = Command::new("openssl").args(step.split(' ')).current_dir(directory).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(io::Error::other(format!("openssl {step}: {said}"))) }
}
