//! `smcp login` and `logout`: credentials of one registry each, in a file that only its owner reads.

use std::io::Read;

use distribution::{Login, Mode, Secret};

use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show;

/// The longest password or token, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Keeps credentials, once the registry has taken them.
///
/// # Errors
/// Where there are none on stdin, or the registry does not take them; nothing is kept then.
pub fn login(typed: &cli::Login, settings: &Settings) -> Result<(), Failure> {
    let login = match (&typed.token, &typed.username) {
        (Some(token), _) if token == "-" => Login::Token(from_stdin("token")?),
        (Some(token), _) => Login::Token(Secret::new(token)),
        (None, Some(username)) => {
            if username.is_empty() || username.contains([':', '\n']) {
                return Err(Failure::new(exit::USAGE, "--username: a name has no colon, and is not empty"));
            }
            Login::Password { username: username.clone(), password: from_stdin("password")? }
        }
        (None, None) => unreachable!("one of them is required"),
    };
    let host = distribution::login(typed.registry.as_deref(), &login, &settings.network(None, Mode::Refresh))?;
    show::say(&format!("logged in to {host}"));
    Ok(())
}

/// Forgets credentials.
///
/// # Errors
/// Where the file cannot be written.
pub fn logout(registry: Option<&str>, settings: &Settings) -> Result<(), Failure> {
    let (host, was_there) = distribution::logout(registry, &settings.network(None, Mode::Offline))?;
    show::say(&match was_there {
        true => format!("logged out of {host}"),
        false => format!("there was no login for {host}"),
    });
    Ok(())
}

/// A secret without the line end that a shell adds.
fn from_stdin(what: &str) -> Result<Secret, Failure> {
    let fail = |why: String| Failure::new(exit::USAGE, format!("the {what} on stdin: {why}"));
    let mut text = String::new();
    std::io::stdin().take(MAX_SECRET + 1).read_to_string(&mut text).map_err(|why| fail(why.to_string()))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    match secret.len() as u64 {
        0 => Err(fail("there is none".into())),
        1..=MAX_SECRET => Ok(Secret::new(secret)),
        _ => Err(fail(format!("longer than {MAX_SECRET} bytes"))),
    }
}
