//! Servers that lie, break off, refuse and are silent. None needs a judge: the contents are known.

use crate::gzip;
use crate::judges::{failure, text};
use crate::server::{Answer, Request, Server};
use crate::workshop::{Workshop, digest};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image of one layer: its parts by digest.
#[derive(Clone)]
struct Sample {
    manifest: String,
    layer: String,
    parts: Arc<HashMap<String, Vec<u8>>>,
}

impl Sample {
    fn new(shop: &Workshop) -> Self {
        // Random enough that it stays long when it is compressed.
        let long: String = (0..40_000u64).map(|n| digest(&n.to_le_bytes())).collect();
        let layer = shop.layer(&[("f-long", &long)]);
        let config = shop.config(std::slice::from_ref(&layer));
        let layer = gzip(&layer);
        let part = |kind: &str, bytes: &[u8]| {
            serde_json::json!({ "mediaType": format!("application/vnd.oci.image.{kind}"),
                "digest": format!("sha256:{}", digest(bytes)), "size": bytes.len() })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("config.v1+json", &config),
            "layers": [part("layer.v1.tar+gzip", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let digests = [digest(&manifest), digest(&layer)];
        let parts = [manifest, layer, config].map(|bytes| (digest(&bytes), bytes));
        let [manifest, layer] = digests;
        Self { manifest, layer, parts: Arc::new(parts.into()) }
    }

    fn layer(&self) -> &[u8] {
        &self.parts[&self.layer]
    }

    /// The answer of an honest registry.
    fn honest(&self, request: &Request) -> Answer {
        let name = request.path.rsplit('/').next().unwrap_or_default();
        if request.path == "/v2/" {
            return Answer::status(200);
        }
        let name = name.strip_prefix("sha256:").unwrap_or(&self.manifest);
        match (self.parts.get(name), request.start) {
            (None, _) => Answer::status(404),
            (Some(part), Some(start)) => Answer::Part(part[start..].to_vec(), start),
            (Some(part), None) if name == self.manifest => Answer::ok(MANIFEST, part),
            (Some(part), None) => Answer::ok("application/octet-stream", part),
        }
    }

    fn is_layer(&self, request: &Request) -> bool {
        request.path.ends_with(&self.layer)
    }
}

/// The manifest of an image, or the error.
fn listed(shop: &Workshop, host: &str) -> Result<String, (i32, String)> {
    let source = format!("docker://{host}/a/b");
    let output = shop.seekless(&["manifest", &source, "--registry-timeout", "1"]);
    if output.status.success() { Ok(text(&output)) } else { Err(failure(&output)) }
}

#[test]
fn a_transfer_that_breaks_off_is_continued() {
    for has_ranges in [true, false] {
        let shop = Workshop::new("registry-cut");
        let sample = Sample::new(&shop);
        let (own, cuts) = (sample.clone(), AtomicU32::new(0));
        let server = Server::new(move |request, _| {
            if own.is_layer(request) && cuts.fetch_add(1, Ordering::Relaxed) < 2 {
                let start = request.start.filter(|_| has_ranges).unwrap_or_default();
                let whole = own.layer();
                let some = whole[start..].len() / 2;
                return match start {
                    0 => Answer::Cut(whole[..some].to_vec(), whole.len()),
                    // The rest is announced, and breaks off as well.
                    start => Answer::Raw(
                        [
                            format!(
                                "HTTP/1.1 206 x\r\nConnection: close\r\nContent-Length: {}\r\n\
                                 Content-Range: bytes {start}-{}/{}\r\n\r\n",
                                whole.len() - start,
                                whole.len() - 1,
                                whole.len()
                            )
                            .as_bytes(),
                            &whole[start..start + some],
                        ]
                        .concat(),
                    ),
                };
            }
            let plain = Request { start: request.start.filter(|_| has_ranges), ..request.clone() };
            own.honest(&plain)
        });
        let listing = listed(&shop, &server.host).expect("a whole image");
        assert!(listing.contains("./f-long "), "{listing}");
        let starts: Vec<Option<usize>> = server
            .requests()
            .iter()
            .filter(|request| sample.is_layer(request))
            .map(|request| request.start)
            .collect();
        let len = sample.layer().len();
        let wanted = if has_ranges {
            [None, Some(len / 2), Some(len / 2 + (len - len / 2) / 2)]
        } else {
            [None, Some(len / 2), Some(len / 2)]
        };
        assert_eq!(starts, wanted, "{has_ranges}");
    }
}

#[test]
fn what_does_not_match_its_digest_is_named_and_not_kept() {
    let shop = Workshop::new("registry-lies");
    let sample = Sample::new(&shop);
    let (own, hex) = (sample.clone(), sample.layer.clone());
    let changed = Server::new(move |request, _| match own.is_layer(request) {
        true => {
            let mut layer = own.layer().to_vec();
            let middle = layer.len() / 2;
            layer[middle] ^= 1;
            match request.start {
                Some(start) => Answer::Part(layer[start..].to_vec(), start),
                None => Answer::ok("x", &layer),
            }
        }
        false => own.honest(request),
    });
    let (code, message) = listed(&shop, &changed.host).unwrap_err();
    assert_eq!(code, 3);
    assert!(message.contains(&format!("blob sha256:{hex}")) && message.contains("digest"));
    assert!(!shop.cache().join("blobs/sha256").join(&hex).exists());
    let own = sample.clone();
    let long = Server::new(move |request, _| match own.is_layer(request) {
        true => Answer::ok("x", &[own.layer(), b"more"].concat()),
        false => own.honest(request),
    });
    let (code, message) = listed(&shop, &long.host).unwrap_err();
    assert!(code == 3 && message.contains("longer than its descriptor says"), "{message}");
    let own = sample.clone();
    let other = Server::new(move |request, _| match own.honest(request) {
        Answer::Is(200, mut headers, body) if request.path.ends_with("latest") => {
            headers.push(("Docker-Content-Digest", format!("sha256:{}", own.layer)));
            Answer::Is(200, headers, body)
        }
        answer => answer,
    });
    let (code, message) = listed(&shop, &other.host).unwrap_err();
    assert!(code == 3 && message.contains("does not match the digest"), "{message}");
    let endless = Server::new(|request, _| match request.path.as_str() {
        "/v2/" => Answer::status(200),
        _ => Answer::ok(MANIFEST, &vec![b' '; 5 << 20]),
    });
    let (code, message) = listed(&shop, &endless.host).unwrap_err();
    assert!(code == 3 && message.contains("larger than 4M"), "{message}");
    // An honest registry replaces the damaged blobs of the same cache.
    let server = Server::new(move |request, _| sample.honest(request));
    listed(&shop, &server.host).expect("a whole image");
    let blob = shop.cache().join("blobs/sha256").join(&hex);
    let mut bytes = fs::read(&blob).expect("read");
    bytes[100] ^= 1;
    fs::write(&blob, bytes).expect("write");
    listed(&shop, &server.host).expect("a whole image");
    assert_eq!(digest(&fs::read(&blob).expect("read")), hex);
}

#[test]
fn silence_and_refusals_are_named() {
    let shop = Workshop::new("registry-silent");
    let sample = Sample::new(&shop);
    let refused = |server: &Server| listed(&shop, &server.host).unwrap_err();
    let silent = Server::new(|_, _| Answer::Silence);
    let started = Instant::now();
    let (code, message) = refused(&silent);
    assert!(started.elapsed() < Duration::from_secs(30));
    let wanted = format!("{} does not answer: nothing came for 1 s", silent.host);
    assert!(code == 6 && message.contains(&wanted), "{message}");
    // The options are those of the other source as well.
    let (source, image) = (format!("docker://{}/a", silent.host), shop.scratch.join("disk"));
    let tree = shop.dir.display().to_string();
    let cache = shop.scratch.join("other-cache");
    let options = ["--registry-timeout", "1", "--cache-dir", &cache];
    let build = ["build", &tree, "-o", &image, "--disk", "--esp", &source];
    let (code, message) = failure(&shop.seekless(&[&build[..], &options].concat()));
    assert!(code == 6 && message.contains(&wanted), "{message}");
    assert!(Path::new(&cache).join("oci-layout").exists());
    // Silence in the middle of a layer.
    let own = sample.clone();
    let stalls = Server::new(move |request, _| match own.is_layer(request) {
        true => Answer::Stall(own.layer()[..1000].to_vec(), own.layer().len()),
        false => own.honest(request),
    });
    let (code, message) = refused(&stalls);
    assert!(code == 6 && message.contains("nothing came for 1 s"), "{message}");
    // A byte now and then, of a layer and of a manifest.
    for is_layer in [true, false] {
        let own = sample.clone();
        let slow = Server::new(move |request, _| match request.path.as_str() {
            "/v2/" => Answer::status(200),
            _ if own.is_layer(request) == is_layer => Answer::Trickle(own.layer().len()),
            _ => own.honest(request),
        });
        let started = Instant::now();
        let (code, message) = refused(&slow);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(code == 6 && message.contains("is too slow: less than 1 KiB/s"), "{message}");
    }
    // A registry that is busy, and one that stays so.
    let (own, asked) = (sample.clone(), AtomicU32::new(0));
    let busy = Server::new(move |request, _| match asked.fetch_add(1, Ordering::Relaxed) {
        1 => Answer::Is(429, vec![("Retry-After", "0".into())], Vec::new()),
        2 => Answer::status(503),
        _ => own.honest(request),
    });
    listed(&shop, &busy.host).expect("a whole image");
    let limited = Server::new(|request, _| match request.path.as_str() {
        "/v2/" => Answer::status(200),
        _ => {
            let body =
                br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\u001b[31m down"}]}"#;
            Answer::Is(429, vec![("Retry-After", "0".into())], body.to_vec())
        }
    });
    let (code, message) = refused(&limited);
    assert!(code == 6 && message.contains("answers 429"), "{message}");
    assert!(message.contains("slow [31m down (5 attempts)"), "{message}");
    assert_eq!(limited.requests().len(), 5);
    let old = Server::new(|request, _| match request.path.as_str() {
        "/v2/" => Answer::status(200),
        _ => Answer::ok(
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            br#"{"schemaVersion":1,"fsLayers":[]}"#,
        ),
    });
    let (code, message) = refused(&old);
    assert!(code == 4 && message.contains("docker's schema 1"), "{message}");
}

#[test]
fn tokens_are_fetched_and_kept_to_their_server() {
    let shop = Workshop::new("registry-token");
    let sample = Sample::new(&shop);
    let own = sample.clone();
    // Layers lie elsewhere, which the token is not for: another port is another server.
    let store = Server::new(move |request, _| own.honest(request));
    let (own, elsewhere) = (sample.clone(), store.host.clone());
    let server = Server::new(move |request, host| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if path == "/token" {
            let is_asked = query.contains("service=here") && query.contains("a%2Fb%3Apull")
                || query.contains("a/b:pull");
            return match request.authorization.as_deref() {
                // "reader:wrong"
                Some("Basic cmVhZGVyOndyb25n") => Answer::Is(
                    401,
                    Vec::new(),
                    br#"{"details":"incorrect username or password"}"#.to_vec(),
                ),
                _ if is_asked => Answer::ok("application/json", br#"{"token":"abc"}"#),
                _ => Answer::status(400),
            };
        }
        if request.authorization.as_deref() != Some("Bearer abc") {
            let challenge = format!(
                "Bearer realm=\"http://{host}/token\",service=\"here\",scope=\"repository:a/b:pull\""
            );
            return Answer::Is(401, vec![("WWW-Authenticate", challenge)], Vec::new());
        }
        if own.is_layer(request) {
            let to = format!("http://{elsewhere}/{path}");
            return Answer::Is(307, vec![("Location", to)], Vec::new());
        }
        own.honest(request)
    });
    listed(&shop, &server.host).expect("a whole image");
    let moved = store.requests();
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].authorization, None, "a token for another server");
    fs::create_dir(shop.scratch.join(".docker")).expect("mkdir");
    let config = shop.scratch.join(".docker/config.json");
    let host = &server.host;
    let auth = format!(r#"{{"auths":{{"{host}":{{"auth":"cmVhZGVyOndyb25n"}}}}}}"#);
    fs::write(&config, auth).expect("write");
    let (code, message) = listed(&shop, host).unwrap_err();
    let wanted = format!("{host} refuses the credentials of {config} (401");
    assert!(code == 6 && message.contains(&wanted), "{message}");
    assert!(message.contains("incorrect username or password"), "{message}");
    let odd = Server::new(|_, _| {
        Answer::Is(401, vec![("WWW-Authenticate", "Negotiate".into())], Vec::new())
    });
    let (code, message) = listed(&shop, &odd.host).unwrap_err();
    assert!(code == 4 && message.contains("another kind") && message.contains("Negotiate"));
}

/// A token lives for minutes, and the layers of an image may take longer.
#[test]
fn a_token_that_has_expired_is_fetched_again() {
    let shop = Workshop::new("registry-expired");
    let own = Sample::new(&shop);
    let tokens = AtomicUsize::new(0);
    let used = Mutex::new(BTreeSet::new());
    let server = Server::new(move |request, host| {
        if request.path.starts_with("/token") {
            let number = tokens.fetch_add(1, Ordering::Relaxed);
            let token = format!(r#"{{"token":"t{number}"}}"#);
            return Answer::ok("application/json", token.as_bytes());
        }
        // Each is good for one request.
        let token = request.authorization.clone();
        if token.is_some_and(|token| used.lock().expect("no panic").insert(token)) {
            return own.honest(request);
        }
        let challenge = format!("Bearer realm=\"http://{host}/token\"");
        Answer::Is(401, vec![("WWW-Authenticate", challenge)], Vec::new())
    });
    listed(&shop, &server.host).expect("a whole image");
    let requests = server.requests();
    let granted = requests.iter().filter(|request| request.path.starts_with("/token")).count();
    let answered = requests.iter().filter(|request| request.path.starts_with("/v2/")).count();
    assert!(granted > 1 && answered == 2 * granted, "{granted} tokens, {answered} requests");
}

/// Writes a file of credentials for a host: `reader` and `wrong`.
fn log_in(shop: &Workshop, host: &str) {
    fs::create_dir_all(shop.scratch.join(".docker")).expect("mkdir");
    let auth = format!(r#"{{"auths":{{"{host}":{{"auth":"cmVhZGVyOndyb25n"}}}}}}"#);
    fs::write(shop.scratch.join(".docker/config.json"), auth).expect("write");
}

#[test]
fn other_servers_get_no_credentials() {
    let shop = Workshop::new("registry-others");
    let sample = Sample::new(&shop);
    let challenge =
        |realm: &str| Answer::Is(401, vec![("WWW-Authenticate", realm.into())], Vec::new());
    // A server that layers are redirected to wants credentials for itself.
    let thief =
        Server::new(move |_, host| challenge(&format!("Bearer realm=\"http://{host}/token\"")));
    let (own, elsewhere) = (sample.clone(), thief.host.clone());
    let server = Server::new(move |request, _| match own.is_layer(request) {
        true => Answer::Is(307, vec![("Location", format!("//{elsewhere}/x"))], Vec::new()),
        false => own.honest(request),
    });
    log_in(&shop, &server.host);
    let (code, message) = listed(&shop, &server.host).unwrap_err();
    let wanted = format!("127.0.0.1, to which {} redirects, answers 401", server.host);
    assert!(code == 6 && message.contains(&wanted), "{message}");
    assert_eq!(thief.requests().len(), 1);
    assert_eq!(thief.requests()[0].authorization, None);
    // A server of tokens that redirects to another.
    let (own, elsewhere) = (sample.clone(), thief.host.clone());
    let server = Server::new(move |request, host| match request.path.split_once('?') {
        Some(("/token", _)) => {
            assert!(request.authorization.is_some(), "credentials for the registry");
            Answer::Is(302, vec![("Location", format!("http://{elsewhere}/x"))], Vec::new())
        }
        _ if request.path == "/v2/" => own.honest(request),
        _ => challenge(&format!("Bearer realm=\"http://{host}/token\"")),
    });
    log_in(&shop, &server.host);
    assert_eq!(listed(&shop, &server.host).unwrap_err().0, 6);
    assert_eq!(thief.requests().len(), 2);
    assert_eq!(thief.requests()[1].authorization, None);
    // Addresses of such servers that are not believed: 192.0.2.0/24 is of nobody (RFC 5737).
    for realm in ["http://192.0.2.1/token", "file:///etc/passwd", "ftp://localhost/", "x", ""] {
        let server = Server::new(move |request, _| match request.path.as_str() {
            "/v2/" => Answer::status(200),
            _ => challenge(&format!("Bearer realm=\"{realm}\"")),
        });
        log_in(&shop, &server.host);
        let (code, message) = listed(&shop, &server.host).unwrap_err();
        let wanted = format!("names {realm} for tokens, which is not https");
        assert!(code == 6 && message.contains(&wanted), "{message}");
    }
    let endless = Server::new(|request, _| match request.path.as_str() {
        "/v2/" => Answer::status(200),
        path => Answer::Is(302, vec![("Location", format!("{path}x"))], Vec::new()),
    });
    let (code, message) = listed(&shop, &endless.host).unwrap_err();
    assert!(code == 6 && message.contains("redirects"), "{message}");
    assert_eq!(endless.requests().len(), 11);
}

#[test]
fn claims_of_lengths_fill_no_disk() {
    let shop = Workshop::new("registry-claims");
    let sample = Sample::new(&shop);
    let manifest = String::from_utf8(sample.parts[&sample.manifest].clone()).expect("JSON");
    let refused = |from: &str, to: &str| {
        let (own, changed) = (sample.clone(), manifest.replace(from, to));
        assert_ne!(changed, manifest);
        let server = Server::new(move |request, _| match request.path.as_str() {
            path if path.ends_with("latest") => Answer::ok(MANIFEST, changed.as_bytes()),
            path if path == "/v2/" || own.is_layer(request) => own.honest(request),
            _ => Answer::Trickle(1 << 40),
        });
        listed(&shop, &server.host).unwrap_err()
    };
    let size = |len: usize| format!("\"size\":{len}");
    let huge = 1usize << 60;
    let (code, message) = refused(&size(sample.layer().len()), &size(huge));
    assert_eq!(code, 5, "{message}");
    let partial = shop.cache().join("partial").join(&sample.layer);
    assert_eq!(partial.metadata().map_or(0, |partial| partial.len()), 0);
    let config =
        sample.parts.iter().find(|(hex, _)| **hex != sample.layer && **hex != sample.manifest);
    let config = config.expect("a configuration").1.len();
    let (code, message) = refused(&size(config), &size(huge));
    assert!(code == 3 && message.contains("too large"), "{message}");
    // A digest is no path.
    let (code, message) = refused(&sample.layer, "../../../../etc/passwd");
    assert!(matches!(code, 3 | 4), "{code}: {message}");
}

#[test]
fn a_killed_run_leaves_a_cache_that_the_next_one_uses() {
    let shop = Workshop::new("registry-killed");
    let sample = Sample::new(&shop);
    let half = sample.layer().len() / 2;
    let (own, asked) = (sample.clone(), AtomicU32::new(0));
    let server = Server::new(move |request, _| {
        if own.is_layer(request) && asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Answer::Stall(own.layer()[..half].to_vec(), own.layer().len());
        }
        own.honest(request)
    });
    let source = format!("docker://{}/a/b", server.host);
    let mut killed = shop.command(&["manifest", &source]).spawn().expect("spawn");
    let partial = shop.cache().join("partial").join(&sample.layer);
    let len = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    for _ in 0..200 {
        if len(&partial) == half as u64 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(len(&partial), half as u64);
    killed.kill().expect("kill");
    killed.wait().expect("wait");
    let starts = |server: &Server| -> Vec<Option<usize>> {
        let requests = server.requests().into_iter();
        requests.filter(|one| sample.is_layer(one)).map(|one| one.start).collect()
    };
    let first = listed(&shop, &server.host).expect("a whole image");
    assert_eq!(starts(&server), [None, Some(half)]);
    assert!(!partial.exists());
    // Everything but the tag is there now.
    let before = server.requests().len();
    assert_eq!(listed(&shop, &server.host).expect("a whole image"), first);
    assert_eq!(server.requests().len(), before + 1);
    // Two processes at the same time share one cache.
    fs::remove_dir_all(shop.cache()).expect("remove");
    let start = |_| {
        let mut command = shop.command(&["manifest", &source]);
        command.stdout(Stdio::null()).spawn().expect("spawn")
    };
    let runs: Vec<_> = (0..2).map(start).collect();
    for mut run in runs {
        assert!(run.wait().expect("wait").success());
    }
    assert_eq!(starts(&server).len(), 3);
}

/// Answers of an honest registry with bytes changed, cut or added: nothing but an error of its kind
/// may follow, and never an image with other contents.
#[test]
fn random_answers_are_refused_or_harmless() {
    let shop = Workshop::new("registry-random");
    let sample = Sample::new(&shop);
    let own = sample.clone();
    let honest = Server::new(move |request, _| own.honest(request));
    let wanted = listed(&shop, &honest.host).expect("a whole image");
    thread::scope(|scope| {
        for seed in 0..SEEDS {
            let (shop, sample, wanted) = (&shop, sample.clone(), &wanted);
            scope.spawn(move || {
                let server = Server::new(move |request, _| changed(&sample, request, seed));
                let cache = shop.scratch.join(&format!("cache-{seed}"));
                let source = format!("docker://{}/a/b", server.host);
                let args = ["manifest", &source, "--registry-timeout", "2", "--cache-dir", &cache];
                let output = shop.seekless(&args);
                if output.status.success() {
                    assert_eq!(text(&output), *wanted, "seed {seed}");
                    return;
                }
                let (code, message) = failure(&output);
                assert!(matches!(code, 3 | 4 | 6), "seed {seed}: {code}: {message}");
            });
        }
    });
}

/// Number of random servers.
const SEEDS: u32 = 24;

/// An honest answer with a byte changed, with bytes added, or cut.
fn changed(sample: &Sample, request: &Request, seed: u32) -> Answer {
    let (status, kind, body) = match sample.honest(request) {
        Answer::Is(status, headers, body) => {
            (status, headers.first().map_or(String::new(), |(_, kind)| kind.clone()), body)
        }
        answer => return answer,
    };
    let head = format!(
        "HTTP/1.1 {status} OK\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut bytes = [head.as_bytes(), &body].concat();
    // A linear congruential generator; each request of a seed has another state.
    let mut state = seed.wrapping_add(request.path.len() as u32 * 7919);
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below.max(1)
    };
    let end = if seed.is_multiple_of(2) { head.len() } else { bytes.len().min(head.len() + 2000) };
    match random(3) {
        0 => {
            let at = random(end);
            bytes[at] = random(256) as u8;
        }
        1 => bytes.truncate(random(end)),
        _ => {
            let at = random(end);
            bytes.splice(at..at, [random(256) as u8, b'"']);
        }
    }
    Answer::Raw(bytes)
}
