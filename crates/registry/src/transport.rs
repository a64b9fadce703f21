//! Requests to a registry: authenticated, repeated where that may help, never without a limit.
//!
//! Protocol: OCI distribution specification 1.1; tokens: distribution, `docs/spec/auth/token.md` and
//! `oauth.md`.

use crate::challenge::{self, Challenge};
use crate::credentials::{self, Credentials, Secret};
use crate::pace::{self, Paced, TooSlow};
use crate::redirect::{self, Origin};
use crate::{Access, Reference, RegistryError, answers, reference, roots};
use serde::Deserialize;
use std::error::Error as _;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use ureq::http::{HeaderMap, Response, Uri};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, Error, ResponseExt};

/// Requests of which none got an answer, or only the one to come again.
const ATTEMPTS: u32 = 5;

/// Wait before the first repetition; it doubles with each.
const BACKOFF: Duration = Duration::from_millis(250);

/// Longest wait that a registry may ask for (`Retry-After`).
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Bytes of an answer with a token.
const TOKEN_MAX: u64 = 1 << 20;

/// The connections to the registry of an image.
pub(crate) struct Transport {
    agent: Agent,
    reference: Reference,
    access: Access,
    /// `https://HOST`, or `http://HOST`.
    base: OnceLock<String>,
    /// The value of the `Authorization` header, once the registry has wanted one.
    authorization: Mutex<Option<String>>,
}

/// The answer of a server of tokens.
#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// The outcome of one request.
enum Outcome {
    Answer(Response<Body>),
    /// It may succeed when it is made again.
    Again {
        why: String,
        wait: Option<Duration>,
    },
}

impl Transport {
    pub(crate) fn new(reference: &Reference, access: &Access) -> Result<Self, RegistryError> {
        let is_plain_allowed = !access.verifies_tls || reference.is_loopback();
        let tls = TlsConfig::builder().disable_verification(!access.verifies_tls);
        let tls = match access.verifies_tls {
            true => tls.root_certs(roots::of(&access.certificates, reference)?),
            false => tls,
        };
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(!is_plain_allowed)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("seekless/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(access.timeout))
            .timeout_connect(Some(access.timeout))
            .timeout_send_request(Some(access.timeout))
            .timeout_recv_response(Some(access.timeout))
            .timeout_recv_body(Some(access.timeout))
            .timeout_per_read(Some(access.timeout));
        let config = if reference.is_loopback() { config.proxy(None) } else { config };
        Ok(Self {
            agent: config.build().new_agent(),
            reference: reference.clone(),
            access: access.clone(),
            base: OnceLock::new(),
            authorization: Mutex::new(None),
        })
    }

    /// The answer to a request for a part of the image, `manifests/...` or `blobs/...`, from the
    /// byte at which `bytes` start. Its body may take as long as these may take.
    pub(crate) fn get(
        &self,
        path: &str,
        accepted: &[&str],
        bytes: Range<u64>,
    ) -> Result<Response<Body>, RegistryError> {
        let url = format!("{}/v2/{}/{path}", self.base()?, self.reference.repository());
        let longest = pace::longest(bytes.end - bytes.start, self.access.timeout);
        let mut is_authenticated = false;
        loop {
            let used = self.authorization().clone();
            let request = |hop: &redirect::Hop<'_>| {
                let config = self.agent.get(hop.url).config();
                let mut request = config.timeout_recv_body(Some(longest)).build();
                for kind in accepted {
                    request = request.header("Accept", *kind);
                }
                if bytes.start > 0 {
                    request = request.header("Range", format!("bytes={}-", bytes.start));
                }
                if let Some(value) = used.as_ref().filter(|_| hop.is_home) {
                    request = request.header("Authorization", value);
                }
                request.call()
            };
            let answer = self.insist(|| redirect::follow(&url, request))?;
            let is_answered = match answer.status().as_u16() {
                200 => true,
                206 | 416 => bytes.start > 0,
                _ => false,
            };
            if is_answered {
                return Ok(answer);
            }
            if Origin::of(answer.get_uri()) != url.parse().ok().and_then(|uri| Origin::of(&uri)) {
                // Credentials that it wants are not for it, nor for a server of tokens that it names.
                let other = answer.get_uri().host().unwrap_or_default().to_string();
                let host = self.reference.host();
                let what = format!("{other}, to which {host} redirects, answers");
                return Err(RegistryError::Answer(format!("{what} {}", self.reason(answer))));
            }
            match answer.status().as_u16() {
                401 if !is_authenticated => {
                    is_authenticated = true;
                    self.authenticate(&used, answer.headers())?;
                }
                401 | 403 => return Err(self.refused(&self.reason(answer))),
                404 => {
                    let said = self.reason(answer);
                    let host = self.reference.host();
                    let what = format!("{host} does not have {path} ({said})");
                    return Err(RegistryError::Answer(what));
                }
                _ => return Err(self.said(&self.reason(answer))),
            }
        }
    }

    /// Makes a request until there is an answer other than to come again.
    fn insist(
        &self,
        request: impl Fn() -> Result<Response<Body>, Error>,
    ) -> Result<Response<Body>, RegistryError> {
        let mut backoff = BACKOFF;
        let mut attempt = 1;
        loop {
            let (why, wait) = match self.outcome(request())? {
                Outcome::Answer(answer) => return Ok(answer),
                Outcome::Again { why, wait } => (why, wait),
            };
            if attempt == ATTEMPTS {
                let what = format!("{} ({ATTEMPTS} attempts)", self.said(&why));
                return Err(RegistryError::Answer(what));
            }
            thread::sleep(wait.unwrap_or(backoff).min(WAIT_MAX));
            backoff *= 2;
            attempt += 1;
        }
    }

    fn outcome(&self, answer: Result<Response<Body>, Error>) -> Result<Outcome, RegistryError> {
        match answer {
            Ok(answer) if matches!(answer.status().as_u16(), 429 | 500 | 502..=504) => {
                let wait = answer.headers().get("retry-after");
                let wait = wait.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                let wait = wait.map(Duration::from_secs);
                Ok(Outcome::Again { why: self.reason(answer), wait })
            }
            Ok(answer) => Ok(Outcome::Answer(answer)),
            Err(Error::Io(error)) if is_break(&error) => {
                Ok(Outcome::Again { why: error.to_string(), wait: None })
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The address of the registry. Only this machine, and a registry whose certificate is not
    /// verified, may be one without TLS, which is tried second.
    fn base(&self) -> Result<&str, RegistryError> {
        if let Some(base) = self.base.get() {
            return Ok(base);
        }
        let server = self.reference.server();
        let secure = format!("https://{server}");
        let may_be_plain = !self.access.verifies_tls || self.reference.is_loopback();
        let is_secure = !may_be_plain
            || match self.agent.get(format!("{secure}/v2/")).call() {
                Ok(_) => true,
                // A server without TLS does not understand the greeting. A certificate that is not
                // believed is no reason to do without any.
                Err(Error::Io(error)) if is_break(&error) => false,
                Err(error) => match about_tls(&error) {
                    Some(why) => is_about_certificate(&why),
                    None => return Err(self.failed(error)),
                },
            };
        let base = if is_secure { secure } else { format!("http://{server}") };
        Ok(self.base.get_or_init(|| base))
    }

    fn authorization(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Authenticates as the registry wants it. `used` was not enough: if another thread has
    /// authenticated since, nothing is left to be done.
    fn authenticate(
        &self,
        used: &Option<String>,
        headers: &HeaderMap,
    ) -> Result<(), RegistryError> {
        let mut authorization = self.authorization();
        if *authorization != *used {
            return Ok(());
        }
        let values = headers.get_all("www-authenticate").iter();
        let challenges: Vec<Challenge> =
            values.filter_map(|value| value.to_str().ok()).flat_map(challenge::parse).collect();
        let credentials = credentials::find(&self.access.credential_files, &self.reference)?;
        let is_bearer = |challenge: &&Challenge| matches!(challenge, Challenge::Bearer { .. });
        let bearer = challenges.iter().find(is_bearer);
        let value = match bearer {
            Some(Challenge::Bearer { realm, service, scope }) => {
                let token =
                    self.token(realm, service.as_deref(), scope.as_deref(), &credentials)?;
                format!("Bearer {token}")
            }
            _ if challenges.contains(&Challenge::Basic) => match credentials {
                Some(Credentials { secret: Secret::Password { user, password }, .. }) => {
                    Secret::basic(&user, &password)
                }
                Some(Credentials { secret: Secret::Identity(_), from }) => {
                    let host = self.reference.host();
                    let what = format!("{host} needs a password, but {from} has a token for it");
                    return Err(RegistryError::Answer(what));
                }
                None => return Err(self.no_credentials()),
            },
            _ => {
                let ways: Vec<&str> = challenges
                    .iter()
                    .filter_map(|challenge| match challenge {
                        Challenge::Other(name) => Some(name.as_str()),
                        _ => None,
                    })
                    .collect();
                let ways = answers::printable(&ways.join(", "));
                let host = self.reference.host();
                let what = format!(
                    "{host} wants authentication of another kind than Basic and Bearer ({ways})"
                );
                return Err(RegistryError::Unsupported(what));
            }
        };
        *authorization = Some(value);
        Ok(())
    }

    /// A token for reading the image, with credentials or for everybody.
    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        credentials: &Option<Credentials>,
    ) -> Result<String, RegistryError> {
        let ours = format!("repository:{}:pull", self.reference.repository());
        let scope = scope.unwrap_or(&ours);
        self.check_realm(realm)?;
        let answer = self.insist(|| {
            if let Some(Credentials { secret: Secret::Identity(token), .. }) = credentials {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("service", service.unwrap_or_default()),
                    ("client_id", "seekless"),
                    ("scope", scope),
                    ("refresh_token", token),
                ];
                return self.agent.post(realm).send_form(form);
            }
            redirect::follow(realm, |hop| {
                let mut request = self.agent.get(hop.url);
                if hop.is_first {
                    request = request.query("scope", scope);
                    if let Some(service) = service {
                        request = request.query("service", service);
                    }
                }
                if let Some(Credentials { secret: Secret::Password { user, password }, .. }) =
                    credentials.as_ref().filter(|_| hop.is_home)
                {
                    request = request.header("Authorization", Secret::basic(user, password));
                }
                request.call()
            })
        })?;
        match answer.status().as_u16() {
            200 => {}
            400 | 401 | 403 => return Err(self.refused(&self.reason(answer))),
            _ => {
                let said = self.reason(answer);
                let what = format!("{}, which gives tokens, answers {said}", bare(realm));
                return Err(RegistryError::Answer(what));
            }
        }
        let mut body = Vec::new();
        let read = self.paced(answer).take(TOKEN_MAX).read_to_end(&mut body);
        let read = read.or_else(|error| Err(self.said(&self.broken(error)?)));
        let token = read.map(|_| serde_json::from_slice::<Token>(&body).ok())?;
        let token = token.map(
            |Token { token, access_token }| {
                if token.is_empty() { access_token } else { token }
            },
        );
        let is_token =
            |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        token
            .filter(is_token)
            .ok_or_else(|| RegistryError::Answer(format!("{}: gives no token", bare(realm))))
    }

    /// Refuses a server of tokens that credentials would reach without TLS, unless the registry has
    /// none either and is one that needs none.
    fn check_realm(&self, realm: &str) -> Result<(), RegistryError> {
        let server = realm.parse::<Uri>().ok().and_then(|uri| Origin::of(&uri));
        let is_plain = self.base()?.starts_with("http://");
        let is_allowed = |server: &Origin| {
            let is_exempt = !self.access.verifies_tls || reference::is_loopback(server.host());
            server.is_secure() || is_plain && is_exempt
        };
        match server.as_ref().is_some_and(is_allowed) {
            true => Ok(()),
            false => {
                let (host, realm) = (self.reference.host(), bare(realm));
                let what = format!("{host} names {realm} for tokens, which is not https");
                Err(RegistryError::Answer(what))
            }
        }
    }

    /// The body of an answer, with a least rate.
    pub(crate) fn paced(&self, answer: Response<Body>) -> impl Read + use<> {
        Paced::new(answer.into_body().into_reader(), self.access.timeout)
    }

    /// The status of an answer, and the reason that it gives.
    fn reason(&self, answer: Response<Body>) -> String {
        answers::reason(answer, self.access.timeout)
    }

    /// The registry does not let us read the image.
    fn refused(&self, said: &str) -> RegistryError {
        let host = self.reference.host();
        match credentials::find(&self.access.credential_files, &self.reference) {
            Ok(Some(Credentials { from, .. })) => {
                let what = format!("{host} refuses the credentials of {from} ({said})");
                RegistryError::Answer(what)
            }
            Ok(None) => {
                let what = format!("{host} refuses to give it without credentials ({said})");
                RegistryError::Answer(what)
            }
            Err(error) => error,
        }
    }

    fn no_credentials(&self) -> RegistryError {
        let host = self.reference.host();
        let files = self.access.credential_files.iter();
        let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
        let files = if files.is_empty() { "no file was given".into() } else { files.join(", ") };
        let what = format!("{host} needs credentials, and there are none for it (in: {files})");
        RegistryError::Answer(what)
    }

    fn said(&self, said: &str) -> RegistryError {
        RegistryError::Answer(format!("{} answers {said}", self.reference.host()))
    }

    /// The error for a request without an answer.
    pub(crate) fn failed(&self, error: Error) -> RegistryError {
        let host = self.reference.server();
        if let Some(why) = about_tls(&error) {
            let hint = if is_about_certificate(&why) {
                " (certificates for a registry belong into /etc/containers/certs.d/HOST)"
            } else {
                ""
            };
            return RegistryError::Answer(format!("{host}: no secure connection: {why}{hint}"));
        }
        let what = match error {
            Error::Timeout(_) => return self.timed_out(),
            Error::HostNotFound => format!("{host}: no such host"),
            Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                format!("{host} does not answer: connection refused")
            }
            Error::Io(error) if error.kind() == ErrorKind::TimedOut => return self.timed_out(),
            error => {
                let why = match error.source() {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                format!("{host}: {}", answers::printable(&why))
            }
        };
        RegistryError::Answer(what)
    }

    fn timed_out(&self) -> RegistryError {
        let (host, seconds) = (self.reference.server(), self.access.timeout.as_secs_f64());
        RegistryError::Answer(format!("{host} does not answer: nothing came for {seconds} s"))
    }

    fn too_slow(&self) -> RegistryError {
        let (host, seconds) = (self.reference.server(), self.access.timeout.as_secs_f64());
        RegistryError::Answer(format!("{host} is too slow: {TooSlow}, over {seconds} s"))
    }

    /// Why a body broke off; `Ok` if it may be worth another request.
    pub(crate) fn broken(&self, error: io::Error) -> Result<String, RegistryError> {
        let text = answers::printable(&error.to_string());
        let is_slow = error.get_ref().is_some_and(|inner| inner.is::<TooSlow>());
        match Error::from(error) {
            _ if is_slow => Err(self.too_slow()),
            Error::Timeout(ureq::Timeout::RecvBody) => Err(self.too_slow()),
            Error::Io(error) if error.kind() == ErrorKind::TimedOut => Err(self.timed_out()),
            Error::Timeout(_) => Err(self.timed_out()),
            _ => Ok(text),
        }
    }

    /// The host, for messages.
    pub(crate) fn host(&self) -> &str {
        self.reference.host()
    }
}

/// Whether a connection broke, so that another may not.
fn is_break(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}

/// Why a connection is not secure, if the error is about that.
fn about_tls(error: &Error) -> Option<String> {
    match error {
        Error::Rustls(why) => Some(why.to_string()),
        Error::Tls(why) => Some((*why).to_string()),
        Error::Io(error) if error.kind() == ErrorKind::InvalidData => Some(error.to_string()),
        _ => None,
    }
}

/// Whether the reason is that a server's certificate is not believed.
fn is_about_certificate(why: &str) -> bool {
    why.contains("certificate")
}

/// The address of a server without its query, which may be secret.
fn bare(realm: &str) -> String {
    answers::printable(realm.split('?').next().unwrap_or_default())
}
