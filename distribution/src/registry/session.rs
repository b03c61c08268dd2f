//! Requests to one registry as somebody: what it asks to be shown is found, shown to it alone, and renewed when it is
//! no longer taken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use super::http::{Answer, Body, Http, Request};
use super::patience::Patience;
use crate::auth::{Challenge, Login, basic};
use crate::url::{Url, escaped};
use crate::{Access, Error, Result, Secret, json};

/// The largest answer of a token service, in bytes.
const MAX_TOKEN: usize = 64 << 10;
/// How often a request is sent again with something new to show.
const RENEWALS: u32 = 3;
/// What smcp is called at token services.
const CLIENT: &str = "smcp";

/// Requests to one registry for one purpose.
#[derive(Debug)]
pub(crate) struct Session {
    http: Http,
    host: String,
    /// For whose sake, in the words of docker's and podman's files.
    repository: String,
    /// What a token has to allow, as `repository:acme/tool:pull`.
    scopes: Vec<String>,
    /// It speaks the hub's API, where a password is exchanged for a token at the hub itself.
    is_hub: bool,
    shown: Mutex<Shown>,
}

/// What the registry is shown.
#[derive(Debug, Default)]
struct Shown {
    header: Option<Secret>,
    /// Looked up at most once, and where it is from.
    login: Option<Option<(Login, String)>>,
}

impl Session {
    /// Opens no connection and looks nothing up yet.
    pub(crate) fn new(
        access: Arc<Access>,
        host: &str,
        repository: &str,
        scopes: Vec<String>,
        patience: Patience,
    ) -> Self {
        let http = Http::new(access, patience);
        Self { http, host: host.into(), repository: repository.into(), scopes, is_hub: false, shown: Mutex::default() }
    }

    /// With a registry that speaks the hub's API.
    pub(crate) fn of_a_hub(access: Arc<Access>, host: &str, repository: &str) -> Self {
        Self { is_hub: true, ..Self::new(access, host, repository, Vec::new(), Patience::Needed) }
    }

    /// Shows a login at once, to a hub that may ask for none where it is tried out.
    pub(crate) fn show(&self, login: &Login) -> Result<()> {
        let mut shown = self.shown();
        shown.login = Some(Some((login.clone(), "what was given".into())));
        shown.header = Some(self.hub_header(login, &shown)?);
        Ok(())
    }

    /// Whether the host speaks the distribution specification: it answers `/v2/`, or asks there for credentials as that
    /// says. Where it cannot be asked, nobody knows better.
    pub(crate) fn speaks_distribution(&self) -> bool {
        let url = Url::at(&self.host, "/v2/".into(), &self.http.access);
        match self.http.run(&Request::new("GET", url), &self.host, None) {
            Ok(answer) if answer.status() == 401 => {
                !answer.challenges().is_empty() || answer.header("docker-distribution-api-version").is_some()
            }
            Ok(answer) => !matches!(answer.status(), 400..=499 | 501),
            Err(_) => true,
        }
    }

    /// With a login that is tried out.
    pub(crate) fn with_login(access: Arc<Access>, host: &str, login: &Login) -> Self {
        let session = Self::new(access, host, "", Vec::new(), Patience::Needed);
        session.shown.lock().expect("new").login = Some(Some((login.clone(), "what was given".into())));
        session
    }

    pub(crate) fn access(&self) -> &Access {
        &self.http.access
    }

    pub(crate) fn patience(&self) -> Patience {
        self.http.patience
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request, and again with credentials where they are asked for. A token can end between two requests, and
    /// for another thread meanwhile.
    pub(crate) fn run(&self, request: &Request<'_>) -> Result<Answer> {
        let mut shown = self.shown().header.clone();
        for _ in 0..=RENEWALS {
            let answer = self.http.run(request, &self.host, shown.as_ref())?;
            if answer.status() != 401 || answer.url().authority() != self.host {
                return Ok(answer);
            }
            shown = Some(self.renew(&answer, shown)?);
        }
        Err(self.refused(&self.shown()))
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.shown.lock().expect("no panic while it is held")
    }

    /// What to show in place of `stale`. Another thread may have found it meanwhile.
    fn renew(&self, refusal: &Answer, stale: Option<Secret>) -> Result<Secret> {
        let mut shown = self.shown();
        if let Some(known) = shown.header.clone().filter(|known| Some(known) != stale.as_ref()) {
            return Ok(known);
        }
        if shown.login.is_none() {
            shown.login = Some(self.http.access.login(&self.host, &self.repository)?);
        }
        let login = shown.login.as_ref().and_then(Option::as_ref).map(|(login, _)| login);
        let fresh = self.answer_to(refusal, login, &shown)?;
        // What stays the same each time was refused just now.
        if stale.as_ref() == Some(&fresh) {
            return Err(self.refused(&shown));
        }
        shown.header = Some(fresh.clone());
        Ok(fresh)
    }

    fn answer_to(&self, refusal: &Answer, login: Option<&Login>, shown: &Shown) -> Result<Secret> {
        let challenges = refusal.challenges();
        if self.is_hub {
            return match login {
                Some(Login::Password { username, password }) if challenges.contains(&Challenge::Basic) => {
                    Ok(basic(username, password))
                }
                Some(login) => self.hub_header(login, shown),
                None => Err(self.refused(shown)),
            };
        }
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            Challenge::Basic => None,
        });
        match (login, bearer) {
            (Some(Login::Token(token)), _) => Ok(Login::token_header(token)),
            (_, Some((realm, service))) => self.token(refusal, realm, service, login, shown),
            (Some(Login::Password { username, password }), None) => Ok(basic(username, password)),
            (Some(Login::Identity(_)), None) => {
                Err(self.unauthorized("it names no token service that would take the identity token for it"))
            }
            (None, None) => Err(self.refused(shown)),
        }
    }

    /// What a hub is shown: a token, or one that it gives for a password; in its open-source mode the password itself.
    fn hub_header(&self, login: &Login, shown: &Shown) -> Result<Secret> {
        let (username, password) = match login {
            Login::Token(token) => return Ok(Login::token_header(token)),
            Login::Identity(_) => return Err(self.unauthorized("a hub takes no identity token")),
            Login::Password { username, password } => (username, password),
        };
        let url = Url::at(&self.host, "/v1/auth/login".into(), &self.http.access);
        let form = serde_json::json!({"username": username, "password": password.expose()}).to_string();
        self.http.patience.repeat(|| {
            let body = Body::Document(form.as_bytes(), "application/json");
            let answer = self.http.run(&Request::new("POST", url.clone()).body(body), &self.host, None)?;
            match answer.status() {
                401 | 403 => Err(self.refused(shown)),
                404 | 405 | 501 => Ok(basic(username, password)),
                _ => read_token(answer.expect(&[200])?, &self.host),
            }
        })
    }

    /// A token from the service that the registry names.
    fn token(
        &self,
        refusal: &Answer,
        realm: &str,
        service: Option<&str>,
        login: Option<&Login>,
        shown: &Shown,
    ) -> Result<Secret> {
        let refused = |why: &str| self.unauthorized(&format!("its token service cannot be used: {why}"));
        let url = refusal.url().follow(realm, &self.http.access).map_err(refused)?;
        let at = url.authority().to_string();
        if login.is_some() && !self.http.access.may_tell(&self.host, &at) {
            return Err(Error::Realm { host: self.host.clone(), realm: at });
        }
        self.http.patience.repeat(|| {
            let answer = match login {
                Some(Login::Identity(token)) => self.exchange(&url, service, token)?,
                Some(Login::Password { username, password }) => {
                    let request = self.token_request(&url, service).header("accept", "application/json");
                    let url = request.url.clone().with("account", username);
                    self.http.run(&Request { url, ..request }, &at, Some(&basic(username, password)))?
                }
                _ => self.http.run(&self.token_request(&url, service), &at, None)?,
            };
            if answer.url().authority() != at {
                return Err(refused("it redirects to another host"));
            }
            match answer.status() {
                401 | 403 => Err(self.refused(shown)),
                _ => read_token(answer.expect(&[200])?, &self.host),
            }
        })
    }

    fn token_request(&self, realm: &Url, service: Option<&str>) -> Request<'static> {
        let url = service.into_iter().fold(realm.clone(), |url, service| url.with("service", service));
        let url = self.scopes.iter().fold(url, |url, scope| url.with("scope", scope));
        Request::new("GET", url)
    }

    /// OAuth 2: an identity token for one that opens the repository.
    fn exchange(&self, url: &Url, service: Option<&str>, token: &Secret) -> Result<Answer> {
        let scope = self.scopes.join(" ");
        let mut form = format!("grant_type=refresh_token&client_id={CLIENT}&refresh_token={}", escaped(token.expose()));
        for (name, value) in [("service", service), ("scope", Some(&*scope))] {
            form.extend(value.filter(|value| !value.is_empty()).map(|value| format!("&{name}={}", escaped(value))));
        }
        let body = Body::Document(form.as_bytes(), "application/x-www-form-urlencoded");
        self.http.run(&Request::new("POST", url.clone()).body(body), url.authority(), None)
    }

    fn refused(&self, shown: &Shown) -> Error {
        match shown.login.as_ref().and_then(Option::as_ref) {
            Some((_, from)) => self.unauthorized(&format!("it does not accept the credentials from {from}")),
            None => self.unauthorized("it asks for credentials, and there are none for it"),
        }
    }

    fn unauthorized(&self, why: &str) -> Error {
        Error::Unauthorized { host: self.host.clone(), why: why.into() }
    }
}

fn read_token(answer: Answer, host: &str) -> Result<Secret> {
    #[derive(Deserialize)]
    struct Token {
        token: Option<String>,
        access_token: Option<String>,
    }
    let bytes = answer.small(MAX_TOKEN, Duration::from_secs(30))?;
    let wrong = |why: &str| Error::Verification { what: format!("the token for {host}"), why: why.into() };
    // The answer is a secret: nothing of it stands in an error.
    let read =
        json::strict::<Token>(&bytes, MAX_TOKEN).map_err(|_| wrong("the token service's answer is not understood"))?;
    let token = read.token.or(read.access_token).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| wrong("the token service's answer holds none"))?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(wrong("it has characters that no token has"));
    }
    Ok(Secret::new(format!("Bearer {token}")))
}
