//! Names of images: `HOST[:PORT]/NAME[:TAG][@DIGEST]`.
//!
//! Grammar: distribution, `reference/reference.go`; defaults for names without a host:
//! `normalize.go` there.

use crate::RegistryError;
use std::fmt;
use std::str::FromStr;

/// The beginning of the names of images in registries, as skopeo has it.
pub const SCHEME: &str = "docker://";

/// The registry of names without a host.
const DEFAULT_HOST: &str = "docker.io";

/// The server of that registry.
const DEFAULT_SERVER: &str = "registry-1.docker.io";

/// Maximum number of characters in a name, and in a tag.
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// The name of an image in a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    host: String,
    repository: String,
    version: Version,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Version {
    Tag(String),
    /// The SHA-256 in hexadecimal.
    Digest(String),
}

impl Reference {
    /// The host and its port, `docker.io` for that registry.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host that answers requests, and its port.
    #[must_use]
    pub fn server(&self) -> &str {
        if self.host == DEFAULT_HOST { DEFAULT_SERVER } else { &self.host }
    }

    /// The path of the image in the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag or, if there is one, the digest.
    #[must_use]
    pub fn version(&self) -> String {
        match &self.version {
            Version::Digest(hex) => format!("sha256:{hex}"),
            Version::Tag(tag) => tag.clone(),
        }
    }

    /// The SHA-256 of the manifest in hexadecimal, if it is part of the name.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        match &self.version {
            Version::Digest(hex) => Some(hex),
            Version::Tag(_) => None,
        }
    }

    /// Whether the host is this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

impl fmt::Display for Reference {
    /// The whole name, without a scheme.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.digest().is_some() { '@' } else { ':' };
        write!(f, "{}/{}{separator}{}", self.host, self.repository, self.version())
    }
}

impl FromStr for Reference {
    type Err = RegistryError;

    /// Parses a name, with or without [`SCHEME`]. Of a name with both a tag and a digest the
    /// digest counts, as for docker.
    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let bad = |why: &str| {
            let form = "docker://HOST[:PORT]/NAME[:TAG|@DIGEST]";
            RegistryError::Reference(format!("{text}: {why}; images are named {form}"))
        };
        let name = text.strip_prefix(SCHEME).unwrap_or(text);
        let (name, digest) = match name.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (name, None),
        };
        let digest = match digest.map(|digest| digest.split_once(':')) {
            None => None,
            Some(Some(("sha256", hex))) if is_sha256(hex) => Some(hex.to_string()),
            Some(Some((algorithm, _))) if algorithm != "sha256" => {
                return Err(RegistryError::Unsupported(format!("{text}: digest {algorithm}")));
            }
            Some(_) => return Err(bad("its digest is not sha256 and 64 hexadecimal digits")),
        };
        let is_host = |first: &str| {
            first.contains(['.', ':', '[']) || first == "localhost" || first.contains(is_upper)
        };
        let (host, path) = match name.split_once('/') {
            Some((first, rest)) if is_host(first) => (first, rest),
            _ => (DEFAULT_HOST, name),
        };
        let host = if host == "index.docker.io" { DEFAULT_HOST } else { host };
        if !is_authority(host) {
            return Err(bad("its host is not valid"));
        }
        let (path, tag) = path.split_once(':').unwrap_or((path, "latest"));
        if path.is_empty() {
            return Err(bad("the name is missing"));
        }
        let is_plain = host == DEFAULT_HOST && !path.contains('/');
        let repository = if is_plain { format!("library/{path}") } else { path.to_string() };
        if repository.len() > NAME_MAX || !repository.split('/').all(is_component) {
            return Err(bad("its name is not valid (lowercase letters, digits, . _ - and /)"));
        }
        if !is_tag(tag) {
            return Err(bad("its tag is not valid"));
        }
        let version = digest.map_or_else(|| Version::Tag(tag.into()), Version::Digest);
        Ok(Self { host: host.into(), repository, version })
    }
}

fn is_upper(letter: char) -> bool {
    letter.is_ascii_uppercase()
}

/// Whether a host, with a port or without, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a text is a SHA-256 in hexadecimal.
pub(crate) fn is_sha256(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text is a host, and maybe a port.
fn is_authority(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (None, rest.strip_prefix(':').or((!rest.is_empty()).then_some("none")))
        }
        None => match text.split_once(':') {
            Some((name, port)) => (Some(name), Some(port)),
            None => (Some(text), None),
        },
    };
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && !part.starts_with('-') && part.bytes().all(is_inner)
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    name.is_none_or(|name| name.split('.').all(is_part))
        && port.is_none_or(|port| digits(port) && port.parse::<u16>().is_ok())
}

/// Whether a text is a part of a name: letters and digits, with `.`, `_`, `__` or dashes between.
fn is_component(part: &str) -> bool {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let mut separator = String::new();
    let mut has_letters = false;
    for byte in part.bytes() {
        if is_letter(byte) {
            let is_known = matches!(separator.as_str(), "" | "." | "_" | "__")
                || separator.bytes().all(|byte| byte == b'-');
            if !is_known || !has_letters && !separator.is_empty() {
                return false;
            }
            has_letters = true;
            separator.clear();
        } else if matches!(byte, b'.' | b'_' | b'-') {
            separator.push(char::from(byte));
        } else {
            return false;
        }
    }
    has_letters && separator.is_empty()
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_inner = |byte: u8| is_word(byte) || matches!(byte, b'.' | b'-');
    tag.len() <= TAG_MAX && tag.bytes().next().is_some_and(is_word) && tag.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_docker_does() {
        let hex = "0123456789abcdef".repeat(4);
        let digest = format!("docker.io/library/debian@sha256:{hex}");
        for (text, whole) in [
            ("debian", "docker.io/library/debian:latest"),
            ("debian:12", "docker.io/library/debian:12"),
            ("docker.io/debian", "docker.io/library/debian:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("a/b", "docker.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000", "docker.io/library/localhost:5000"),
            ("localhost:5000/a/b/c:x.1", "localhost:5000/a/b/c:x.1"),
            ("ghcr.io/a/b__c-d", "ghcr.io/a/b__c-d:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("Host/a", "Host/a:latest"),
            (&format!("debian@sha256:{hex}"), &digest),
            (&format!("debian:12@sha256:{hex}"), &digest),
        ] {
            let found: Reference = format!("docker://{text}").parse().unwrap();
            assert_eq!(found.to_string(), whole);
            assert_eq!(whole.parse::<Reference>().unwrap(), found);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "/",
            "a//b",
            "a/",
            "localhost:5000/",
            "localhost:x/a",
            "localhost:70000/a",
            "[::1/a",
            "[x]/a",
            "-x.de/a",
            "Debian",
            "a:",
            "a:.b",
            "a..b",
            "_a",
            "a_",
            "debian@sha256:12",
            "debian@12",
            "user@host/a",
            "host.de/a?b",
            "host.de/a b",
            "host.de/../a",
        ] {
            assert!(format!("docker://{text}").parse::<Reference>().is_err(), "{text}");
        }
        let other = "debian@sha512:00".parse::<Reference>();
        assert!(matches!(other, Err(RegistryError::Unsupported(_))));
    }

    #[test]
    fn this_machine_is_recognized() {
        for (text, is_loopback) in [
            ("localhost:5000/a", true),
            ("127.0.0.1:80/a", true),
            ("127.8.0.1/a", true),
            ("[::1]:5000/a", true),
            ("localhost.evil.de/a", false),
            ("127.0.0.1.evil.de/a", false),
            ("10.0.0.1/a", false),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().is_loopback(), is_loopback, "{text}");
        }
    }
}
