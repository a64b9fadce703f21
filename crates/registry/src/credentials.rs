//! Credentials from the files in which docker, podman and skopeo keep them.
//!
//! Formats: `containers-auth.json(5)`, and docker's `config.json` (`cli/config/configfile`).
//! Helpers: docker-credential-helpers.

use crate::{Reference, RegistryError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The name under which docker keeps the credentials of `docker.io`.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The user that helpers name for an identity token.
const TOKEN_USER: &str = "<token>";

/// The secret that a user logs in with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    /// A name and a password, or a personal access token.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that is exchanged for others.
    Identity(String),
}

impl Secret {
    /// The value of an `Authorization` header.
    pub(crate) fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }
}

/// Credentials, and the file or program that they are from.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) secret: Secret,
    pub(crate) from: String,
}

/// The fields used of a file.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AuthFile {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// The answer of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

/// The credentials for an image: those of the first file that has some. In each, a helper for the
/// host comes first, then the entry of the longest path, then the helper for all hosts.
pub(crate) fn find(
    files: &[PathBuf],
    reference: &Reference,
) -> Result<Option<Credentials>, RegistryError> {
    for path in files {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(RegistryError::io(path.display(), error)),
        };
        if text.trim_ascii().is_empty() {
            continue;
        }
        // The message of the parser would show a part of the file, and with it a password.
        let file: AuthFile = serde_json::from_slice(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let what = format!("{}: line {line}, column {column}", path.display());
            RegistryError::Answer(format!("{what}: not a file of credentials"))
        })?;
        if let Some(found) = in_file(&file, path, reference)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn in_file(
    file: &AuthFile,
    path: &Path,
    reference: &Reference,
) -> Result<Option<Credentials>, RegistryError> {
    let is_hub = reference.host() == "docker.io";
    let server = if is_hub { DOCKER_HUB } else { reference.host() };
    let of_host = file.cred_helpers.get(reference.host());
    if let Some(helper) = of_host.or_else(|| file.cred_helpers.get(server)) {
        return helped(helper, server, path);
    }
    let whole = format!("{}/{}", reference.host(), reference.repository());
    // Keys may be URLs, of which docker only compares the host.
    let bare = |key: &str| {
        let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
        match rest {
            Some(rest) => rest.split('/').next().unwrap_or_default().to_string(),
            None => key.trim_end_matches('/').to_string(),
        }
    };
    let fits = |key: &str| {
        let key = bare(key);
        let key = if key == "index.docker.io" { "docker.io".into() } else { key };
        let rest = whole.strip_prefix(&key);
        rest.filter(|rest| rest.is_empty() || rest.starts_with('/')).map(|_| key.len())
    };
    let found = file.auths.iter().filter_map(|(key, entry)| Some((fits(key)?, entry)));
    let found = found.filter_map(|(len, entry)| Some((len, secret(entry, path).transpose()?)));
    if let Some((_, secret)) = found.max_by_key(|(len, _)| *len) {
        return Ok(Some(Credentials { secret: secret?, from: path.display().to_string() }));
    }
    match &file.creds_store {
        Some(helper) if !helper.is_empty() => helped(helper, server, path),
        _ => Ok(None),
    }
}

/// The credentials of an entry; `None` for an empty one, as docker writes it beside a helper.
fn secret(entry: &Entry, path: &Path) -> Result<Option<Secret>, RegistryError> {
    if !entry.identitytoken.is_empty() {
        return Ok(Some(Secret::Identity(entry.identitytoken.clone())));
    }
    if entry.auth.is_empty() {
        let (user, password) = (entry.username.clone(), entry.password.clone());
        return Ok((!user.is_empty()).then_some(Secret::Password { user, password }));
    }
    let plain = STANDARD.decode(entry.auth.trim()).ok();
    let plain = plain.and_then(|plain| String::from_utf8(plain).ok());
    let pair = plain.as_deref().and_then(|plain| plain.split_once(':'));
    let Some((user, password)) = pair else {
        let what = "an auth that is not USER:PASSWORD in base64";
        return Err(RegistryError::Answer(format!("{}: has {what}", path.display())));
    };
    // Docker pads it with zero bytes.
    let password = password.trim_end_matches('\0').into();
    Ok(Some(Secret::Password { user: user.into(), password }))
}

/// The credentials that a helper has for a server; `None` if it has none.
fn helped(helper: &str, server: &str, path: &Path) -> Result<Option<Credentials>, RegistryError> {
    let program = format!("docker-credential-{helper}");
    let failed = |why: &str| {
        RegistryError::Answer(format!("{program}, which {} names: {why}", path.display()))
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if helper.is_empty() || !helper.bytes().all(is_name) {
        return Err(failed("not the name of a program"));
    }
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => failed("is not installed"),
        _ => failed(&error.to_string()),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that ends before it has read has said why.
        let _ = stdin.write_all(server.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(&error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        if said.contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed(&crate::answers::printable(&said)));
    }
    let helped: Helped =
        serde_json::from_str(&said).map_err(|_| failed("its answer is not credentials"))?;
    let secret = match helped.username.as_str() {
        TOKEN_USER => Secret::Identity(helped.secret),
        _ => Secret::Password { user: helped.username, password: helped.secret },
    };
    Ok(Some(Credentials { secret, from: program }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, image: &str) -> Option<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        let missing = dir.path().join("missing");
        let found = find(&[missing, path], &image.parse().unwrap()).ok().unwrap()?;
        match found.secret {
            Secret::Password { user, password } => Some((user, password)),
            Secret::Identity(token) => Some((TOKEN_USER.into(), token)),
        }
    }

    #[test]
    fn the_entry_of_the_longest_path_counts() {
        let pair =
            |user: &str| format!(r#"{{"auth":"{}"}}"#, STANDARD.encode(format!("{user}:s:p")));
        let json = format!(
            r#"{{"auths":{{"reg.de":{},"reg.de/a":{},"https://index.docker.io/v1/":{},
            "https://url.de/v2/":{},"empty.de":{{}},"id.de":{{"auth":"{}","identitytoken":"tok"}}}},
            "other":1}}"#,
            pair("host"),
            pair("path"),
            pair("hub"),
            pair("url"),
            STANDARD.encode("x:"),
        );
        for (image, user) in [
            ("reg.de/b", Some("host")),
            ("reg.de/a/b", Some("path")),
            ("reg.de/a", Some("path")),
            ("reg.de/ab", Some("host")),
            ("debian", Some("hub")),
            ("url.de/x", Some("url")),
            ("reg.de.evil.de/a", None),
            ("empty.de/a", None),
            ("other.de/a", None),
        ] {
            let wanted = user.map(|user| (user.to_string(), "s:p".to_string()));
            assert_eq!(found(&json, image), wanted, "{image}");
        }
        assert_eq!(found(&json, "id.de/a"), Some((TOKEN_USER.into(), "tok".into())));
        assert_eq!(found("", "id.de/a"), None);
    }

    #[test]
    fn messages_name_the_file_and_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let wrong = |json: &str| {
            std::fs::write(&path, json).unwrap();
            match find(std::slice::from_ref(&path), &"reg.de/a".parse().unwrap()) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{json} is taken"),
            }
        };
        for (json, part) in [
            (r#"{"auths":{"reg.de":{"auth":"hunter2:"}}}"#, "not USER:PASSWORD"),
            (r#"{"auths":"hunter2"}"#, "line 1"),
            (r#"{"credHelpers":{"reg.de":"../hunter"}}"#, "not the name of a program"),
            (r#"{"credsStore":"seekless-missing"}"#, "docker-credential-seekless-missing"),
        ] {
            let message = wrong(json);
            assert!(message.contains(part) && message.contains("config.json"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
