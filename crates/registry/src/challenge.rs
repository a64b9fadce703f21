//! How a registry wants to be authenticated: the header `WWW-Authenticate`.
//!
//! Format: RFC 9110, 11.6.1; parameters of `Bearer`: distribution, `docs/spec/auth/token.md`.

/// A way of authentication that a registry offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Challenge {
    /// Name and password in each request.
    Basic,
    /// A token of another server.
    Bearer {
        /// The address of that server.
        realm: String,
        /// The registry's name there.
        service: Option<String>,
        /// Access that the token must permit.
        scope: Option<String>,
    },
    /// Another way, by its name.
    Other(String),
}

/// The challenges of a header.
pub(crate) fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = header.trim();
    while !rest.is_empty() {
        let end = rest.find([' ', ',', '=']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let behind = behind.trim_start();
        if let Some(value) = behind.strip_prefix('=').filter(|_| !found.is_empty()) {
            let (value, behind) = value_of(value.trim_start());
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word.to_ascii_lowercase(), value));
            }
            rest = behind;
        } else {
            if !word.is_empty() {
                found.push((word.to_string(), Vec::new()));
            }
            rest = behind.strip_prefix('=').unwrap_or(behind);
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    found.into_iter().map(|(scheme, parameters)| challenge(scheme, &parameters)).collect()
}

fn challenge(scheme: String, parameters: &[(String, String)]) -> Challenge {
    let value = |name: &str| {
        let found = parameters.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    if scheme.eq_ignore_ascii_case("basic") {
        return Challenge::Basic;
    }
    match value("realm") {
        Some(realm) if scheme.eq_ignore_ascii_case("bearer") => {
            Challenge::Bearer { realm, service: value("service"), scope: value("scope") }
        }
        _ => Challenge::Other(scheme),
    }
}

/// A value, in quotes or not, and the text behind it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([',', ' ']).unwrap_or(text.len()));
        return (value.into(), rest);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(Into::into),
            scope: scope.map(Into::into),
        };
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull,push""#;
        let scope = Some("repository:library/debian:pull,push");
        let of_hub = bearer("https://auth.docker.io/token", Some("registry.docker.io"), scope);
        assert_eq!(parse(hub), std::slice::from_ref(&of_hub));
        assert_eq!(parse(r#"Basic realm="Registry \"x\"""#), [Challenge::Basic]);
        assert_eq!(parse(&format!(r#"basic realm="a, b" , {hub}"#)), [Challenge::Basic, of_hub]);
        assert_eq!(parse("BEARER Realm = https://a ,x=y"), [bearer("https://a", None, None)]);
        assert_eq!(parse("Bearer"), [Challenge::Other("Bearer".into())]);
        assert_eq!(parse("Negotiate abc=="), [Challenge::Other("Negotiate".into()),]);
        assert_eq!(parse(""), []);
    }

    proptest! {
        #[test]
        fn every_header_has_an_end(header in ".{0,60}", odd in "[ ,=\"\\\\a]{0,30}") {
            parse(&header);
            parse(&odd);
        }
    }
}
