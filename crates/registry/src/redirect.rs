//! Redirects, followed here so that credentials stay with the server that they are for: a port is a
//! part of that, and ureq compares hosts only.

use ureq::http::header::LOCATION;
use ureq::http::{Response, Uri};
use ureq::{Body, Error};

/// Redirects that are followed for one request.
const REDIRECTS_MAX: u32 = 10;

/// A server: its scheme, host and port.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// The server of an address; `None` for an address that is not one of HTTP.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let default = match &*scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        Some(Self { scheme, host, port: uri.port_u16().unwrap_or(default) })
    }

    /// Whether requests to it are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// The host without the port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

/// One of the requests that a request becomes.
pub(crate) struct Hop<'a> {
    pub(crate) url: &'a str,
    /// Whether nothing has been redirected yet.
    pub(crate) is_first: bool,
    /// Whether it is for the first server, and no other has had a say in the address.
    pub(crate) is_home: bool,
}

/// Makes a request without a body, and again wherever it is redirected to.
pub(crate) fn follow(
    url: &str,
    request: impl Fn(&Hop<'_>) -> Result<Response<Body>, Error>,
) -> Result<Response<Body>, Error> {
    let mut at: Uri = url.parse().map_err(|_| Error::BadUri(url.into()))?;
    let home = Origin::of(&at).ok_or_else(|| Error::BadUri(url.into()))?;
    let mut is_home = true;
    for count in 0..=REDIRECTS_MAX {
        let hop = Hop { url: &at.to_string(), is_first: count == 0, is_home };
        let answer = request(&hop)?;
        if !matches!(answer.status().as_u16(), 301..=303 | 307 | 308) {
            return Ok(answer);
        }
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let next = location.and_then(|location| resolved(&at, location));
        let next = next.ok_or(Error::RedirectFailed)?;
        let server = Origin::of(&next).ok_or(Error::RedirectFailed)?;
        if Origin::of(&at).is_some_and(|own| own.is_secure()) && !server.is_secure() {
            return Err(Error::RequireHttpsOnly(format!("redirect to http://{}", server.host())));
        }
        is_home &= server == home;
        at = next;
    }
    Err(Error::TooManyRedirects)
}

/// The address that a `Location` stands for (RFC 3986, 5.2, without removal of dot segments).
fn resolved(at: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (at.scheme_str()?, at.authority()?);
    let is_whole = location.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    let whole = if is_whole {
        location.to_string()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') {
        format!("{scheme}://{authority}{}{location}", at.path())
    } else {
        let dir = at.path().rsplit_once('/').map_or("", |(dir, _)| dir);
        format!("{scheme}://{authority}{dir}/{location}")
    };
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved() {
        let at: Uri = "http://localhost:5000/v2/a/blobs/x?y=1".parse().unwrap();
        for (location, wanted) in [
            ("https://other.de/b?c#d", "https://other.de/b?c"),
            ("//other.de:1/b", "http://other.de:1/b"),
            ("/b", "http://localhost:5000/b"),
            ("?z", "http://localhost:5000/v2/a/blobs/x?z"),
            ("z", "http://localhost:5000/v2/a/blobs/z"),
            ("/b?to=https://c.de", "http://localhost:5000/b?to=https://c.de"),
        ] {
            assert_eq!(resolved(&at, location).unwrap(), wanted, "{location}");
        }
    }

    #[test]
    fn servers_differ_in_scheme_host_and_port() {
        let origin = |url: &str| Origin::of(&url.parse().unwrap());
        assert_eq!(origin("https://A.de/x"), origin("https://a.de:443/y"));
        assert_ne!(origin("https://a.de/"), origin("http://a.de/"));
        assert_ne!(origin("http://a.de:5000/"), origin("http://a.de:5001/"));
        assert_ne!(origin("https://a.de/"), origin("https://a.de.evil.de/"));
        assert_eq!(origin("https://a.de@evil.de/").unwrap().host(), "evil.de");
        assert_eq!(origin("file://a.de/x"), None);
    }
}
