//! `smcp key generate`, and the files of keys: where their passphrases come from.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bundle::attest::{KeyError, KeyKind, PublicKey, Root, SigningKey, TrustedKey};
use console::Term;
use distribution::Secret;
use distribution::system::OpenOptionsExt as _;

use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::read_small;
use crate::show::{self, outln};

/// Variables with the passphrase of a private key; the second is cosign's.
const PASSPHRASE: [&str; 2] = ["SMCP_KEY_PASSWORD", "COSIGN_PASSWORD"];

/// Makes a pair of keys: PREFIX.key and PREFIX.pub.
///
/// # Errors
/// Where one of the files is there already, or cannot be written.
pub fn generate(output: &Path, kind: cli::KeyType) -> Result<(), Failure> {
    let [private, public] = ["key", "pub"].map(|end| beside(output, end));
    if let Some(there) = [&private, &public].into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::new(exit::USAGE, format!("{} is there already", there.display()))
            .hint("a key that is overwritten is lost; name others by --output"));
    }
    let kind = match kind {
        cli::KeyType::Ecdsa => KeyKind::EcdsaP256,
        cli::KeyType::Ed25519 => KeyKind::Ed25519,
    };
    let key = SigningKey::generate(kind).map_err(of_output(&private))?;
    let passphrase = new_passphrase()?;
    if passphrase.is_none() {
        show::say(&format!("the private key is not encrypted: no passphrase by {} or on a terminal", PASSPHRASE[0]));
    }
    let text = key.to_pem(passphrase.as_ref()).map_err(of_output(&private))?;
    write_new(&private, 0o600, text.expose())?;
    write_new(&public, 0o644, &key.public().to_pem())?;
    outln!("{} {}", public.display(), key.public().fingerprint());
    Ok(())
}

/// Reads a private key, with the passphrase of the environment, or asked for on a terminal.
///
/// # Errors
/// Where it cannot be read or opened.
pub fn signing(path: &Path) -> Result<SigningKey, Failure> {
    let bytes = read_small(path).map_err(|why| of_file(path, &why))?;
    let passphrase = match SigningKey::is_encrypted(&bytes) {
        true => from_environment()?
            .map_or_else(|| asked(&format!("passphrase of {}: ", path.display())), |given| Ok(Some(given)))?,
        false => None,
    };
    SigningKey::from_pem(&bytes, passphrase.as_ref()).map_err(|why| {
        let failure = of_file(path, &why);
        match why {
            KeyError::Encrypted | KeyError::Passphrase => failure.hint(format!("give it by {}", PASSPHRASE[0])),
            KeyError::Form(_) => failure,
        }
    })
}

/// Reads a public key.
///
/// # Errors
/// What is wrong, without the file's name.
pub fn trusted(path: &Path) -> Result<TrustedKey, String> {
    let bytes = read_small(path).map_err(|why| why.to_string())?;
    let key = PublicKey::from_pem(&bytes).map_err(|why| why.to_string())?;
    Ok(TrustedKey { file: path.into(), key })
}

/// Reads a trust root.
///
/// # Errors
/// What is wrong, without the file's name.
pub fn trust_root(path: &Path) -> Result<Root, String> {
    let bytes = read_small(path).map_err(|why| why.to_string())?;
    Root::from_json(&String::from_utf8(bytes).map_err(|why| why.to_string())?)
}

fn beside(output: &Path, end: &str) -> PathBuf {
    let mut path = OsString::from(output);
    path.push(format!(".{end}"));
    path.into()
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let mut new = OpenOptions::new();
    let written = new.write(true).create_new(true).mode(mode).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|why| Failure::new(exit::USAGE, format!("{}: {why}", path.display())))
}

/// For a new key: an empty one means none.
fn new_passphrase() -> Result<Option<Secret>, Failure> {
    let given = match from_environment()? {
        Some(given) => Some(given),
        None => {
            let first = asked("passphrase of the new private key (empty for none): ")?;
            let again = if first.as_ref().is_some_and(|first| !first.expose().is_empty()) {
                asked("again: ")?
            } else {
                first.clone()
            };
            if first != again {
                return Err(Failure::new(exit::USAGE, "the two passphrases differ"));
            }
            first
        }
    };
    Ok(given.filter(|given| !given.expose().is_empty()))
}

fn from_environment() -> Result<Option<Secret>, Failure> {
    let Some(name) = PASSPHRASE.into_iter().find(|name| std::env::var_os(name).is_some()) else { return Ok(None) };
    let value = std::env::var(name).map_err(|_| Failure::new(exit::USAGE, format!("{name} is not UTF-8")))?;
    Ok(Some(Secret::new(value)))
}

/// Asks where somebody can answer, without showing what is typed.
fn asked(question: &str) -> Result<Option<Secret>, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let terminal = Term::stderr();
    let answer = terminal.write_str(question).and_then(|()| terminal.read_secure_line());
    answer.map(|text| Some(Secret::new(text))).map_err(|why| Failure::new(exit::USAGE, format!("the terminal: {why}")))
}

/// What is wrong with a file that `--key` names.
pub fn of_file(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::USAGE, format!("--key {}: {why}", path.display()))
}

fn of_output(path: &Path) -> impl FnOnce(KeyError) -> Failure {
    let path = path.to_owned();
    move |why| Failure::new(exit::USAGE, format!("{}: {why}", path.display()))
}
